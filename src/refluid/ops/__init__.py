"""The ops: one JAX function each, in families. Knows nothing of programs."""

import importlib
import pkgutil

# Importing a family registers its ops.
for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
