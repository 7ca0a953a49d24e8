"""The ops: one JAX function each, in families. Knows nothing of programs."""

import importlib
import pkgutil

# Importing a family registers its ops.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
