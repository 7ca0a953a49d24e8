"""Readers made of readers."""

import gzip
import random
import threading

import pytest

import paddle
from paddle import reader as readers


def counting(stop):
    def reader():
        yield from range(stop)

    return reader


def failing_after(count, error):
    def reader():
        yield from range(count)
        raise error

    return reader


def test_batch_keeps_a_short_last_batch_unless_told_otherwise():
    assert list(paddle.batch(counting(5), 2)()) == [[0, 1], [2, 3], [4]]
    assert list(paddle.batch(counting(5), 2, drop_last=True)()) == [[0, 1], [2, 3]]


def test_batch_refuses_a_size_below_one():
    with pytest.raises(ValueError, match="batch_size must be a positive integer, got 0"):
        paddle.batch(counting(5), 0)


def test_cache_reads_the_reader_once():
    passes = []

    def reader():
        passes.append(1)
        yield from range(3)

    cached = readers.cache(reader)
    assert [list(cached()), list(cached())] == [[0, 1, 2], [0, 1, 2]]
    assert len(passes) == 1


def test_map_readers_gives_one_sample_of_each_reader_to_the_function():
    assert list(readers.map_readers(lambda a, b: a * 10 + b, counting(3), counting(3))()) == [0, 11, 22]


def test_chain_puts_readers_one_after_another():
    assert list(readers.chain(counting(2), counting(3))()) == [0, 1, 0, 1, 2]


def test_firstn_stops_early_and_does_not_read_further():
    assert list(readers.firstn(failing_after(2, RuntimeError), 2)()) == [0, 1]
    assert list(readers.firstn(counting(2), 9)()) == [0, 1]


def test_shuffle_keeps_every_sample_and_moves_none_out_of_its_window():
    random.seed(7)
    shuffled = list(readers.shuffle(counting(25), 10)())
    assert sorted(shuffled) == list(range(25))
    assert shuffled != list(range(25))
    assert sorted(shuffled[:10]) == list(range(10))


def test_shuffle_follows_the_seed_of_python_random():
    runs = []
    for _ in range(2):
        random.seed(3)
        runs.append(list(readers.shuffle(counting(20), 20)()))
    assert runs[0] == runs[1]


def test_compose_flattens_tuples():
    pairs = readers.map_readers(lambda i: (i, -i), counting(3))
    assert list(readers.compose(counting(3), pairs)()) == [(0, 0, 0), (1, 1, -1), (2, 2, -2)]


def test_compose_notices_readers_of_different_length():
    with pytest.raises(readers.ComposeNotAligned, match="reader 2 of 2 ended before the others"):
        list(readers.compose(counting(3), counting(2))())
    assert list(readers.compose(counting(3), counting(2), check_alignment=False)()) == [(0, 0), (1, 1)]


def test_compose_refuses_an_argument_it_does_not_know():
    with pytest.raises(TypeError, match="check_alignement"):
        readers.compose(counting(3), check_alignement=True)


def test_fake_repeats_the_first_sample_in_every_pass():
    fake = readers.Fake()(counting(3), 4)
    assert [list(fake()), list(fake())] == [[0] * 4, [0] * 4]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_buffered_keeps_samples_and_order(size):
    assert list(readers.buffered(counting(50), size)()) == list(range(50))


def test_buffered_reads_ahead_but_not_further_than_its_size():
    reached = threading.Event()
    read = []

    def reader():
        for i in range(100):
            read.append(i)
            if i == 4:
                reached.set()
            yield i

    samples = readers.buffered(reader, 4)()
    assert next(samples) == 0
    assert reached.wait(5)
    assert len(read) <= 6
    samples.close()


def test_buffered_raises_the_readers_error_after_what_came_before_it():
    samples = readers.buffered(failing_after(3, KeyError("lost")), 10)()
    assert [next(samples) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="lost"):
        next(samples)


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_xmap_readers_maps_every_sample_once(order, threads):
    mapped = list(readers.xmap_readers(lambda x: x * x, counting(200), threads, 8, order)())
    assert (mapped if order else sorted(mapped)) == [x * x for x in range(200)]


def test_xmap_readers_in_order_waits_for_the_slow_sample():
    second_is_done = threading.Event()

    def mapper(x):
        if x == 0:
            assert second_is_done.wait(5)
        else:
            second_is_done.set()
        return x

    assert list(readers.xmap_readers(mapper, counting(2), 2, 4, order=True)()) == [0, 1]


@pytest.mark.parametrize("order", [False, True])
def test_xmap_readers_raises_the_mappers_error_in_the_consumer(order):
    def mapper(x):
        return 100 // (x - 20)

    with pytest.raises(ZeroDivisionError):
        list(readers.xmap_readers(mapper, counting(1000), 3, 4, order)())


@pytest.mark.parametrize("order", [False, True])
def test_xmap_readers_raises_the_readers_error_in_the_consumer(order):
    with pytest.raises(OSError, match="disk"):
        list(readers.xmap_readers(abs, failing_after(10, OSError("disk")), 3, 4, order)())


def test_xmap_readers_needs_a_thread():
    with pytest.raises(ValueError, match="at least one thread, got 0"):
        readers.xmap_readers(abs, counting(3), 0, 4)


@pytest.mark.parametrize("order", [False, True])
def test_a_consumer_may_leave_xmap_readers_early(order):
    samples = readers.xmap_readers(abs, counting(10_000), 3, 4, order)()
    next(samples)
    samples.close()


def test_pipe_reader_cuts_the_output_of_a_command_into_lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("one\nzwölf\n\nlast", encoding="utf-8")
    for size in (1, 3, 8192):
        assert list(readers.PipeReader(f"cat {path}", bufsize=size).get_line()) == ["one", "zwölf", "", "last"]
    assert "".join(readers.PipeReader(f"cat {path}", bufsize=2).get_line(cut_lines=False)) == "one\nzwölf\n\nlast"


def test_pipe_reader_reads_through_several_gzip_files(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(gzip.compress(f"{name}1\n{name}2\n".encode()))
    pipe = readers.PipeReader(f"cat {tmp_path / 'a'} {tmp_path / 'b'}", bufsize=7, file_type="gzip")
    assert list(pipe.get_line()) == ["a1", "a2", "b1", "b2"]


def test_pipe_reader_reports_a_command_that_fails(tmp_path):
    with pytest.raises(OSError, match="exited with status 1"):
        list(readers.PipeReader(f"cat {tmp_path / 'missing'}").get_line())


def test_pipe_reader_ends_the_command_when_the_consumer_leaves():
    lines = readers.PipeReader("yes").get_line()
    assert next(lines) == "y"
    lines.close()


def test_pipe_reader_refuses_what_it_cannot_read():
    with pytest.raises(TypeError, match="command as a string"):
        readers.PipeReader(["cat"])
    with pytest.raises(TypeError, match="'zip'"):
        readers.PipeReader("cat", file_type="zip")
