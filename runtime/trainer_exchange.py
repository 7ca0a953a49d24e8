"""What all exchanges of a trainer have in common."""

from __future__ import annotations

from typing import Any

from refluid.lowering.exchange import Exchange
from refluid.runtime.session import Session, session_of
from refluid.runtime.traffic import Traffic


class TrainerExchange(Exchange):
    """An exchange of a trainer with the servers of its job."""

    def __init__(self, traffic: Traffic):
        self.traffic = traffic
        self.session: Session = session_of(traffic.job)

    def agree(self, suffix: str = "") -> None:
        """Makes sure the servers have what will be sent and asked for."""
        pushes: dict[str, list[Any]] = {}
        pulls: dict[str, list[Any]] = {}
        for found, variables, ending in ((pushes, self.traffic.pushes, suffix), (pulls, self.traffic.pulls, "")):
            for variable in variables:
                for endpoint, tensor in variable.described(ending):
                    found.setdefault(endpoint, []).append(tensor)
        self.session.agree(pushes, pulls)

    def close(self) -> None:
        """This trainer is done."""
        self.session.leave()
