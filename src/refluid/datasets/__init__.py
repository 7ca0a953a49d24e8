"""Datasets of slots: Fluid's MultiSlot text files, parsed by numba kernels without the GIL.

A file becomes *records*, samples in a compact binary form (`records`). A batch is a selection of records, and becomes
one array per slot, with sequence offsets (`batches`). `sources` opens files and pipe commands, `streams` parses several
at once and `in_memory` keeps and shuffles records. `paddle.fluid.dataset` has Fluid's names for all of it.
"""
