"""Tools of the Paddle book: a plot of costs over steps."""

from paddle.utils import plot
from paddle.utils.plot import Ploter

__all__ = ["Ploter", "plot"]
