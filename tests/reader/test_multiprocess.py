"""Readers in processes of their own."""

import os
import signal

import numpy as np
import pytest

from paddle.reader import multiprocess_reader

both_transports = pytest.mark.parametrize("use_pipe", [True, False], ids=["pipe", "queue"])


def numbers(start, count):
    def reader():
        for i in range(start, start + count):
            yield i, np.full(3, i, "float32")

    return reader


@both_transports
def test_every_sample_of_every_reader_arrives(use_pipe):
    reader = multiprocess_reader([numbers(0, 40), numbers(100, 7), numbers(200, 0)], use_pipe, queue_size=5)
    for _ in range(2):
        samples = list(reader())
        assert sorted(i for i, _ in samples) == [*range(40), *range(100, 107)]
        assert all((row == i).all() for i, row in samples)


@both_transports
def test_the_readers_run_in_other_processes(use_pipe):
    def reader():
        yield os.getpid()

    pids = list(multiprocess_reader([reader, reader], use_pipe)())
    assert len({*pids, os.getpid()}) == 3


@both_transports
def test_a_reader_that_fails_raises_in_the_parent_with_its_traceback(use_pipe):
    def broken():
        yield 1
        raise KeyError("no such sample")

    with pytest.raises(ValueError, match=r"reader 2 of 2 failed in its process(.|\n)*KeyError: 'no such sample'"):
        list(multiprocess_reader([numbers(0, 3), broken], use_pipe)())


@both_transports
def test_a_sample_of_none_is_an_error(use_pipe):
    with pytest.raises(ValueError, match="None as a sample"):
        list(multiprocess_reader([lambda: iter([None])], use_pipe)())


@both_transports
def test_a_process_that_is_killed_raises_in_the_parent(use_pipe):
    def killed():
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ValueError, match="was lost: its process ended with exit code -9"):
        list(multiprocess_reader([killed], use_pipe)())


@both_transports
def test_a_consumer_may_leave_early(use_pipe):
    def endless():
        while True:
            yield np.zeros(1000)

    samples = multiprocess_reader([endless, endless], use_pipe, queue_size=2)()
    next(samples)
    samples.close()


def test_a_list_of_readers_is_required():
    with pytest.raises(ValueError, match="non-empty list of readers"):
        multiprocess_reader([])
