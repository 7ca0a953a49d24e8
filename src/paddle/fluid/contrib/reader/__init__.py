"""Readers for distributed jobs."""

from paddle.fluid.contrib.reader.distributed_reader import distributed_batch_reader

__all__ = ["distributed_batch_reader"]
