"""Trainers that come, go, are lost and are replaced: what that means for rounds, barriers and the whole job.

`membership`, `barriers` and `liveness` decide; here their decisions meet. The caller holds the lock of the server.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from refluid.errors import LostTrainerError
from refluid.ir.modes import Mode
from refluid.log import Log
from refluid.runtime.server.barriers import Barriers
from refluid.runtime.server.exchange import ExchangeHandler
from refluid.runtime.server.liveness import Liveness, Policy
from refluid.runtime.server.membership import Member, Membership
from refluid.runtime.server.notices import BACK, LOST, REPLACED, Notices

_MOST_TEXT = 300  # characters of the reason why a trainer has failed


class Attendance:
    """Which trainers a server waits for, and whom it tells of the others.

    Args:
        mode: the training mode.
        liveness: when a trainer is lost, and what follows.
        membership: the trainers.
        barriers: where they meet.
        exchange: their pushes.
        changed: the lock; notified of what ends a wait.
        record: told of a trainer that begins, whose state then must survive a restart of the server.
        record_leave: told of a trainer that leaves, and whether it was evicted.
    """

    def __init__(
        self,
        mode: Mode,
        liveness: Liveness,
        membership: Membership,
        barriers: Barriers,
        exchange: ExchangeHandler,
        changed: threading.Condition,
        log: Log,
        record: Callable[[int], None],
        record_leave: Callable[[int, bool], None],
    ):
        self.notices = Notices()
        self.all_left = threading.Event()
        self.failed_at = math.inf  # when the job failed, if it did
        self._mode, self._liveness, self._log = mode, liveness, log
        self._membership, self._barriers, self._exchange = membership, barriers, exchange
        self._changed, self._record, self._record_leave = changed, record, record_leave

    # Trainers that come

    def begin_life(self, trainer: int, replaced: Member) -> None:
        """A new process is a trainer: the first one, or one that goes on for another."""
        member = self._membership.members[trainer]
        if replaced.incarnation is not None or self._membership.is_added(trainer):
            self._exchange.begin_life(trainer)
            self._exchange.metrics.add_trainer(trainer)
            self._barriers.enter(trainer)
            member.earlier_barriers = self._barriers.reached(trainer)
        fields = {"trainer": trainer, "host": member.host, "round": self._exchange.rounds.round}
        if member.replaces:
            self._log.warning("trainer joined", replaces=replaced.host, steps=member.steps, **fields)
            text = f"is back as {member.host}, in the place of {replaced.host}, after {member.steps} steps"
            self.notices.add(trainer, REPLACED, f"trainer {trainer} {text}")
        else:
            self._log.info("trainer joined", **fields)
        self._record(trainer)

    def welcome_back(self) -> None:
        """Processes that were lost have turned up again: barriers wait for them from the next one on."""
        returned = self._membership.returned
        while returned:
            trainer = returned.pop()
            self._membership.members[trainer].earlier_barriers += self._barriers.enter(trainer)
            self._record(trainer)  # a log has that it was evicted
            self._tell(trainer, BACK, f"{self._membership.name(trainer)} is back")

    def first_push(self, trainer: int) -> None:
        """A process begins to train. In sync mode one that goes on for another is past the barrier where all wait."""
        member, barrier = self._membership.members[trainer], self._barriers.open()
        waits = barrier is not None and trainer in self._barriers.missing(barrier[0])
        if barrier is not None and waits and member.goes_on and self._mode is Mode.SYNC:
            self._barriers.arrive(trainer, barrier[0], time.monotonic())
            member.earlier_barriers += 1
            self._record(trainer)
            self._changed.notify_all()
        member.has_pushed = True

    # Trainers that go

    def find_lost(self, now: float) -> list[int]:
        """Does what the policy says of trainers that are silent, and of those that have not come back in time."""
        if self._exchange.failure is not None:
            return []
        self.welcome_back()
        members, rules = self._membership, self._liveness
        silent = members.silent(now, rules.silence)
        for trainer in silent:
            self._lose(trainer, f"was silent for {members.silence(trainer, now):.0f} s", rules.when_silent)
        for trainer in members.overdue(now, rules.rejoin):
            why = f"{members.members[trainer].lost} and has not come back in {rules.rejoin:g} s"
            self._fail(trainer, f"{members.name(trainer)} {why}")
        missing = members.never_joined(now, rules.join) if rules.join > 0 else []
        if missing and self._exchange.failure is None:
            names = " and ".join(f"trainer {trainer}" for trainer in missing)
            self._fail(missing[0], f"{names} did not join within {rules.join:g} s of the first one")
        return silent

    def lost_elsewhere(self, trainer: int) -> None:
        """Another server does not hear a trainer any more. One that has been here as well is judged here."""
        member = self._membership.members.get(trainer)
        if member is not None and member.seen is None and not (member.lost or member.left):
            self._lose(trainer, "was lost before it joined this server", self._liveness.when_silent)

    def leave(self, trainer: int, failure: str) -> None:
        """A trainer is done, or has failed."""
        if not failure or self._exchange.failure is not None:
            self._remove(trainer, evicted=False)
            return
        self._membership.members[trainer].has_failed = True
        self._lose(trainer, f"has failed: {failure[:_MOST_TEXT]}", self._liveness.when_failed)

    def _lose(self, trainer: int, why: str, policy: Policy) -> None:
        name = self._membership.name(trainer)
        if policy is Policy.FAIL:
            self._fail(trainer, f"{name} {why}")
        elif policy is Policy.LEAVE_OUT:
            self._tell(trainer, LOST, f"{name} {why} and is left out")
            self._remove(trainer, evicted=True)
        else:
            self._tell(trainer, LOST, f"{name} {why} and is waited for until it joins again")
            self._membership.lose(trainer, why, time.monotonic())

    def _fail(self, trainer: int, problem: str) -> None:
        """The job has failed; trainers have some time to hear of it."""
        self._log.error("the job has failed", reason=problem, trainer=trainer, round=self._exchange.rounds.round)
        self.failed_at = time.monotonic()
        self._exchange.fail(LostTrainerError(trainer, problem))
        self._membership.evict(trainer)
        self._end_if_all_left()

    def _remove(self, trainer: int, *, evicted: bool) -> None:
        self._membership.leave(trainer, time.monotonic())
        if evicted:
            self._membership.evict(trainer)
        self._record_leave(trainer, evicted)
        self._barriers.leave(trainer)
        self._changed.notify_all()
        try:
            self._exchange.leave(trainer)
        finally:
            self._end_if_all_left()

    def _end_if_all_left(self) -> None:
        if self._membership.all_left:
            self.all_left.set()

    def end_if_failed(self, now: float) -> None:
        """Ends the server some time after the job has failed: every trainer has heard of it, or never will."""
        if now - self.failed_at > self._liveness.last_words:
            self.all_left.set()

    # Barriers

    def is_past(self, trainer: int, number: int, *, repeats: int) -> bool:
        """Whether a barrier that a trainer comes to is one that the others have passed long ago.

        A process that goes on for another may repeat the barriers at the beginning of its script. In sync mode the
        others are past them if they have pushed for its next round, which is applied here if it ``repeats`` a step;
        elsewhere, if none of them waits there.
        """
        member = self._membership.members[trainer]
        if not member.goes_on or self._barriers.reached(trainer) > number or not self._barriers.missing(number):
            return False
        if self._mode is Mode.SYNC:
            return repeats > 0 or self._exchange.round_began is not None
        return not [other for other in self._barriers.at(number) if other != trainer]

    def pass_by(self, trainer: int, number: int) -> None:
        """The barrier that a trainer comes to does not count."""
        self._barriers.retract(trainer, number)
        self._membership.members[trainer].earlier_barriers -= 1
        self._record(trainer)

    def _tell(self, trainer: int, event: str, text: str) -> None:
        self._log.warning(text, trainer=trainer, round=self._exchange.rounds.round)
        self.notices.add(trainer, event, text)
