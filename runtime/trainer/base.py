"""What all exchanges of a trainer have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from refluid.lowering.exchange import Exchange
from refluid.places import Place
from refluid.runtime.trainer.exchange_plan import ExchangePlan, SlicedVariable
from refluid.runtime.trainer.packing import Pulls, Replies, pack, unpack
from refluid.runtime.trainer.server_calls import READ
from refluid.runtime.trainer.session import Session, session_of
from refluid.runtime.transport.wire import pb


class TrainerExchange(Exchange):
    """An exchange of a trainer with the servers of its job."""

    def __init__(self, plan: ExchangePlan, place: Place):
        self.plan, self._device = plan, place.device()
        self.session: Session = session_of(plan.job)
        self.pulls = Pulls.of(plan.pulls)

    def declare(self, suffix: str = "") -> None:
        """Declares the variables of the plan to the servers, which refuse what they do not have."""
        tables = [trained.table for trained in self.plan.trained]
        self.session.declare(_tensors([*self.plan.pushes, *tables], suffix), _tensors(self.plan.pulls))

    def read(self) -> Replies:
        """Requests all parameters as they are now."""
        return self.session.exchange(READ, pack((), self.pulls)) if self.plan.pulls else {}

    def unpack(self, replies: Replies) -> dict[str, Any]:
        """The parameters in replies, where steps use them."""
        return unpack(self.plan.pulls, replies, self._device)

    def close(self) -> None:
        """Ends this trainer's part in the job."""
        self.session.leave()


def _tensors(variables: Iterable[SlicedVariable], suffix: str = "") -> dict[str, list[Any]]:
    """The slices of variables as servers must have them, by endpoint."""
    found: dict[str, list[Any]] = {}
    for variable in variables:
        for part in variable.slices:
            tensor = pb.Tensor(
                name=part.name + suffix, dtype=variable.dtype.name, dims=part.shape, sparse=variable.sparse
            )
            found.setdefault(part.endpoint, []).append(tensor)
    return found
