"""StaticRNN: a recurrence over the first dim of dense tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import NoneType

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_output
from paddle.fluid.layers._topics.core.sub_block import open_block, parent_block, step_scopes
from refluid.ir import Block, Variable, unique_name
from refluid.ir.overwritten import persistable_writes
from refluid.ir.sub_blocks import outer_reads

__all__ = ["StaticRNN"]


@dataclass
class _Memory:
    """A state: its initial value, its variable inside a step, and its next value."""

    init: Variable
    before: Variable
    after: Variable | None = None


class StaticRNN:
    """A recurrence over the first dim of its inputs, defined by one step::

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
        """Opens the step; layers inside define it."""
        self.status = self.IN_RNN_BLOCK
        with open_block(self.helper.main_program) as block:
            yield
            self.status = self.AFTER_RNN_BLOCK
            self._complete(block)

    def memory(
        self, init=None, shape=None, batch_ref=None, init_value=0.0, init_batch_dim_idx=0, ref_batch_dim_idx=1
    ) -> Variable:
        """Creates a state, which holds its value from the previous step.

        Args:
          init: the initial value; otherwise ``init_value`` in ``shape``, with the batch size of ``batch_ref``.
          init_batch_dim_idx: the batch dim of ``shape``.
          ref_batch_dim_idx: the batch dim of ``batch_ref`` as it is outside the step.
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
        outside = parent_block()
        name = unique_name.generate(f"{self.helper.name}@memory_boot")
        first = outside.create_var(name=name, shape=shape, dtype=like.dtype, persistable=False)
        attrs = {"value": value, "shape": list(shape), "dtype": int(like.dtype)}
        outside.append_op(
            type="fill_constant_batch_size_like",
            inputs={"Input": like.name},  # outside the step, this name is the whole sequence
            outputs={"Out": first},
            attrs={**attrs, "input_dim_idx": like_dim, "output_dim_idx": dim},
        )
        return first

    def step_input(self, x) -> Variable:
        """Returns the current step of ``x``."""
        self._check_inside("step_input")
        check_type(x, "x", Variable, "StaticRNN.step_input")
        if self.seq_len is None:
            self.seq_len = x.shape[0]
        elif x.shape[0] != -1 and self.seq_len != x.shape[0]:
            raise ValueError(
                f"StaticRNN inputs must have the same length: expected {self.seq_len}, but {x.name} has {x.shape[0]}"
            )
        part = self.helper.create_variable(name=x.name, dtype=x.dtype, shape=list(x.shape[1:]), type=x.type)
        self.inputs.append(part)
        return part

    def step_output(self, o) -> None:
        """Collects ``o`` over all steps as a result."""
        self._check_inside("step_output")
        check_type(o, "o", Variable, "StaticRNN.step_output")
        inside = self._remembered(o)
        outside = parent_block().create_var(name=inside.name, shape=[self.seq_len, *inside.shape], dtype=inside.dtype)
        self.outputs.append(outside)

    def output(self, *outputs) -> None:
        """Collects several variables over all steps as results."""
        for each in outputs:
            self.step_output(each)

    def update_memory(self, mem, var) -> None:
        """Makes ``var`` the value of ``mem`` in the next step."""
        check_type(mem, "mem", Variable, "StaticRNN.update_memory")
        check_type(var, "var", Variable, "StaticRNN.update_memory")
        self.memories[mem.name].after = var

    def __call__(self, *args, **kwargs):
        """Returns the results: a variable or a list."""
        if self.status != self.AFTER_RNN_BLOCK:
            raise ValueError("a StaticRNN can be called only after its step block")
        if not self.outputs:
            raise ValueError("this StaticRNN has no outputs: call step_output in its step")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def _check_inside(self, method: str) -> None:
        if self.status != self.IN_RNN_BLOCK:
            raise ValueError(f"StaticRNN.{method} must be called inside `with rnn.step():`")

    def _remembered(self, variable: Variable) -> Variable:
        attrs = {"dtype": int(variable.dtype)}
        return append_output(self.helper, {"X": variable}, variable.dtype, attrs, "rnn_memory_helper")

    def _complete(self, block: Block) -> None:
        outside = parent_block()
        parameters = outer_reads(block, [*(v.name for v in self.inputs), *self.memories])
        kept = persistable_writes(block)
        scopes = step_scopes(outside)
        memories = list(self.memories.values())
        for memory in memories:
            if memory.after is None:
                raise ValueError(f"the memory initialized from {memory.init.name} is never updated: call update_memory")
        states = [self._remembered(memory.after).name for memory in memories if memory.after is not None]
        outside.append_op(
            type="recurrent",
            inputs={
                "inputs": [v.name for v in self.inputs],
                "initial_states": [memory.init for memory in memories],
                "parameters": [*parameters, *(name for name in kept if name not in parameters)],
            },
            outputs={"outputs": self.outputs, "step_scopes": [scopes], **({"kept": kept} if kept else {})},
            attrs={
                "has_states": bool(memories),
                "ex_states": [memory.before.name for memory in memories],
                "states": states,
                "sub_block": block,
            },
        )
