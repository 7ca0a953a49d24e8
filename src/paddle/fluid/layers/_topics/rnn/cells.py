"""RNN cells, which define one step of a recurrence, and `rnn`, which runs a cell over the time axis."""

from __future__ import annotations

from typing import Any

from paddle.fluid import layers
from paddle.fluid.layers._topics.core.nested import flatten, map_structure
from paddle.fluid.layers._topics.rnn.units import BasicGRUUnit, BasicLSTMUnit
from refluid.ir import Variable


class RNNCell:
    """Defines one step: ``call(inputs, states)`` returns outputs and new states, in any nested structure."""

    def call(self, inputs, states, **kwargs):
        """Builds the step."""
        raise NotImplementedError("an RNNCell must implement `call`")

    def __call__(self, inputs, states, **kwargs):
        return self.call(inputs, states, **kwargs)

    def get_initial_states(self, batch_ref, shape=None, dtype="float32", init_value=0, batch_dim_idx=0):
        """Returns states filled with ``init_value``.

        Args:
          batch_ref: a variable with the batch size of the states; of a structure, the first variable counts.
          shape: the shape of a row or a structure of shapes; defaults to `state_shape`.
          dtype: the dtype of all states or a structure of dtypes; defaults to `state_dtype` if the cell defines it.
          batch_dim_idx: the batch dim of ``batch_ref``.
        """
        reference = flatten(batch_ref)[0]
        shapes = self.state_shape if shape is None else shape
        if shape is None and dtype == "float32":
            dtype = self._default_dtype() or dtype

        def filled(shape, dtype):
            sizes = list(shape) if shape[0] == -1 else [-1, *shape]
            return layers.fill_constant_batch_size_like(
                reference, shape=sizes, dtype=dtype, value=init_value, input_dim_idx=batch_dim_idx
            )

        return _map_shapes(filled, shapes, dtype)

    def _default_dtype(self) -> Any:
        try:
            return self.state_dtype
        except NotImplementedError:
            return None

    @property
    def state_shape(self):
        """The shape of a row of the state, or a structure of shapes."""
        raise NotImplementedError("this cell does not define state_shape: pass `shape` or initial states")

    @property
    def state_dtype(self):
        """The dtype of the state, or a structure of dtypes."""
        raise NotImplementedError("this cell does not define state_dtype: pass `dtype`")


def _map_shapes(function: Any, shapes: Any, dtypes: Any) -> Any:
    """Like map_structure, but treats a list of integers as a leaf (a shape)."""
    if isinstance(shapes, list | tuple) and shapes and all(isinstance(size, int) for size in shapes):
        return function(shapes, dtypes)
    several = not isinstance(dtypes, str) and isinstance(dtypes, list | tuple)
    mapped = [_map_shapes(function, each, dtypes[i] if several else dtypes) for i, each in enumerate(shapes)]
    return mapped if isinstance(shapes, list) else tuple(mapped)


class GRUCell(RNNCell):
    """One step of a GRU; the output is the new state.

    Args:
      gate_activation, activation: layers; default to sigmoid and tanh.
    """

    def __init__(
        self,
        hidden_size,
        param_attr=None,
        bias_attr=None,
        gate_activation=None,
        activation=None,
        dtype="float32",
        name="GRUCell",
    ):
        self.hidden_size = hidden_size
        self.gru_unit = BasicGRUUnit(name, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype)

    def call(self, inputs, states):  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        """Returns the new state, as output and as state."""
        hidden = self.gru_unit(inputs, states)
        return hidden, hidden

    @property
    def state_shape(self) -> list[int]:
        """The shape of a row of the state."""
        return [self.hidden_size]


class LSTMCell(RNNCell):
    """One step of an LSTM; the states are hidden state and cell, the output is the hidden state.

    Args:
      gate_activation, activation: ignored, as in Fluid; always sigmoid and tanh.
      forget_bias: added to the forget gate.
    """

    def __init__(
        self,
        hidden_size,
        param_attr=None,
        bias_attr=None,
        gate_activation=None,
        activation=None,
        forget_bias=1.0,
        dtype="float32",
        name="LSTMCell",
    ):
        self.hidden_size = hidden_size
        self.lstm_unit = BasicLSTMUnit(
            name, hidden_size, param_attr, bias_attr, gate_activation, activation, forget_bias, dtype
        )

    def call(self, inputs, states):  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        """Returns the new hidden state, and both new states."""
        hidden, cell = self.lstm_unit(inputs, *states)
        return hidden, [hidden, cell]

    @property
    def state_shape(self) -> list[list[int]]:
        """The row shapes of hidden state and cell."""
        return [[self.hidden_size], [self.hidden_size]]


def rnn(
    cell, inputs, initial_states=None, sequence_length=None, time_major=False, is_reverse=False, **kwargs
) -> tuple[Any, Any]:
    """Runs ``cell`` over the time axis of ``inputs``; returns the outputs of all steps and the final states.

    Args:
      inputs: a variable [batch, time, ...] or a structure of such variables.
      initial_states: in the cell's structure; default to zeros.
      sequence_length: the number of valid steps of each row; later steps leave its states unchanged.
      time_major: whether inputs and outputs are [time, batch, ...].
      is_reverse: run from the last step to the first.
      kwargs: passed to the cell.
    """
    if initial_states is None:
        initial_states = cell.get_initial_states(batch_ref=inputs, batch_dim_idx=1 if time_major else 0)
    if not time_major:
        inputs = map_structure(swap_batch_and_time, inputs)
    mask = None
    if sequence_length is not None:
        longest = layers.shape(flatten(inputs)[0])[0]
        states_dtype = flatten(initial_states)[0].dtype
        mask = layers.transpose(layers.sequence_mask(sequence_length, maxlen=longest, dtype=states_dtype), [1, 0])
    if is_reverse:
        inputs = map_structure(lambda x: layers.reverse(x, axis=[0]), inputs)
        mask = None if mask is None else layers.reverse(mask, axis=[0])

    loop = layers.StaticRNN()
    with loop.step():
        now = map_structure(loop.step_input, inputs)
        states = map_structure(lambda state: loop.memory(init=state), initial_states)
        step_mask = None if mask is None else loop.step_input(mask)
        outputs, after = cell.call(now, states, **kwargs)
        if step_mask is not None:
            after = map_structure(lambda old, new: _masked_update(old, new, step_mask), states, after)
        map_structure(loop.update_memory, states, after)
        map_structure(loop.step_output, outputs)
        map_structure(loop.step_output, after)
    results = flatten(loop())
    count = len(flatten(outputs))
    final_outputs = packed_like(outputs, results[:count])
    final_states = packed_like(after, [state[-1] for state in results[count:]])
    if is_reverse:
        final_outputs = map_structure(lambda x: layers.reverse(x, axis=[0]), final_outputs)
    if not time_major:
        final_outputs = map_structure(swap_batch_and_time, final_outputs)
    return final_outputs, final_states


def _masked_update(old: Variable, new: Variable, mask: Variable) -> Variable:
    return layers.elementwise_mul(new, mask, axis=0) - layers.elementwise_mul(old, mask - 1, axis=0)


def swap_batch_and_time(x: Variable) -> Variable:
    """Swaps the first two dims of ``x``."""
    return layers.transpose(x, [1, 0, *range(2, len(x.shape))])


def packed_like(structure: Any, values: list[Any]) -> Any:
    """Packs flat ``values`` into the given structure, in order."""
    ahead = iter(values)
    return map_structure(lambda _: next(ahead), structure)
