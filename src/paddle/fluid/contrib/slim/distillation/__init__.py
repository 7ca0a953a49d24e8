"""Distillation: a student learns from a teacher."""

from paddle.fluid.contrib.slim.distillation.distillation_strategy import DistillationStrategy
from paddle.fluid.contrib.slim.distillation.distiller import FSPDistiller, L2Distiller, SoftLabelDistiller

__all__ = ["DistillationStrategy", "FSPDistiller", "L2Distiller", "SoftLabelDistiller"]
