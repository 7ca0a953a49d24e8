"""The older metrics, computed by ops of the program. `paddle.fluid.metrics` is simpler."""

import numpy as np

from paddle.fluid import layers
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.metrics import DetectionMAP
from refluid.ir import unique_name
from refluid.ir.program import Program, program_guard

__all__ = ["ChunkEvaluator", "DetectionMAP", "EditDistance"]


class Evaluator:
    """Accumulates counts in persistable variables, which start at zero. Call `reset` before every further pass."""

    def __init__(self, name, **kwargs):
        self.states = []
        self.metrics = []
        self.helper = LayerHelper(name, **kwargs)

    def reset(self, executor, reset_program=None):
        """Resets the counts to zero by running a small program."""
        reset_program = Program() if reset_program is None else reset_program
        with program_guard(main_program=reset_program):
            for state in self.states:
                state = reset_program.current_block()._clone_variable(state)
                layers.fill_constant(shape=state.shape, value=0.0, dtype=state.dtype, out=state)
        executor.run(reset_program)

    def eval(self, executor, eval_program=None):
        """Returns the metrics over all batches since the last reset."""
        raise NotImplementedError(f"{type(self).__name__} must implement eval")

    def _create_state(self, suffix, dtype, shape):
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        state = self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape)
        self.helper.set_variable_initializer(state, Constant(0.0))
        self.states.append(state)
        return state

    def _accumulate(self, states, counts):
        for state, count in zip(states, counts, strict=True):
            layers.sums(input=[state, count], out=state)

    def _fetch_states(self, executor, eval_program):
        eval_program = Program() if eval_program is None else eval_program
        block = eval_program.current_block()
        states = [block._clone_variable(state) for state in self.states]
        return [float(value[0]) for value in executor.run(eval_program, fetch_list=states)]


class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 of the chunks found by a sequence tagger."""

    def __init__(self, input, label, chunk_scheme, num_chunk_types, excluded_chunk_types=None):
        super().__init__("chunk_eval")
        names = ("num_infer_chunks", "num_label_chunks", "num_correct_chunks")
        self.num_infer_chunks, self.num_label_chunks, self.num_correct_chunks = (
            self._create_state(name, "int64", [1]) for name in names
        )
        *self.metrics, infer, labelled, correct = layers.chunk_eval(
            input, label, chunk_scheme, num_chunk_types, excluded_chunk_types
        )
        self._accumulate(self.states, [infer, labelled, correct])

    def eval(self, executor, eval_program=None):
        """Returns precision, recall and F1."""
        infer, labelled, correct = self._fetch_states(executor, eval_program)
        precision = correct / infer if infer else 0.0
        recall = correct / labelled if labelled else 0.0
        f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
        return tuple(np.array([figure], "float32") for figure in (precision, recall, f1))


class EditDistance(Evaluator):
    """The average edit distance of sequences, and the fraction of sequences with errors."""

    def __init__(self, input, label, ignored_tokens=None, **kwargs):
        super().__init__("edit_distance", **kwargs)
        self.total_distance = self._create_state("total_distance", "float32", [1])
        self.seq_num = self._create_state("seq_num", "int64", [1])
        self.instance_error = self._create_state("instance_error", "int64", [1])
        distances, seq_num = layers.edit_distance(input=input, label=label, ignored_tokens=ignored_tokens)
        zero = layers.fill_constant(shape=[1], value=0.0, dtype="float32")
        right = layers.cast(x=layers.equal(distances, zero), dtype="int64")
        wrong = layers.elementwise_sub(x=seq_num, y=layers.reduce_sum(right))
        total = layers.reduce_sum(distances)
        self._accumulate(self.states, [total, seq_num, wrong])
        self.metrics += [total, wrong]

    def eval(self, executor, eval_program=None):
        """Returns the average distance and the fraction of sequences with errors."""
        distance, count, errors = self._fetch_states(executor, eval_program)
        if not count:
            raise ValueError("EditDistance has no data: no batch has run since the last reset")
        return np.array([distance / count], "float32"), np.array([errors / count], "float32")
