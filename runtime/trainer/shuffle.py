"""Shuffles records across trainers: each goes to a trainer chosen at random, in chunks of bounded size.

Where a record goes is decided by the trainer that has it, from a seed and the number of the record, so a shuffle can be
repeated. A trainer gives its records away block by block and keeps nothing of a block that is sent; so the memory of
all trainers together grows by the chunks that are on their way. At the end everybody compares what was sent with what
has arrived.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from refluid.errors import PeerError
from refluid.log import Log
from refluid.runtime.trainer.group import TrainerGroup
from refluid.runtime.trainer.mailbox import Chunk
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import pb

CHUNK = 4 << 20  # bytes of a chunk, about, unless it is a single record
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class Block(Protocol):
    """Records in memory, as `refluid.datasets` has them."""

    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: np.ndarray, /) -> Block: ...
    def pack(self) -> np.ndarray: ...  # these records in one piece of memory
    def keys(self) -> np.ndarray | None: ...  # records of the same key go to the same trainer


def shuffle_records(
    group: TrainerGroup, blocks: Iterable[Block], form: str, *, seed: int, chunk_records: int, threads: int
) -> list[Chunk]:
    """Sends every record of ``blocks`` to a random trainer, and returns those that this one was sent.

    The result depends on the seeds and blocks of all trainers, but not on the timing. Its order still shows where each
    record came from: shuffle it.

    Args:
      blocks: read one by one, and dropped when sent; so an iterator that gives away what it holds frees memory.
      form: what the records are, such as the names of their slots; the same on all trainers.
      chunk_records: the most records that travel in one message.
      threads: how many messages are on their way at once, at most.

    Raises:
      PeerError: another trainer has failed or is gone. The records that were sent to it are lost.
      ValueError: trainers have records of different forms.
    """
    try:
        return _Shuffle(group, chunk_records, threads).run(blocks, form, seed)
    except BaseException as error:
        # The group has lost records, and its members may be at different gathers: it is of no more use.
        group.fail(f"{type(error).__name__}: {error}")
        group.close()
        raise


class _Shuffle:
    """One shuffle, as one trainer carries it out."""

    def __init__(self, group: TrainerGroup, chunk_records: int, threads: int):
        self._group, self._chunk_records = group, chunk_records
        self._pool = ThreadPoolExecutor(max(1, threads), "shuffle")
        self._most = 2 * max(1, threads)  # chunks that wait for a thread or are on their way
        self._free = threading.BoundedSemaphore(self._most)
        self._problem: BaseException | None = None
        self._kept: dict[int, Chunk] = {}
        self._chunks = [0] * group.trainers  # made for each trainer
        self._sent = [0] * group.trainers  # records for each trainer

    def run(self, blocks: Iterable[Block], form: str, seed: int) -> list[Chunk]:
        group, began = self._group, time.monotonic()
        # Nobody sends before all are here: records that arrive early would double the memory.
        forms = group.gather("the shuffle begins", form)
        for other, its in enumerate(forms):
            if its != form:
                raise ValueError(f"trainer {other} has other records than trainer {group.trainer}: {its}, not {form}")
        shuffle = group.number
        group.mailbox.expect_records(shuffle)
        group.gather("records can be sent")
        try:
            self._send_all(blocks, seed, shuffle)
        finally:
            self._pool.shutdown(cancel_futures=True)
        sent = [json.loads(text) for text in group.gather("records are sent", json.dumps(self._sent))]
        received = group.mailbox.take_records()
        self._verify(sent, received)
        group.gather("the shuffle ends")
        received |= {(group.trainer, number): chunk for number, chunk in self._kept.items()}
        total, here = int(np.sum(sent)), sum(chunk.count for chunk in received.values())
        seconds = round(time.monotonic() - began, 2)
        Log("trainer", trainer=group.trainer).info("shuffled", records=total, here=here, seconds=seconds)
        return [received[place] for place in sorted(received)]

    def _send_all(self, blocks: Iterable[Block], seed: int, shuffle: int) -> None:
        group, first = self._group, 0
        for block in blocks:
            keys = block.keys()
            if keys is None:
                to = destinations(seed, group.trainer, first, len(block), group.trainers)
            else:
                to = _mixed(keys.view(np.uint64)) % np.uint64(group.trainers)
            size = chunk_size(block, self._chunk_records)
            for other in range(group.trainers):
                chosen = np.flatnonzero(to == other)
                for begin in range(0, len(chosen), size):
                    part = chosen[begin : begin + size]
                    self._give(other, Chunk(block[part].pack(), len(part)), shuffle)
            first += len(block)
            del block  # before the next one is read
        for _ in range(self._most):  # when nothing is on its way, everything has arrived
            self._acquire()

    def _give(self, other: int, chunk: Chunk, shuffle: int) -> None:
        number, self._chunks[other] = self._chunks[other], self._chunks[other] + 1
        self._sent[other] += chunk.count
        if other == self._group.trainer:
            self._kept[number] = chunk
            return
        header = pb.RecordsRequest(caller=self._group.caller, shuffle=shuffle, chunk=number, count=chunk.count)
        message = wire.encode(header, {"data": chunk.data})
        self._acquire()
        self._pool.submit(self._group.call, other, "Records", message).add_done_callback(self._arrived)

    def _acquire(self) -> None:
        self._free.acquire()
        if self._problem is not None:
            raise self._problem

    def _arrived(self, call: Future[None]) -> None:
        if not call.cancelled():
            self._problem = self._problem or call.exception()
        self._free.release()

    def _verify(self, sent: list[list[int]], received: dict[tuple[int, int], Chunk]) -> None:
        group = self._group
        for other in group.others:
            arrived = sum(chunk.count for (source, _), chunk in received.items() if source == other)
            expected = sent[other][group.trainer]
            if arrived != expected:
                problem = f"has sent {expected} records, and {arrived} have arrived"
                raise PeerError(group.trainer, other, group.endpoints[other], problem)


def destinations(seed: int, trainer: int, first: int, count: int, trainers: int) -> np.ndarray:
    """The trainers that records ``first`` to ``first + count`` of a trainer go to, drawn by splitmix64."""
    start = np.uint64(0)
    for part in (seed, trainer):
        start = _mixed(start ^ np.uint64(part & 0xFFFFFFFFFFFFFFFF))
    index = np.arange(first, first + count, dtype=np.uint64)
    return (_mixed(start + index * _MIX[0]) % np.uint64(trainers)).astype(np.int64)


def chunk_size(block: Block, most: int) -> int:
    """How many records of a block make a chunk."""
    return max(1, min(most, CHUNK * len(block) // max(1, block.nbytes)))


def _mixed(value: Any) -> Any:
    with np.errstate(over="ignore"):
        value = value + _MIX[0]
        value = (value ^ (value >> np.uint64(30))) * _MIX[1]
        value = (value ^ (value >> np.uint64(27))) * _MIX[2]
        return value ^ (value >> np.uint64(31))
