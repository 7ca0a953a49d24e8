"""Layers: functions that append ops to the default program and return variables."""

import importlib
import pkgutil

from paddle._missing import missing_names

_MODULES = [importlib.import_module(found.name) for found in pkgutil.walk_packages(__path__, f"{__name__}.")]
for _module in _MODULES:
    globals().update({name: getattr(_module, name) for name in getattr(_module, "__all__", ())})

__all__ = sorted({name for module in _MODULES for name in getattr(module, "__all__", ())})  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    submodules = (found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))
    return sorted({*__all__, *submodules})


__getattr__ = missing_names(__name__)
