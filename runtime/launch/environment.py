"""The processes of a distributed job and the environment of each: decisions only, nothing is started here.

Fluid scripts learn their role from environment variables, and each generation of Fluid reads different ones. A member
gets all of them with consistent values: the oldest scripts pair ``PADDLE_PSERVER_IPS`` with a ``PADDLE_PSERVER_PORT``,
role makers read ``PADDLE_PSERVERS_IP_PORT_LIST``, collective role makers ``PADDLE_TRAINER_ENDPOINTS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ROLES = {"server": "PSERVER", "trainer": "TRAINER"}
_LOGS = {"server": "serverlog", "trainer": "workerlog"}  # as Fluid's own launchers name them


@dataclass(frozen=True)
class Member:
    """One process of a job."""

    role: str  # server or trainer
    index: int
    endpoint: str
    gpus: str | None = None

    def __str__(self) -> str:
        return f"{self.role} {self.index}"

    @property
    def log_name(self) -> str:
        return f"{_LOGS[self.role]}.{self.index}"


@dataclass(frozen=True)
class Placement:
    """Endpoints of all servers and trainers; a job without servers is collective."""

    servers: tuple[str, ...]
    trainers: tuple[str, ...]

    def members(self) -> list[Member]:
        """Every process, servers first."""
        servers = [Member("server", index, endpoint) for index, endpoint in enumerate(self.servers)]
        return servers + [Member("trainer", index, endpoint) for index, endpoint in enumerate(self.trainers)]

    def environment(self, member: Member) -> dict[str, str]:
        """The environment variables of a member, for every generation of scripts."""
        host, port = split_endpoint(member.endpoint)
        if self.servers and member.role == "trainer":
            port = split_endpoint(self.servers[-1])[1]  # scripts mean the servers' port; trainers do not listen
        role, trainers = _ROLES[member.role], str(len(self.trainers))
        variables = {
            "PADDLE_TRAINERS": trainers,
            "PADDLE_TRAINERS_NUM": trainers,
            "PADDLE_NUM_TRAINERS": trainers,
            "PADDLE_TRAINER_ID": str(member.index),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(self.trainers),
            "PADDLE_CURRENT_ENDPOINT": member.endpoint,
            "PADDLE_CURRENT_IP": host,
            "POD_IP": host,
            "PADDLE_PORT": port,
        }
        if self.servers:
            variables |= {"TRAINING_ROLE": role, "PADDLE_TRAINING_ROLE": role} | self._server_variables()
        if member.gpus is not None:
            variables["FLAGS_selected_gpus"] = member.gpus
        return variables

    def _server_variables(self) -> dict[str, str]:
        variables = {"PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.servers)}
        hosts, ports = zip(*map(split_endpoint, self.servers), strict=True)
        if len(set(ports)) == 1:  # those scripts know one port only
            variables |= dict.fromkeys(("PADDLE_PSERVERS", "PADDLE_PSERVER_IPS"), ",".join(hosts))
            variables["PADDLE_PSERVER_PORT"] = ports[0]
        return variables


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """Host and port of ``host:port``."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"invalid endpoint {endpoint!r}; expected HOST:PORT, such as 127.0.0.1:6174")
    return host, port


def spread(count: int, hosts: Sequence[str], first_port: int) -> tuple[str, ...]:
    """``count`` endpoints spread evenly over ``hosts``, host by host, on ports from ``first_port`` on."""
    each, more = divmod(count, len(hosts))
    return tuple(
        f"{host}:{first_port + port}" for place, host in enumerate(hosts) for port in range(each + (place < more))
    )


# The variables that a launcher sets, which must not leak into a job from the launcher's own environment.
VARIABLES = frozenset(Placement(("a:1",), ("b:2",)).environment(Member("trainer", 0, "b:2")))
