"""The packages that Fluid scripts import: readers, datasets, batching and ``paddle.fluid``."""

import sys as _sys
from importlib import metadata as _metadata

__all__ = ["batch", "dataset", "reader"]

from paddle._missing import raise_missing as _raise_missing
from paddle.version import full_version as __version__  # noqa: F401


def _refuse_a_second_paddle():
    """Raises ImportError if another distribution owns `paddle`: both overwrite each other's files."""
    for name in ("paddlepaddle", "paddlepaddle-gpu"):
        try:
            version = _metadata.version(name)
        except _metadata.PackageNotFoundError:
            continue
        raise ImportError(
            f"{name} {version} and refluid are installed in the same environment, and both provide the package "
            f"`paddle`. Uninstall one of them (pip uninstall {name}), then reinstall refluid, or use two environments."
        )


_refuse_a_second_paddle()

from paddle import dataset, reader  # noqa: E402
from paddle.batch import batch  # noqa: E402

_ON_DEMAND = frozenset({"compat", "distributed", "fluid", "sysconfig", "utils", "v2"})


def __getattr__(name):
    """Imports large subpackages on first use, to keep ``import paddle`` fast."""
    if name not in _ON_DEMAND:
        _raise_missing(__name__, name, _sys._getframe(1))
    import importlib

    return importlib.import_module(f"paddle.{name}")
