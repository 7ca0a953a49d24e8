"""Optimizers: append the ops that compute the gradients of a loss and update parameters with them."""

from paddle.fluid.optimizer.adaptive import (
    Adadelta,
    AdadeltaOptimizer,
    Adagrad,
    AdagradOptimizer,
    Adam,
    Adamax,
    AdamaxOptimizer,
    AdamOptimizer,
    DecayedAdagrad,
    DecayedAdagradOptimizer,
    Ftrl,
    FtrlOptimizer,
    Lamb,
    LambOptimizer,
    RMSProp,
    RMSPropOptimizer,
)
from paddle.fluid.optimizer.averages import ExponentialMovingAverage, ModelAverage
from paddle.fluid.optimizer.base import Optimizer
from paddle.fluid.optimizer.compression import DGCMomentumOptimizer
from paddle.fluid.optimizer.gradient_descent import (
    SGD,
    Dpsgd,
    DpsgdOptimizer,
    LarsMomentum,
    LarsMomentumOptimizer,
    Momentum,
    MomentumOptimizer,
    SGDOptimizer,
)
from paddle.fluid.optimizer.wrappers import (
    GradientMergeOptimizer,
    LookaheadOptimizer,
    PipelineOptimizer,
    RecomputeOptimizer,
)

__all__ = [
    "SGD",
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "Adamax",
    "AdamaxOptimizer",
    "DGCMomentumOptimizer",
    "DecayedAdagrad",
    "DecayedAdagradOptimizer",
    "Dpsgd",
    "DpsgdOptimizer",
    "ExponentialMovingAverage",
    "Ftrl",
    "FtrlOptimizer",
    "GradientMergeOptimizer",
    "Lamb",
    "LambOptimizer",
    "LarsMomentum",
    "LarsMomentumOptimizer",
    "LookaheadOptimizer",
    "ModelAverage",
    "Momentum",
    "MomentumOptimizer",
    "Optimizer",
    "PipelineOptimizer",
    "RMSProp",
    "RMSPropOptimizer",
    "RecomputeOptimizer",
    "SGDOptimizer",
]
