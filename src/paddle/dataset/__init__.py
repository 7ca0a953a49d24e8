"""Public datasets as readers, from files in `common.DATA_HOME` or, on request, from synthetic data."""

from paddle.dataset import common, mnist, uci_housing

__all__ = ["common", "mnist", "uci_housing"]

_FLUID_ALSO_HAS = """
    cifar conll05 flowers image imdb imikolov movielens mq2007 sentiment voc2012 wmt14 wmt16
"""


def __getattr__(name):
    if name in _FLUID_ALSO_HAS.split():
        raise AttributeError(f"refluid does not support paddle.dataset.{name} yet; available: {', '.join(__all__)}")
    raise AttributeError(f"module 'paddle.dataset' has no attribute {name!r}")
