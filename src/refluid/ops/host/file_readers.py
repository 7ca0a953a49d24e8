"""Ops that make the readers of files and random numbers, and those that change what other readers read."""

from __future__ import annotations

from refluid.ops.host.readers import makes_reader

makes_reader(
    "open_files",
    file_names=(),
    shape_concat=(),
    ranks=(),
    lod_levels=(),
    dtypes=(),
    thread_num=1,
    buffer_size=3,
    pass_num=1,
)
makes_reader("create_random_data_generator", low=0.0, high=1.0, shape_concat=(), ranks=(), lod_levels=())
makes_reader("create_shuffle_reader", "UnderlyingReader", buffer_size=1)
makes_reader("create_batch_reader", "UnderlyingReader", batch_size=1, discard_leftover=True)
makes_reader("create_custom_reader", "UnderlyingReader", sub_block=None, source_var_names=(), sink_var_names=())
