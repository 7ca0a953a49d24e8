"""LayerHelper, the base of every layer: creates parameters and temporaries with Fluid's names and appends ops."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Sequence
from typing import Any

from paddle.fluid.initializer import Constant, Xavier
from paddle.fluid.param_attr import ParamAttr, WeightNormParamAttr
from paddle.fluid.weight_norm import normalized_weight
from refluid.ir import (
    Operator,
    Parameter,
    Program,
    Variable,
    VarType,
    default_main_program,
    default_startup_program,
    unique_name,
)


class LayerHelper:
    """Helps one call of one layer; ``kwargs`` are the layer's arguments (name, input, param_attr, act ...)."""

    def __init__(self, layer_type: str, **kwargs: Any):
        self.layer_type = layer_type
        self.kwargs = kwargs
        name = kwargs.get("name")
        self.name: str = unique_name.generate(layer_type) if name is None else name

    @property
    def main_program(self) -> Program:
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        return default_startup_program()

    def append_op(self, *args: Any, **options: Any) -> Operator:
        """Appends an op to the current block."""
        return self.main_program.current_block().append_op(*args, **options)

    # Inputs and attributes of the layer

    def multiple_input(self, input_param_name: str = "input") -> list[Variable]:
        """Returns the layer's inputs as a list."""
        inputs = self.kwargs.get(input_param_name, [])
        found = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        for variable in found:
            if not isinstance(variable, Variable):
                raise TypeError(
                    f"{self.layer_type}: {input_param_name} must be a Variable or a list of Variables, "
                    f"not {type(variable).__name__}"
                )
        return found

    def input(self, input_param_name: str = "input") -> Variable:
        """Returns the layer's only input."""
        inputs = self.multiple_input(input_param_name)
        if len(inputs) != 1:
            raise ValueError(f"{self.layer_type} expects one input, got {len(inputs)}")
        return inputs[0]

    def input_dtype(self, input_param_name: str = "input") -> VarType:
        """Returns the common dtype of all inputs."""
        dtypes = {variable.dtype for variable in self.multiple_input(input_param_name)}
        if len(dtypes) != 1:
            raise ValueError(f"{self.layer_type}: the inputs have different dtypes: {sorted(map(str, dtypes))}")
        return dtypes.pop()

    @property
    def param_attr(self) -> Any:
        return ParamAttr._to_attr(self.kwargs.get("param_attr"))

    @property
    def bias_attr(self) -> Any:
        return ParamAttr._to_attr(self.kwargs.get("bias_attr"))

    def multiple_param_attr(self, length: int) -> list[Any]:
        """Returns one parameter attribute per input."""
        attrs = self.param_attr
        attrs = list(attrs) if isinstance(attrs, list | tuple) else [attrs]
        if len(attrs) == 1 and length > 1:
            attrs += [copy.deepcopy(attrs[0]) for _ in range(length - 1)]
        if len(attrs) != length:
            raise ValueError(
                f"{self.layer_type}: expected one param_attr for each of {length} inputs, got {len(attrs)}"
            )
        return attrs

    def iter_inputs_and_params(self, input_param_name: str = "input") -> Iterator[tuple[Variable, Any]]:
        """Yields each input with the attribute of its parameter."""
        inputs = self.multiple_input(input_param_name)
        return zip(inputs, self.multiple_param_attr(len(inputs)), strict=True)

    def is_instance(self, name: str, kind: type) -> None:
        """Raises TypeError unless argument ``name`` is a ``kind``."""
        given = self.kwargs.get(name)
        if not isinstance(given, kind):
            raise TypeError(f"{self.layer_type}: {name} must be {kind.__name__}, not {type(given).__name__}")

    # Variables

    def create_parameter(
        self,
        attr: Any,
        shape: Sequence[int],
        dtype: Any = None,
        is_bias: bool = False,
        default_initializer: Any = None,
        stop_gradient: bool = False,
        type: VarType = VarType.LOD_TENSOR,
    ) -> Any:
        """Creates a parameter in the main program and initializes it in the startup program; None if attr is False."""
        attr = copy.deepcopy(attr)
        if attr is None:
            attr = ParamAttr._to_attr(attr)
        if attr is False or not attr:
            return None
        initializer = default_initializer or (Constant(0.0) if is_bias else Xavier())
        attr._set_default_initializer(initializer)
        if attr.name is None:
            attr.name = unique_name.generate(f"{self.name}.{'b' if is_bias else 'w'}")
        dtype = self.input_dtype() if dtype is None else dtype
        shape = [self._dim(dim) for dim in shape]
        if isinstance(attr, WeightNormParamAttr):
            return normalized_weight(self, attr, shape, dtype)
        return self.add_parameter(attr, shape, dtype, stop_gradient=stop_gradient, type=type)

    def _dim(self, dim: Any) -> int:
        try:
            return operator.index(dim)
        except TypeError:
            raise TypeError(f"{self.layer_type}: the dim {dim!r} of a parameter must be an integer") from None

    def add_parameter(self, attr: Any, shape: Sequence[int], dtype: Any, **options: Any) -> Parameter:
        """Creates the parameter described by ``attr`` in both programs."""
        # The two programs hold separate parameters of the same name, because they may be saved and run separately.
        self.startup_program.global_block().create_parameter(
            dtype=dtype, shape=shape, **attr._to_kwargs(with_initializer=True)
        )
        return self.main_program.global_block().create_parameter(
            dtype=dtype, shape=shape, **{**attr._to_kwargs(), **{k: v for k, v in options.items() if v}}
        )

    def get_parameter(self, name: str) -> Parameter:
        """Returns the parameter with that name in the main program."""
        found = self.main_program.global_block().var(name)
        if not isinstance(found, Parameter):
            raise ValueError(f"{name} is a variable, not a parameter")
        return found

    def create_variable_for_type_inference(
        self, dtype: Any, stop_gradient: bool = False, shape: Any = None
    ) -> Variable:
        """Creates a temporary for an op's output."""
        return self.main_program.current_block().create_var(
            name=unique_name.generate(f"{self.name}.tmp"),
            dtype=dtype,
            shape=shape,
            persistable=False,
            stop_gradient=stop_gradient,
        )

    create_tmp_variable = create_variable_for_type_inference

    def create_variable(self, *args: Any, **options: Any) -> Variable:
        """Creates a variable in the current block."""
        return self.main_program.current_block().create_var(*args, **options)

    def create_global_variable(self, persistable: bool = False, *args: Any, **options: Any) -> Variable:
        """Creates a variable in block 0."""
        return self.main_program.global_block().create_var(*args, persistable=persistable, **options)

    def create_or_get_global_variable(self, name: str, *args: Any, **options: Any) -> tuple[Variable, bool]:
        """Returns the variable of block 0 with that name, and whether it is new."""
        block = self.main_program.global_block()
        if block.has_var(name):
            return block.var(name), False
        return self.create_global_variable(*args, name=name, **options), True

    def set_variable_initializer(self, var: Variable, initializer: Any) -> Variable:
        """Makes the startup program initialize ``var``."""
        return self.startup_program.global_block().create_var(
            name=var.name, type=var.type, dtype=var.dtype, shape=var.shape, persistable=True, initializer=initializer
        )

    def to_variable(self, value: Any) -> Variable:
        """Returns ``value``, which must be a Variable; dynamic graphs come later."""
        if not isinstance(value, Variable):
            raise TypeError(f"{self.layer_type} expects a Variable, not {type(value).__name__}")
        return value

    # Bias and activation

    def append_bias_op(self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None) -> Variable:
        """Adds a bias over dims [dim_start, dim_end) unless bias_attr is False."""
        attr = self.bias_attr
        if not attr:
            return input_var
        bias = self.create_parameter(attr, input_var.shape[dim_start:dim_end], input_var.dtype, is_bias=True)
        out = self.create_variable_for_type_inference(input_var.dtype)
        self.append_op(
            type="elementwise_add",
            inputs={"X": [input_var], "Y": [bias]},
            outputs={"Out": [out]},
            attrs={"axis": dim_start},
        )
        return out

    def append_activation(self, input_var: Variable) -> Variable:
        """Applies the layer's ``act``: a name or a dict with type and attributes."""
        act = self.kwargs.get("act")
        if act is None:
            return input_var
        if not isinstance(act, str | dict):
            raise TypeError(f"{self.layer_type}: act must be a name, not {type(act).__name__}")
        act = {"type": act} if isinstance(act, str) else dict(act)
        out = self.create_variable_for_type_inference(input_var.dtype)
        self.append_op(type=act.pop("type"), inputs={"X": [input_var]}, outputs={"Out": [out]}, attrs=act)
        return out
