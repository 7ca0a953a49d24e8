"""A trainer's session: one per process, from joining the servers of its job to leaving them.

A session knows who this trainer is and sends what exchanges give it; what is sent and when, exchanges decide.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from refluid.log import Log
from refluid.runtime.observe.trainer_metrics import TrainerMetrics
from refluid.runtime.trainer.exchange_plan import Job
from refluid.runtime.trainer.row_copies import RowCopies
from refluid.runtime.trainer.rows_ahead import RowsAhead
from refluid.runtime.trainer.server_calls import ServerCalls
from refluid.runtime.transport.connection import Connection
from refluid.runtime.transport.memory import keep_freed_memory


class Communicator(Protocol):
    """An exchange that queues gradients, as scripts control it."""

    staleness: int

    @property
    def queued(self) -> int: ...
    @property
    def is_running(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def receive(self) -> None: ...


class Session(ServerCalls):
    """This trainer in its job."""

    def __init__(self, job: Job, connect: Callable[..., Connection] = Connection):
        keep_freed_memory()
        self.kept: set[str] = set()  # variables of this trainer, of which servers hold only the initial values
        self.started_with: dict[str, Any] = {}  # GEO: the parameters that this trainer received first
        self.communicators: list[Communicator] = []  # exchanges that queue gradients
        self.rows_ahead = RowsAhead()
        self.copies = RowCopies(self)  # of rows that a trainer of GEO mode trains by itself
        self._left = False
        self._on_leave: list[Callable[[], None]] = []
        self._on_flush: list[Callable[[], None]] = []
        self._making = threading.Lock()
        self._once: dict[tuple[int, ...], tuple[Sequence[Any], Any]] = {}
        mode = job.mode.name.lower()
        metrics = TrainerMetrics(job.trainer, mode, lambda: self.step, self.queued, self._staleness)
        super().__init__(job, connect, metrics, Log(role="trainer", trainer=job.trainer))
        self._metrics_endpoint = metrics.serve()

    def once(self, ops: Sequence[Any], make: Callable[[], Any]) -> Any:
        """What ``make`` returns for these operators, made once.

        A program is compiled again for other feed shapes, but its queues and snapshots stay the same.
        """
        key = tuple(id(op) for op in ops)
        with self._making:  # threads may run a program for the first time together
            if key not in self._once:
                self._once[key] = ops, make()  # the operators are kept, so that no others get their ids
        return self._once[key][1]

    def queued(self) -> int:
        """Steps whose gradients wait to be sent."""
        return sum(communicator.queued for communicator in self.communicators)

    def _staleness(self) -> int:
        return max((communicator.staleness for communicator in self.communicators), default=0)

    @property
    def has_left(self) -> bool:
        """Whether this trainer has left its job, so that servers no longer reply to it."""
        return self._left

    def on_leave(self, action: Callable[[], None]) -> None:
        """Registers an action that runs before this trainer leaves: sends what is queued, ends threads."""
        self._on_leave.append(action)

    def on_flush(self, action: Callable[[], None]) -> None:
        """Registers an action that sends what is queued."""
        self._on_flush.append(action)

    def flush(self) -> None:
        """Returns when servers have all that this trainer has computed."""
        for action in self._on_flush:
            action()

    def leave(self, failure: str = "") -> None:
        """Sends what is queued and leaves the job, with the reason if this trainer has failed. Again does nothing."""
        global _session
        if self._left:
            return
        self._left = True
        for action in self._on_leave:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - servers must receive Leave all the same
                self._log.error("the last gradients are lost", reason=str(error))
        self.rows_ahead.close()
        self.close(failure)
        if self._metrics_endpoint is not None:
            self._metrics_endpoint.close()
        if _session is self:
            _session = None


_session: Session | None = None
_bound: ContextVar[Session | None] = ContextVar("session", default=None)
_opening = threading.Lock()


def session_of(job: Job) -> Session:
    """The session of this process, opened on first use."""
    global _session
    with _opening:
        found = current()
        if found is None:
            found = _session = Session(job)
    if found.job != job:
        raise RuntimeError(
            f"this process already is trainer {found.job.trainer} of a job with servers "
            f"{', '.join(found.job.endpoints)}; close its executor before another one begins"
        )
    return found


def applied_steps() -> int:
    """The steps of this trainer that servers have applied, those of processes that it replaces included.

    A trainer that was killed and started again goes on with its step of this number, counted from 0. What is queued is
    sent first, so that it counts every step until now.

    Raises:
      RuntimeError: this process has not joined a job: it is a server, or has not run its startup program.
    """
    session = current()
    if session is None:
        raise RuntimeError(
            "refluid.applied_steps: this process is not a trainer of a job with parameter servers, or has not joined "
            "it yet; run the startup program first"
        )
    session.flush()
    return session.applied_steps()


def current() -> Session | None:
    """The session of this process, if it has one."""
    return _bound.get() or _session


@contextmanager
def bound(session: Session) -> Iterator[None]:
    """Uses ``session`` instead of the process's own in this context: one process can then run several trainers."""
    token = _bound.set(session)
    try:
        yield
    finally:
        _bound.reset(token)


@atexit.register
def _leave_at_exit() -> None:
    """Leaves when a script ends without exe.close(), so that nobody waits for this trainer; says if it has failed."""
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)  # what has ended the script
    if _session is not None:
        _session.leave("" if error is None else f"{type(error).__name__}: {error}")
