"""Step-by-step decoding on dense tensors: decoders, including beam search, and the decoding loop."""

from __future__ import annotations

import contextlib
from collections import namedtuple
from typing import Any

import numpy as np

from paddle.fluid import layers
from paddle.fluid.layers._topics.core.append import append_single_op
from paddle.fluid.layers._topics.core.nested import flatten, map_structure
from paddle.fluid.layers._topics.core.sub_block import parent_block
from paddle.fluid.layers._topics.rnn.cells import swap_batch_and_time
from refluid.ir import Variable, VarType, unique_name

_IMPOSSIBLE = 1e9  # stands for -log(0), but finite


class Decoder:
    """The interface that `dynamic_decode` runs."""

    def initialize(self, inits):
        """Returns the inputs and states of the first step, and which rows are already finished."""
        raise NotImplementedError("a Decoder must implement `initialize`")

    def step(self, time, inputs, states, **kwargs):
        """Returns outputs, next states, next inputs, and which rows are finished."""
        raise NotImplementedError("a Decoder must implement `step`")

    def finalize(self, outputs, final_states, sequence_lengths):
        """Post-processes the stacked outputs of all steps and the final states."""
        raise NotImplementedError("this Decoder does not implement `finalize`")


class BeamSearchDecoder(Decoder):
    """Searches for the most probable sentences with an RNN cell.

    Args:
      cell: an RNNCell; its layers see ``beam_size`` rows for each row of the batch.
      start_token, end_token: the tokens that begin and end a sentence.
      beam_size: the number of beams kept per row of the batch.
      embedding_fn: maps tokens to cell inputs; by default the tokens themselves are the inputs.
      output_fn: maps cell outputs to a score for every token.
    """

    OutputWrapper = namedtuple("OutputWrapper", ("scores", "predicted_ids", "parent_ids"))
    StateWrapper = namedtuple("StateWrapper", ("cell_states", "log_probs", "finished", "lengths"))

    def __init__(self, cell, start_token, end_token, beam_size, embedding_fn=None, output_fn=None):
        self.cell = cell
        self.embedding_fn, self.output_fn = embedding_fn, output_fn
        self.start_token, self.end_token = start_token, end_token
        self.beam_size = beam_size

    @staticmethod
    def tile_beam_merge_with_batch(x, beam_size) -> Variable:
        """Repeats each row ``beam_size`` times, so that cells can use tensors from outside the search."""
        x = _tile_beams(x, beam_size)
        return layers.reshape(x, shape=[-1, *x.shape[2:]])

    def _split_batch_beams(self, x: Variable) -> Variable:
        return layers.reshape(x, shape=[-1, self.beam_size, *x.shape[1:]])

    def _merge_batch_beams(self, x: Variable) -> Variable:
        return layers.reshape(x, shape=[-1, *x.shape[2:]])

    def _expand_to_beam_size(self, x: Variable) -> Variable:
        return _tile_beams(x, self.beam_size)

    def initialize(self, initial_cell_states):  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        """Starts with one beam per row; the other beams get a score that cannot win."""
        state = flatten(initial_cell_states)[0]
        self.batch_size = layers.shape(state)[0]
        self.start_token_tensor = layers.fill_constant([1], "int64", self.start_token)
        self.end_token_tensor = layers.fill_constant([1], "int64", self.end_token)
        cell_states = map_structure(self._expand_to_beam_size, initial_cell_states)
        tokens = self._expand_to_beam_size(layers.expand(self.start_token_tensor, [self.batch_size]))
        first = np.array([[0.0] + [-_IMPOSSIBLE] * (self.beam_size - 1)], "float32")
        log_probs = layers.expand(layers.assign(first), [self.batch_size, 1])
        finished = layers.fill_constant_batch_size_like(
            state, shape=[-1, self.beam_size], dtype="bool", value=False, force_cpu=True
        )
        lengths = layers.zeros_like(tokens)
        inputs = self.embedding_fn(tokens) if self.embedding_fn else tokens
        return inputs, self.StateWrapper(cell_states, log_probs, finished, lengths), finished

    def step(self, time, inputs, states, **kwargs):
        """Extends the beams by one token and keeps the best."""
        inputs = map_structure(self._merge_batch_beams, inputs)
        cell_states = map_structure(self._merge_batch_beams, states.cell_states)
        outputs, after = self.cell(inputs, cell_states, **kwargs)
        outputs = map_structure(self._split_batch_beams, outputs)
        after = map_structure(self._split_batch_beams, after)
        scores = self.output_fn(outputs) if self.output_fn is not None else outputs
        chosen, next_states = self._beam_search_step(time, scores, after, states)
        tokens = chosen.predicted_ids
        next_inputs = self.embedding_fn(tokens) if self.embedding_fn else tokens
        return chosen, next_states, next_inputs, next_states.finished

    def _beam_search_step(self, time: Variable, logits: Variable, next_cell_states: Any, beam_state: Any) -> Any:
        count = logits.shape[-1]
        vocabulary_size = layers.fill_constant([1], "int64", count)
        only_end = np.full(count, -_IMPOSSIBLE, "float32")
        only_end[self.end_token] = 0
        only_end = layers.assign(only_end)
        step_log_probs = layers.log(layers.softmax(logits))
        step_log_probs = self._mask_probs(step_log_probs, beam_state.finished, only_end)
        totals = layers.elementwise_add(step_log_probs, beam_state.log_probs, axis=0)
        width = self.beam_size * count
        best, indices = layers.topk(layers.reshape(totals, [-1, width]), k=self.beam_size)
        parents = layers.elementwise_floordiv(indices, vocabulary_size)
        tokens = layers.elementwise_mod(indices, vocabulary_size)
        log_probs = self._gather(layers.reshape(totals, [-1, width]), indices)
        cell_states = map_structure(lambda x: self._gather(x, parents), next_cell_states)
        finished = self._gather(beam_state.finished, parents)
        lengths = self._gather(beam_state.lengths, parents)
        lengths = lengths + layers.cast(layers.logical_not(finished), lengths.dtype)
        finished = layers.logical_or(finished, layers.equal(tokens, self.end_token_tensor))
        return self.OutputWrapper(best, tokens, parents), self.StateWrapper(cell_states, log_probs, finished, lengths)

    def _mask_probs(self, probs: Variable, finished: Variable, only_end: Variable) -> Variable:
        """A finished beam continues with the end token at no cost."""
        finished = layers.cast(finished, probs.dtype)
        spread = layers.expand(layers.unsqueeze(finished, [2]), [1, 1, probs.shape[-1]])
        ending = layers.elementwise_mul(spread, only_end, axis=-1)
        return ending - layers.elementwise_mul(probs, finished - 1, axis=0)

    def _gather(self, x: Variable, indices: Variable) -> Variable:
        """Gathers beams by ``indices`` for each row of the batch."""
        rows = layers.range(0, layers.cast(self.batch_size, indices.dtype), 1, dtype=indices.dtype)
        rows = layers.expand(layers.unsqueeze(rows, [1]), [1, self.beam_size])
        return layers.gather_nd(x, layers.stack([rows, indices], axis=2))

    def finalize(self, outputs, final_states, sequence_lengths):
        """Backtracks the best beams from the last step to the first."""
        return layers.gather_tree(outputs.predicted_ids, outputs.parent_ids), final_states


def _tile_beams(x: Variable, beam_size: int) -> Variable:
    x = layers.unsqueeze(x, [1])
    return layers.expand(x, [1, beam_size, *[1] * (len(x.shape) - 2)])


def dynamic_decode(
    decoder,
    inits=None,
    max_step_num=None,
    output_time_major=False,
    impute_finished=False,
    is_test=False,
    return_length=False,
    **kwargs,
):
    """Runs ``decoder`` until all rows are finished; returns the stacked outputs of all steps and the final states.

    Args:
      inits: passed to ``decoder.initialize``.
      max_step_num: the index of the last allowed step, counted from 0.
      output_time_major: whether outputs are [time, batch, ...] instead of [batch, time, ...].
      impute_finished: keep the states of finished rows unchanged.
      is_test: whether no gradients are needed.
      return_length: also return the number of steps of each row.
      kwargs: passed to ``decoder.step``.
    """
    inputs, states, finished = decoder.initialize(inits)
    time = layers.fill_constant([1], "int64", 0)
    going = layers.logical_not(layers.reduce_all(finished))
    limit = None if max_step_num is None else layers.fill_constant([1], "int64", max_step_num)
    loop = layers.While(going, is_test=is_test)
    lengths = layers.cast(layers.zeros_like(finished), "int64")
    input_arrays = map_structure(lambda x: layers.array_write(x, time), inputs)
    state_arrays = map_structure(lambda x: layers.array_write(x, time), states)
    with loop.block():
        now = map_structure(lambda array: layers.array_read(array, time), input_arrays)
        before = map_structure(lambda array: layers.array_read(array, time), state_arrays)
        outputs, after, next_inputs, next_finished = decoder.step(time, now, before, **kwargs)
        next_finished = layers.logical_or(next_finished, finished)
        running = layers.cast(layers.logical_not(finished), "int64")
        next_lengths = layers.elementwise_add(lengths, running)
        if impute_finished:
            after = map_structure(lambda old, new: _select(finished, old, new), before, after)
        output_arrays = map_structure(_outer_array, outputs)
        map_structure(lambda x, array: layers.array_write(x, time, array), outputs, output_arrays)
        layers.increment(time, value=1.0, in_place=True)
        map_structure(lambda x, array: layers.array_write(x, time, array), next_inputs, input_arrays)
        map_structure(lambda x, array: layers.array_write(x, time, array), after, state_arrays)
        layers.assign(next_finished, finished)
        layers.assign(next_lengths, lengths)
        some_left = layers.logical_not(layers.reduce_all(finished), out=None if limit is not None else going)
        if limit is not None:
            layers.logical_and(some_left, layers.less_equal(time, limit), going)
    results = map_structure(lambda x: layers.tensor_array_to_tensor(x, axis=0, use_stack=True)[0], output_arrays)
    last = map_structure(lambda array: layers.array_read(array, time), state_arrays)
    with contextlib.suppress(NotImplementedError):
        results, last = decoder.finalize(results, last, lengths)
    if not output_time_major:
        results = map_structure(swap_batch_and_time, results)
    return (results, last, lengths) if return_length else (results, last)


def _select(finished: Variable, old: Variable, new: Variable) -> Variable:
    if old.dtype == VarType.BOOL:
        mixed = _select(finished, layers.cast(old, "float32"), layers.cast(new, "float32"))
        return layers.cast(mixed, "bool")
    mask = layers.cast(finished, old.dtype)
    return layers.elementwise_mul(old, mask, axis=0) - layers.elementwise_mul(new, mask - 1, axis=0)


def _outer_array(like: Variable) -> Variable:
    """Creates an empty tensor array in the block that encloses the current loop."""
    name = f"{unique_name.generate('array')}.out"
    return parent_block().create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=like.dtype)


def gather_tree(ids, parents) -> Variable:
    """Backtracks the sentences of a beam search from the last step.

    Args:
      ids: [time, batch, beam], the token chosen at each step.
      parents: the beam of the previous step that each one continues.
    """
    return append_single_op("gather_tree", {"Ids": ids, "Parents": parents}, {"Out": ids.dtype})["Out"]
