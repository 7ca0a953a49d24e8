"""Sharding of batches over trainers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["distributed_batch_reader"]


def distributed_batch_reader(batch_reader: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[Any]]:
    """Returns a reader of this trainer's batches: every n-th batch of ``batch_reader`` for n trainers.

    Reads PADDLE_TRAINERS_NUM and PADDLE_TRAINER_ID. Drops the last batches if there are too few for all trainers, so
    that every trainer gets the same number.
    """
    trainers = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    trainer = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    if not 0 <= trainer < trainers:
        raise ValueError(f"PADDLE_TRAINER_ID is {trainer}, but PADDLE_TRAINERS_NUM is {trainers}; ids start at 0")

    def read() -> Iterator[Any]:
        mine: Any = None
        for number, batch in enumerate(batch_reader()):
            if number % trainers == trainer:
                mine = batch
            if number % trainers == trainers - 1:
                yield mine

    return read
