"""Who does not belong to a job gets nothing from any method, in any form, and changes nothing."""

from __future__ import annotations

from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2

from cluster.one_process import Role, servers
from refluid.errors import ServerError
from refluid.runtime.launch.certificates import make_certificates
from refluid.runtime.launch.ports import HeldPorts
from refluid.runtime.trainer import session
from refluid.runtime.trainer.group import _handler
from refluid.runtime.trainer.mailbox import Mailbox
from refluid.runtime.transport import protocol_pb2
from refluid.runtime.transport.connection import IN_CHUNKS, SIZE_KEY, STREAMED
from refluid.runtime.transport.listener import open_mailbox
from refluid.runtime.transport.wire import pb

TOKEN = "the-token-of-the-job"


def _methods(service):
    return [method.name for method in protocol_pb2.DESCRIPTOR.services_by_name[service].methods]


def every_answer(endpoint, channel):
    """What a stranger hears from every method that there is, in each of its forms."""
    paths = [
        f"/refluid.runtime.{service}/{method}{form}"
        for service in ("ParameterServer", "Mailbox")
        for method in _methods(service)
        for form in ("", STREAMED, IN_CHUNKS)
    ]
    health = health_pb2.DESCRIPTOR.services_by_name["Health"]
    paths += [f"/{health.full_name}/{method.name}" for method in health.methods]
    found = {}
    for path in paths:
        for message in (b"", b"\0\0\0\0", bytes(2 << 20)):
            call = channel.stream_stream(path)(iter([message]), timeout=20, metadata=((SIZE_KEY, "4000000"),))
            try:
                found.setdefault(path, set()).add(next(call, None))
            except grpc.RpcError as error:
                found.setdefault(path, set()).add(error.code())
    return found


@contextmanager
def mailbox():
    ports = HeldPorts()
    endpoint = ports.hold("127.0.0.1")
    methods = Mailbox(0, 2).methods
    handlers = {name: _handler(method, lambda: made.refusals) for name, method in methods.items()}
    made = open_mailbox(endpoint, handlers, threads=4)
    yield endpoint
    made.stop(None).wait()
    ports.close()


def test_without_the_token_no_method_answers(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_token", TOKEN)
    with servers(count=1) as (endpoint,):
        trainer = Role([endpoint])
        trainer.start()
        with mailbox() as box:
            for address in (endpoint, box):
                with grpc.insecure_channel(address) as channel:
                    found = every_answer(address, channel)
                assert set.union(*found.values()) == {grpc.StatusCode.UNAUTHENTICATED}, found
                assert len(found) == 3 * (len(_methods("ParameterServer")) + len(_methods("Mailbox"))) + 3
        trainer.step()
        trainer.close()


@pytest.mark.parametrize("has_authority", [False, True])
def test_without_a_certificate_nobody_is_talked_to(monkeypatch, tmp_path, has_authority):
    make_certificates(tmp_path, ["127.0.0.1"], days=1)
    for part, name in (("certificate", "server.pem"), ("key", "server.key"), ("authority", "authority.pem")):
        monkeypatch.setenv(f"FLAGS_rpc_tls_{part}", str(tmp_path / name))
    credentials = grpc.ssl_channel_credentials((tmp_path / "authority.pem").read_bytes())
    with servers(count=1) as (endpoint,):
        trainer = Role([endpoint])
        trainer.start()
        with mailbox() as box:
            for address in (endpoint, box):
                options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100)]
                made = grpc.secure_channel(address, credentials, options) if has_authority else None
                with made or grpc.insecure_channel(address, options) as channel:
                    found = every_answer(address, channel)
                assert set.union(*found.values()) == {grpc.StatusCode.UNAVAILABLE}, found
        trainer.step()
        trainer.close()


def test_a_snapshot_outside_the_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_save_folders", str(tmp_path / "inside"))
    with servers(count=1) as (endpoint,):
        trainer = Role([endpoint])
        trainer.start()
        here = session.current()
        for folder in (tmp_path / "outside", tmp_path / "inside" / ".." / "outside"):
            for snapshot in ("", "0" * 32):
                request = pb.SnapshotRequest(caller=here.caller, folder=str(folder), snapshot=snapshot)
                with pytest.raises(ServerError, match=r"refusing to write to .*outside.*FLAGS_rpc_save_folders"):
                    here.call(endpoint, "Snapshot", request)
        assert not (tmp_path / "outside").exists()
        here.call(endpoint, "Snapshot", pb.SnapshotRequest(caller=here.caller, folder=str(tmp_path / "inside")))
        assert any((tmp_path / "inside").iterdir())
        trainer.close()
