"""Layers: functions that append ops to the default program and return variables."""

import difflib
import importlib
import pkgutil
from typing import Any

_MODULES = [importlib.import_module(found.name) for found in pkgutil.walk_packages(__path__, f"{__name__}.")]
for _module in _MODULES:
    globals().update({name: getattr(_module, name) for name in getattr(_module, "__all__", ())})

__all__ = sorted({name for module in _MODULES for name in getattr(module, "__all__", ())})  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    submodules = (found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))
    return sorted({*__all__, *submodules})


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    close = difflib.get_close_matches(name, __all__, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise AttributeError(f"refluid has no layer {name}{hint}")
