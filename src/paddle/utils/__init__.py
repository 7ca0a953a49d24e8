"""Tools of the Paddle book: a plot of costs over steps."""

from paddle._missing import missing_names
from paddle.utils import plot
from paddle.utils.plot import Ploter

__all__ = ["Ploter", "plot"]

__getattr__ = missing_names(__name__)
