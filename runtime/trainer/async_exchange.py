"""Async training: a trainer that does not wait for servers.

A step leaves its gradients and takes the newest parameters that have arrived; one thread sends, another receives. How
far a trainer may run ahead of what its parameters show is bounded, see `Background.bound`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from refluid import flags
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import Traffic
from refluid.runtime.trainer.merging import Waiting
from refluid.runtime.trainer.packing import NOTHING, messages, on_host
from refluid.runtime.transport.wire import Value

_APART = "FLAGS_communicator_independent_recv_thread"
_WAIT = 0.01  # seconds; FLAGS_communicator_send_wait_times counts waits of this length


class Background(TrainerExchange):
    """Async mode: pushes and pulls happen behind the steps."""

    def __init__(self, traffic: Traffic, place: Any):
        super().__init__(traffic, place)
        self.agree()
        sums = flags.read_flag("FLAGS_communicator_is_sgd_optimizer")
        self._pushes = [replace(variable, adds=variable.adds or sums) for variable in traffic.pushes]
        self._most_merged = max(1, flags.read_flag("FLAGS_communicator_max_merge_var_num"))
        most_waiting = max(1, flags.read_flag("FLAGS_communicator_send_queue_size"))
        # A pull is due after so many steps were sent, sooner is not worth its bytes. Fluid's flag counts gradients.
        gradients = flags.read_flag("FLAGS_communicator_min_send_grad_num_before_recv")
        most_stale = max(1, flags.read_flag("FLAGS_communicator_max_staleness"))
        # Half of what a trainer may be ahead travels while it takes the other half.
        half = max(1, most_stale // 2)
        self._pull_after = min(max(1, -(-gradients // max(1, len(traffic.pushes)))), half)
        self._worth_sending = min(self._most_merged, most_waiting, half)
        self._patience = flags.read_flag("FLAGS_communicator_send_wait_times") * _WAIT
        # One message that sends and receives costs half of two, so the thread is for those who ask for it.
        self._receives_apart = flags.is_given(_APART) and flags.read_flag(_APART)
        self.bound = min(most_waiting + self._most_merged + self._pull_after, most_stale)
        self.staleness = 0  # steps of this trainer that its parameters do not show, at the last step
        self.worst_staleness = 0
        self._waiting = Waiting(most_waiting, self._most_merged)
        self._changed = threading.Condition()  # guards what follows
        self._stepped = 0  # steps taken
        self._sent = 0  # steps that servers have applied
        self._shown = 0  # steps that the newest parameters show
        self._newest: dict[str, Any] = {}
        self._stopping = False
        self._awaiting = 0  # threads that wait for gradients to be sent
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self.session.communicators.append(self)
        self.session.on_leave(self.stop)
        self.session.on_flush(self.flush)
        self.start()

    # The training thread

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        pushes = self._pushes
        values = [on_host(env[variable.name]) for variable in pushes]
        with self._changed:
            self.session.step += 1
            if not self._threads and self._failure is None:
                raise RuntimeError("the communicator of this program was stopped; start it again before training on")
            self._wait_for(lambda: not (self._waiting.full or self._too_far_ahead()))
            self._waiting.add(pushes, values)
            self._stepped += 1
            self.staleness = self._stepped - 1 - self._shown
            self.worst_staleness = max(self.worst_staleness, self.staleness)
            self._changed.notify_all()
            newest, self._newest = self._newest, {}
        return newest

    def _too_far_ahead(self) -> bool:
        return self._stepped - self._shown >= self.bound

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits for what sending brings about, which therefore does not wait for more steps meanwhile."""
        if not condition():
            self._awaiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failure or condition())
            self._awaiting -= 1
        if self._failure is not None:
            raise self._failure

    # Sending and receiving

    def start(self) -> None:
        """Starts the threads; they run until `stop`."""
        if self._threads:
            return
        self._stopping = False
        works = [self._send, self._receive] if self._receives_apart else [self._send]
        self._threads = [
            threading.Thread(target=self._watched, args=(work,), name=work.__name__.strip("_"), daemon=True)
            for work in works
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        """Steps whose gradients wait to be sent."""
        return self._waiting.steps

    @property
    def is_running(self) -> bool:
        """Whether the threads run."""
        return bool(self._threads)

    def flush(self) -> None:
        """Returns when servers have the gradients of every step so far."""
        with self._changed:
            self._wait_for(lambda: self._sent == self._stepped or not self._threads)

    def stop(self) -> None:
        """Sends what is waiting, then ends the threads."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def receive(self) -> None:
        """Pulls parameters now; the next step takes them."""
        with self._changed:
            sent = self._sent
        answers = self.read()
        with self._changed:
            if sent >= self._shown:
                self._take(answers, sent)

    def _watched(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the next step is taken
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting.steps or self._stopping)
                # One message for several steps costs what one for a single step does.
                self._changed.wait_for(self._is_worth_sending, self._patience)
                if not self._waiting.steps:
                    return
                batch = self._waiting.take()
                pulls = not self._receives_apart and self._sent + batch.steps - self._shown >= self._pull_after
                self._changed.notify_all()
            wanted = self.wanted if pulls else NOTHING
            answers = self.session.push(messages(batch.merged(self._pushes), wanted), batch.steps)
            with self._changed:
                self._sent += batch.steps
                if pulls:
                    self._take(answers, self._sent)
                self._changed.notify_all()

    def _is_worth_sending(self) -> bool:
        return self._awaiting > 0 or self._stopping or self._waiting.steps >= self._worth_sending

    def _receive(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._sent - self._shown >= self._pull_after or self._stopping)
                if self._stopping:
                    return
                sent = self._sent
            answers = self.read()
            with self._changed:
                self._take(answers, sent)
                self._changed.notify_all()

    def _take(self, answers: Mapping[str, Mapping[str, Value]], shown: int) -> None:
        self._newest = self.pulled(answers)
        self._shown = shown
