"""StaticRNN: a recurrence over the first dim, which all sequences fill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import NoneType

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.sub_block import open_block, outer_reads, step_scopes
from refluid.ir import Block, Variable, unique_name

__all__ = ["StaticRNN"]


@dataclass
class _Memory:
    """A state: its first value, its name inside a step, and what it becomes."""

    init: Variable
    before: Variable
    after: Variable | None = None


class StaticRNN:
    """A recurrence over the first dim of its inputs, described by one step::

    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(words)             # words: [time, batch, size]
        before = rnn.memory(shape=[-1, 8], batch_ref=word)
        hidden = fluid.layers.fc([word, before], 8, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    out = rnn()                                  # [time, batch, 8]
    """

    BEFORE_RNN_BLOCK, IN_RNN_BLOCK, AFTER_RNN_BLOCK = range(3)

    def __init__(self, name=None):
        check_type(name, "name", (str, NoneType), "StaticRNN")
        self.helper = LayerHelper("static_rnn", name=name)
        self.memories: dict[str, _Memory] = {}
        self.inputs: list[Variable] = []
        self.outputs: list[Variable] = []
        self.status = self.BEFORE_RNN_BLOCK
        self.seq_len: int | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Layers inside describe one step."""
        self.status = self.IN_RNN_BLOCK
        with open_block(self.helper.main_program) as block:
            yield
            self.status = self.AFTER_RNN_BLOCK
            self._complete(block)

    def memory(
        self, init=None, shape=None, batch_ref=None, init_value=0.0, init_batch_dim_idx=0, ref_batch_dim_idx=1
    ) -> Variable:
        """A state: the step sees its value from the step before.

        Args:
          init: its first value; else it is ``init_value`` in ``shape``, with the batch size of ``batch_ref``.
          init_batch_dim_idx: the dim of ``shape`` that is the batch size.
          ref_batch_dim_idx: the dim of ``batch_ref``, as it was before `step_input`, that is the batch size.
        """
        self._check_inside("memory")
        check_type(init, "init", (Variable, NoneType), "StaticRNN.memory")
        check_type(shape, "shape", (list, tuple, NoneType), "StaticRNN.memory")
        check_type(batch_ref, "batch_ref", (Variable, NoneType), "StaticRNN.memory")
        if init is None:
            if shape is None or batch_ref is None:
                raise ValueError("a memory without init needs shape and batch_ref")
            init = self._filled(shape, batch_ref, init_value, init_batch_dim_idx, ref_batch_dim_idx)
        before = self.helper.create_variable(
            name=unique_name.generate(f"{self.helper.name}@mem"), dtype=init.dtype, shape=init.shape
        )
        self.memories[before.name] = _Memory(init, before)
        return before

    def _filled(self, shape: Sequence[int], like: Variable, value: float, dim: int, like_dim: int) -> Variable:
        outside = self._parent_block()
        name = unique_name.generate(f"{self.helper.name}@memory_boot")
        first = outside.create_var(name=name, shape=shape, dtype=like.dtype, persistable=False)
        outside.append_op(
            type="fill_constant_batch_size_like",
            inputs={"Input": [like.name]},  # outside, this name is the whole sequence
            outputs={"Out": [first]},
            attrs={
                "value": value,
                "shape": list(shape),
                "dtype": int(like.dtype),
                "input_dim_idx": like_dim,
                "output_dim_idx": dim,
            },
        )
        return first

    def step_input(self, x) -> Variable:
        """The part of ``x`` that belongs to the step."""
        self._check_inside("step_input")
        check_type(x, "x", Variable, "StaticRNN.step_input")
        if self.seq_len is None:
            self.seq_len = x.shape[0]
        elif x.shape[0] != -1 and self.seq_len != x.shape[0]:
            raise ValueError(
                f"the inputs of a StaticRNN have one length: {self.seq_len}, but {x.name} has {x.shape[0]}"
            )
        part = self.helper.create_variable(name=x.name, dtype=x.dtype, shape=list(x.shape[1:]), type=x.type)
        self.inputs.append(part)
        return part

    def step_output(self, o) -> None:
        """Makes ``o`` of all steps a result."""
        self._check_inside("step_output")
        check_type(o, "o", Variable, "StaticRNN.step_output")
        inside = self._remembered(o)
        outside = self._parent_block().create_var(
            name=inside.name, shape=[self.seq_len, *inside.shape], dtype=inside.dtype
        )
        self.outputs.append(outside)

    def output(self, *outputs) -> None:
        """Makes several variables of all steps results."""
        for each in outputs:
            self.step_output(each)

    def update_memory(self, mem, var) -> None:
        """Lets ``var`` of this step be ``mem`` of the next one."""
        check_type(mem, "mem", Variable, "StaticRNN.update_memory")
        check_type(var, "var", Variable, "StaticRNN.update_memory")
        self.memories[mem.name].after = var

    def __call__(self, *args, **kwargs):
        """The results: a variable, or a list of them."""
        if self.status != self.AFTER_RNN_BLOCK:
            raise ValueError("the results of a StaticRNN are there after its step block")
        if not self.outputs:
            raise ValueError("this StaticRNN has no outputs: call step_output in its step")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def _check_inside(self, method: str) -> None:
        if self.status != self.IN_RNN_BLOCK:
            raise ValueError(f"StaticRNN.{method} belongs inside `with rnn.step():`")

    def _parent_block(self) -> Block:
        parent = self.helper.main_program.current_block().parent
        assert parent is not None
        return parent

    def _remembered(self, variable: Variable) -> Variable:
        out = self.helper.create_variable_for_type_inference(variable.dtype)
        self.helper.append_op(
            type="rnn_memory_helper",
            inputs={"X": [variable]},
            outputs={"Out": [out]},
            attrs={"dtype": int(variable.dtype)},
        )
        return out

    def _complete(self, block: Block) -> None:
        outside = self._parent_block()
        parameters = outer_reads(block, [*(v.name for v in self.inputs), *self.memories])
        scopes = step_scopes(outside)
        memories = list(self.memories.values())
        for memory in memories:
            if memory.after is None:
                raise ValueError(f"the memory that starts as {memory.init.name} is never updated: call update_memory")
        states = [self._remembered(memory.after).name for memory in memories if memory.after is not None]
        outside.append_op(
            type="recurrent",
            inputs={
                "inputs": [v.name for v in self.inputs],
                "initial_states": [memory.init for memory in memories],
                "parameters": parameters,
            },
            outputs={"outputs": self.outputs, "step_scopes": [scopes]},
            attrs={
                "has_states": bool(memories),
                "ex_states": [memory.before.name for memory in memories],
                "states": states,
                "sub_block": block,
            },
        )
