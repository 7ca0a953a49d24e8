"""Readers that programs make: what they read, in which order, and how their passes begin and end."""

import threading

import numpy as np
import pytest

from refluid.readers.decorators import BatchReader, RandomDataReader, ShuffleReader
from refluid.readers.generators import SourceReader
from refluid.readers.merging import merged
from refluid.readers.queued import DoubleBuffer, QueueReader
from refluid.tensors import LoDTensor


class Numbers(SourceReader):
    """A pass of 0, 1, 2, …, and how many passes began."""

    def __init__(self, count):
        super().__init__()
        self.count, self.begun = count, 0

    def batches(self):
        self.begun += 1
        for i in range(self.count):
            yield [np.array([i])]


class Given(SourceReader):
    def __init__(self, *given):
        super().__init__()
        self.given = given

    def batches(self):
        yield from self.given


def whole_pass(reader):
    return [batch[0].reshape(-1).tolist() for batch in iter(reader.next, None)]


def seeded(reader, seed=1, name="r"):
    reader.seed, reader.name = seed, name
    return reader


def test_a_pass_ends_until_it_is_reset():
    reader = Numbers(2)
    assert whole_pass(reader) == [[0], [1]]
    assert reader.next() is None and reader.begun == 1
    reader.reset()
    assert whole_pass(reader) == [[0], [1]]


def test_eof_looks_ahead_and_loses_nothing():
    reader = Numbers(1)
    assert not reader.eof() and not reader.eof()
    assert whole_pass(reader) == [[0]]
    assert reader.eof()
    reader.reset()
    assert not reader.eof()


def test_a_double_buffer_looks_ahead_too():
    reader = DoubleBuffer(Numbers(1))
    assert not reader.eof()
    assert whole_pass(reader) == [[0]]
    assert reader.eof()
    reader.reset()


def test_a_reset_reaches_the_readers_around():
    below = Numbers(4)
    reader = ShuffleReader(BatchReader(below, 2), 2)
    assert reader.next() is not None
    below.reset()
    assert sorted(whole_pass(reader)) == [[0, 1], [2, 3]]
    assert reader.next() is None
    below.reset()
    assert len(whole_pass(reader)) == 2


def test_a_reset_ends_a_wait_for_a_batch():
    queue = QueueReader(1, "a method")
    waits, more = threading.Event(), threading.Event()

    def waiting(skip):
        yield [np.zeros((1, 1))]
        waits.set()
        more.wait(10)

    queue.source = waiting
    queue.start()
    reader = DoubleBuffer(BatchReader(queue, 2, discard_leftover=False))
    taking = threading.Thread(target=reader.next)
    taking.start()
    assert waits.wait(10)  # there is one batch of two
    reader.reset()
    taking.join(10)
    assert not taking.is_alive()
    more.set()


def test_shuffle_yields_each_window_in_random_order():
    order = [value for (value,) in whole_pass(seeded(ShuffleReader(Numbers(10), 4)))]
    assert sorted(order[:4]) == [0, 1, 2, 3] and sorted(order[4:8]) == [4, 5, 6, 7] and sorted(order[8:]) == [8, 9]
    assert order != sorted(order)


def test_shuffle_repeats_with_a_seed_and_differs_between_passes():
    reader, again = seeded(ShuffleReader(Numbers(50), 50)), seeded(ShuffleReader(Numbers(50), 50))
    first = whole_pass(reader)
    assert first == whole_pass(again)
    reader.reset()
    assert whole_pass(reader) != first
    assert whole_pass(seeded(ShuffleReader(Numbers(50), 50), name="other")) != first
    unseeded = ShuffleReader(Numbers(50), 50), ShuffleReader(Numbers(50), 50)
    assert whole_pass(unseeded[0]) != whole_pass(unseeded[1])


def test_shuffle_drops_its_window_on_reset():
    reader = seeded(ShuffleReader(Numbers(4), 4))
    reader.next()
    reader.reset()
    assert sorted(whole_pass(reader)) == [[0], [1], [2], [3]]


def test_batch_joins_and_drops_the_rest():
    assert whole_pass(BatchReader(Numbers(5), 2)) == [[0, 1], [2, 3]]
    assert whole_pass(BatchReader(Numbers(5), 2, discard_leftover=False)) == [[0, 1], [2, 3], [4]]


def test_batch_joins_sequences():
    one = LoDTensor(np.array([[1], [2], [3]]), [[0, 2], [0, 1, 3]])
    two = LoDTensor(np.array([[4]]), [[0, 1], [0, 1]])
    ((joined,),) = iter(BatchReader(Given([one], [two]), 2).next, None)
    assert np.asarray(joined.value).tolist() == [[1], [2], [3], [4]]
    assert joined.lod() == [[0, 2, 3], [0, 1, 3, 4]]


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        (np.zeros((1, 3), "float32"), r"float32\[1, 2\] of LoD level 0 and float32\[1, 3\] of LoD level 0"),
        (np.zeros((1, 2)), r"float32\[1, 2\] of LoD level 0 and float64\[1, 2\]"),
        (LoDTensor(np.zeros((1, 2), "float32"), [[0, 1]]), r"level 0 and float32\[1, 2\] of LoD level 1"),
    ],
)
def test_batch_says_what_does_not_fit(other, shown):
    reader = seeded(BatchReader(Given([np.zeros((1, 2), "float32")], [other]), 2))
    with pytest.raises(ValueError, match=f"r: value 0 differs between the batches to join: .*{shown}"):
        reader.next()
    uneven = seeded(BatchReader(Given([other], [other, other]), 2))
    with pytest.raises(ValueError, match="batches of 1 and of 2 values cannot be joined"):
        uneven.next()


def test_random_numbers_repeat_with_a_seed():
    made = [seeded(RandomDataReader(-1.0, 2.0, [2, 3, 4], [2, 1])) for _ in range(2)]
    one, other = (reader.next() for reader in made)
    assert [array.shape for array in one] == [(2, 3), (4,)] and one[0].dtype == np.float32
    assert all((one[i] == other[i]).all() for i in range(2))
    assert one[0].min() >= -1 and one[0].max() < 2
    assert (made[0].next()[0] != one[0]).all()


def test_wrapped_readers_can_be_reset_in_the_middle():
    reader = DoubleBuffer(BatchReader(seeded(ShuffleReader(Numbers(1000), 10)), 2))
    for _ in range(3):
        assert reader.next() is not None
        reader.reset()
    assert sorted(value for batch in whole_pass(reader) for value in batch) == list(range(1000))
    reader.reset()


def test_sources_are_read_in_order_by_one_thread():
    assert list(merged([lambda: [1, 2], lambda: [3], list], 1, 1)) == [1, 2, 3]


def test_several_sources_are_read_at_once():
    together = threading.Barrier(2)

    def source(value):
        together.wait(timeout=10)  # passes only when two threads are in it
        return [value]

    assert sorted(merged([lambda: source(1), lambda: source(2)], 2, 4)) == [1, 2]


def test_an_error_in_a_source_comes_after_what_was_read():
    def broken():
        yield 1
        raise KeyError("broken")

    items = merged([broken, lambda: [2]], 1, 4)
    assert next(items) == 1
    with pytest.raises(KeyError, match="broken"):
        next(items)


def test_threads_end_when_nobody_reads_any_longer():
    items = merged([lambda: iter(int, 1)] * 2, 2, 1)
    assert next(items) == 0
    items.close()  # the fixture of this folder looks for threads that are left
