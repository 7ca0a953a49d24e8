"""Trainers that meet at files, where there is no other line between them."""

from __future__ import annotations

import os
import time

from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet

__all__ = ["check_all_trainers_ready"]

_PAUSE = 0.2  # seconds between two looks


def check_all_trainers_ready(ready_path: str, epoch: int) -> None:
    """Waits until every trainer has come here in this epoch; ``ready_path`` is a folder that all of them see."""
    os.makedirs(ready_path, exist_ok=True)
    mine = os.path.join(ready_path, f"ready.{epoch}.{fleet.worker_index()}.done")
    with open(mine, "w", encoding="utf-8"):
        pass
    begins = f"ready.{epoch}."
    while sum(name.startswith(begins) for name in os.listdir(ready_path)) < fleet.worker_num():
        time.sleep(_PAUSE)
