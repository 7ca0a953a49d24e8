"""Ops that write tensors to files and read them back. They run on the host."""

from __future__ import annotations

import math

from refluid.ops.core.registry import op
from refluid.ops.core.services import Host


@op("save", inputs="X", outputs="kLookupTablePath?", grad=None, host=True, lod="aware")
def save(x, *, file_path="", overwrite=True, save_as_fp16=False, host: Host):
    """Writes x to a file."""
    host.write([x], file_path, overwrite, save_as_fp16)


@op("save_combine", inputs="X*", outputs="Y?", grad=None, host=True, lod="aware")
def save_combine(xs, *, file_path="", overwrite=True, save_as_fp16=False, save_to_memory=False, host: Host):
    """Writes the xs to one file, in order."""
    if save_to_memory:
        raise ValueError("save_to_memory is not supported in a program; fluid.io.save_vars without dirname gives bytes")
    host.write(xs, file_path, overwrite, save_as_fp16)


@op("load", inputs="", outputs="Out", grad=None, host=True, lod="aware")
def load(*, file_path="", load_as_fp16=False, seek=-1, shape=(), host: Host):
    """The tensor in a file, or ``shape`` elements of it starting at ``seek``."""
    (value,) = host.read(file_path, load_as_fp16)
    if seek < 0:
        return value
    taken = value.reshape(-1)[seek : seek + math.prod(shape)]
    return taken.reshape(tuple(shape))


@op("load_combine", inputs="", outputs="Out*", grad=None, host=True, lod="aware")
def load_combine(*, file_path="", load_as_fp16=False, model_from_memory=False, host: Host):
    """The tensors in a file, in order."""
    if model_from_memory:
        raise ValueError("model_from_memory is not supported in a program; fluid.io.load_vars takes bytes as filename")
    return host.read(file_path, load_as_fp16)
