"""Single GRU and LSTM steps built from plain layers, used by the cells of `rnn` and by contrib."""

from __future__ import annotations

import copy
from typing import Any

from paddle.fluid import layers
from paddle.fluid.layers._topics.core.layer import Layer
from paddle.fluid.param_attr import ParamAttr
from refluid.ir import Variable


class _Unit(Layer):
    """A step whose parameters are created on first use."""

    kind: str

    def __init__(self, name_scope: str, hidden_size: int, param_attr, bias_attr, gate_activation, activation, dtype):
        super().__init__(name_scope, self.kind)
        self._hidden_size = hidden_size
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._gate_activation = gate_activation or layers.sigmoid
        self._activation = activation or layers.tanh
        self._dtype = dtype
        self._made: list[Any] = []  # None for a bias that is left out

    def _parameter(self, attr: Any, suffix: str, shape: list[int], *, is_bias: bool = False) -> Any:
        attr = copy.copy(ParamAttr._to_attr(attr))
        if attr and attr.name is not None:
            attr.name += suffix
        made = self.create_parameter(attr, shape, self._dtype, is_bias)
        return made if made is None else self.add_parameter(made.name, made)


class BasicGRUUnit(_Unit):
    """One step of a GRU: ``unit(input, pre_hidden)`` returns the new hidden state.

    Args:
      name_scope: prefix of the parameter names.
      param_attr, bias_attr: for both weights and both biases; names get ``_gate`` and ``_candidate`` appended.
    """

    kind = "BasicGRUUnit"

    def __init__(
        self,
        name_scope,
        hidden_size,
        param_attr=None,
        bias_attr=None,
        gate_activation=None,
        activation=None,
        dtype="float32",
    ):
        super().__init__(name_scope, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype)

    def forward(self, input, pre_hidden) -> Variable:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the new hidden state."""
        size = self._hidden_size
        if not self._made:
            height = input.shape[-1] + size
            self._made = [
                self._parameter(self._param_attr, "_gate", [height, 2 * size]),
                self._parameter(self._param_attr, "_candidate", [height, size]),
                self._parameter(self._bias_attr, "_gate", [2 * size], is_bias=True),
                self._parameter(self._bias_attr, "_candidate", [size], is_bias=True),
            ]
        of_gates, of_candidate, gate_bias, candidate_bias = self._made
        gates = _biased(layers.matmul(layers.concat([input, pre_hidden], 1), of_gates), gate_bias)
        reset, update = layers.split(self._gate_activation(gates), num_or_sections=2, dim=1)
        seen = layers.concat([input, reset * pre_hidden], 1)
        candidate = self._activation(_biased(layers.matmul(seen, of_candidate), candidate_bias))
        return update * pre_hidden + (1 - update) * candidate


class BasicLSTMUnit(_Unit):
    """One step of an LSTM: ``unit(input, pre_hidden, pre_cell)`` returns the new hidden state and cell.

    Args:
      name_scope: prefix of the parameter names.
      gate_activation, activation: ignored, as in Fluid; always sigmoid and tanh.
      forget_bias: added to the forget gate.
    """

    kind = "BasicLSTMUnit"

    def __init__(
        self,
        name_scope,
        hidden_size,
        param_attr=None,
        bias_attr=None,
        gate_activation=None,
        activation=None,
        forget_bias=1.0,
        dtype="float32",
    ):
        super().__init__(name_scope, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype)
        self._forget_bias = layers.fill_constant([1], dtype=dtype, value=forget_bias)
        self._forget_bias.stop_gradient = False

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, input, pre_hidden, pre_cell
    ) -> tuple[Variable, Variable]:
        """Returns the new hidden state and cell."""
        size = self._hidden_size
        if not self._made:
            self._made = [
                self._parameter(self._param_attr, "", [input.shape[-1] + size, 4 * size]),
                self._parameter(self._bias_attr, "", [4 * size], is_bias=True),
            ]
        weight, bias = self._made
        gates = _biased(layers.matmul(layers.concat([input, pre_hidden], 1), weight), bias)
        i, j, f, o = layers.split(gates, num_or_sections=4, dim=-1)
        kept = layers.elementwise_mul(pre_cell, layers.sigmoid(layers.elementwise_add(f, self._forget_bias)))
        cell = layers.elementwise_add(kept, layers.elementwise_mul(layers.sigmoid(i), layers.tanh(j)))
        return layers.tanh(cell) * layers.sigmoid(o), cell


def _biased(x: Variable, bias: Variable | None) -> Variable:
    return x if bias is None else layers.elementwise_add(x, bias)
