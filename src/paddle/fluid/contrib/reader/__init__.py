"""Readers for click data and for distributed jobs."""

from paddle.fluid.contrib.reader import ctr_reader
from paddle.fluid.contrib.reader.distributed_reader import distributed_batch_reader

__all__ = ["ctr_reader", "distributed_batch_reader"]
