"""Records keep their values through packing, joining, selecting and mixing."""

import numpy as np
import pytest

from refluid.datasets import in_memory
from refluid.datasets.batches import feed_of, split
from refluid.datasets.records import Records
from refluid.datasets.schema import Schema, Slot
from refluid.datasets.text import TextParser

SCHEMA = Schema((Slot("ids", np.dtype("int64"), dense=False), Slot("value", np.dtype("float32"), True, (-1, 1))))


def records(start, stop):
    lines = "".join(f"{i % 3 + 1} {' '.join([str(i)] * (i % 3 + 1))} 1 {i}\n" for i in range(start, stop))
    return TextParser(SCHEMA).parse(np.frombuffer(lines.encode(), np.uint8))


def samples(found):
    """(ids, value) of each record."""
    if len(found) == 0:
        return []
    feed = feed_of(found)
    ids, lod = np.array(feed["ids"])[:, 0], feed["ids"].lod()[0]
    return [
        (ids[a:b].tolist(), float(v)) for a, b, v in zip(lod[:-1], lod[1:], feed["value"][:, 0].tolist(), strict=True)
    ]


def expected(numbers):
    return [([i] * (i % 3 + 1), float(i)) for i in numbers]


def test_records_are_selected_by_slices_masks_and_indices():
    found = records(0, 10)
    assert samples(found[2:5]) == expected([2, 3, 4])
    assert samples(found[np.array([7, 1, 7])]) == expected([7, 1, 7])
    assert samples(found[np.arange(10) % 4 == 0]) == expected([0, 4, 8])


def test_packed_records_are_found_again():
    found = records(0, 200)[np.arange(199, -1, -3)]
    packed = found.pack()
    again = Records.of_bytes(SCHEMA, packed.tobytes(), len(found))
    assert samples(again) == expected(range(199, -1, -3))
    assert len(packed) < sum(8 * (i % 3 + 1) + 4 + 2 for i in range(200))


@pytest.mark.parametrize("count, cut", [(4, None), (6, None), (5, -1), (5, 2)])
def test_packed_records_that_do_not_fit_are_refused(count, cut):
    packed = records(0, 5).pack().tobytes()[:cut]
    with pytest.raises(ValueError, match=f"expected {count} records of . slots in {len(packed)} bytes"):
        Records.of_bytes(SCHEMA, packed, count)


def test_a_packed_count_that_does_not_end_is_refused():
    with pytest.raises(ValueError, match="they do not fit"):
        Records.of_bytes(SCHEMA, b"\xff" * 64, 1)
    with pytest.raises(ValueError, match="they do not fit"):
        Records.of_bytes(SCHEMA, b"\0" * 64, 1 << 60)


def test_joined_records_keep_their_memory_alive():
    joined = Records.join(SCHEMA, [records(0, 3), records(3, 9)[::2], records(9, 10)])
    assert samples(joined) == expected([0, 1, 2, 3, 5, 7, 9])
    assert len(Records.join(SCHEMA, [])) == 0


def test_batches_cross_chunks_and_keep_the_rest():
    chunks = [records(0, 5), records(5, 6), records(6, 6 + 7)]
    numbers = [[sample[1] for sample in samples(batch)] for batch in split(chunks, 4)]
    assert numbers == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12]]
    assert sum(map(len, split(chunks, 4, drop_last=True))) == 12


def test_a_batch_holds_no_chunk_but_its_own():
    batches = list(split((records(i, i + 5) for i in range(0, 50, 5)), 4))
    assert max(len(batch.blocks) for batch in batches) == 2


def test_arrays_of_a_batch_are_aligned():
    feed = feed_of(records(0, 7))
    assert all(np.asarray(x).ctypes.data % 64 == 0 for x in (feed["ids"].value, feed["value"]))


def test_a_shuffle_follows_the_seed_of_numpy_and_loses_nothing():
    found = records(0, 100)
    orders = []
    for seed in (1, 1, 2):
        np.random.seed(seed)
        orders.append(samples(in_memory.shuffle(found)))
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == sorted(samples(found)) == sorted(expected(range(100)))


def test_mixed_slots_come_from_other_records():
    np.random.seed(5)
    found = samples(in_memory.shuffle_slots(records(0, 300), ["ids"]))
    assert [value for _, value in found] == list(range(300))
    assert sorted(ids for ids, _ in found) == sorted(ids for ids, _ in expected(range(300)))
    assert sum(ids[0] == value for ids, value in found) < 30


def test_memory_is_close_to_the_size_of_the_values():
    text = "".join(f"{' '.join(f'1 {i}{slot}' for slot in range(10, 36))}\n" for i in range(2000))
    schema = Schema(tuple(Slot(f"slot{i}", np.dtype("int64"), dense=False) for i in range(26)))
    found = TextParser(schema).parse(np.frombuffer(text.encode(), np.uint8))
    assert found.nbytes <= 1.2 * 2000 * 26 * 8
