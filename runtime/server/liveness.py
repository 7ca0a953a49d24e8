"""When a trainer is lost, and what becomes of its job: decisions only, time is an argument.

Heartbeats come from a thread of their own: a trainer that computes, compiles or waits for long is not lost. A process
that was killed or stopped, or cannot be reached, is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from refluid import flags
from refluid.ir.modes import Mode

_LONGEST_PAUSE = 5.0  # seconds between two heartbeats, at most
_HEARTBEATS = 6  # that are missed before a trainer is lost


class Policy(Enum):
    """What becomes of a job one of whose trainers is lost."""

    WAIT = "wait"  # rounds and barriers wait until it joins again
    LEAVE_OUT = "leave_out"  # the others go on without it
    FAIL = "fail"


@dataclass(frozen=True)
class Liveness:
    """The rules of a server.

    Attributes:
      silence: seconds without a message until a trainer is lost.
      when_silent: the policy for a trainer that is silent, which may come back by itself.
      when_failed: the policy for one that has said that it ends with an error.
      rejoin: seconds that a lost trainer is waited for; then the job fails.
      join: seconds that trainers are waited for which never joined, since the first one did; 0: without an end.
    """

    silence: float
    when_silent: Policy
    when_failed: Policy
    rejoin: float
    join: float

    @classmethod
    def of_flags(cls, mode: Mode) -> Liveness:
        """What the flags say. Without them, numbers do not change silently, and a job in which nobody waits goes on.

        Raises:
          ValueError: a flag has a value that it cannot have.
        """
        silence = flags.read_flag("FLAGS_worker_update_interval_secs")
        if silence <= 0:
            raise ValueError(f"FLAGS_worker_update_interval_secs is {silence}; expected seconds, more than 0")
        chosen, policies = flags.read_flag("FLAGS_rpc_lost_trainer"), [each.value for each in Policy]
        if chosen and chosen not in policies:
            raise ValueError(
                f"FLAGS_rpc_lost_trainer is {chosen!r}; expected {', '.join(policies[:-1])} or {policies[-1]}"
            )
        if chosen:
            silent = failed = Policy(chosen)
        elif mode is Mode.SYNC:
            silent, failed = Policy.WAIT, Policy.FAIL
        else:
            silent = failed = Policy.LEAVE_OUT
        rejoin, join = (flags.read_flag(f"FLAGS_rpc_{what}_secs") for what in ("rejoin", "join"))
        return cls(silence, silent, failed, rejoin, join)

    @property
    def heartbeat(self) -> float:
        """Seconds between two heartbeats."""
        return min(_LONGEST_PAUSE, self.silence / _HEARTBEATS)

    @property
    def last_words(self) -> float:
        """Seconds until every trainer has heard, in the reply to a heartbeat, that the job has failed."""
        return 2 * self.heartbeat + 2
