"""Transpilers for training without servers, under Fluid's module path."""

from refluid.transpiler.collective import Collective, GradAllReduce, LocalSGD, SingleProcessMultiThread

__all__ = ["Collective", "GradAllReduce", "LocalSGD", "SingleProcessMultiThread"]
