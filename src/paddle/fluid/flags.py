"""FLAGS_*: Fluid's global flags, set by environment variable or with `set_flags`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refluid.flags import read_flag, write_flag

__all__ = ["get_flags", "set_flags"]


def set_flags(flags: Mapping[str, Any]) -> None:
    """Sets flags by name, e.g. ``set_flags({'FLAGS_check_nan_inf': True})``."""
    if not isinstance(flags, Mapping):
        raise TypeError(f"set_flags expects a dict, not {type(flags).__name__}")
    for name, value in flags.items():
        write_flag(name, value)


def get_flags(flags: str | Sequence[str]) -> dict[str, Any]:
    """Returns the values of the named flags."""
    names = [flags] if isinstance(flags, str) else list(flags)
    return {name: read_flag(name) for name in names}
