"""What a Fluid script imports: readers, datasets, batching; ``paddle.fluid`` is imported by name."""

from importlib import metadata as _metadata

__all__ = ["batch", "dataset", "reader"]

# The Fluid generation whose names and behaviour are served; scripts compare it.
__version__ = "1.6.3"


def _refuse_a_second_paddle():
    """Two distributions that both own the package `paddle` overwrite each other's files."""
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

_ON_DEMAND = frozenset({"distributed", "fluid", "v2"})


def __getattr__(name):
    """Imports the large parts when they are first named, so that ``import paddle`` alone stays quick."""
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'paddle' has no attribute {name!r}")
    import importlib

    return importlib.import_module(f"paddle.{name}")
