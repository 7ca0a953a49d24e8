"""Data variables that are fed or read, and variables loaded from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics import find_layer as __getattr__  # noqa: F401
from refluid.ir import (
    Block,
    Program,
    ReadTensor,
    Variable,
    VarType,
    as_dtype,
    as_numpy,
    default_main_program,
    default_startup_program,
    unique_name,
)
from refluid.places import CUDAPlace, Place
from refluid.readers.batching import Slot
from refluid.readers.queued import QueueReader
from refluid.readers.sources import Batches
from refluid.scope import global_scope

_KINDS = ("lod_tensor_blocking_queue", "create_py_reader", "double_buffer")
_METHODS = "decorate_paddle_reader() or another decorate method"

__all__ = ["create_py_reader_by_data", "data", "double_buffer", "load", "py_reader", "read_file"]


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """Creates a variable to feed; prepends -1 for the batch to ``shape``, unless it already has an unknown dim."""
    dims = [-1 if dim is None else int(dim) for dim in shape]
    if append_batch_size and all(dim >= 0 for dim in dims):
        dims = [-1, *dims]
    helper = LayerHelper("data", name=name)
    variable = helper.create_global_variable(
        name=name, shape=dims, dtype=dtype, type=type, lod_level=lod_level, is_data=True
    )
    variable.stop_gradient = stop_gradient
    return variable


def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> None:
    """Loads ``out`` from a file written by a save op or `fluid.io.save_vars`, whenever the program runs."""
    attrs: dict[str, Any] = {"file_path": file_path}
    if load_as_fp16 is not None:
        attrs["load_as_fp16"] = load_as_fp16
    LayerHelper("load").append_op(type="load", inputs={}, outputs={"Out": out}, attrs=attrs)


class ReaderVariable(Variable):
    """The variable of a reader: what `read_file` takes, with the methods of the reader itself."""

    def __init__(self, block: Block, name: str, tensors: Sequence[ReadTensor]):
        super().__init__(block, type=VarType.READER, name=name, persistable=True, stop_gradient=True)
        self.read_tensors = tuple(tensors)
        block.vars[name] = self
        block.program.changed()

    def start(self) -> None:
        """Begins a pass."""
        global_scope().var(self.name).get_reader().start()

    def reset(self) -> None:
        """Ends a pass, at its end or before, so that another one can begin."""
        global_scope().var(self.name).get_reader().reset()

    def eof(self) -> bool:
        """Returns whether the pass has no further batch."""
        return global_scope().var(self.name).get_reader().eof()


class PyReaderVariable(ReaderVariable):
    """The variable of a reader whose batches Python code generates."""

    def __init__(self, block: Block, name: str, tensors: Sequence[ReadTensor], queue: QueueReader):
        super().__init__(block, name, tensors)
        self.queue = queue
        if not queue.tensors:
            queue.tensors = self.read_tensors  # a reader around this one may make other tensors of them

    def start(self) -> None:
        """Begins a pass: a thread runs the generator and fills the queue."""
        self.queue.start()

    def reset(self) -> None:
        """Ends a pass, at its end or before, so that another one can begin."""
        self.queue.reset()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of this reader, as JSON: its pass and how many batches of it were taken."""
        return self.queue.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next pass continue where `state_dict` was called."""
        self.queue.position.load_state_dict(state)

    def decorate_sample_list_generator(self, reader: Any, places: Any = None) -> None:
        """Sets the generator: a function that returns an iterable of lists of samples, or such an iterable."""
        self.queue.source = self._batches().of_sample_lists(reader)

    def decorate_batch_generator(self, reader: Any, places: Any = None) -> None:
        """Sets the generator: a function that returns an iterable of batches, or such an iterable.

        A batch has one array or LoDTensor per variable.
        """
        self.queue.source = self._batches().of_batches(reader)

    decorate_paddle_reader = decorate_sample_list_generator
    decorate_tensor_provider = decorate_batch_generator

    def _batches(self) -> Batches:
        return Batches(
            tuple(
                # A shape without an unknown dim is that of a sample.
                Slot(f"{self.name}[{i}]", shape if -1 in shape else (-1, *shape), as_numpy(dtype), lod_level)
                for i, (shape, dtype, lod_level) in enumerate(self.queue.tensors)
            )
        )


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> PyReaderVariable:
    """Creates a reader of batches that a Python generator makes in a thread, ahead of the steps that read them.

    Set the generator with ``decorate_paddle_reader`` (lists of samples) or ``decorate_tensor_provider`` (batches). A
    pass begins with ``start()``; at its end `Executor.run` raises ``fluid.core.EOFException``, and ``reset()`` ends it.

    Args:
      capacity: how many batches the thread may be ahead.
      shapes, dtypes, lod_levels: of each variable of a batch; -1 stands for the batch.
      name: prefix of the names of the reader and its queue.
      use_double_buffer: as in Fluid, adds a reader that reads ahead; the thread does this already.
    """
    levels = [0] * len(shapes) if lod_levels is None else list(lod_levels)
    if not len(shapes) == len(dtypes) == len(levels):
        raise ValueError(
            f"py_reader: {len(shapes)} shapes, {len(dtypes)} dtypes and {len(levels)} lod_levels; expected one of each "
            "per variable"
        )
    tensors = [
        ReadTensor(tuple(int(dim) for dim in shape), as_dtype(dtype), int(level))
        for shape, dtype, level in zip(shapes, dtypes, levels, strict=True)
    ]
    return _py_reader(capacity, tensors, [0] * len(tensors), name, use_double_buffer)


def create_py_reader_by_data(
    capacity: int, feed_list: Sequence[Variable], name: str | None = None, use_double_buffer: bool = True
) -> PyReaderVariable:
    """Creates a reader like `py_reader`, with the shapes, dtypes and LoD levels of the variables in ``feed_list``."""
    tensors = [ReadTensor(variable.shape, variable.dtype, variable.lod_level) for variable in feed_list]
    checked = [int(variable.need_check_feed) for variable in feed_list]
    return _py_reader(capacity, tensors, checked, name, use_double_buffer)


def _py_reader(
    capacity: int, tensors: Sequence[ReadTensor], checked: Sequence[int], name: str | None, use_double_buffer: bool
) -> PyReaderVariable:
    if name is None:
        names = [unique_name.generate(kind) for kind in _KINDS]
    else:
        names = [f"{name}_{suffix}" for suffix in ("queue", "reader", "double_buffer")]
    queue = _put_queue(names[0], names[1], capacity)
    PyReaderVariable(default_startup_program().current_block(), names[1], tensors, queue)
    _append_create_py_reader(default_startup_program(), names, tensors, checked)
    reader = PyReaderVariable(default_main_program().current_block(), names[1], tensors, queue)
    return double_buffer(reader, name=names[2]) if use_double_buffer else reader


def append_reader(
    feed_list: Sequence[Variable], capacity: int, use_double_buffer: bool, name: Callable[[str], str]
) -> QueueReader:
    """Makes the main program read ``feed_list`` from a queue, which is returned; `DataLoader` uses it."""
    names = [name(kind) for kind in _KINDS]
    tensors = [ReadTensor(variable.shape, variable.dtype, variable.lod_level) for variable in feed_list]
    queue = _put_queue(names[0], names[1], capacity, "set_sample_list_generator() or another set method")
    reader: ReaderVariable = PyReaderVariable(default_main_program().current_block(), names[1], tensors, queue)
    _append_create_py_reader(default_main_program(), names, tensors, [int(v.need_check_feed) for v in feed_list])
    if use_double_buffer:
        reader = double_buffer(reader, name=names[2])
    default_main_program().current_block().append_op(
        type="read", inputs={"Reader": [reader.name]}, outputs={"Out": [variable.name for variable in feed_list]}
    )
    return queue


def _append_create_py_reader(
    program: Program, names: Sequence[str], tensors: Sequence[ReadTensor], checked: Sequence[int]
) -> None:
    program.current_block().append_op(
        type="create_py_reader",
        inputs={"blocking_queue": [names[0]]},
        outputs={"Out": [names[1]]},
        attrs={
            "shape_concat": [dim for tensor in tensors for dim in tensor.shape],
            "lod_levels": [tensor.lod_level for tensor in tensors],
            "dtypes": [int(tensor.dtype) for tensor in tensors],
            "need_check_feed": list(checked),
            "ranks": [len(tensor.shape) for tensor in tensors],
        },
    )


def _put_queue(name: str, reader: str, capacity: int, methods: str = _METHODS) -> QueueReader:
    """Puts a new queue into the global scope, where `create_py_reader` finds it by name."""
    variable = global_scope().own_var(name)
    if isinstance(variable.holder, QueueReader):
        raise ValueError(
            f"the global scope has the queue {name} of another reader already; give this reader another name"
        )
    variable.holder = queue = QueueReader(capacity, methods)
    queue.name = reader
    return queue


def double_buffer(reader: ReaderVariable, place: Place | None = None, name: str | None = None) -> Any:
    """Wraps a reader by one that reads ahead in a thread."""
    block = default_main_program().current_block()
    if name is None:
        # Readers of files have names that say what they read, and so do readers around them; see `open_files`.
        prefix = "" if isinstance(reader, PyReaderVariable) else f"{reader.name}."
        name = unique_name.generate(f"{prefix}create_double_buffer_reader")
    if isinstance(reader, PyReaderVariable):
        wrapped = PyReaderVariable(block, name, reader.read_tensors, reader.queue)
    else:
        wrapped = ReaderVariable(block, name, reader.read_tensors)
    attrs = {} if place is None else {"place": f"CUDA:{place.device_id}" if isinstance(place, CUDAPlace) else "CPU"}
    block.append_op(
        type="create_double_buffer_reader",
        inputs={"UnderlyingReader": [reader.name]},
        outputs={"Out": [name]},
        attrs=attrs,
    )
    return wrapped


def read_file(reader: Variable) -> Variable | list[Variable]:
    """Returns the variables that each step reads from ``reader``: a list, or the variable if there is only one."""
    helper = LayerHelper("read_file")
    outputs = []
    for shape, dtype, lod_level in reader.read_tensors:
        variable = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
        variable.shape, variable.lod_level = shape, lod_level
        outputs.append(variable)
    helper.append_op(type="read", inputs={"Reader": [reader.name]}, outputs={"Out": outputs})
    return outputs[0] if len(outputs) == 1 else outputs
