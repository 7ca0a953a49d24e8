"""Ops of startup programs that bring the processes of a collective job together.

Fluid's first process generates an id of NCCL and sends it to the others; here all processes join one group of XLA
devices. The variables that hold ids in Fluid hold the number of the process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refluid.ops.core.infer import described_elsewhere
from refluid.ops.core.registry import op
from refluid.ops.core.services import Host


@op("c_gen_nccl_id", inputs="", outputs="Out", grad=None, host=True, lod=None, infer=described_elsewhere)
def c_gen_nccl_id(*, rank=0, endpoint="", other_endpoints=(), host: Host):
    """Joins the processes at these endpoints, of which this is number ``rank``."""
    endpoints = list(other_endpoints)
    endpoints.insert(rank, endpoint)
    return _join(host, endpoints, rank)


@op("gen_nccl_id", inputs="", outputs="NCCLID", grad=None, host=True, lod=None, infer=described_elsewhere)
def gen_nccl_id(*, trainers=(), trainer_id=0, host: Host):
    """Joins the processes at these endpoints, of which this is number ``trainer_id``."""
    return _join(host, trainers, trainer_id)


def _join(host: Host, endpoints: Any, rank: int) -> np.ndarray:
    host.join(tuple(endpoints), rank)
    return np.array([rank], np.int32)


@op("c_comm_init", inputs="X", outputs="", grad=None, host=True, lod=None, infer=described_elsewhere)
def c_comm_init(x, *, nranks=1, rank=0, ring_id=0):
    """Nothing: the processes have joined, and XLA makes its own communicators."""
    return ()


@op("c_comm_init_all", inputs="", outputs="", grad=None, host=True, lod=None, infer=described_elsewhere)
def c_comm_init_all(*, devices=(), ring_id=0):
    """Nothing: XLA makes its own communicators."""
    return ()
