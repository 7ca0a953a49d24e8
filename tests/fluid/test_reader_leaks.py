"""Loaders leave nothing behind: no thread, no process, no file descriptor, however a pass ends."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid

EXE = fluid.Executor(fluid.CPUPlace())
in_thread_or_process = pytest.mark.parametrize("in_process", [False, True], ids=["thread", "process"])


def running():
    """The threads, processes and file descriptors of this process."""
    threads = {thread.name for thread in threading.enumerate() if thread.name.startswith("refluid")}
    children = {process.pid for process in multiprocessing.active_children()}
    return threads, children, {entry.name for entry in Path("/proc/self/fd").iterdir()}


@pytest.fixture(autouse=True)
def nothing_is_left():
    gc.collect()
    _, _, files = running()
    yield
    deadline = time.monotonic() + 5
    while True:
        threads, children, now = running()
        if not threads and not children and len(now) <= len(files):
            break
        assert time.monotonic() < deadline, f"left running: {threads} {children} {sorted(now - files)}"
        time.sleep(0.01)


def endless():
    for i in range(10**9):
        yield [np.full((2, 3), i, "float32")]


def broken():
    yield [np.zeros((2, 3), "float32")]
    raise KeyError("no such sample")


def killed():
    yield [np.zeros((2, 3), "float32")]
    os.kill(os.getpid(), signal.SIGKILL)


def slow(started):
    def generator():
        yield [np.zeros((2, 3), "float32")]
        started.wait(20)

    return generator


def iterable_loader(generator, in_process):
    x = fluid.data("x", [None, 3])
    loader = fluid.io.DataLoader.from_generator([x], capacity=3, use_multiprocess=in_process)
    return loader.set_batch_generator(generator)


@pytest.fixture
def program_loader():
    """Makes a loader that the program reads from, and returns it with a function that runs a step."""

    def make(generator, in_process):
        x = fluid.data("x", [None, 3])
        loader = fluid.io.DataLoader.from_generator([x], 3, iterable=False, use_multiprocess=in_process)
        loader.set_batch_generator(generator)
        mean = fluid.layers.mean(x)
        return loader, lambda: float(EXE.run(fetch_list=[mean])[0][0])

    return make


@in_thread_or_process
def test_after_a_break(in_process):
    loader = iterable_loader(endless, in_process)
    for _ in range(2):
        for data in loader():
            assert np.array(data[0]["x"])[0, 0] == 0
            break


@in_thread_or_process
def test_after_an_error_in_the_loop(in_process):
    loader = iterable_loader(endless, in_process)

    def train():
        for _ in loader:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    gc.collect()


@in_thread_or_process
def test_after_a_pass_that_another_one_replaces(in_process):
    loader = iterable_loader(endless, in_process)
    first, second = iter(loader), iter(loader)
    assert next(second) and next(loader)
    with pytest.raises(StopIteration):
        next(first)
    second.close()


@in_thread_or_process
def test_after_the_end(in_process):
    loader = iterable_loader([[np.zeros((2, 3), "float32")]] * 4, in_process)
    for _ in range(2):
        every = loader()
        assert len(list(every)) == 4
        assert list(every) == []


@in_thread_or_process
def test_after_a_loader_that_nobody_holds(in_process):
    begun = iter(iterable_loader(endless, in_process))
    next(begun)
    del begun
    gc.collect()


@in_thread_or_process
def test_after_an_error_in_the_generator(in_process):
    loader = iterable_loader(broken, in_process)
    for _ in range(2):
        batches = iter(loader)
        assert next(batches)
        with pytest.raises(KeyError, match="no such sample") as caught:
            next(batches)
        text = "".join(traceback.format_exception(caught.value))
        assert 'in broken\n    raise KeyError("no such sample")\n' in text


def test_after_an_error_that_cannot_be_pickled():
    class LocalError(Exception):
        pass

    def generator():
        yield [np.zeros((2, 3), "float32")]
        raise LocalError("of this function")

    with pytest.raises(RuntimeError, match="LocalError: of this function"):
        list(iterable_loader(generator, in_process=True))


def test_after_a_worker_that_was_killed():
    loader = iterable_loader(killed, in_process=True)
    with pytest.raises(RuntimeError, match=r"worker process \d+ of a reader was killed by SIGKILL before"):
        list(loader)


def test_after_a_worker_that_exits():
    def exits():
        yield [np.zeros((2, 3), "float32")]
        os._exit(3)

    with pytest.raises(RuntimeError, match=r"ended with exit code 3 before its last batch"):
        list(iterable_loader(exits, in_process=True))


@in_thread_or_process
def test_after_an_interrupt_of_the_consumer(in_process, interruptible):
    waiting = threading.Event()
    batches = iter(iterable_loader(slow(waiting), in_process))
    next(batches)
    timer = threading.Timer(0.1, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    timer.join()
    waiting.set()
    with pytest.raises(StopIteration):
        next(batches)


@in_thread_or_process
def test_after_a_reset_before_the_end(program_loader, in_process):
    loader, step = program_loader(endless, in_process)
    for _ in range(2):
        loader.start()
        assert [step(), step()] == [0, 1]
        loader.reset()


@in_thread_or_process
def test_after_an_error_in_a_generator_that_a_program_reads(program_loader, in_process):
    loader, step = program_loader(broken, in_process)
    for _ in range(2):
        loader.start()
        assert step() == 0
        with pytest.raises(KeyError, match="no such sample"):
            step()
        loader.reset()


def test_after_a_worker_of_a_program_was_killed(program_loader):
    loader, step = program_loader(killed, in_process=True)
    loader.start()
    assert step() == 0
    with pytest.raises(RuntimeError, match="was killed by SIGKILL"):
        step()
    loader.reset()


@in_thread_or_process
def test_after_a_program_that_nobody_holds(program_loader, in_process):
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program()):
        loader, step = program_loader(endless, in_process)
        loader.start()
        assert step() == 0
    del loader, step
    gc.collect()


def test_after_the_end_of_python():
    script = """
import paddle.fluid as fluid
x = fluid.data("x", [None])
passes = []
for in_process in (False, True):
    loader = fluid.io.DataLoader.from_generator([x], 2, use_multiprocess=in_process)
    passes.append(iter(loader.set_batch_generator(lambda: iter(lambda: [[0.0]], None))))
    next(passes[-1])
read = fluid.io.DataLoader.from_generator([x], 2, iterable=False).set_batch_generator([[[0.0]]] * 9)
read.start()
print("begun")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("begun\n", "")
