"""Ids are made unique and put back; sums are those of NumPy, whatever the order and number of ids."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refluid.runtime.tables.batches import merged, spread, unique
from refluid.runtime.tables.kernels.merging import SHARD_SHIFT, partition, shards_of

IDS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5), max_size=300)


@settings(max_examples=60, deadline=None)
@given(IDS)
def test_ids_are_found_in_the_order_of_their_first_occurrence(ids):
    array = np.array(ids, np.int64)
    found, inverse = unique(array)
    assert found.tolist() == list(dict.fromkeys(ids))
    np.testing.assert_array_equal(found[inverse], array)


@settings(max_examples=40, deadline=None)
@given(IDS, st.sampled_from(["float32", "float64"]))
def test_values_of_an_id_are_summed(ids, dtype):
    array = np.array(ids, np.int64)
    values = np.arange(3 * len(ids)).reshape(-1, 3).astype(dtype)
    found, sums = merged(array, values)
    expected = {id: values[array == id].sum(0) for id in set(ids)}
    assert found.tolist() == list(dict.fromkeys(ids))
    for id, total in zip(found.tolist(), sums, strict=True):
        np.testing.assert_array_equal(total, expected[id])
    np.testing.assert_array_equal(spread(sums, unique(array)[1]), [expected[id] for id in ids] or np.zeros((0, 3)))


def test_the_memory_of_a_thread_is_not_confused_by_earlier_batches():
    for seed in range(200):
        ids = np.random.RandomState(seed).randint(0, 50, 40)
        assert unique(ids)[0].tolist() == list(dict.fromkeys(ids.tolist()))


@pytest.mark.parametrize("parts", [1, 3, 4])
def test_ids_are_grouped_by_the_part_of_their_shard(parts):
    ids = np.random.RandomState(0).randint(-(2**62), 2**62, 1000)
    shards, owners = np.empty(len(ids), np.int64), np.arange(256) % parts
    shards_of(ids, 256, shards)
    order, grouped, bounds = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64), np.empty(parts + 1, np.int64)
    partition(ids, SHARD_SHIFT, owners, order, grouped, bounds)
    np.testing.assert_array_equal(ids[order], grouped)
    for part in range(parts):
        mine = order[bounds[part] : bounds[part + 1]]
        assert (owners[shards[mine]] == part).all() and (np.diff(mine) > 0).all()
    assert len(set(shards.tolist())) > 240
