"""A stack of scopes for each thread, whose last one is the current scope."""

import threading

from refluid.scope import Scope

__all__ = ["enter_local_scope", "find_var", "get_cur_scope", "leave_local_scope", "scoped_function", "var"]

_here = threading.local()


def get_cur_scope():
    """Returns the current scope of this thread."""
    if not getattr(_here, "scopes", None):
        _here.scopes = [Scope()]
    return _here.scopes[-1]


def enter_local_scope():
    """Makes a new child of the current scope the current one."""
    scope = get_cur_scope().new_scope()
    _here.scopes.append(scope)


def leave_local_scope():
    """Makes the parent of the current scope the current one, and drops its children."""
    get_cur_scope()
    _here.scopes.pop()
    get_cur_scope().drop_kids()


def var(name):
    """Returns the variable of that name, creating it in the current scope if it is nowhere."""
    return get_cur_scope().var(name)


def find_var(name):
    """Returns the variable of that name in the current scope or around it, or None."""
    return get_cur_scope().find_var(name)


def scoped_function(func):
    """Calls ``func`` with a new current scope, and leaves it afterwards."""
    enter_local_scope()
    try:
        func()
    finally:
        leave_local_scope()
