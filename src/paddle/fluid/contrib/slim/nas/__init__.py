"""Architecture search."""

from paddle.fluid.contrib.slim.nas.light_nas_strategy import LightNASStrategy
from paddle.fluid.contrib.slim.nas.search_space import SearchSpace

__all__ = ["LightNASStrategy", "SearchSpace"]
