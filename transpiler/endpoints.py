"""Endpoints as users write them."""

from __future__ import annotations

from collections.abc import Sequence


def parse_endpoints(text: str | Sequence[str], argument: str = "pservers") -> tuple[str, ...]:
    """The endpoints in ``"ip:port,ip:port"`` or in a list; ``argument`` is named in errors."""
    if not isinstance(text, str) and not (isinstance(text, list | tuple) and all(isinstance(x, str) for x in text)):
        raise TypeError(f"{argument} must be a string such as '127.0.0.1:6174', not {type(text).__name__}")
    parts = text.split(",") if isinstance(text, str) else text
    endpoints = tuple(part.strip() for part in parts)
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{argument} contains {endpoint!r} in {text!r}; an endpoint must be host:port")
    if len(set(endpoints)) != len(endpoints):
        raise ValueError(f"{argument} lists {_kind(argument)} twice: {','.join(endpoints)}")
    return endpoints


def _kind(argument: str) -> str:
    return "a server" if argument == "pservers" else "a process"
