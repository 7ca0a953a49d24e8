"""Sizes that batches of sequences are padded to: few, not too large, and the user's own where there are any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paddle.fluid as fluid
from refluid.lowering.buckets import Buckets, round_up
from refluid.tensors import LoDTensor


def tensor(*levels, width=1):
    rows = np.arange(sum(levels[-1]) * width, dtype="float32").reshape(-1, width)
    return fluid.create_lod_tensor(rows, [list(level) for level in levels], fluid.CPUPlace())


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), min_size=1, max_size=20))
def test_padding_comes_off_again_and_the_first_sizes_waste_at_most_half(batches):
    buckets = Buckets()
    for count, lengths in enumerate(batches):
        fed = tensor(lengths)
        ragged = buckets.fit({"x": fed})["x"]
        back = LoDTensor.of_sequences(ragged)
        assert back.lod() == fed.lod()
        np.testing.assert_array_equal(np.array(back), np.array(fed))
        assert ragged.longest >= max(lengths)
        assert count >= 3 or ragged.shape[0] <= max(8, round_up(int(sum(lengths) * 1.125)), 1.5 * sum(lengths))


def test_sizes_are_used_again_together():
    buckets = Buckets()
    sizes = []
    for lengths in ([40, 20], [60, 30], [38, 16], [55, 41], [33, 21], [58, 39], [29, 26]):
        ragged = buckets.fit({"x": tensor(lengths)})["x"]
        sizes.append((ragged.shape[0], ragged.longest))
    assert sizes == [(80, 40), (112, 64), (80, 40), (112, 64), (80, 40), (112, 64), (80, 40)]


def test_smaller_sizes_are_made_for_most_batches_when_some_are_known():
    buckets, rng = Buckets(), np.random.default_rng(0)
    rows = [buckets.fit({"x": tensor([1000, *rng.integers(200, 500, 1)])})["x"].shape[0] for _ in range(180)]
    assert set(rows[:128]) == {rows[0]}
    assert sum(size < rows[0] for size in rows[128:]) > 36
    assert len(set(rows)) == 2


@pytest.mark.parametrize("size", [1, 4, 8, 16])
@pytest.mark.parametrize("feeds", ["a", "ab", "abc", "abcd"])
def test_sets_of_sizes_stay_few_however_lengths_vary(size, feeds):
    buckets, rng = Buckets(), np.random.default_rng(17)
    for _ in range(500):
        buckets.fit({name: tensor(rng.integers(5, 81, size)) for name in feeds})
    (used,) = buckets.in_use.values()
    assert len(used) <= 8, str(buckets)


def test_sets_of_sizes_stay_few_when_some_feeds_are_shorter_than_others():
    buckets, rng = Buckets(), np.random.default_rng(2)
    for _ in range(500):
        buckets.fit({name: tensor(rng.integers(3, most, 4)) for name, most in (("a", 81), ("b", 41), ("c", 21))})
    (used,) = buckets.in_use.values()
    assert len(used) <= 8, str(buckets)


def test_much_shorter_feeds_keep_their_sizes_when_a_set_must_hold_everything():
    buckets, rng = Buckets(), np.random.default_rng(0)
    for _ in range(500):
        buckets.fit({name: tensor(rng.integers(*range_, 1)) for name, range_ in (("a", (30, 81)), ("b", (1, 10)))})
    (used,) = buckets.in_use.values()
    assert max(rows for _, _, rows, _ in used) <= 16, str(buckets)


def test_equal_lengths_do_not_take_sizes_that_others_had():
    buckets = Buckets()
    for words, labels in (([80], [70]), ([90], [30]), ([20], [50]), ([300], [30])):
        buckets.fit({"words": tensor(words), "labels": tensor(labels)})
    for length in (70, 75, 20):
        both = buckets.fit({"words": tensor([length]), "labels": tensor([length])})
        assert both["words"].shape == both["labels"].shape


def test_feeds_of_one_batch_with_equal_needs_get_equal_sizes():
    buckets = Buckets()
    buckets.fit({"words": tensor([30, 10])})
    both = buckets.fit({"words": tensor([11, 9]), "labels": tensor([11, 9])})
    assert both["words"].shape == both["labels"].shape
    assert both["words"].longest == both["labels"].longest


def test_inner_levels_are_padded_with_empty_sequences():
    buckets = Buckets()
    fed = tensor([2, 1], [3, 1, 4])
    ragged = buckets.fit({"x": fed})["x"]
    assert [offsets.shape[0] for offsets in ragged.offsets] == [3, 9]
    assert LoDTensor.of_sequences(ragged).recursive_sequence_lengths() == [[2, 1], [3, 1, 4]]
    assert buckets.fit({"x": fed}, exact=True)["x"].offsets[1].shape == (4,)


def test_a_user_chooses_the_sizes_for_all_feeds_or_for_one():
    buckets = Buckets()
    buckets.choose(rows=[100, 400], longest=[50])
    buckets.choose("labels", rows=[70])

    def sizes(lengths):
        fitted = buckets.fit({"words": tensor(lengths), "labels": tensor([1, *lengths])})
        return [(ragged.shape[0], ragged.longest) for ragged in fitted.values()]

    assert sizes([20, 20]) == [(100, 50), (70, 50)]
    assert sizes([50, 10]) == [(100, 50), (70, 50)]
    assert sizes([30, 80]) == [(400, 80), (128, 80)]  # larger than what was chosen
    with pytest.raises(ValueError, match="sizes of rows must be positive"):
        buckets.choose(rows=[0])


def test_printed_they_tell_how_many_batches_each_set_of_sizes_served():
    buckets = Buckets()
    assert str(buckets) == "no sequences were fed"
    for lengths in ([40, 20], [35, 20], [60, 30]):
        buckets.fit({"words": tensor(lengths)})
    assert str(buckets) == "words: rows 80, longest 40   2 batches\nwords: rows 112, longest 64   1 batch"
