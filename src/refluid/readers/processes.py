"""Runs readers in separate processes and merges their samples in the parent.

The processes are forked, because readers are closures and cannot be pickled. They only run the reader and do not
touch JAX.
"""

from __future__ import annotations

import multiprocessing
import queue
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection
from typing import Any

Reader = Callable[[], Iterable[Any]]

# A process sends (kind, index of the reader, payload).
_SAMPLE, _END, _FAILURE = range(3)

# How long a queue may stay empty before its processes are checked.
_LIVENESS_INTERVAL = 1.0


def mix(readers: list[Reader], queue_size: int | None) -> Iterator[Any]:
    """Yields the samples of all readers as they arrive; raises ValueError if a reader fails or dies.

    Args:
      queue_size: the capacity of the queue that all readers share; None gives each reader a pipe instead.
    """
    fork = multiprocessing.get_context("fork")
    transport = _Pipes(fork, len(readers)) if queue_size is None else _Queue(fork, queue_size)
    processes = [
        fork.Process(target=_run, args=(reader, index, transport), daemon=True) for index, reader in enumerate(readers)
    ]
    try:
        start_forked(processes)
        transport.enter_parent()
        ended = 0
        for kind, index, payload in transport.receive(processes):
            if kind == _SAMPLE:
                yield payload
                continue
            if kind == _FAILURE:
                raise ValueError(
                    f"multiprocess_reader: reader {index + 1} of {len(readers)} failed in its process:\n{payload}"
                )
            ended += 1
            if ended == len(readers):
                return
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()
                process.close()
        transport.close()


def start_forked(processes: list[Any]) -> None:
    """Starts processes of the "fork" kind."""
    with warnings.catch_warnings():
        # JAX and Python warn about forking a process with threads. The child only calls the reader, which takes none
        # of the locks that those threads may hold.
        warnings.filterwarnings("ignore", message=".*fork.*")
        for process in processes:
            process.start()


def _run(reader: Reader, index: int, transport: _Pipes | _Queue) -> None:
    """Runs in the child: sends every sample, then how the reader ended."""
    transport.enter_child(index)
    try:
        for sample in reader():
            if sample is None:
                raise ValueError("the reader yielded None as a sample")
            transport.send((_SAMPLE, index, sample))
        transport.send((_END, index, None))
    except BrokenPipeError:
        return  # the parent is gone
    except BaseException:  # noqa: BLE001 - raised in the parent
        transport.send((_FAILURE, index, traceback.format_exc()))


class _Pipes:
    """A pipe for each process."""

    def __init__(self, fork: Any, count: int):
        pairs = [fork.Pipe(duplex=False) for _ in range(count)]
        self._receiving = [receiving for receiving, _ in pairs]
        self._sending = [sending for _, sending in pairs]

    def enter_child(self, index: int) -> None:
        # An inherited copy of an end would keep the pipe open after its owner has died.
        self._sender = self._sending[index]
        for end in (*self._receiving, *self._sending):
            if end is not self._sender:
                end.close()

    def enter_parent(self) -> None:
        for end in self._sending:
            end.close()

    def send(self, message: tuple[int, int, Any]) -> None:
        self._sender.send(message)

    def receive(self, processes: list[Any]) -> Iterator[tuple[int, int, Any]]:
        waiting: list[Any] = list(self._receiving)
        while True:
            pipe: Any
            for pipe in connection.wait(waiting):
                try:
                    message = pipe.recv()
                except EOFError:
                    raise _lost(self._receiving.index(pipe), processes) from None
                if message[0] == _END:
                    waiting.remove(pipe)
                yield message

    def close(self) -> None:
        for end in (*self._receiving, *self._sending):
            end.close()


class _Queue:
    """One bounded queue for all processes."""

    def __init__(self, fork: Any, size: int):
        self._queue = fork.Queue(size)

    def enter_child(self, index: int) -> None:
        pass

    def enter_parent(self) -> None:
        pass

    def send(self, message: tuple[int, int, Any]) -> None:
        self._queue.put(message)

    def receive(self, processes: list[Any]) -> Iterator[tuple[int, int, Any]]:
        running, missed = set(range(len(processes))), set()
        while True:
            try:
                message = self._queue.get(timeout=_LIVENESS_INTERVAL)
            except queue.Empty:
                gone = {index for index in running if processes[index].exitcode is not None}
                for index in gone & missed:  # checked twice: its last message may just have arrived
                    raise _lost(index, processes) from None
                missed = gone
                continue
            if message[0] == _END:
                running.discard(message[1])
            yield message

    def close(self) -> None:
        self._queue.close()


def _lost(index: int, processes: list[Any]) -> ValueError:
    processes[index].join()
    return ValueError(
        f"multiprocess_reader: reader {index + 1} of {len(processes)} was lost: its process ended with exit code "
        f"{processes[index].exitcode} before its last sample"
    )
