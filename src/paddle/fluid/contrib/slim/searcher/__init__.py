"""Controllers of searches."""

from paddle.fluid.contrib.slim.searcher.controller import EvolutionaryController, SAController

__all__ = ["EvolutionaryController", "SAController"]
