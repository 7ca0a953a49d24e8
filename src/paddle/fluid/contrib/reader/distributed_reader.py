"""Each trainer reads its own batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["distributed_batch_reader"]


def distributed_batch_reader(batch_reader: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[Any]]:
    """A reader of every n-th batch of ``batch_reader``: those of this trainer, out of n.

    PADDLE_TRAINERS_NUM and PADDLE_TRAINER_ID say which. Batches at the end that are too few for all are left out, so
    that every trainer has as many.
    """
    trainers = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    trainer = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    if not 0 <= trainer < trainers:
        raise ValueError(f"PADDLE_TRAINER_ID is {trainer}, but PADDLE_TRAINERS_NUM says {trainers} trainers, from 0 on")

    def read() -> Iterator[Any]:
        mine: Any = None
        for number, batch in enumerate(batch_reader()):
            if number % trainers == trainer:
                mine = batch
            if number % trainers == trainers - 1:
                yield mine

    return read
