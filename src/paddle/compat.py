"""What scripts for Python 2 and 3 used: text, bytes and numbers that are the same in both."""

import math

__all__ = ["floor_division", "get_exception_message", "long_type", "round", "to_bytes", "to_text"]

int_type = int
long_type = int


def to_text(obj, encoding="utf-8", inplace=False):
    """Decodes bytes, also in a list, set or dict, which is changed itself if ``inplace``; returns the rest as it is."""
    return _convert(obj, lambda value: value.decode(encoding) if isinstance(value, bytes) else value, inplace)


def to_bytes(obj, encoding="utf-8", inplace=False):
    """Encodes text, also in a list, set or dict, which is changed itself if ``inplace``; returns the rest as it is."""
    return _convert(obj, lambda value: value.encode(encoding) if isinstance(value, str) else value, inplace)


def _convert(obj, convert, inplace):
    if isinstance(obj, dict):
        converted = {convert(key): convert(value) for key, value in obj.items()}
    elif isinstance(obj, list | set):
        converted = type(obj)(convert(each) for each in obj)
    else:
        return convert(obj)
    if not inplace:
        return converted
    obj.clear()
    obj.extend(converted) if isinstance(obj, list) else obj.update(converted)
    return obj


def round(x, d=0):
    """Rounds to ``d`` digits; halves away from zero, as in Python 2."""
    if not x:  # None too
        return x if x is None else 0.0
    factor = 10**d
    return math.copysign(math.floor(abs(x) * factor + 0.5), x) / factor


def floor_division(x, y):
    """Returns x // y."""
    return x // y


def get_exception_message(exc):
    """Returns the message of an exception."""
    return str(exc)
