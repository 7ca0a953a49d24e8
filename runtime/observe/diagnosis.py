"""Why a job does not get on: who waits for whom, followed to those who wait for nobody. Decisions only, without clocks.

Waits are the edges of a graph of servers and trainers. Whoever is awaited and does not wait is a cause; so are those
who wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from refluid.runtime.observe.waits import DISK, Party, Wait, listed

SILENT_AFTER = 11.0  # seconds; trainers send a heartbeat every 5
_AGAIN = "start {} again: it takes the place of the one that is gone"


@dataclass(frozen=True)
class Cause:
    """A reason for waits.

    Attributes:
      blamed: who it is.
      text: one sentence.
      remedy: what to do about it.
      seconds: the longest of the waits.
    """

    blamed: tuple[str, ...]
    text: str
    remedy: str
    seconds: float


def find_causes(waits: Iterable[Wait], parties: Iterable[Party]) -> list[Cause]:
    """The causes of waits, that of the longest one first.

    Args:
      parties: what is known of those who take part; of others nothing is.
    """
    known = {party.name: party for party in parties}
    blocking = [wait for wait in waits if wait.blocks and wait.awaited]
    edges: dict[str, list[Wait]] = {}
    for wait in blocking:
        for name in wait.who:
            if not is_broken(known.get(name)):
                edges.setdefault(name, []).append(wait)
    ends = {name: [wait for wait in blocking if name in wait.awaited] for wait in blocking for name in wait.awaited}
    found = [_of_end(known.get(name, Party(name)), of) for name, of in ends.items() if name not in edges]
    explained = _reaching({name for name in ends if name not in edges}, edges)
    circle = _circle({name for name in edges if name not in explained}, edges)
    if circle:
        found.append(_of_circle(circle, edges, known))
    return sorted(found, key=lambda cause: -cause.seconds)


def is_broken(party: Party | None) -> bool:
    """Whether a member of the job does nothing any more, whatever it last said."""
    if party is None:
        return False
    return (
        bool(party.problem or party.lost)
        or not party.has_joined
        or (party.heard is not None and party.heard > SILENT_AFTER)
    )


def _of_end(party: Party, waits: Sequence[Wait]) -> Cause:
    longest = max(waits, key=lambda wait: wait.seconds)
    who = [name for wait in waits for name in wait.who if name != party.name]
    tail = f"; {listed(who)} {'have' if len(set(who)) > 1 else 'has'}" if who else "; it has"
    told = f"{tail} waited {longest.seconds:.0f} s for {longest.what}"
    problem = party.problem or next((wait.problem for wait in waits if wait.problem), "")
    text, remedy = _state(party, problem, longest.seconds)
    return Cause((party.name,), text + told, remedy, longest.seconds)


def _state(party: Party, problem: str, seconds: float) -> tuple[str, str]:
    """What to say of one who is awaited, and what to do."""
    name = f"{party.name} ({party.where})" if party.where else party.name
    if problem:
        return f"{name}: {problem}", party.remedy or f"look at the log of {party.name}; start it again if it has ended"
    if party.name.startswith(DISK):
        return f"{name} is slow or does not write", "look whether it is full, overloaded or cut off"
    if party.name.startswith("server"):
        return (
            f"{name} is at work, as with a long update, or stopped, overloaded or cut off",
            f"look at the log of {party.name}, which has its threads if it is at work",
        )
    if party.lost:
        return f"{name} {party.lost} and is waited for until it joins again", _AGAIN.format(party.name)
    if not party.has_joined:
        return (
            f"{name} has not joined",
            f"start {party.name}, or look at its log: it may be compiling, read data, or not reach the servers",
        )
    if party.heard is None and party.idle is None and not party.doing:
        return f"{name} is awaited", f"look at the log of {party.name}"
    if party.heard is not None and party.heard > SILENT_AFTER:
        return (
            f"{name} was last heard from {party.heard:.0f} s ago, and sends a heartbeat every 5 s: it was killed or "
            "stopped, its machine is overloaded, or the network between is cut",
            _AGAIN.format(party.name),
        )
    idle = f" has not pushed for {party.idle:.0f} s" if party.idle is not None else ""
    beat = f"its last heartbeat is {party.heard:.0f} s old" if party.heard is not None else "it runs"
    at = f", at {party.doing}" if party.doing else ""
    return (
        f"{name}{idle}; {beat}: it is alive{at}, and slow, or it compiles or reads data",
        f"if that takes too long, look at the threads in the log of {party.name}",
    )


def _reaching(ends: set[str], edges: Mapping[str, Sequence[Wait]]) -> set[str]:
    """Those whose waiting leads to one of the ``ends``."""
    found = set(ends)
    while True:
        more = {
            name
            for name, waits in edges.items()
            if name not in found and any(found.intersection(wait.awaited) for wait in waits)
        }
        if not more:
            return found
        found |= more


def _circle(names: set[str], edges: Mapping[str, Sequence[Wait]]) -> list[str]:
    """Some of ``names`` that wait for each other, in order; all of them wait for others of them only."""
    if not names:
        return []
    path = [min(names)]
    while True:
        following = next(each for wait in edges[path[-1]] for each in wait.awaited if each in names)
        if following in path:
            return path[path.index(following) :]
        path.append(following)


def _of_circle(circle: Sequence[str], edges: Mapping[str, Sequence[Wait]], known: Mapping[str, Party]) -> Cause:
    steps, seconds = [], 0.0
    for name, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        wait = next(each for each in edges[name] if following in each.awaited)
        seconds = max(seconds, wait.seconds)
        party = known.get(name)
        at = f", at {party.doing}" if party is not None and party.doing else ""
        steps.append(f"{name}{at} waits for {following} ({wait.what})")
    return Cause(
        tuple(circle),
        f"they wait for each other: {'; '.join(steps)}",
        "all trainers must take the same steps, and be at the same barriers, in the same order: compare what they do",
        seconds,
    )
