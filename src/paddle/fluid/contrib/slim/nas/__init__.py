"""Architecture search."""

from paddle._missing import missing_names
from paddle.fluid.contrib.slim.nas.light_nas_strategy import LightNASStrategy
from paddle.fluid.contrib.slim.nas.search_space import SearchSpace

__all__ = ["LightNASStrategy", "SearchSpace"]
__getattr__ = missing_names(__name__)
