"""Marks on functions that are to disappear."""

import functools
import sys

__all__ = ["deprecated"]


def deprecated(since, instead, extra_message=""):
    """Decorates a function that is deprecated since a version; every call says so on stderr."""

    def decorate(func):
        message = f"API {func.__name__} is deprecated since {since}. Please use {instead} instead."
        message += f"\n{extra_message}" if extra_message else ""

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            print(message, file=sys.stderr)
            return func(*args, **kwargs)

        wrapper.__doc__ = "\n".join(filter(None, [f"Warning: {message}", func.__doc__]))
        return wrapper

    return decorate
