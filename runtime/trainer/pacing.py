"""What flags say about the pace of a trainer: how far it may go without its servers, and ahead of other trainers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refluid import flags

_WAIT = 0.01  # seconds; FLAGS_communicator_send_wait_times counts waits of this length
_LEAD = "FLAGS_communicator_max_lead"
# Own steps that parameters may lack at most where a program is made for a communicator and no bound is set: as many as
# real Fluid's lack on average when steps are short (bench/staleness.py).
_IN_BACKGROUND = 4
_IN_BACKGROUND_ONE_BY_ONE = 1  # the same where steps are not merged: one is computed while another is on its way


@dataclass(frozen=True)
class Pacing:
    """What flags say about an async trainer.

    By default a message leaves as soon as the connection is free, with all steps that are queued, and its reply brings
    the parameters. Everything that makes gradients wait is the user's choice.
    """

    max_staleness: int  # own steps that the parameters of a step may lack
    adapts: bool = False  # no more of them than the connection makes useful, see `Ahead`
    max_merged: int | None = None  # steps in one message; None for all that are queued
    merge_wait: float = 0.0  # seconds that a message waits for more steps
    pull_after: int = 1  # steps until parameters are requested again

    @classmethod
    def of_flags(cls, gradients: int, *, in_background: bool, sums: bool) -> Pacing:
        """The pace that flags ask for.

        Args:
          gradients: how many a step pushes; Fluid's flag for pulls counts them.
          in_background: whether the program is made for a communicator.
          sums: whether gradients of several steps may be summed. Others are merged, by their mean, only on request.
        """
        merged = _given("max_merge_var_num", least=1)
        pull_after = -(-_given("min_send_grad_num_before_recv", least=1, default=1) // max(1, gradients))
        wait = _given("send_wait_times", default=0) * _WAIT if merged != 1 else 0.0
        if wait and merged is None:
            merged = flags.read_flag("FLAGS_communicator_max_merge_var_num")
        together = max(pull_after, merged if wait and merged else 1)  # steps that are on their way at once
        bound = _given("max_staleness", default=2 * together if together > 1 else None)
        if adapts := bound is None and in_background:
            bound = _IN_BACKGROUND if sums else _IN_BACKGROUND_ONE_BY_ONE
            bound = min(bound, flags.read_flag(_LEAD)) if flags.read_flag(_LEAD) >= 0 else bound
        queued = _given("send_queue_size", least=1)
        if queued is not None:
            bound = min(bound or 0, queued + (merged or 1))
        return cls(bound or 0, adapts, merged if merged or sums else 1, wait, min(pull_after, max(1, bound or 0)))


def _given(name: str, least: int = 0, default: Any = None) -> Any:
    """A flag that the user has set, or the default."""
    name = f"FLAGS_communicator_{name}"
    return max(least, flags.read_flag(name)) if flags.is_given(name) else default


def max_lead(unknown: int, why: str) -> int | None:
    """SSP: how many steps a trainer may be ahead of the slowest one; None for any number.

    Args:
      unknown: how many steps it may have taken that servers do not know of.
      why: for the error.

    Raises:
      ValueError: the bound leaves no room for those.
    """
    bound = flags.read_flag(_LEAD)
    if bound < 0:
        return None
    if bound < unknown:
        raise ValueError(f"{_LEAD} is {bound}, but {why}: it must be {unknown} or more")
    return bound
