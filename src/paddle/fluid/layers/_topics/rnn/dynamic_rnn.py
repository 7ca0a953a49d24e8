"""DynamicRNN: a recurrence over packed sequences of different lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.control.arrays import array_read, array_write
from paddle.fluid.layers._topics.control.while_loop import While
from paddle.fluid.layers._topics.core.sub_block import parent_block
from paddle.fluid.layers._topics.rnn.rank_table import array_to_lod_tensor, shrink_memory
from paddle.fluid.layers._topics.tensor.compare import less_than
from paddle.fluid.layers._topics.tensor.create import fill_constant, increment
from refluid.ir import Block, Variable, VarType, unique_name

__all__ = ["DynamicRNN"]


class DynamicRNN:
    """A recurrence over packed sequences, defined by one step::

        rnn = fluid.layers.DynamicRNN()
        with rnn.block():
            word = rnn.step_input(words)                  # words: packed sequences
            before = rnn.memory(shape=[8])
            hidden = fluid.layers.fc([word, before], 8, act="tanh")
            rnn.update_memory(before, hidden)
            rnn.output(hidden)
        last = fluid.layers.sequence_last_step(rnn())     # rnn(): packed like words

    Inside a step, sequences are sorted by length and finished ones are dropped.
    """

    BEFORE_RNN, IN_RNN, AFTER_RNN = range(3)

    def __init__(self, name=None):
        check_type(name, "name", (str, NoneType), "DynamicRNN")
        self.helper = LayerHelper("dynamic_rnn", name=name)
        self.status = self.BEFORE_RNN
        self.lod_rank_table: Variable | None = None
        self.max_seq_len: Variable | None = None
        self.step_idx: Variable | None = None
        self.zero_idx: Variable | None = None
        self.mem_dict: dict[str, Variable] = {}  # name of a memory inside the step -> its array
        self.mem_link: list[tuple[Variable, Variable]] = []  # (next value of a memory, its array)
        self.input_array: list[Variable] = []
        self.output_array: list[Variable] = []
        self.outputs: list[Variable] = []
        self.cond = self.helper.create_variable_for_type_inference("bool", stop_gradient=True)
        self.while_op = While(self.cond)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Opens the step; layers inside define it."""
        if self.status != self.BEFORE_RNN:
            raise ValueError("DynamicRNN.block can be entered only once")
        self.step_idx = fill_constant(shape=[1], dtype="int64", value=0, force_cpu=True)
        self.step_idx.stop_gradient = False
        self.status = self.IN_RNN
        with self.while_op.block():
            yield
            if self.max_seq_len is None:
                raise ValueError("a DynamicRNN needs at least one step_input")
            increment(self.step_idx, value=1.0, in_place=True)
            for after, array in self.mem_link:
                array_write(after, self.step_idx, array)
            less_than(self.step_idx, self.max_seq_len, force_cpu=True, cond=self.cond)
        self.status = self.AFTER_RNN
        self.outputs = [array_to_lod_tensor(array, self.lod_rank_table) for array in self.output_array]

    def __call__(self, *args, **kwargs):
        """Returns the results, packed like the first step input: one variable or a list."""
        if self.status != self.AFTER_RNN:
            raise ValueError("a DynamicRNN can be called only after its block")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def step_input(self, x, level=0) -> Variable:
        """Returns the current time step of the sequences in ``x``; the first step input sets the number of steps.

        Args:
          level: the LoD level to iterate over. If it is not the last one, each step sees sequences.
        """
        self._check_inside("step_input")
        check_type(x, "x", Variable, "DynamicRNN.step_input")
        outside = parent_block()
        if self.lod_rank_table is None:
            self._begin(outside, x, level)
        array = outside.create_var(
            name=unique_name.generate("dynamic_rnn_input_array"), type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype
        )
        self.input_array.append(array)
        inputs = {"X": x, "RankTable": self.lod_rank_table}
        outside.append_op(type="lod_tensor_to_array", inputs=inputs, outputs={"Out": array})
        return array_read(array, self.step_idx)

    def _begin(self, outside: Block, x: Variable, level: int) -> None:
        """Sorts the sequences of ``x``, which determine the order and number of steps."""
        table = outside.create_var(name=unique_name.generate("lod_rank_table"), type=VarType.LOD_RANK_TABLE)
        table.stop_gradient = True
        self.lod_rank_table = table
        outside.append_op(type="lod_rank_table", inputs={"X": [x]}, outputs={"Out": [table]}, attrs={"level": level})
        self.max_seq_len = outside.create_var(name=unique_name.generate("dynamic_rnn_max_seq_len"), dtype="int64")
        outside.append_op(type="max_sequence_len", inputs={"RankTable": [table]}, outputs={"Out": [self.max_seq_len]})
        inputs = {"X": self.step_idx, "Y": self.max_seq_len}
        outside.append_op(type="less_than", inputs=inputs, outputs={"Out": self.cond}, attrs={"force_cpu": True})

    def static_input(self, x) -> Variable:
        """Makes ``x`` available in every step, restricted to the sequences that are still running."""
        self._check_inside("static_input")
        check_type(x, "x", Variable, "DynamicRNN.static_input")
        if self.lod_rank_table is None:
            raise RuntimeError(
                "DynamicRNN.static_input must come after the first step_input, which determines the order"
            )
        reordered = self._reordered(x, "dynamic_rnn_static_input_reordered")
        return shrink_memory(reordered, self.step_idx, self.lod_rank_table)

    def memory(self, init=None, shape=None, value=0.0, need_reorder=False, dtype="float32") -> Variable:
        """Creates a state, which holds its value from the previous step.

        Args:
          init: the initial value, one row per sequence; otherwise rows of ``shape`` filled with ``value``.
          need_reorder: whether the rows of ``init`` are in the order of the fed sequences and must be sorted like them.
        """
        self._check_inside("memory")
        check_type(init, "init", (Variable, NoneType), "DynamicRNN.memory")
        if self.lod_rank_table is None or not self.input_array:
            raise ValueError(
                "DynamicRNN.memory must come after the first step_input, which determines the number of rows"
            )
        zero = self._zero()
        if init is None:
            if shape is None:
                raise ValueError("DynamicRNN.memory needs init or shape")
            init = self._filled(shape, value, dtype)
        elif need_reorder:
            init = self._reordered(init, "dynamic_rnn_mem_init_reordered")
        outside = parent_block()
        array = outside.create_var(
            name=unique_name.generate("dynamic_rnn_mem_array"), type=VarType.LOD_TENSOR_ARRAY, dtype=init.dtype
        )
        outside.append_op(type="write_to_array", inputs={"X": [init], "I": [zero]}, outputs={"Out": [array]})
        seen = shrink_memory(array_read(array, self.step_idx), self.step_idx, self.lod_rank_table)
        self.mem_dict[seen.name] = array
        return seen

    def _zero(self) -> Variable:
        """Returns the initial index of memories, created outside the loop."""
        if self.zero_idx is None:
            outside = parent_block()
            self.zero_idx = outside.create_var(name=unique_name.generate("zero_idx"), dtype="int64")
            attrs = {"shape": [1], "dtype": int(VarType.INT64), "value": 0.0, "force_cpu": True}
            outside.append_op(type="fill_constant", outputs={"Out": self.zero_idx}, attrs=attrs)
        return self.zero_idx

    def _filled(self, shape: Sequence[int], value: float, dtype: Any) -> Variable:
        outside = parent_block()
        first = outside.create_var(name=unique_name.generate("in0"), dtype=self.input_array[0].dtype)
        inputs = {"X": self.input_array[0], "I": self._zero()}
        outside.append_op(type="read_from_array", inputs=inputs, outputs={"Out": first})
        init = outside.create_var(name=unique_name.generate("mem_init"), dtype=dtype)
        attrs = {"shape": [-1, *shape], "value": float(value), "dtype": int(init.dtype)}
        fill = "fill_constant_batch_size_like"
        outside.append_op(type=fill, inputs={"Input": first}, outputs={"Out": init}, attrs=attrs)
        return init

    def _reordered(self, x: Variable, name: str) -> Variable:
        outside = parent_block()
        out = outside.create_var(name=unique_name.generate(name), dtype=x.dtype)
        inputs = {"X": x, "RankTable": self.lod_rank_table}
        outside.append_op(type="reorder_lod_tensor_by_rank", inputs=inputs, outputs={"Out": out})
        return out

    def update_memory(self, ex_mem, new_mem) -> None:
        """Makes ``new_mem`` the value of ``ex_mem`` in the next step."""
        self._check_inside("update_memory")
        check_type(ex_mem, "ex_mem", Variable, "DynamicRNN.update_memory")
        check_type(new_mem, "new_mem", Variable, "DynamicRNN.update_memory")
        array = self.mem_dict.get(ex_mem.name)
        if array is None:
            raise ValueError(f"DynamicRNN.update_memory: {ex_mem.name} is not a memory of this DynamicRNN")
        if self.lod_rank_table is None:
            raise ValueError("DynamicRNN.update_memory must come after the first step_input")
        self.mem_link.append((new_mem, array))

    def output(self, *outputs) -> None:
        """Collects variables over all steps as results."""
        self._check_inside("output")
        outside = parent_block()
        for each in outputs:
            check_type(each, "outputs", Variable, "DynamicRNN.output")
            name = unique_name.generate(f"{self.helper.name}_output_array_{each.name}")
            array = outside.create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=each.dtype)
            array_write(each, self.step_idx, array)
            self.output_array.append(array)

    def _check_inside(self, method: str) -> None:
        if self.status != self.IN_RNN:
            raise ValueError(f"DynamicRNN.{method} must be called inside `with rnn.block():`")
