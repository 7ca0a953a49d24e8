"""The role of this process, read from environment variables. Every generation of clusters and launchers used different
names; all are supported, the newest first."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """The role described by the variables."""

    is_server: bool
    index: int
    workers: int
    servers: tuple[str, ...] = ()
    trainers: tuple[str, ...] = ()


def place_in_job() -> Place:
    """Returns the role in a job with parameter servers."""
    role = _required("TRAINING_ROLE", "PADDLE_TRAINING_ROLE")
    workers = _number("PADDLE_TRAINERS_NUM", "PADDLE_TRAINERS")
    servers = _servers()
    trainers = _names(_optional("PADDLE_TRAINER_ENDPOINTS"))
    if role == "TRAINER":
        index = _number("PADDLE_TRAINER_ID")
        if not 0 <= index < workers:
            raise ValueError(f"PADDLE_TRAINER_ID is {index}, but the job has {workers} trainers, numbered from 0")
        return Place(False, index, workers, servers, trainers)
    if role == "PSERVER":
        return Place(True, _server_index(servers), workers, servers, trainers)
    raise ValueError(f"TRAINING_ROLE is {role!r}; expected TRAINER or PSERVER")


def place_in_collective() -> Place:
    """Returns the role in a job of trainers only."""
    trainers = _names(_required("PADDLE_TRAINER_ENDPOINTS"))
    index = _number("PADDLE_TRAINER_ID") if _optional("PADDLE_TRAINER_ID") else 0
    if not 0 <= index < len(trainers):
        raise ValueError(
            f"PADDLE_TRAINER_ID is {index}, but PADDLE_TRAINER_ENDPOINTS lists {len(trainers)} trainers, from 0 on"
        )
    return Place(False, index, len(trainers), (), trainers)


def _servers() -> tuple[str, ...]:
    newest = _optional("PADDLE_PSERVERS_IP_PORT_LIST")
    if newest:
        return _names(newest)
    for hosts, port in (("PADDLE_PSERVERS", "PADDLE_PORT"), ("PADDLE_PSERVER_IPS", "PADDLE_PSERVER_PORT")):
        if _optional(hosts) and _optional(port):
            return tuple(f"{host}:{_optional(port)}" for host in _names(_optional(hosts)))
    raise ValueError("server addresses are unknown: set PADDLE_PSERVERS_IP_PORT_LIST, e.g. 10.0.0.1:6174,10.0.0.2:6174")


def _server_index(servers: tuple[str, ...]) -> int:
    host = _required("POD_IP", "PADDLE_CURRENT_IP")
    port = _required("PADDLE_PORT", "PADDLE_PSERVER_PORT")
    endpoint = f"{host}:{port}"
    if endpoint not in servers:
        raise ValueError(
            f"POD_IP and PADDLE_PORT give this server the address {endpoint}, which is not in {', '.join(servers)}"
        )
    return servers.index(endpoint)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _optional(name: str) -> str:
    return os.environ.get(name, "").strip()


def _required(name: str, *older: str) -> str:
    """Returns the variable, or the first of its older names that is set."""
    for each in (name, *older):
        if _optional(each):
            return _optional(each)
    also = f" (or the older {', '.join(older)})" if older else ""
    raise ValueError(f"the environment variable {name}{also} is not set; launchers such as `refluid launch` set it")


def _number(name: str, *older: str) -> int:
    text = _required(name, *older)
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; expected a number") from None
