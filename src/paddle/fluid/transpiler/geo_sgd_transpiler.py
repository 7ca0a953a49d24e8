"""Fluid's module path for the transpiler of GEO-SGD; the mode is in the configuration."""

from paddle.fluid.transpiler.distribute_transpiler import DistributeTranspiler, DistributeTranspilerConfig

__all__ = ["GeoSgdTranspiler"]


class GeoSgdTranspiler(DistributeTranspiler):
    """A `DistributeTranspiler` for GEO-SGD."""

    def __init__(self, config=None):
        config = DistributeTranspilerConfig() if config is None else config
        config.geo_sgd_mode, config.sync_mode = True, False
        super().__init__(config)
