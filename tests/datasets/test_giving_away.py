"""Records that are given away free their memory."""

import weakref

import numpy as np

from refluid.datasets.in_memory import give_away, shuffle
from refluid.datasets.records import Records
from refluid.datasets.schema import Schema, Slot
from refluid.datasets.text import TextParser

SCHEMA = Schema((Slot("a", np.dtype(np.int64), dense=False),))


def parsed(first, count):
    lines = "".join(f"1 {first + i}\n" for i in range(count))
    return TextParser(SCHEMA).parse(np.frombuffer(lines.encode(), np.uint8))


def test_blocks_are_given_away_in_the_order_in_which_they_were_loaded():
    records = shuffle(Records.join(SCHEMA, [parsed(200, 5), parsed(100, 3), Records.none(SCHEMA)]))

    parts = [part.pack().view(np.uint8).tolist() for part in give_away(records)]

    assert parts == [parsed(200, 5).pack().tolist(), parsed(100, 3).pack().tolist()]


def test_a_block_is_free_when_the_consumer_is_done_with_it():
    records = Records.join(SCHEMA, [parsed(100 * i, 5) for i in range(3)])
    alive = [weakref.ref(block) for block in records.blocks]
    parts = give_away(records)
    del records

    left = [3]
    for part in parts:
        del part
        left.append(sum(block() is not None for block in alive))
    assert left == [3, 2, 1, 0]
