"""What is wrong with a job, from what its servers say, put together. Decisions only, without a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from refluid.runtime.observe.diagnosis import SILENT_AFTER, Cause, find_causes
from refluid.runtime.observe.waits import Party, Wait, as_json, from_json, server_name, trainer_name

PATIENCE = 10.0  # seconds; shorter waits are a matter of course
_FULL = 0.9  # of what large messages may take

Status = dict[str, Any]


@dataclass(frozen=True)
class NoAnswer:
    """Why a server gives no status, and what to do about it."""

    problem: str
    remedy: str


Answers = Mapping[str, Status | NoAnswer | None]  # by endpoint; None for no answer without a reason


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: who it is about, one sentence, and what to do."""

    subjects: tuple[str, ...]
    text: str
    remedy: str


def joined_waits(answers: Answers) -> list[Wait]:
    """Who waits for whom, as far as any server knows, the longest first."""
    found: dict[tuple[Any, ...], Wait] = {}
    for status in statuses(answers):
        for wait in from_json(status.get("waits", ())):
            key = wait.who, wait.what, wait.awaited
            if key not in found or found[key].seconds < wait.seconds:
                found[key] = wait
    return sorted(found.values(), key=lambda wait: -wait.seconds)


def causes(answers: Answers) -> list[Cause]:
    """Why those wait that have waited for a while."""
    return find_causes((wait for wait in joined_waits(answers) if wait.seconds >= PATIENCE), parties(answers))


def examine(answers: Answers) -> list[Finding]:
    """Everything that is wrong; the causes of the longest waits come first."""
    found = [Finding(cause.blamed, cause.text, cause.remedy) for cause in causes(answers)]
    explained = {name for finding in found for name in finding.subjects}
    broken = [finding for finding in _broken(answers) if not explained.issuperset(finding.subjects)]
    return [*found, *broken, *_disagreements(answers), *_troubles(answers)]


def as_dict(answers: Answers, findings: Iterable[Finding]) -> dict[str, Any]:
    """All of it, for programs; it becomes JSON."""
    listed = [asdict(finding) for finding in findings]
    servers = {name: asdict(answer) if isinstance(answer, NoAnswer) else answer for name, answer in answers.items()}
    return {"healthy": not listed, "findings": listed, "waits": as_json(joined_waits(answers)), "servers": servers}


def statuses(answers: Answers) -> list[Status]:
    """What those servers say that answer."""
    return [answer for answer in answers.values() if isinstance(answer, dict)]


def parties(answers: Answers) -> list[Party]:
    """All servers, and the trainers that have not left."""
    found: list[Party] = []
    for endpoint, answer in answers.items():
        if isinstance(answer, NoAnswer):
            found.append(Party(server_name(endpoint), problem=answer.problem, remedy=answer.remedy))
        elif answer is None:
            found.append(Party(server_name(endpoint), problem="no reply"))
        else:
            found.append(Party(server_name(answer["endpoint"]), problem=answer.get("problem", "")))
    return [*found, *_trainers(answers)]


def _trainers(answers: Answers) -> Iterator[Party]:
    views: dict[int, list[Status]] = {}
    for status in statuses(answers):
        for view in status["trainers"]:
            views.setdefault(view["trainer"], []).append(view)
    for number, seen in views.items():
        if all(view["left"] for view in seen):
            continue
        heard = [view for view in seen if view["last_seen"] is not None and not view["left"]]
        latest = min(heard, key=lambda view: view["last_seen"], default=seen[0])
        idle = [view["idle"] for view in seen if view.get("idle") is not None]
        yield Party(
            trainer_name(number),
            where=latest["host"],
            has_joined=bool(heard),
            heard=latest["last_seen"],
            idle=min(idle, default=None),
            doing=latest.get("doing", ""),
            lost=next((view["lost"] for view in seen if view.get("lost")), ""),
        )


def _broken(answers: Answers) -> Iterator[Finding]:
    for party in parties(answers):
        if party.problem:
            yield Finding(
                (party.name,), f"{party.name}: {party.problem}", party.remedy or f"look at the log of {party.name}"
            )
        elif party.heard is not None and party.heard > SILENT_AFTER:
            where = f" ({party.where})" if party.where else ""
            yield Finding(
                (party.name,),
                f"{party.name}{where} was last heard from {party.heard:.0f} s ago, and sends a heartbeat every 5 s",
                f"it was killed or stopped, or the network between is cut: look at the log of {party.name}",
            )


def _disagreements(answers: Answers) -> Iterator[Finding]:
    for key, text in (("mode", "train in different modes"), ("trainers", "expect different numbers of trainers")):
        by_value: dict[str, list[str]] = {}
        for status in statuses(answers):
            if key == "trainers" and status["mode"] != "sync":  # there, more may join, one server after the other
                continue
            value = len(status["trainers"]) if key == "trainers" else status[key]
            by_value.setdefault(str(value), []).append(status["endpoint"])
        if len(by_value) > 1:
            said = ", ".join(f"{value} on {' and '.join(endpoints)}" for value, endpoints in by_value.items())
            names = tuple(server_name(each) for endpoints in by_value.values() for each in endpoints)
            yield Finding(names, f"these servers {text}: {said}", "they are not of one job: check the endpoints")


def _troubles(answers: Answers) -> Iterator[Finding]:
    for status in statuses(answers):
        name, recovery, queues = server_name(status["endpoint"]), status.get("recovery") or {}, status.get("queues", {})
        if recovery.get("problem"):
            yield Finding(
                (name,),
                f"{name}: {recovery['problem']}",
                "make room there or correct the folder; a restart would lose what came after the last snapshot",
            )
        held, budget = (int(queues.get(f"inflight_{name}", 0)) for name in ("bytes", "budget"))
        if budget and held >= _FULL * budget:
            yield Finding(
                (name,),
                f"{name} is overloaded: messages take {held >> 20} of {budget >> 20} MB, and trainers wait for room",
                "give it more (FLAGS_rpc_max_inflight_mb), use more servers, or fewer trainers at a time",
            )
