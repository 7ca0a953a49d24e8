"""JAX's part of joining: its coordination service and client, without the parts that abort processes.

`jax.distributed.initialize` has no setting for them. Its client aborts the process, without a name, as soon as the
service is gone or says that a process is; `group` does this better, so heartbeats are as good as off here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax._src import distributed, xla_bridge
from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage]

from refluid import backend
from refluid.runtime.collective.tunnel import Tunnel

_NEVER = 1_000_000  # seconds between heartbeats
_TIMEOUT = 60  # seconds to connect; all processes are known to be there
_ATTEMPTS = 5


def serve(count: int, host: str) -> tuple[int, Any]:
    """Starts JAX's coordination service for ``count`` processes at any free port of a host of this machine.

    Returns the port and the service.
    """
    for attempt in range(_ATTEMPTS):
        with socket.socket(_family(host)) as probe:
            probe.bind((host.strip("[]"), 0))
            port = probe.getsockname()[1]
        try:
            return port, _jax.get_distributed_runtime_service(
                f"{host}:{port}", count, heartbeat_timeout=_NEVER, shutdown_timeout=_TIMEOUT, recoverable=True
            )
        except RuntimeError:  # another process was faster
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _family(host: str) -> socket.AddressFamily:
    return socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)[0][0]


@dataclass
class World:
    """The connection of this process to the service; while it exists, JAX sees the devices of all processes."""

    tunnel: Tunnel

    @classmethod
    def start(cls, coordinator: tuple[str, int], hosts: Sequence[str], rank: int, service: Any) -> World:
        """Connects JAX to the others, and restarts it if it was in use.

        Args:
          coordinator: where the coordination service is.
          hosts: of all processes.
          rank: the number of this one.
          service: the coordination service, in the first process.
        """
        backend.restart()
        backend.prepare()
        _have_devices(int(os.environ.get("CPU_NUM", "1")))
        tunnel = Tunnel(*coordinator)
        address = f"127.0.0.1:{tunnel.port}"
        client = _jax.get_distributed_runtime_client(
            address,
            rank,
            init_timeout=_TIMEOUT,
            heartbeat_timeout=_NEVER,
            shutdown_timeout=1,
            shutdown_on_destruction=False,
            use_compression=True,
        )
        client.connect()
        state = distributed.global_state
        state.client, state.service = client, service
        state.process_id, state.num_processes, state.coordinator_address = rank, len(hosts), address
        # By default gloo listens at the address of the machine's name, which is often one that others cannot reach.
        interface = _chosen_interface()
        where = {"interface": interface} if interface else {"hostname": hosts[rank]}
        _make_cpu_client_with(_jax.make_gloo_tcp_collectives(distributed_client=client, **where))
        return cls(tunnel)

    def stop(self, broken: bool, restart: bool) -> None:
        """Disconnects JAX.

        Args:
          broken: whether a rank is gone: its answer is not waited for, and the client stays connected to nobody.
          restart: whether JAX will be used again, with the devices of this process.
        """
        state = distributed.global_state
        client, service = state.client, state.service
        state.client = state.service = None  # JAX's own end would wait for all other processes
        state.process_id, state.num_processes = 0, 1
        if restart:
            backend.restart()
            _make_cpu_client_with(None)
        if broken:
            _abandoned.append((client, service))
            return
        assert client is not None
        client.shutdown()
        if service is not None:
            service.shutdown()
        self.tunnel.close()


def _chosen_interface() -> str | None:
    """The network interface that the user has chosen, for gloo or, as Fluid's guide has it, for NCCL."""
    for_gloo, for_nccl = (os.environ.get(f"{library}_SOCKET_IFNAME") for library in ("GLOO", "NCCL"))
    if for_gloo:
        return for_gloo
    return for_nccl if for_nccl in {name for _, name in socket.if_nameindex()} else None  # it may be a pattern


def _have_devices(count: int) -> None:
    """Lets JAX have at least so many CPU devices, unless the user says how many."""
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen and jax.config.jax_num_cpu_devices < count:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_num_cpu_devices", count)


def _make_cpu_client_with(collectives: Any) -> None:
    factory = partial(xla_bridge.make_cpu_client, collectives=collectives)
    xla_bridge.register_backend_factory("cpu", factory, priority=0, fail_quietly=False)


_abandoned: list[Any] = []  # what must not be destroyed: its end would abort the process
