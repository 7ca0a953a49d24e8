"""The older name of `paddle`: ``import paddle.v2 as paddle``, ``import paddle.v2.fluid as fluid``.

Every ``paddle.v2.X`` is the module ``paddle.X`` itself, not a copy.
"""

import importlib
import importlib.abc
import importlib.util
import sys

import paddle

_PREFIX = __name__ + "."


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``paddle.v2.X`` by importing ``paddle.X``."""

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith(_PREFIX):
            return None
        real = "paddle." + fullname.removeprefix(_PREFIX)
        if importlib.util.find_spec(real) is None:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=real)

    def create_module(self, spec):
        module = importlib.import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        # The import system has just set the alias's spec on the module; restore the original.
        alias = module.__spec__
        module.__spec__ = alias and alias.loader_state


sys.meta_path.insert(0, _Alias())


def __getattr__(name):
    try:
        return getattr(paddle, name)
    except AttributeError:
        pass
    try:
        return importlib.import_module(_PREFIX + name)
    except ModuleNotFoundError:
        raise AttributeError(f"module 'paddle.v2' has no attribute {name!r}") from None


def __dir__():
    return dir(paddle)
