"""A server on gRPC: status codes, health, and the protocol's description."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cluster.one_process import Role, servers
from refluid.runtime.trainer import session
from refluid.runtime.transport import connection, protocol_pb2, wire
from refluid.runtime.transport.connection import SERVICE, Connection
from refluid.runtime.transport.wire import pb


def test_health_is_serving_until_all_trainers_have_left():
    with servers(count=1) as (endpoint,), grpc.insecure_channel(endpoint) as channel:
        trainer = Role([endpoint])
        trainer.start()
        stub = health_pb2_grpc.HealthStub(channel)
        watched = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=60)
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        assert stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as unknown:
            stub.Check(health_pb2.HealthCheckRequest(service="another"), timeout=10)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        trainer.close()
        assert next(watched).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watched.cancel()


def test_a_refused_request_is_a_failed_precondition_and_a_failure_is_internal():
    with servers(count=1) as (endpoint,):
        trainer = Role([endpoint])
        trainer.start()
        to_server = Connection(endpoint)
        stranger = pb.CallerRequest(caller=pb.Caller(trainer=0, incarnation=1))
        long = lambda text: pb.ShrinkRequest(caller=session.current().caller, tables=[text * 20_000])  # noqa: E731
        for method, message, code, text in (
            ("Heartbeat", wire.encode(stranger), grpc.StatusCode.FAILED_PRECONDITION, "no longer trainer 0"),
            ("Join", [b"\xff"], grpc.StatusCode.INVALID_ARGUMENT, "a message has 1 bytes; its header takes more"),
            ("Unknown", [b""], grpc.StatusCode.UNIMPLEMENTED, ""),
            ("Shrink", wire.encode(long("x")), grpc.StatusCode.FAILED_PRECONDITION, "xxx ..."),
            ("Shrink", wire.encode(long("é\n")), grpc.StatusCode.FAILED_PRECONDITION, "é\n"),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                to_server.call(method, message, 10.0)
            assert refused.value.code() is code and text in refused.value.details()
        to_server.close()
        trainer.close()


def test_the_generated_protocol_is_that_of_the_proto_file(tmp_path):
    folder = Path(connection.__file__).parent
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={tmp_path}", "protocol.proto"]
    subprocess.run(command, check=True, timeout=60)

    generated = (tmp_path / "protocol_pb2.py").read_text()
    (serialized,) = [line for line in generated.splitlines() if "AddSerializedFile" in line]
    assert serialized in Path(protocol_pb2.__file__).read_text()
    assert protocol_pb2.DESCRIPTOR.services_by_name["ParameterServer"].full_name == SERVICE
