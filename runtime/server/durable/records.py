"""Records: what a server has done, as its log and its snapshots keep it. A record is its kind, one byte, and a content.

Records are what the server did, not what it was asked: pushes in the order in which they were applied, and sums over
servers that entered an update. So doing them again gives the same numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from refluid.runtime.server.durable.trees import from_bytes, to_buffers
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import pb

UPDATE, REPLY, SUM, JOIN, LEAVE, SHRINK = b"U", b"P", b"S", b"J", b"L", b"R"
_UPDATE = struct.Struct("<dI")  # when it was, and of how many pushes
_LENGTH = struct.Struct("<Q")


def update_record(now: float, messages: Sequence[bytes]) -> list[Any]:
    """The buffers of a record of an update: the messages whose pushes it applied, in order."""
    buffers: list[Any] = [UPDATE, _UPDATE.pack(now, len(messages))]
    for message in messages:
        buffers += [_LENGTH.pack(len(message)), message]
    return buffers


def tree_record(kind: bytes, tree: Any) -> list[Any]:
    """The buffers of a record of anything else."""
    return [kind, *to_buffers(tree)]


def read_update(content: memoryview) -> tuple[float, list[bytes]]:
    """When an update was, and the messages whose pushes it applied."""
    now, count = _UPDATE.unpack_from(content)
    messages, place = [], _UPDATE.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(content, place)
        place += _LENGTH.size
        messages.append(bytes(content[place : place + length]))
        place += length
    return now, messages


def read_tree(content: memoryview) -> Any:
    """The tree of a record."""
    return from_bytes(bytes(content))


def is_within(record: bytes, until: Mapping[int, int]) -> bool:
    """Whether a record belongs to a snapshot that ends with these pushes, by trainer."""
    kind, content = record[:1], memoryview(record)[1:]
    if kind == UPDATE:
        callers = [wire.decode(pb.ExchangeRequest, message) for message in read_update(content)[1]]
        return all(each.sequence <= until.get(each.caller.trainer, 0) for each in callers)
    if kind == REPLY:
        trainer, sequence, *_ = read_tree(content)
        return sequence <= until.get(trainer, 0)
    return True
