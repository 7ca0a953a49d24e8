"""What all exchanges of a trainer have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refluid.lowering.exchange import Exchange
from refluid.runtime.trainer.exchange_plan import Traffic
from refluid.runtime.trainer.packing import Wanted, join, messages, to_device
from refluid.runtime.trainer.session import READ, Session, session_of
from refluid.runtime.transport.wire import Value


class TrainerExchange(Exchange):
    """An exchange of a trainer with the servers of its job."""

    def __init__(self, traffic: Traffic, place: Any):
        self.traffic, self._device = traffic, place.device()
        self.session: Session = session_of(traffic.job)
        self.wanted = Wanted.of(traffic.pulls)

    def agree(self, suffix: str = "") -> None:
        """Makes sure the servers have what will be sent and asked for."""
        pushes: dict[str, list[Any]] = {}
        pulls: dict[str, list[Any]] = {}
        for found, variables, ending in ((pushes, self.traffic.pushes, suffix), (pulls, self.traffic.pulls, "")):
            for variable in variables:
                for endpoint, tensor in variable.described(ending):
                    found.setdefault(endpoint, []).append(tensor)
        self.session.agree(pushes, pulls)

    def read(self) -> dict[str, dict[str, Value]]:
        """The servers' answers to a question for all parameters, as they are now."""
        return self.session.exchange(READ, messages((), self.wanted)) if self.traffic.pulls else {}

    def pulled(self, answers: Mapping[str, Mapping[str, Value]]) -> dict[str, Any]:
        """The parameters in answers, where steps find them."""
        return {variable.name: to_device(join(variable, answers), self._device) for variable in self.traffic.pulls}

    def close(self) -> None:
        """This trainer is done."""
        self.session.leave()
