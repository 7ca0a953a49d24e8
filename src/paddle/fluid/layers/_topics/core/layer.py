"""Layer: an object that makes parameters once and uses them in every call, with the methods that Fluid gives it."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Parameter, Variable, VarType, unique_name
from refluid.places import CPUPlace
from refluid.scope import global_scope


class Layer:
    """Keeps parameters and further layers by name; a subclass defines ``forward``."""

    def __init__(self, name_scope: str, kind: str):
        self._full_name = unique_name.generate(f"{name_scope}/{kind}")
        self._helper = LayerHelper(kind, name=self._full_name)
        self._parameters: dict[str, Parameter] = {}
        self._sub_layers: dict[str, Layer] = {}
        self.training = True

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self.forward(*inputs, **options)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Appends the ops of one use of the layer."""
        raise NotImplementedError("a Layer must implement `forward`")

    def backward(self, *inputs: Any) -> Any:
        """Raises: gradients of a program come from `fluid.gradients` or an optimizer."""
        raise ValueError("a Layer has no backward: use fluid.gradients or minimize of an optimizer")

    def full_name(self) -> str:
        """The name of the layer, with which those of its parameters begin."""
        return self._full_name

    def train(self) -> None:
        """Sets ``training``, here and in further layers; programs for tests are made with ``clone(for_test=True)``."""
        self._set_training(True)

    def eval(self) -> None:
        """Clears ``training``, here and in further layers."""
        self._set_training(False)

    def _set_training(self, training: bool) -> None:
        self.training = training
        for layer in self._sub_layers.values():
            layer._set_training(training)

    def create_parameter(
        self, attr: Any, shape: list[int], dtype: Any, is_bias: bool = False, default_initializer: Any = None
    ) -> Any:
        """Creates a parameter, without keeping it."""
        return self._helper.create_parameter(attr, shape, dtype, is_bias, default_initializer)

    def create_variable(
        self,
        name: str | None = None,
        persistable: bool | None = None,
        dtype: Any = None,
        type: Any = VarType.LOD_TENSOR,
    ) -> Variable:
        """Creates a variable of the current block."""
        name = unique_name.generate(f"{self._full_name}._generated_var") if name is None else name
        return self._helper.create_variable(name=name, persistable=bool(persistable), dtype=dtype, type=type)

    def add_parameter(self, name: str, parameter: Parameter) -> Parameter:
        """Keeps a parameter under a name, and returns it."""
        if not isinstance(parameter, Parameter):
            raise TypeError(f"add_parameter: {name} must be a Parameter, not {type(parameter).__name__}")
        self._parameters[name] = parameter
        return parameter

    def add_sublayer(self, name: str, sublayer: Layer) -> Layer:
        """Keeps a further layer under a name, and returns it."""
        if not isinstance(sublayer, Layer):
            raise TypeError(f"add_sublayer: {name} must be a Layer, not {type(sublayer).__name__}")
        self._sub_layers[name] = sublayer
        return sublayer

    def parameters(self, include_sublayers: bool = True) -> list[Parameter]:
        """The parameters; those of layers that were not used yet do not exist."""
        found = list(self._parameters.values())
        for layer in self._sub_layers.values() if include_sublayers else ():
            found += layer.parameters()
        return found

    def sublayers(self, include_sublayers: bool = True) -> list[Layer]:
        """The further layers, and theirs."""
        found = []
        for layer in self._sub_layers.values():
            found += [layer, *(layer.sublayers() if include_sublayers else ())]
        return found

    def clear_gradients(self) -> None:
        """Does nothing: a program computes its gradients anew in every run."""

    def state_dict(self, destination: dict[str, Any] | None = None, include_sublayers: bool = True) -> dict[str, Any]:
        """The parameters by name, added to ``destination`` if it is given."""
        destination = {} if destination is None else destination
        destination.update({parameter.name: parameter for parameter in self.parameters(include_sublayers)})
        return destination

    def load_dict(self, stat_dict: dict[str, Any], include_sublayers: bool = True) -> None:
        """Sets the values of parameters in the scope, by name."""
        for parameter in self.parameters(include_sublayers):
            if parameter.name in stat_dict:
                value = np.asarray(stat_dict[parameter.name])
                global_scope().var(parameter.name).get_tensor().set(value, CPUPlace())
