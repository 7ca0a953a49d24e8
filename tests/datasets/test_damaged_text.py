"""Damaged text never crashes the parser, and what it reads is what Python reads of the same lines."""

import random

import numpy as np
import pytest

from refluid.datasets.batches import feed_of
from refluid.datasets.schema import Schema, Slot
from refluid.datasets.text import TextParser

INT64, FLOAT32 = np.dtype("int64"), np.dtype("float32")
SCHEMA = Schema((Slot("a", INT64, False), Slot("b", FLOAT32, True, (-1, 2)), Slot("c", FLOAT32, False)))
PIECES = ["1", "2", "12", "128", "0", "-1", "+", "-", ".", "1.5", "1e5", "1e", "e", "nan", "inf", "x", "\t", " ", "  ",
          "\n", "\r\n", "18446744073709551616", "9" * 40, "0." + "3" * 50, "\x00", "é", "9" * 9, "1e-400"]  # fmt: skip


def damaged(rng):
    lines = []
    for _ in range(rng.randint(1, 8)):
        a = [str(rng.randrange(10 ** rng.randint(1, 19))) for _ in range(rng.choice([1, 2, 3, 130]))]
        b, c = ([f"{rng.uniform(-9, 9):.{rng.randint(0, 20)}g}" for _ in range(n)] for n in (2, rng.randint(1, 3)))
        lines.append(" ".join(f"{len(slot)} {' '.join(slot)}" for slot in (a, b, c)))
    text = "\n".join(lines) + "\n"
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(PIECES) + text[at + rng.randint(0, 4) :]
    return text if text.endswith("\n") else text + "\n"


def read(line):
    """The slots of a line as plain Python reads them, or None if they are not there."""
    words, slots = line.split(), []
    for slot in SCHEMA.slots:
        try:
            count, words = _count(words[0]), words[1:]
            values, words = words[:count], words[count:]
            if count == 0 or len(values) < count or count % slot.width:
                return None
            slots.append([_id(word) if slot.dtype == INT64 else _float(word) for word in values])
        except (ValueError, IndexError):
            return None
    return slots


def _count(word):
    if not word.isdigit() or len(word) > 9:
        raise ValueError
    return int(word)


def _id(word):
    value = int(word)
    if not word.lstrip("+-").isdigit() or abs(value) >= 2**64:
        raise ValueError
    return (value + 2**63) % 2**64 - 2**63


def _float(word):
    with np.errstate(over="ignore"):
        return float(np.float32(float(word)))


@pytest.mark.parametrize("seed", range(3))
def test_damaged_lines_are_skipped_and_others_are_read(seed):
    rng = random.Random(seed)
    for _ in range(60):
        text = damaged(rng)
        parser = TextParser(SCHEMA, skip_malformed=True)
        records = parser.parse(np.frombuffer(text.encode(), np.uint8))
        # Bytes below a space are blanks here, and é is no digit anywhere.
        lines = [line.translate({0: " "}) for line in text.split("\n")[:-1]]
        expected = [slots for slots in map(read, lines) if slots is not None]
        assert (len(records), parser.skipped, parser.lines) == (len(expected), len(lines) - len(expected), len(lines))
        if expected:
            feed = feed_of(records)
            for i, slot in enumerate(SCHEMA.slots):
                values = [value for slots in expected for value in slots[i]]
                np.testing.assert_array_equal(np.array(feed[slot.name]).ravel(), np.array(values, slot.dtype))
