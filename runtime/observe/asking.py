"""Asks a server for its status; one that does not answer is described: what is wrong, and what to do."""

from __future__ import annotations

import socket

import grpc

from refluid.runtime.observe.answers import read_status
from refluid.runtime.observe.examination import NoAnswer, Status
from refluid.runtime.observe.waits import cut
from refluid.runtime.transport import wire
from refluid.runtime.transport.addresses import address_of
from refluid.runtime.transport.connection import Connection
from refluid.runtime.transport.security import failed_handshake
from refluid.runtime.transport.wire import pb

_CONNECT_TIMEOUT = 3.0  # seconds


class NoStatusError(ValueError):
    """A server has answered, but not what can be read."""


def ask(connection: Connection, timeout: float) -> Status | NoAnswer:
    """The status of a server, or why there is none."""
    try:
        return request_status(connection, timeout)
    except grpc.RpcError as error:
        return _explain(connection.endpoint, error, timeout)
    except NoStatusError as error:
        return NoAnswer(
            f"its answer cannot be read: {error}", "check the endpoint, and whether it runs the same version of refluid"
        )


def request_status(connection: Connection, timeout: float) -> Status:
    """The status of a server.

    Raises:
      grpc.RpcError: it does not answer.
      NoStatusError: what it answers is no status.
    """
    message = connection.call("Status", wire.encode(pb.Empty()), timeout)
    try:
        return read_status(wire.decode(pb.Text, message).text)
    except ValueError as error:
        raise NoStatusError(str(error)) from error


def _explain(endpoint: str, error: grpc.RpcError, timeout: float) -> NoAnswer:
    code, details = error.code(), error.details() or ""
    unsafe = failed_handshake(error)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return NoAnswer(
            "it refuses this call, which has no token of the job",
            "set FLAGS_rpc_token or FLAGS_rpc_token_file as the job has it; refluid launch keeps it in logs/.token",
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return NoAnswer("what listens there is no parameter server", "check the endpoint")
    unreachable = _unreachable(endpoint)
    if unreachable is not None:
        return unreachable
    if unsafe is not None:
        return NoAnswer(unsafe, "compare the certificates of both sides, and whether they have expired")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED or "timed out" in details:  # the kernel accepts for a stopped process
        return NoAnswer(
            f"it accepts connections and does not reply within {timeout:g} s: the process is stopped, swapped out or "
            "starved of processor time",
            "look at the process (ps -o pid,stat,args); kill -CONT one that is stopped, or kill it and start it again",
        )
    return NoAnswer(f"{code.name}: {cut(details)}", "look at its log")


def _unreachable(endpoint: str) -> NoAnswer | None:
    """Why no connection can be made; None if one can."""
    host, _, port = address_of(endpoint).rpartition(":")
    moved = "or name its address in FLAGS_rpc_endpoints_file"
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    except OSError as error:
        return NoAnswer(f"cannot resolve host {host!r}: {error.strerror}", f"check the endpoint and DNS, {moved}")
    try:
        with socket.socket(*found[:3]) as made:
            made.settimeout(_CONNECT_TIMEOUT)
            made.connect(found[4])
    except ConnectionRefusedError:
        return NoAnswer(
            "connection refused: no server listens there",
            f"it has ended or was never started: look at its log and start it again, {moved}",
        )
    except TimeoutError:
        return NoAnswer(
            f"no connection within {_CONNECT_TIMEOUT:g} s",
            f"its machine is down, or the network or a firewall is between: restore it, {moved}",
        )
    except OSError as error:
        return NoAnswer(
            f"no connection: {error.strerror}", f"its machine or the network to it is down: restore it, {moved}"
        )
    return None
