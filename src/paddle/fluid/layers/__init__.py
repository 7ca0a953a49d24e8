"""The layers: functions that append ops to the default program and return variables."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    _imported = importlib.import_module(f"{__name__}.{_module.name}")
    globals().update({_name: getattr(_imported, _name) for _name in getattr(_imported, "__all__", ())})
