"""A generator in a forked process, so that it does not share Python's interpreter lock with training.

The worker runs the generator and converts what it yields; batches arrive through a pipe, which a thread reads ahead.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from refluid.readers.position import draw_seeds, use_seeds
from refluid.readers.processes import start_forked
from refluid.readers.reader import Batch
from refluid.readers.sources import Source
from refluid.readers.threads import ReadAhead

Begin = Callable[[], Iterable[Batch]]
_BATCH, _END, _FAILURE = range(3)  # a worker sends (kind, payload)


class WorkerTraceback(Exception):
    """The traceback of an error in a worker, as the cause of the error that is raised here."""

    def __str__(self) -> str:
        return f"in the worker process:\n{self.args[0]}"


class Worker:
    """A process that runs ``source``; iterating yields its batches."""

    def __init__(self, source: Begin):
        fork = multiprocessing.get_context("fork")
        self._receiving, sending = fork.Pipe(duplex=False)
        args = source, draw_seeds(), self._receiving, sending
        self._process = fork.Process(target=_run, args=args, daemon=True)
        start_forked([self._process])
        sending.close()
        self.pid = self._process.pid

    def __iter__(self) -> Iterator[Batch]:
        while True:
            try:
                kind, payload = self._receiving.recv()
            except (EOFError, OSError):
                raise RuntimeError(self._lost()) from None
            if kind == _END:
                return
            if kind == _FAILURE:
                raise _error(*payload)
            yield payload

    def kill(self) -> None:
        """Ends the process; whoever waits for a batch stops waiting."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """Closes the pipe of a process that has ended; no thread may wait for a batch any more."""
        self._receiving.close()
        self._process.close()

    def _lost(self) -> str:
        self._process.join()
        code = self._process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"the worker process {self.pid} of a reader {how} before its last batch"


def read_ahead_of(source: Source, size: int, *, skip: int = 0, in_worker: bool) -> ReadAhead:
    """Begins a pass over ``source``, but for its first batches, in a thread or in a worker process."""
    begin = partial(source, skip)
    if not in_worker:
        return ReadAhead(begin, size)
    worker = Worker(begin)
    # A thread that waits for the next batch stops when the process has ended.
    return ReadAhead(lambda: worker, size, before=worker.kill, after=worker.close)


def _run(source: Begin, seeds: tuple[int, int], receiving: Any, sending: Any) -> None:
    """Runs in the child."""
    receiving.close()  # an open copy here would hide that the parent is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the parent ends this one
    use_seeds(seeds)
    try:
        for batch in source():
            sending.send((_BATCH, batch))
        sending.send((_END, None))
    except BrokenPipeError:
        return
    except BaseException as error:  # noqa: BLE001 - raised in the parent
        sending.send((_FAILURE, (_pickled(error), traceback.format_exc())))


def _pickled(error: BaseException) -> bytes | None:
    """The error, if it can be pickled and read back."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # noqa: BLE001 - any code of the error's class may fail
        return None
    return data


def _error(pickled: bytes | None, text: str) -> BaseException:
    cause = WorkerTraceback(text)
    error = pickle.loads(pickled) if pickled is not None else RuntimeError(text.strip().rsplit("\n", 1)[-1])
    error.__cause__ = cause
    return error
