"""The watchdog of a server or a trainer: when nothing moves, it writes who waits for whom, and what threads do.

It looks once a second, on a thread of its own and without locks, so that it has something to say while everything else
hangs. What it says is decided in `stalls` and `diagnosis`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from refluid import flags
from refluid.log import Log
from refluid.runtime.observe.diagnosis import find_causes
from refluid.runtime.observe.stacks import stacks
from refluid.runtime.observe.stalls import Stall, Stalls
from refluid.runtime.observe.waits import Party, Wait, listed

_LOOK_EVERY = 1.0  # seconds


@dataclass(frozen=True)
class Observation:
    """What a process knows of itself and of others.

    Attributes:
      progress: changes whenever the process gets on.
      counts: versions, rounds, steps and what is queued, for the log.
    """

    progress: Hashable
    waits: Sequence[Wait] = ()
    parties: Sequence[Party] = ()
    counts: Mapping[str, object] = field(default_factory=dict)


class Watchdog:
    """Looks at one server or trainer.

    Args:
      observe: what there is to see at a time; must not wait for a lock.
      each: called with the time at every look.
    """

    def __init__(self, log: Log, observe: Callable[[float], Observation], each: Callable[[float], None] | None = None):
        interval = flags.read_flag("FLAGS_rpc_watchdog_secs")
        self._log, self._observe, self._each = log, observe, each
        self._stalls = Stalls(interval, time.monotonic()) if interval > 0 else None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self, now: float) -> None:
        """Looks, and reports what there is to report."""
        if self._stalls is None:
            return
        try:
            seen = self._observe(now)
        except Exception as error:  # noqa: BLE001 - what changes while it is read without a lock is looked at again
            self._log.debug("the watchdog saw nothing", reason=str(error))
            return
        stall = self._stalls.look(now, seen.progress, waits=any(wait.blocks for wait in seen.waits))
        if stall is not None:
            self._report(stall, seen)

    def _report(self, stall: Stall, seen: Observation) -> None:
        if stall.is_over:
            self._log.warning(f"moves again after {stall.seconds:.0f} s", **seen.counts)
            return
        causes = find_causes(seen.waits, seen.parties)
        cause = causes[0].text if causes else None
        self._log.warning("nothing moves", seconds=round(stall.seconds, 1), cause=cause, **seen.counts)
        for other in causes[1:]:
            self._log.warning("another cause", cause=other.text)
        for wait in seen.waits:
            who, awaited = listed(wait.who), listed(wait.awaited)
            fields = {"who": who, "what": wait.what, "awaited": awaited, "seconds": round(wait.seconds, 1)}
            self._log.warning("wait", **fields, problem=wait.problem or None)
        for thread, stack in stacks().items():
            self._log.warning("thread", thread=thread, at=stack)

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_EVERY):
            now = time.monotonic()
            if self._each is not None:
                self._each(now)
            self.look(now)
