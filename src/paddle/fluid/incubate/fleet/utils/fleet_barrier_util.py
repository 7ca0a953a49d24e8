"""A barrier of trainers through shared files, for jobs without any other connection."""

from __future__ import annotations

import os
import time

from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet

__all__ = ["check_all_trainers_ready"]

_POLL_INTERVAL = 0.2  # seconds between polls


def check_all_trainers_ready(ready_path: str, epoch: int) -> None:
    """Waits until every trainer reaches this epoch; ``ready_path`` is a directory that all trainers share."""
    os.makedirs(ready_path, exist_ok=True)
    mine = os.path.join(ready_path, f"ready.{epoch}.{fleet.worker_index()}.done")
    with open(mine, "w", encoding="utf-8"):
        pass
    begins = f"ready.{epoch}."
    while sum(name.startswith(begins) for name in os.listdir(ready_path)) < fleet.worker_num():
        time.sleep(_POLL_INTERVAL)
