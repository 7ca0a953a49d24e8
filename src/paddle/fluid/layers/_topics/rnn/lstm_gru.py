"""LSTM and GRU layers backed by a single op: over packed sequences, over dense ones, and single steps."""

from __future__ import annotations

from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_outputs, require_floating
from paddle.fluid.layers._topics.tensor.concat import concat
from paddle.fluid.param_attr import ParamAttr
from refluid.ir import Variable, VarType

__all__ = ["dynamic_gru", "dynamic_lstm", "dynamic_lstmp", "gru_unit", "lstm", "lstm_unit"]

_ACTIVATIONS = ("identity", "sigmoid", "tanh", "relu")


def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Runs an LSTM over packed sequences; returns the hidden states and cells of all steps.

    Args:
      input: the projected input, usually from fc, with ``size`` columns.
      size: four times the size of the hidden state.
      h_0, c_0: the initial states, one row per sequence; default to zeros.
      use_peepholes: connect the cell to the gates.
      is_reverse: process each sequence from its end.
    """
    attrs = _lstm_attrs(
        "dynamic_lstm", use_peepholes, is_reverse, gate_activation, cell_activation, candidate_activation
    )
    _check("dynamic_lstm", input, size, 4, bias_attr)
    helper = LayerHelper("lstm", input=input, param_attr=param_attr, bias_attr=bias_attr, name=name)
    size = size // 4
    weight = helper.create_parameter(attr=helper.param_attr, shape=[size, 4 * size], dtype=dtype)
    bias = _bias(helper, size, use_peepholes, dtype)
    inputs = {"Input": input, "Weight": weight, "Bias": bias}
    inputs.update(_initial("dynamic_lstm", input, H0=(h_0, size), C0=(c_0, size)))
    outputs = {"Hidden": dtype, "Cell": dtype, "BatchGate": dtype, "BatchCellPreAct": dtype}
    made = append_outputs(helper, inputs, outputs, attrs)
    return made["Hidden"], made["Cell"]


def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """Runs an LSTM whose hidden state is projected to ``proj_size`` columns before it is fed back.

    Args:
      size: four times the size of the cell.
      cell_clip, proj_clip: the largest magnitude of cells and projections; unlimited by default.

    Returns the projections and cells of all steps. The other arguments are those of `dynamic_lstm`.
    """
    attrs = _lstm_attrs(
        "dynamic_lstmp", use_peepholes, is_reverse, gate_activation, cell_activation, candidate_activation
    )
    _check_activations("dynamic_lstmp", proj_activation=proj_activation)
    _check("dynamic_lstmp", input, size, 4, bias_attr)
    for argument, limit in (("cell_clip", cell_clip), ("proj_clip", proj_clip)):
        if limit is not None and limit < 0:
            raise ValueError(f"dynamic_lstmp: {argument} must not be negative, got {limit}")
    helper = LayerHelper("lstmp", input=input, param_attr=param_attr, bias_attr=bias_attr, name=name)
    size = size // 4
    weight = helper.create_parameter(attr=helper.param_attr, shape=[proj_size, 4 * size], dtype=dtype)
    projection = helper.create_parameter(attr=helper.param_attr, shape=[size, proj_size], dtype=dtype)
    bias = _bias(helper, size, use_peepholes, dtype)
    # Fluid creates a variable here that it never uses; it keeps later names the same.
    made = _variables(helper, dtype, ("Projection", "Cell", "unused", "BatchHidden", "BatchGate", "BatchCellPreAct"))
    del made["unused"]
    inputs = {"Input": input, "Weight": weight, "ProjWeight": projection, "Bias": bias}
    inputs.update(_initial("dynamic_lstmp", input, H0=(h_0, proj_size), C0=(c_0, size)))
    attrs.update(cell_clip=cell_clip or 0.0, proj_clip=proj_clip or 0.0, proj_activation=proj_activation)
    helper.append_op(type="lstmp", inputs=inputs, outputs=made, attrs=attrs)
    return made["Projection"], made["Cell"]


def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """Runs a GRU over packed sequences; returns the hidden states of all steps.

    Args:
      input: the projected input, usually from fc, with ``3 * size`` columns.
      size: the size of the hidden state.
      h_0: the initial state, one row per sequence; defaults to zeros.
      is_reverse: process each sequence from its end.
      origin_mode: the update gate weights the old state, as in the original paper, instead of the new one.
    """
    _check_activations("dynamic_gru", gate_activation=gate_activation, candidate_activation=candidate_activation)
    _check("dynamic_gru", input, 3 * size, 3, bias_attr)
    helper = LayerHelper("gru", input=input, param_attr=param_attr, bias_attr=bias_attr)
    dtype = helper.input_dtype()
    weight = helper.create_parameter(attr=helper.param_attr, shape=[size, 3 * size], dtype=dtype)
    bias = helper.create_parameter(attr=helper.bias_attr, shape=[1, 3 * size], dtype=dtype, is_bias=True)
    inputs = {"Input": input, "Weight": weight, "Bias": bias}
    inputs.update(_initial("dynamic_gru", input, H0=(h_0, size)))
    outputs = {"Hidden": dtype, "BatchGate": dtype, "BatchResetHiddenPrev": dtype, "BatchHidden": dtype}
    attrs = {
        "is_reverse": is_reverse,
        "gate_activation": gate_activation,
        "activation": candidate_activation,
        "origin_mode": origin_mode,
    }
    return append_outputs(helper, inputs, outputs, attrs)["Hidden"]


def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """Runs one step of a GRU; returns the new state, the reset state and the gates.

    Args:
      input: the projected input, with ``size`` columns.
      size: three times the size of the hidden state.
    """
    require_floating("gru_unit", input=input, hidden=hidden)
    check_type(size, "size", int, "gru_unit")
    _check_activations("gru_unit", activation=activation, gate_activation=gate_activation)
    helper = LayerHelper("gru_unit", input=input, param_attr=param_attr, bias_attr=bias_attr)
    dtype = helper.input_dtype()
    size = size // 3
    weight = helper.create_parameter(attr=helper.param_attr, shape=[size, 3 * size], dtype=dtype)
    made = _variables(helper, dtype, ("Gate", "ResetHiddenPrev", "Hidden"))
    bias = helper.create_parameter(attr=helper.bias_attr, shape=[1, 3 * size], dtype=dtype, is_bias=True)
    inputs = {"Input": input, "HiddenPrev": hidden, "Weight": weight, "Bias": bias}
    attrs = {
        "activation": _ACTIVATIONS.index(activation),
        "gate_activation": _ACTIVATIONS.index(gate_activation),
        "origin_mode": origin_mode,
    }
    helper.append_op(type="gru_unit", inputs=inputs, outputs=made, attrs=attrs)
    return made["Hidden"], made["ResetHiddenPrev"], made["Gate"]


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Runs one step of an LSTM, projections included; returns the new hidden state and cell.

    Args:
      forget_bias: added to the forget gate before the sigmoid.
    """
    from paddle.fluid.layers import fc

    # Fluid creates the helper first, so lstm_unit takes the first free name.
    helper = LayerHelper("lstm_unit", input=x_t, name=name)
    given = {"x_t": x_t, "hidden_t_prev": hidden_t_prev, "cell_t_prev": cell_t_prev}
    require_floating("lstm_unit", **given)
    for argument, variable in given.items():
        if len(variable.shape) != 2:
            raise ValueError(f"lstm_unit: {argument} must have 2 dims, got shape {list(variable.shape)}")
        if variable.shape[0] != x_t.shape[0]:
            raise ValueError(f"lstm_unit: {argument} has {variable.shape[0]} rows, but x_t has {x_t.shape[0]}")
    if hidden_t_prev.shape[1] != cell_t_prev.shape[1]:
        raise ValueError(
            f"lstm_unit: hidden_t_prev has {hidden_t_prev.shape[1]} columns, but cell_t_prev has {cell_t_prev.shape[1]}"
        )
    bias_attr = ParamAttr() if bias_attr is None else bias_attr
    joined = concat([x_t, hidden_t_prev], axis=1)
    rows = fc(joined, 4 * cell_t_prev.shape[1], param_attr=param_attr, bias_attr=bias_attr)
    inputs, outputs = {"X": rows, "C_prev": cell_t_prev}, {"C": x_t.dtype, "H": x_t.dtype}
    made = append_outputs(helper, inputs, outputs, {"forget_bias": forget_bias})
    return made["H"], made["C"]


def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Any = None,
    seed: int = -1,
) -> tuple[Variable, Variable, Variable]:
    """Runs stacked LSTMs over dense sequences [steps, batch, columns]; returns outputs, final states and final cells.

    Args:
      init_h, init_c: [layers * directions, batch, hidden_size].
      max_len: the maximum number of steps; ignored by this backend.
      dropout_prob: the dropout rate between layers during training.
      is_bidirec: run each layer in both directions and concatenate the outputs.
      seed: the dropout seed; -1 draws a new mask in every step.
    """
    helper = LayerHelper("cudnn_lstm", input=input, name=name)
    require_floating("lstm", input=input, init_h=init_h, init_c=init_c)
    for argument, number in (("max_len", max_len), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        check_type(number, argument, int, "lstm")
    input_size = input.shape[-1]
    weight = helper.create_parameter(
        attr=helper.param_attr,
        shape=[_weight_size(input_size, hidden_size, num_layers, 2 if is_bidirec else 1)],
        dtype=input.dtype,
        default_initializer=default_initializer,
    )
    made = _variables(helper, input.dtype, ("Out", "last_h", "last_c"))
    cache = helper.create_variable(persistable=True, type=VarType.RAW, stop_gradient=True)
    inputs = {"Input": input, "InitH": init_h, "InitC": init_c, "W": weight, "Cache": cache}
    if dropout_prob and num_layers > 1 and not is_test and seed < 0:
        inputs["Mask"] = _random_number(helper)
    attrs = {
        "max_len": max_len,
        "is_bidirec": is_bidirec,
        "input_size": input_size,
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "is_test": is_test,
        "dropout_prob": dropout_prob,
        "seed": seed,
    }
    helper.append_op(type="cudnn_lstm", inputs=inputs, outputs=made, attrs=attrs)
    return made["Out"], made["last_h"], made["last_c"]


def _weight_size(input_size: int, hidden_size: int, num_layers: int, directions: int) -> int:
    columns = [input_size] + [hidden_size * directions] * (num_layers - 1)
    return sum(4 * hidden_size * (width + hidden_size + 2) * directions for width in columns)


def _random_number(helper: LayerHelper) -> Variable:
    """Draws a number in every step, which seeds the dropout mask."""
    number = helper.create_variable_for_type_inference("float32", stop_gradient=True)
    attrs = {"shape": [1], "min": 0.0, "max": 1.0, "seed": 0, "dtype": number.dtype}
    helper.append_op(type="uniform_random", outputs={"Out": number}, attrs=attrs)
    return number


def _lstm_attrs(
    layer: str, use_peepholes: bool, is_reverse: bool, gate: str, cell: str, candidate: str
) -> dict[str, Any]:
    _check_activations(layer, gate_activation=gate, cell_activation=cell, candidate_activation=candidate)
    return {
        "use_peepholes": use_peepholes,
        "is_reverse": is_reverse,
        "gate_activation": gate,
        "cell_activation": cell,
        "candidate_activation": candidate,
    }


def _check_activations(layer: str, **activations: str) -> None:
    for argument, activation in activations.items():
        if activation not in _ACTIVATIONS:
            raise ValueError(f"{layer}: {argument} must be one of {', '.join(_ACTIVATIONS)}, not {activation!r}")


def _check(layer: str, input: Variable, columns: int, parts: int, bias_attr: Any) -> None:
    require_floating(layer, input=input)
    if bias_attr is False:
        raise ValueError(f"{layer}: bias_attr must not be False; the op requires a bias")
    if columns % parts:
        raise ValueError(f"{layer}: size must be a multiple of {parts}, got {columns}")


def _initial(layer: str, input: Variable, **states: tuple[Variable | None, int]) -> dict[str, Variable]:
    """Returns the given initial states, by slot."""
    given = {slot: (state, size) for slot, (state, size) in states.items() if state is not None}
    for slot, (state, size) in given.items():
        require_floating(layer, **{slot.lower()[0] + "_0": state})
        if len(state.shape) != 2 or state.shape[1] != size:
            raise ValueError(
                f"{layer}: {slot.lower()[0]}_0 must have shape [sequences, {size}], but has {list(state.shape)}"
            )
    return {slot: state for slot, (state, _) in given.items()}


def _bias(helper: LayerHelper, size: int, use_peepholes: bool, dtype: Any) -> Variable:
    columns = 7 * size if use_peepholes else 4 * size
    return helper.create_parameter(attr=helper.bias_attr, shape=[1, columns], dtype=dtype, is_bias=True)


def _variables(helper: LayerHelper, dtype: Any, slots: tuple[str, ...]) -> dict[str, Variable]:
    return {slot: helper.create_variable_for_type_inference(dtype) for slot in slots}
