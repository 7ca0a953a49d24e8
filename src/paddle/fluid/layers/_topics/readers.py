"""Readers inside a program: of recordio files and random numbers, and those that change what another one reads."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paddle.fluid.layers._topics.core.sub_block import open_block
from paddle.fluid.layers.io import PyReaderVariable, ReaderVariable
from refluid.ir import (
    Block,
    ReadTensor,
    Variable,
    as_dtype,
    default_main_program,
    unique_name,
)

__all__ = ["Preprocessor", "batch", "open_files", "random_data_generator", "shuffle"]


def open_files(
    filenames: str | Sequence[str],
    shapes: Sequence[Sequence[int]],
    lod_levels: Sequence[int],
    dtypes: Sequence[Any],
    thread_num: int | None = None,
    buffer_size: int | None = None,
    pass_num: int = 1,
    is_test: bool | None = None,
) -> Any:
    """Opens recordio files, which `fluid.recordio_writer` writes; `read_file` reads their batches.

    At the end of a pass `Executor.run` raises ``fluid.core.EOFException``; ``reset()`` begins another one.

    Args:
      shapes, lod_levels, dtypes: of each variable of a batch; -1 stands for the batch.
      thread_num: how many files to read at once; by default all, up to the number of CPUs. With several, the order of
        batches differs from pass to pass.
      buffer_size: how many batches to read ahead; by default three for each thread.
      pass_num: how many times to read the files before the end.
      is_test: keep the order of the files, with one thread.
    """
    names = [filenames] if isinstance(filenames, str) else [os.fspath(name) for name in filenames]
    if not names:
        raise ValueError("open_files: filenames is empty")
    tensors = _described("open_files", shapes, lod_levels, dtypes)
    threads = min(len(names), os.cpu_count() or 1) if thread_num is None else int(thread_num)
    threads = min(threads, 1) if is_test else threads
    ahead = 3 * threads if buffer_size is None else int(buffer_size)
    for argument, value in (("thread_num", threads), ("buffer_size", ahead), ("pass_num", pass_num)):
        if value < 1:
            raise ValueError(f"open_files: {argument} must be at least 1, not {value}")
    attrs = {
        "file_names": names,
        "dtypes": [int(tensor.dtype) for tensor in tensors],
        "thread_num": threads,
        "buffer_size": ahead,
        "pass_num": int(pass_num),
    }
    return _source("open_files", tensors, attrs)


def random_data_generator(
    low: float, high: float, shapes: Sequence[Sequence[int]], lod_levels: Sequence[int], for_parallel: bool = True
) -> Any:
    """Creates a reader of uniform random numbers between ``low`` and ``high``, float32, without an end.

    Args:
      shapes: of each variable of a batch, the batch included.
      lod_levels: 0 for each variable.
      for_parallel: ignored; any number of steps may read.
    """
    tensors = _described("random_data_generator", shapes, lod_levels, ["float32"] * len(shapes))
    for tensor in tensors:
        if tensor.lod_level or any(dim < 1 for dim in tensor.shape):
            raise ValueError(
                "random_data_generator: expected known dims and LoD level 0, "
                f"not shape {list(tensor.shape)} and LoD level {tensor.lod_level}"
            )
    return _source("create_random_data_generator", tensors, {"low": float(low), "high": float(high)})


def shuffle(reader: Variable, buffer_size: int) -> Any:
    """Wraps a reader by one that reads ``buffer_size`` batches at a time and yields them in random order.

    With the program's ``random_seed`` the order is the same in every run; each pass has another one.
    """
    return _wrapped("create_shuffle_reader", reader, {"buffer_size": _positive("shuffle: buffer_size", buffer_size)})


def batch(reader: Variable, batch_size: int) -> Any:
    """Wraps a reader by one that joins ``batch_size`` batches, of one sample each, to one; a rest is dropped."""
    return _wrapped("create_batch_reader", reader, {"batch_size": _positive("batch: batch_size", batch_size)})


class Preprocessor:
    """Runs layers on every batch of a reader before a program reads it::

        preprocessor = fluid.layers.Preprocessor(reader=reader)
        with preprocessor.block():
            image, label = preprocessor.inputs()
            preprocessor.outputs(image / 255.0, label)
        image, label = fluid.layers.read_file(preprocessor())

    The block is compiled and runs on the CPU; `double_buffer` around it runs it in a thread, next to the training.
    """

    def __init__(self, reader: Variable, name: str | None = None):
        self._reader = _checked("Preprocessor", reader)
        self._name = name
        self._block: Block | None = None
        self._sources: list[Variable] = []
        self._sinks: list[Variable] = []
        self._result: Any = None

    @contextmanager
    def block(self) -> Iterator[None]:
        """Opens the block; layers inside belong to it."""
        if self._block is not None:
            raise ValueError("Preprocessor: it has a block already")
        with open_block() as self._block:
            yield
        if not self._sources or not self._sinks:
            raise ValueError("Preprocessor: its block must call inputs() and outputs()")
        tensors = [ReadTensor(sink.shape, sink.dtype, sink.lod_level) for sink in self._sinks]
        attrs = {
            "sub_block": self._block,
            "source_var_names": [source.name for source in self._sources],
            "sink_var_names": [sink.name for sink in self._sinks],
        }
        self._result = _wrapped("create_custom_reader", self._reader, attrs, self._name, tensors)

    def inputs(self) -> list[Variable]:
        """Returns the variables of a batch, as the reader reads them."""
        block = self._inside("inputs")
        if not self._sources:
            self._sources = [
                block.create_var(
                    name=unique_name.generate("preprocessor_source"), shape=shape, dtype=dtype, lod_level=lod_level
                )
                for shape, dtype, lod_level in self._reader.read_tensors
            ]
            for source in self._sources:
                source.stop_gradient = True
        return self._sources

    def outputs(self, *outs: Variable) -> None:
        """Sets the variables that the new batch consists of."""
        self._inside("outputs")
        for variable in outs:
            if not isinstance(variable, Variable):
                raise TypeError(f"Preprocessor: outputs() takes variables, not {type(variable).__name__}")
        self._sinks = list(outs)

    def __call__(self) -> Any:
        """Returns the reader of the new batches."""
        if self._result is None:
            raise ValueError("Preprocessor: complete its block before you call it")
        return self._result

    def _inside(self, method: str) -> Block:
        if self._block is None or self._result is not None or default_main_program().current_block() is not self._block:
            raise ValueError(f"Preprocessor: call {method}() inside of `with preprocessor.block():`")
        return self._block


def _described(layer: str, shapes: Any, lod_levels: Any, dtypes: Any) -> list[ReadTensor]:
    if not len(shapes) == len(lod_levels) == len(dtypes) or not len(shapes):
        raise ValueError(
            f"{layer}: {len(shapes)} shapes, {len(lod_levels)} lod_levels and {len(dtypes)} dtypes; "
            "expected one of each per variable"
        )
    return [
        ReadTensor(tuple(int(dim) for dim in ([shape] if isinstance(shape, int) else shape)), as_dtype(dtype), level)
        for shape, level, dtype in zip(shapes, lod_levels, dtypes, strict=True)
    ]


def _source(op_type: str, tensors: Sequence[ReadTensor], attrs: dict[str, Any]) -> ReaderVariable:
    """Appends an op that makes a reader to the main program.

    Fluid appends it to the startup program. Here a program with a discarded startup program, as test programs often
    have, still reads its own files. For the same reason the name depends on what is read: under `unique_name.guard` a
    training program and a test program would otherwise have one name, and in a scope one reader, for both.
    """
    attrs |= {
        "shape_concat": [dim for tensor in tensors for dim in tensor.shape],
        "ranks": [len(tensor.shape) for tensor in tensors],
        "lod_levels": [tensor.lod_level for tensor in tensors],
    }
    name = unique_name.generate(f"{op_type}_{zlib.crc32(repr(attrs).encode()):08x}")
    block = default_main_program().global_block()
    block.append_op(type=op_type, inputs={}, outputs={"Out": [name]}, attrs=attrs)
    return ReaderVariable(block, name, tensors)


def _wrapped(
    op_type: str,
    reader: Variable,
    attrs: dict[str, Any],
    name: str | None = None,
    tensors: Sequence[ReadTensor] | None = None,
) -> ReaderVariable:
    """Appends an op that wraps a reader to the main program, as Fluid does."""
    below = _checked(op_type, reader)
    block = default_main_program().global_block()
    name = unique_name.generate(f"{below.name}.{op_type}") if name is None else name
    tensors = below.read_tensors if tensors is None else tensors
    if isinstance(below, PyReaderVariable):
        wrapped = PyReaderVariable(block, name, tensors, below.queue)
    else:
        wrapped = ReaderVariable(block, name, tensors)
    block.append_op(type=op_type, inputs={"UnderlyingReader": [below.name]}, outputs={"Out": [name]}, attrs=attrs)
    return wrapped


def _checked(layer: str, reader: Any) -> ReaderVariable:
    if not isinstance(reader, ReaderVariable):
        raise TypeError(f"{layer}: expected a reader, as open_files returns it, not {type(reader).__name__}")
    return reader


def _positive(argument: str, value: int) -> int:
    if int(value) < 1:
        raise ValueError(f"{argument} must be at least 1, not {value}")
    return int(value)
