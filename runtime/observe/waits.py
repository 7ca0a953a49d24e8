"""Who waits for whom in a job, as servers, trainers and tools tell each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

DISK = "the disk of"
_MOST_NAMES, _LONGEST_TEXT = 64, 300  # of what another process says
_FOREVER = 1e9  # seconds; nobody has waited for so long


@dataclass(frozen=True)
class Wait:
    """Members of a job that wait for others.

    Attributes:
      who: "trainer 0", "server 10.0.0.1:6174".
      what: what they wait for, such as "pushes of round 18".
      awaited: who can end it.
      seconds: for how long already.
      problem: why it does not end, if that is known.
      blocks: whether those who wait could do something else; a server that has nothing to do blocks nobody.
    """

    who: tuple[str, ...]
    what: str
    awaited: tuple[str, ...]
    seconds: float
    problem: str = ""
    blocks: bool = True


@dataclass(frozen=True)
class Party:
    """What is known of one member of a job.

    Attributes:
      where: host and process id.
      has_joined: of a trainer; whether the job has begun for it.
      heard: seconds since its last sign of life; None if nobody has heard of it.
      idle: seconds since it last did something that others can see.
      doing: the line of its script.
      lost: of a trainer; why it is waited for until it joins again.
      problem: why it does not work, if that is known.
      remedy: what to do about that.
    """

    name: str
    where: str = ""
    has_joined: bool = True
    heard: float | None = None
    idle: float | None = None
    doing: str = ""
    lost: str = ""
    problem: str = ""
    remedy: str = ""


def trainer_name(trainer: int) -> str:
    """How a trainer is called."""
    return f"trainer {trainer}"


def trainer_number(name: str) -> int | None:
    """The inverse of `trainer_name`; None for another name."""
    number = name.removeprefix("trainer ")
    return int(number) if number != name and number.isdecimal() else None


def server_name(endpoint: str) -> str:
    """How a server is called."""
    return f"server {endpoint}"


def as_message(waits: Sequence[Wait], kind: Any) -> list[Any]:
    """Waits as messages of the protocol, of the type ``kind``."""
    return [
        kind(who=each.who, what=each.what, awaited=each.awaited, seconds=each.seconds, problem=each.problem)
        for each in waits[:_MOST_NAMES]
    ]


def from_message(messages: Iterable[Any]) -> list[Wait]:
    """What another process says, cut where it says too much."""
    return [
        Wait(
            tuple(map(cut, each.who[:_MOST_NAMES])),
            cut(each.what),
            tuple(map(cut, each.awaited[:_MOST_NAMES])),
            each.seconds if 0 <= each.seconds < _FOREVER else 0.0,
            cut(each.problem),
        )
        for _, each in zip(range(_MOST_NAMES), messages, strict=False)
    ]


def as_json(waits: Iterable[Wait]) -> list[dict[str, Any]]:
    """Waits for the reply of Status."""
    return [{**asdict(each), "seconds": round(each.seconds, 1)} for each in waits]


def from_json(found: Iterable[dict[str, Any]]) -> list[Wait]:
    """The inverse of `as_json`."""
    return [Wait(**{**each, "who": tuple(each["who"]), "awaited": tuple(each["awaited"])}) for each in found]


def cut(text: str, longest: int = _LONGEST_TEXT) -> str:
    """A text of another process, no longer than it needs to be, and without what would steer a terminal."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text[:longest])


def listed(names: Iterable[str]) -> str:
    """Names for a sentence: ``trainers 0, 2 and server a:1``."""
    by_role: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        role, _, rest = name.partition(" ")
        known = role in ("trainer", "server") and " " not in rest
        by_role.setdefault(role if known else "", []).append(rest if known else name)
    texts = [
        ", ".join(rest) if not role else f"{role}{'s' * (len(rest) > 1)} {', '.join(rest)}"
        for role, rest in by_role.items()
    ]
    return " and ".join(texts)
