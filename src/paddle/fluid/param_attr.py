"""Attributes of a parameter that a layer creates."""

from __future__ import annotations

from typing import Any

from paddle.fluid.initializer import Constant, Initializer, Xavier
from paddle.fluid.regularizer import WeightDecayRegularizer

__all__ = ["ParamAttr", "WeightNormParamAttr"]


class ParamAttr:
    """A parameter's name, initializer and training options.

    Args:
      name: shares the parameter with every layer that uses the same name; generated if None.
      initializer: defaults to Xavier for weights and 0 for biases.
      learning_rate: multiplies the optimizer's learning rate.
      regularizer: overrides the optimizer's.
      trainable: whether the optimizer updates the parameter.
      gradient_clip: how the gradient is clipped.
      do_model_average: whether ModelAverage averages it.
    """

    def __init__(
        self,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        gradient_clip: Any = None,
        do_model_average: bool = True,
    ):
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be a string, not {type(name).__name__}")
        if name == "":
            raise ValueError("a parameter name cannot be empty")
        self.name, self.initializer, self.learning_rate = name, initializer, learning_rate
        self.regularizer, self.trainable = regularizer, trainable
        self.gradient_clip, self.do_model_average = gradient_clip, do_model_average

    def _set_default_initializer(self, initializer: Initializer | None) -> None:
        if initializer is None and self.initializer is None:
            raise ValueError("the parameter has no initializer")
        if self.initializer is None:
            self.initializer = initializer

    def _set_default_param_initializer(self) -> None:
        self._set_default_initializer(Xavier())

    def _set_default_bias_initializer(self) -> None:
        self._set_default_initializer(Constant(0.0))

    @staticmethod
    def _to_attr(arg: Any) -> Any:
        """Converts a user's param_attr or bias_attr to a ParamAttr; a list becomes a list, False stays False."""
        if arg is None or arg is True:
            return ParamAttr()
        if arg is False or isinstance(arg, ParamAttr):
            return arg
        if isinstance(arg, list | tuple):
            return [ParamAttr._to_attr(one) for one in arg]
        if isinstance(arg, str):
            return ParamAttr(name=arg)
        if isinstance(arg, Initializer):
            return ParamAttr(initializer=arg)
        if isinstance(arg, WeightDecayRegularizer):
            return ParamAttr(regularizer=arg)
        raise TypeError(
            f"expected a ParamAttr, a name, an initializer, a regularizer or False to describe a parameter, "
            f"got {type(arg).__name__}"
        )

    def _to_kwargs(self, with_initializer: bool = False) -> dict[str, Any]:
        """Returns the arguments of ``Block.create_parameter``."""
        kwargs = {
            "name": self.name,
            "optimize_attr": {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "trainable": self.trainable,
            "gradient_clip_attr": self.gradient_clip,
            "do_model_average": self.do_model_average,
        }
        if with_initializer:
            kwargs["initializer"] = self.initializer
        return kwargs


class WeightNormParamAttr(ParamAttr):
    """A weight trained as a direction and a magnitude.

    Args:
      dim: the dim with a magnitude per index; None uses one magnitude for the whole weight.
    """

    # Weights created this way, for tools that save and serve models.
    params_with_weight_norm: list[Any] = []

    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        gradient_clip: Any = None,
        do_model_average: bool = False,
    ):
        super().__init__(name, initializer, learning_rate, regularizer, trainable, gradient_clip, do_model_average)
        self.dim = dim
