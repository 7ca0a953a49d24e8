"""Readers, which are functions without arguments that return an iterator of samples, and their decorators."""

from paddle.reader import creator, decorator
from paddle.reader.decorator import *  # noqa: F403

__all__ = ["creator"]
__all__ += decorator.__all__
