"""Mixed precision: 16-bit computation with 32-bit parameters, and loss scaling."""

from paddle._missing import missing_names
from paddle.fluid.contrib.mixed_precision import decorator, fp16_lists
from paddle.fluid.contrib.mixed_precision.decorator import decorate
from paddle.fluid.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists

__all__ = ["AutoMixedPrecisionLists", "decorate", "decorator", "fp16_lists"]

__getattr__ = missing_names(__name__)
