"""Decorators that keep the signature of what they decorate."""

import contextlib
import functools

__all__ = ["signature_safe_contextmanager", "wrap_decorator"]


def wrap_decorator(decorator_func):
    """Returns ``decorator_func``, a decorator, whose results have the name and signature of the decorated function."""

    @functools.wraps(decorator_func)
    def decorate(func):
        return functools.wraps(func)(decorator_func(func))

    return decorate


signature_safe_contextmanager = wrap_decorator(contextlib.contextmanager)
