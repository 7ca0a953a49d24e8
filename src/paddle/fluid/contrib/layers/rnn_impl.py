"""Stacked GRUs and LSTMs over dense sequences, made of plain layers, with Fluid's names of parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from paddle.fluid import layers
from paddle.fluid.layers._topics.rnn.units import BasicGRUUnit, BasicLSTMUnit
from paddle.fluid.param_attr import ParamAttr
from refluid.ir import Variable

__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]


def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Callable[..., Variable] | None = None,
    activation: Callable[..., Variable] | None = None,
    dtype: str = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """Runs layers of GRUs, forwards and, if ``bidirectional``, backwards.

    Args:
      input: [batch, steps, size], or [steps, batch, size] unless ``batch_first``.
      init_hidden: the first states, [layers * directions, batch, hidden_size]; zeros by default.
      sequence_length: the length of each sequence; states stay as they are after its end.
      dropout_prob: applied to the output of each layer.

    Returns:
      The outputs of the last layer, and the last states, shaped like ``init_hidden``.
    """

    def unit(scope: str, weight: Any, bias: Any) -> Callable[..., tuple[Variable, ...]]:
        made = BasicGRUUnit(scope, hidden_size, weight, bias, gate_activation, activation, dtype)
        return lambda x, hidden: (made(x, hidden),)

    dropout = {"dropout_prob": dropout_prob}
    stack = _Stack(unit, name, num_layers, hidden_size, bidirectional, dropout, param_attr, bias_attr)
    return stack.run(input, [init_hidden], sequence_length, batch_first)  # pyright: ignore[reportReturnType]


def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Callable[..., Variable] | None = None,
    activation: Callable[..., Variable] | None = None,
    forget_bias: float = 1.0,
    dtype: str = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """Runs layers of LSTMs, forwards and, if ``bidirectional``, backwards.

    Args:
      input: [batch, steps, size], or [steps, batch, size] unless ``batch_first``.
      init_hidden, init_cell: the first states, [layers * directions, batch, hidden_size]; zeros by default.
      sequence_length: the length of each sequence; states stay as they are after its end.
      dropout_prob: applied to the output of each layer.

    Returns:
      The outputs of the last layer, and the last hidden states and cells, shaped like ``init_hidden``.
    """

    def unit(scope: str, weight: Any, bias: Any) -> Callable[..., tuple[Variable, ...]]:
        return BasicLSTMUnit(scope, hidden_size, weight, bias, gate_activation, activation, forget_bias, dtype)

    dropout = {"dropout_prob": dropout_prob, "dropout_implementation": "upscale_in_train"}
    stack = _Stack(unit, name, num_layers, hidden_size, bidirectional, dropout, param_attr, bias_attr)
    return stack.run(input, [init_hidden, init_cell], sequence_length, batch_first)  # pyright: ignore[reportReturnType]


class _Stack:
    """Layers of units, in one or both directions; a unit maps an input and its states to new states."""

    def __init__(self, unit, name, num_layers, hidden_size, bidirectional, dropout, param_attr, bias_attr):
        self._num_layers, self._size, self._dropout = num_layers, hidden_size, dropout
        scopes = {"fw": "layers"} | ({"bw": "reverse_layers"} if bidirectional else {})
        # All units of a direction exist before any of their parameters, in the order of Fluid's names.
        self._units = [
            [
                unit(
                    f"{name}_{scope}_{i}",
                    _numbered(param_attr, f"_{direction}_w_{i}"),
                    _numbered(bias_attr, f"_{direction}_b_{i}"),
                )
                for i in range(num_layers)
            ]
            for direction, scope in scopes.items()
        ]

    def run(
        self, input: Variable, initial: list[Variable | None], lengths: Variable | None, batch_first: bool
    ) -> tuple[Variable, ...]:
        if batch_first:
            input = layers.transpose(input, [1, 0, 2])
        mask = None
        if lengths is not None:
            mask = layers.sequence_mask(lengths, maxlen=layers.shape(input)[0], dtype="float32")
            mask = layers.transpose(mask, [1, 0])
        directions = len(self._units)
        shape = [self._num_layers, directions, -1, self._size]
        given = [None if state is None else layers.reshape(state, shape) for state in initial]
        found = [self._one_direction(input, mask, given, direction) for direction in range(directions)]
        outputs = [found[0][0]]
        if directions == 2:
            outputs.append(layers.reverse(found[1][0], axis=[0]))
        output = layers.concat(outputs, axis=2) if directions == 2 else outputs[0]
        states = []
        for kind in range(len(initial)):
            ends = [last[kind] for _, last in found]
            if directions == 2:
                ends = [layers.reshape(layers.concat(ends, axis=1), [self._num_layers * 2, -1, self._size])]
            states.append(ends[0])
        if batch_first:
            output = layers.transpose(output, [1, 0, 2])
        return output, *states

    def _one_direction(self, x, mask, given, direction) -> tuple[Variable, list[Variable]]:
        """The outputs of the last layer, and the last states of each kind, of all layers."""
        if direction == 1:
            x = layers.reverse(x, axis=[0])
            mask = None if mask is None else layers.reverse(mask, axis=[0])
        starts = [
            [None if states is None else states[i, direction] for states in given] for i in range(self._num_layers)
        ]
        rnn = layers.StaticRNN()
        with rnn.step():
            step = rnn.step_input(x)
            counts = None if mask is None else rnn.step_input(mask)
            for unit, start in zip(self._units[direction], starts, strict=True):
                old = [self._memory(rnn, x, state) for state in start]
                new = unit(step, *old)
                if counts is not None:
                    new = [_where(counts, after, before) for after, before in zip(new, old, strict=True)]
                for before, after in zip(old, new, strict=True):
                    rnn.update_memory(before, after)
                    rnn.step_output(after)
                step = new[0]
                if self._dropout["dropout_prob"]:
                    step = layers.dropout(step, **self._dropout)
            rnn.step_output(step)
        *states, output = rnn()
        kinds = len(given)
        lasts = [state[-1] for state in states]
        shape = [self._num_layers, -1, self._size]
        return output, [layers.reshape(layers.concat(lasts[kind::kinds], axis=0), shape) for kind in range(kinds)]

    def _memory(self, rnn: layers.StaticRNN, x: Variable, start: Variable | None) -> Variable:
        if start is not None:
            return rnn.memory(init=start)
        return rnn.memory(shape=[-1, self._size], batch_ref=x, ref_batch_dim_idx=1, init_value=0.0)


def _where(counts: Variable, after: Variable, before: Variable) -> Variable:
    """``after`` where a sequence still runs, ``before`` where it has ended."""
    kept = layers.elementwise_mul(before, counts - 1, axis=0)
    return layers.elementwise_sub(layers.elementwise_mul(after, counts, axis=0), kept)


def _numbered(attr: Any, suffix: str) -> Any:
    """``attr`` with a name of its own, if it has a name."""
    attr = ParamAttr._to_attr(attr)
    if not attr or attr.name is None:
        return attr
    attr = copy.deepcopy(attr)
    attr.name += suffix
    return attr
