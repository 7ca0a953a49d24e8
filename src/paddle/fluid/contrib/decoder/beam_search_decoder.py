"""Decoders around a StateCell: one for training with teacher forcing, and one for beam search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paddle.fluid import layers
from paddle.fluid.contrib.decoder.state_cell import InitState, StateCell
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.sub_block import parent_block
from refluid.ir import Variable, VarType, unique_name

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]


@dataclass
class _Memory:
    """A state stored in a memory of a DynamicRNN."""

    rnn: layers.DynamicRNN
    memory: Variable

    def get(self) -> Variable:
        return self.memory

    def set(self, value: Variable) -> None:
        self.rnn.update_memory(self.memory, value)


class TrainingDecoder:
    """Runs a StateCell over given sequences::

    decoder = TrainingDecoder(cell)
    with decoder.block():
        decoder.state_cell.compute_state(inputs={"word": decoder.step_input(words)})
        scores = fluid.layers.fc(decoder.state_cell.get_state("hidden"), size, act="softmax")
        decoder.state_cell.update_states()
        decoder.output(scores)
    predictions = decoder()
    """

    BEFORE_DECODER, IN_DECODER, AFTER_DECODER = range(3)

    def __init__(self, state_cell, name=None):
        self._helper = LayerHelper("training_decoder", name=name)
        self._status = self.BEFORE_DECODER
        self._dynamic_rnn = layers.DynamicRNN()
        self._state_cell = state_cell
        state_cell._enter_decoder(self)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Opens the step; layers inside define it."""
        if self._status != self.BEFORE_DECODER:
            raise ValueError("TrainingDecoder.block can be entered only once")
        self._status = self.IN_DECODER
        with self._dynamic_rnn.block():
            yield
        self._status = self.AFTER_DECODER
        self._state_cell._leave_decoder(self)

    def hold(self, init: InitState) -> _Memory:
        """Returns storage for a state of the cell."""
        memory = self._dynamic_rnn.memory(init=init.value, need_reorder=init.need_reorder)
        return _Memory(self._dynamic_rnn, memory)

    @property
    def state_cell(self) -> StateCell:
        """The cell, inside the block."""
        self._check_inside("state_cell")
        return self._state_cell

    @property
    def dynamic_rnn(self) -> layers.DynamicRNN:
        """The underlying loop."""
        return self._dynamic_rnn

    def step_input(self, x) -> Variable:
        """Returns the current time step of the sequences in ``x``."""
        self._check_inside("step_input")
        return self._dynamic_rnn.step_input(x)

    def static_input(self, x) -> Variable:
        """Makes ``x`` available in every step."""
        self._check_inside("static_input")
        return self._dynamic_rnn.static_input(x)

    def output(self, *outputs) -> None:
        """Collects variables over all steps as results."""
        self._check_inside("output")
        self._dynamic_rnn.output(*outputs)

    def __call__(self, *args, **kwargs):
        """Returns the results, packed like the first step input."""
        if self._status != self.AFTER_DECODER:
            raise ValueError("a TrainingDecoder can be called only after its block")
        return self._dynamic_rnn(*args, **kwargs)

    def _check_inside(self, method: str) -> None:
        if self._status != self.IN_DECODER:
            raise ValueError(f"TrainingDecoder.{method} must be called inside `with decoder.block():`")


@dataclass
class _Array:
    """A state stored in its own tensor array."""

    array: Variable
    counter: Variable

    def get(self) -> Variable:
        return layers.array_read(self.array, self.counter)

    def set(self, value: Variable) -> None:
        layers.increment(self.counter)
        layers.array_write(value, self.counter, self.array)


class BeamSearchDecoder:
    """Searches for the best sentences, token by token, with a StateCell::

        decoder = BeamSearchDecoder(cell, first_ids, first_scores, target_dict_dim=100, word_dim=16, beam_size=4)
        decoder.decode()
        ids, scores = decoder()

    Args:
      init_ids, init_scores: the first token of each source and its score, as sequences of two levels.
      target_dict_dim: the vocabulary size.
      word_dim: the embedding size of the cell inputs that `decode` creates.
      input_var_dict: further inputs of the cell, by name.
      topk_size: the number of candidate tokens per beam.
      sparse_emb: whether the embedding's gradient is sparse.
      max_len: the maximum length of a sentence.
      beam_size: the number of beams kept per source.
      end_id: the token that ends a sentence.
    """

    BEFORE_BEAM_SEARCH_DECODER, IN_BEAM_SEARCH_DECODER, AFTER_BEAM_SEARCH_DECODER = range(3)

    def __init__(
        self,
        state_cell,
        init_ids,
        init_scores,
        target_dict_dim,
        word_dim,
        input_var_dict: Mapping[str, Any] = {},
        topk_size=50,
        sparse_emb=True,
        max_len=100,
        beam_size=1,
        end_id=1,
        name=None,
    ):
        self._helper = LayerHelper("beam_search_decoder", name=name)
        self._counter = layers.fill_constant([1], "int64", 0)
        self._max_len = layers.fill_constant([1], "int64", max_len)
        self._cond = layers.less_than(self._counter, layers.fill_constant([1], "int64", max_len))
        self._while_op = layers.While(self._cond)
        self._status = self.BEFORE_BEAM_SEARCH_DECODER
        self._zero_idx = layers.fill_constant([1], "int64", 0, force_cpu=True)
        self._arrays: dict[str, Variable] = {}  # variable read in a step -> its array
        self._updates: list[tuple[Variable, Variable]] = []
        self._ids_array: Variable | None = None
        self._scores_array: Variable | None = None
        self._state_cell = state_cell
        state_cell._enter_decoder(self)
        self._init_ids, self._init_scores = init_ids, init_scores
        self._target_dict_dim, self._word_dim = target_dict_dim, word_dim
        self._input_var_dict = dict(input_var_dict)
        self._topk_size, self._sparse_emb = topk_size, sparse_emb
        self._beam_size, self._end_id = beam_size, end_id

    @contextmanager
    def block(self) -> Iterator[None]:
        """Opens the step; layers inside define it."""
        if self._status != self.BEFORE_BEAM_SEARCH_DECODER:
            raise ValueError("BeamSearchDecoder.block can be entered only once")
        self._status = self.IN_BEAM_SEARCH_DECODER
        with self._while_op.block():
            yield
            with layers.Switch() as switch, switch.case(self._cond):
                layers.increment(self._counter)
                for value, array in self._updates:
                    layers.array_write(value, self._counter, array)
                layers.less_than(self._counter, self._max_len, cond=self._cond)
        self._status = self.AFTER_BEAM_SEARCH_DECODER
        self._state_cell._leave_decoder(self)

    def hold(self, init: InitState) -> _Array:
        """Returns storage for a state of the cell."""
        outside = parent_block()
        array = outside.create_var(
            name=unique_name.generate("array_state_array"), type=VarType.LOD_TENSOR_ARRAY, dtype=init.value.dtype
        )
        counter = outside.create_var(name=unique_name.generate("array_state_counter"), dtype="int64")
        counter.stop_gradient = True
        attrs = {"shape": [1], "dtype": int(VarType.INT64), "value": 0.0, "force_cpu": True}
        outside.append_op(type="fill_constant", outputs={"Out": counter}, attrs=attrs)
        outside.append_op(type="write_to_array", inputs={"X": [init.value], "I": [counter]}, outputs={"Out": [array]})
        return _Array(array, counter)

    @property
    def state_cell(self) -> StateCell:
        """The cell, inside the block."""
        self._check_inside("state_cell")
        return self._state_cell

    def early_stop(self) -> None:
        """Ends the search after this step."""
        self._check_inside("early_stop")
        layers.fill_constant([1], "bool", 0, force_cpu=True, out=self._cond)

    def decode(self) -> None:
        """Defines the standard step: the cell reads the previous token, and its output scores the next one."""
        with self.block():
            ids = self.read_array(init=self._init_ids, is_ids=True)
            scores = self.read_array(init=self._init_scores, is_scores=True)
            embedded = layers.embedding(
                ids, size=[self._target_dict_dim, self._word_dim], dtype="float32", is_sparse=self._sparse_emb
            )
            given = self._other_inputs()
            inputs = {name: layers.sequence_expand(each, scores) for name, each in given.items()}
            cell = self._state_cell
            for name in cell.state_names:
                cell.set_state(name, layers.sequence_expand(cell.get_state(name), scores))
            cell.compute_state({**{name: embedded for name in cell.input_names if name not in inputs}, **inputs})
            result = layers.lod_reset(cell.out_state(), y=scores)
            probs = layers.fc(result, size=self._target_dict_dim, act="softmax")
            top, candidates = layers.topk(probs, k=self._topk_size)
            total = layers.elementwise_add(layers.log(top), layers.reshape(scores, shape=[-1]), axis=0)
            chosen, chosen_scores = layers.beam_search(
                ids, scores, candidates, total, self._beam_size, self._end_id, level=0
            )
            with layers.Switch() as switch:
                with switch.case(layers.is_empty(chosen)):
                    self.early_stop()
                with switch.default():
                    cell.update_states()
                    self.update_array(ids, chosen)
                    self.update_array(scores, chosen_scores)
                    for name, each in given.items():
                        self.update_array(each, inputs[name])

    def _other_inputs(self) -> dict[str, Variable]:
        unknown = [name for name in self._input_var_dict if name not in self._state_cell.input_names]
        if unknown:
            raise ValueError(f"BeamSearchDecoder: {', '.join(unknown)} of input_var_dict is not an input of the cell")
        return {name: self.read_array(init=value) for name, value in self._input_var_dict.items()}

    def read_array(self, init, is_ids=False, is_scores=False) -> Variable:
        """Returns the value from the previous step, initially ``init``; `update_array` sets the next one.

        Args:
          is_ids, is_scores: whether the array holds the chosen tokens or their scores, used to backtrack the sentences.
        """
        self._check_inside("read_array")
        if is_ids and is_scores:
            raise ValueError("BeamSearchDecoder.read_array: an array can hold ids or scores, not both")
        outside = parent_block()
        array = outside.create_var(
            name=unique_name.generate("beam_search_decoder_array"), type=VarType.LOD_TENSOR_ARRAY, dtype=init.dtype
        )
        outside.append_op(type="write_to_array", inputs={"X": [init], "I": [self._zero_idx]}, outputs={"Out": [array]})
        if is_ids:
            self._ids_array = array
        elif is_scores:
            self._scores_array = array
        value = layers.array_read(array, self._counter)
        self._arrays[value.name] = array
        return value

    def update_array(self, array, value) -> None:
        """Sets the value that the `read_array` call that returned ``array`` yields in the next step."""
        self._check_inside("update_array")
        found = self._arrays.get(array.name) if isinstance(array, Variable) else None
        if found is None:
            raise ValueError("BeamSearchDecoder.update_array: array must come from read_array")
        self._updates.append((value, found))

    def __call__(self) -> tuple[Variable, Variable]:
        """Returns the sentences and their scores, as sequences of two levels: sources and sentences."""
        if self._status != self.AFTER_BEAM_SEARCH_DECODER:
            raise ValueError("a BeamSearchDecoder can be called only after its block")
        return layers.beam_search_decode(self._ids_array, self._scores_array, self._beam_size, self._end_id)

    def _check_inside(self, method: str) -> None:
        if self._status != self.IN_BEAM_SEARCH_DECODER:
            raise ValueError(f"BeamSearchDecoder.{method} must be called inside `with decoder.block():`")
