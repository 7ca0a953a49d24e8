"""What a server sees of its job: who waits for whom, what is queued, what trainers do. For its watchdog and for Status.

Reads without the lock of updates, which may be held for long just when somebody wants to know why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refluid.runtime.observe.diagnosis import find_causes
from refluid.runtime.observe.waits import DISK, Party, Wait, as_json, server_name, trainer_name
from refluid.runtime.observe.watchdog import Observation
from refluid.runtime.server.barriers import Barriers
from refluid.runtime.server.durable.recovery import Recovery
from refluid.runtime.server.exchange import ExchangeHandler
from refluid.runtime.server.membership import Member, Membership
from refluid.runtime.server.peers import Peers

_SHORT = 1.0  # seconds; what takes no longer is no wait
BUDGET = "inflight_budget"  # no queue, but what one is compared with
_TO_TRAIN_ON = "trainers to train on or leave"


class View:
    """One server's view.

    Args:
      recovery: gives what the server keeps on disk, if it does.
    """

    def __init__(
        self,
        endpoint: str,
        membership: Membership,
        exchange: ExchangeHandler,
        barriers: Barriers,
        peers: Peers,
        recovery: Callable[[], Recovery | None],
    ):
        self._name = server_name(endpoint)
        self._membership, self._exchange, self._barriers = membership, exchange, barriers
        self._peers, self._recovery = peers, recovery
        self.depths: dict[str, Callable[[], object]] = {
            "queued_pushes": lambda: len(exchange.queue),
            "held_trainers": lambda: len(exchange.held),
        }

    def observe(self, now: float) -> Observation:
        """All of it, for the watchdog."""
        rounds, members = self._exchange.rounds, list(self._membership.members.values())
        progress = (
            rounds.version,
            rounds.round,
            self._exchange.served,
            len(self._exchange.queue),
            self._barriers.arrivals,
            sum(member.joined is not None for member in members),
            sum(member.left for member in members),
        )
        queues = {name: value for name, value in self.queues().items() if name != BUDGET}
        counts = {"round": rounds.round, "version": rounds.version, **queues}
        return Observation(progress, self.waits(now), self.parties(now), counts)

    def status(self, now: float) -> dict[str, Any]:
        """All of it, for the reply of Status."""
        waits = self.waits(now)
        causes = find_causes(waits, self.parties(now))
        return {
            "version": self._exchange.rounds.version,
            "queues": self.queues(),
            "waits": as_json(waits),
            "cause": causes[0].text if causes else None,
            "problem": self._problem(),
        }

    def _problem(self) -> str:
        """Why the job has failed, if it has."""
        return "" if self._exchange.failure is None else str(self._exchange.failure)

    def queues(self) -> dict[str, object]:
        """What is queued: numbers and bytes by name."""
        recovery = self._recovery()
        return {
            **{name: read() for name, read in self.depths.items()},
            **({} if recovery is None else recovery.backlog()),
        }

    def parties(self, now: float) -> list[Party]:
        """The trainers that have not left, and this server."""
        found = [
            Party(
                trainer_name(number),
                where=member.host,
                has_joined=member.seen is not None,
                heard=None if member.seen is None else now - member.seen,
                idle=None if member.active is None else now - member.active,
                doing=member.doing,
                lost=member.lost,
            )
            for number, member in self._members()
            if not member.left
        ]
        return [*found, Party(self._name, problem=self._problem())]

    def waits(self, now: float) -> list[Wait]:
        """Who waits for whom: trainers and servers, as far as this server knows."""
        return [*self.own_waits(now), *self._of_trainers(now)]

    def own_waits(self, now: float) -> list[Wait]:
        """Those that this server has to do with."""
        return [*self._for_trainers(now), *self._for_servers(now)]

    def for_trainer(self, trainer: int, now: float) -> list[Wait]:
        """Those waits that a trainer can end."""
        return [wait for wait in self._for_trainers(now) if trainer_name(trainer) in wait.awaited and wait.blocks]

    def _for_trainers(self, now: float) -> list[Wait]:
        members, exchange, barrier = self._membership, self._exchange, self._barriers.open()
        present, found = members.present(), list[Wait]()

        def add(who: list[int], what: str, awaited: list[int], since: float, *, blocks: bool = True) -> None:
            names = tuple(map(trainer_name, who)) or (self._name,)
            found.append(Wait(names, what, tuple(map(trainer_name, awaited)), now - since, blocks=blocks))

        if exchange.round_began is not None and exchange.rounds.waits:
            what = f"pushes of round {exchange.rounds.round + 1}"
            add(sorted(exchange.queue), what, exchange.rounds.awaited(), exchange.round_began)
        for trainer, since in list(exchange.held.items()):
            add([trainer], f"trainers that are slower than trainer {trainer}", exchange.slower(trainer), since)
        if exchange.start_requested is not None:
            add([each for each in present if each != 0], "initial parameters", [0], exchange.start_requested)
        if barrier is not None:
            number, since = barrier
            add(self._barriers.at(number), f"barrier {number}", self._barriers.missing(number), since)
        if members.unseen():
            add([], "trainers to join", members.unseen(), members.started)
        idle = members.idle_since()
        if idle is not None and present:
            add([], _TO_TRAIN_ON, present, idle, blocks=False)
        return found

    def _for_servers(self, now: float) -> list[Wait]:
        found, updating, summing = list[Wait](), self._exchange.updating, self._peers.summing
        if updating is not None and now - updating[0] > _SHORT:
            who = tuple(map(trainer_name, updating[1]))
            found.append(Wait(who, "an update", (self._name,), now - updating[0]))
        if summing is not None and now - summing[0] > _SHORT:
            others = tuple(map(server_name, summing[1]))
            found.append(Wait((self._name,), "parts of a sum over servers", others, now - summing[0]))
        recovery = self._recovery()
        since = None if recovery is None else recovery.writing_since
        if since is not None and now - since > _SHORT:
            found.append(Wait((self._name,), "its log to be written", (f"{DISK} {self._name}",), now - since))
        return found

    def _of_trainers(self, now: float) -> list[Wait]:
        """What trainers have said with their last heartbeat, unless they have gone on since."""
        return [
            Wait((trainer_name(number),), wait.what, wait.awaited, wait.seconds + now - member.reported, wait.problem)
            for number, member in self._members()
            if not member.left and (member.active or 0.0) <= member.reported
            for wait in member.waits
        ]

    def _members(self) -> list[tuple[int, Member]]:
        return list(self._membership.members.items())
