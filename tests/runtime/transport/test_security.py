"""TLS and tokens over real sockets: who gets in, who does not, and what happens when files are replaced."""

from __future__ import annotations

import shutil

import grpc
import pytest

from refluid import access
from refluid.errors import PlaintextError, SecurityError
from refluid.runtime.launch.certificates import make_certificates
from refluid.runtime.launch.ports import HeldPorts
from refluid.runtime.transport import security
from refluid.runtime.transport.connection import LARGE, Connection
from refluid.runtime.transport.listener import listen

TOKEN, OTHER = "the-token-of-the-job", "the-token-of-another"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, ["127.0.0.1", "servers.example"], days=1)
    return folder


@pytest.fixture
def endpoint():
    ports = HeldPorts()
    yield ports.hold("127.0.0.1")
    ports.close()


@pytest.fixture
def serve(endpoint):
    started = []

    def start():
        started.append(listen(endpoint, {"Echo": lambda message, context: [message]}, threads=8))
        started[-1].start()
        return endpoint

    yield start
    for server in started:
        server.stop(None).wait()


@pytest.fixture
def use(monkeypatch):
    """Sets the certificates of a role; None for none."""

    def choose(folder, role=None, authority=True):
        files = {"certificate": f"{role}.pem", "key": f"{role}.key"} if role else {}
        for part in ("certificate", "key", "authority"):
            monkeypatch.delenv(f"FLAGS_rpc_tls_{part}", raising=False)
        for part, name in {**files, **({"authority": "authority.pem"} if authority else {})}.items():
            monkeypatch.setenv(f"FLAGS_rpc_tls_{part}", str(folder / name))

    return choose


def every_form(endpoint):
    """The replies of the three forms of a call, or the status code of each."""
    connection = Connection(endpoint)

    def streamed():
        stream = connection.send("Echo", [b"small"], 10.0)
        reply = None
        try:
            reply = stream.receive()
        finally:
            connection.release("Echo", stream, reply)
        return reply

    found = []
    for call in (
        lambda: connection.call("Echo", [b"small"], 10.0),
        streamed,
        lambda: connection.call("Echo", [b"small"], 10.0, reply_size=LARGE + 1),
    ):
        try:
            found.append(call())
        except grpc.RpcError as error:
            found.append(error.code())
    connection.close()
    return found


IN, OUT, UNREACHABLE = [b"small"] * 3, [grpc.StatusCode.UNAUTHENTICATED] * 3, [grpc.StatusCode.UNAVAILABLE] * 3


def test_only_calls_with_the_token_are_served(serve, monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_token", TOKEN)
    endpoint = serve()
    assert every_form(endpoint) == IN
    for metadata in ((), ((security.TOKEN_KEY, OTHER),), ((security.TOKEN_KEY, ""),), (("token", TOKEN),)):
        monkeypatch.setattr(security, "call_metadata", lambda metadata=metadata: metadata)
        assert every_form(endpoint) == OUT


def test_tokens_can_be_replaced_while_a_server_runs(serve, monkeypatch, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{OTHER}\n")
    monkeypatch.setenv("FLAGS_rpc_token_file", str(file))
    endpoint = serve()
    old, new = (((security.TOKEN_KEY, token),) for token in (OTHER, TOKEN))
    for content, old_one, new_one in ((OTHER, IN, OUT), (f"{TOKEN}\n{OTHER}", IN, IN), (f"\n{TOKEN}\n", OUT, IN)):
        file.write_text(content)
        for metadata, expected in ((old, old_one), (new, new_one)):
            with monkeypatch.context() as patch:
                patch.setattr(security, "call_metadata", lambda metadata=metadata: metadata)
                assert every_form(endpoint) == expected
    assert security.call_metadata() == new


@pytest.mark.parametrize("role", ["server", "trainer"])
def test_both_sides_show_a_certificate(serve, authority, use, role):
    use(authority, "server")
    endpoint = serve()
    use(authority, role)
    assert every_form(endpoint) == IN


def test_callers_without_a_certificate_of_the_authority_are_not_served(serve, authority, use, tmp_path, monkeypatch):
    use(authority, "server")
    endpoint = serve()
    served = security.Certificates.read()
    stranger = tmp_path / "stranger"
    make_certificates(stranger, ["127.0.0.1"], days=1)
    (stranger / "authority.pem").write_bytes((authority / "authority.pem").read_bytes())
    read = security.Certificates.read
    for role in (None, "trainer"):
        use(stranger, role)
        wanted = read()
        # One process has one environment: the server keeps its own certificates.
        monkeypatch.setattr(security._Renewal, "__call__", lambda self: None)
        assert security.Certificates.read() == wanted != served
        assert every_form(endpoint) == UNREACHABLE
    use(stranger, authority=False)
    assert every_form(endpoint) == UNREACHABLE, "plaintext"


def test_a_server_of_another_authority_is_not_trusted(serve, authority, use, tmp_path):
    make_certificates(tmp_path, ["127.0.0.1"], days=1)
    use(tmp_path, "server", authority=False)
    endpoint = serve()
    use(authority)
    assert every_form(endpoint) == UNREACHABLE
    use(tmp_path)
    assert every_form(endpoint) == IN


def test_the_name_in_the_certificate_is_checked(serve, authority, use, tmp_path, monkeypatch):
    make_certificates(tmp_path, ["servers.example"], days=1)
    use(tmp_path, "server")
    endpoint = serve()
    connection = Connection(endpoint)
    with pytest.raises(grpc.RpcError) as caught:
        connection.call("Echo", [b""], 10.0)
    connection.close()
    assert "FLAGS_rpc_tls_name" in security.failed_handshake(caught.value)
    monkeypatch.setenv("FLAGS_rpc_tls_name", "servers.example")
    assert every_form(endpoint) == IN


def test_certificates_can_be_replaced_while_a_server_runs(serve, use, tmp_path):
    make_certificates(tmp_path, ["127.0.0.1"], days=1)
    use(tmp_path, "server")
    endpoint = serve()
    connection = Connection(endpoint)
    assert connection.call("Echo", [b"1"], 10.0) == b"1"
    for name in ("authority.pem", "authority.key"):
        (tmp_path / name).unlink()
    make_certificates(tmp_path, ["127.0.0.1"], days=1)  # nothing of before is of any use
    assert connection.call("Echo", [b"2"], 10.0) == b"2"
    assert every_form(endpoint) == IN
    (tmp_path / "server.key").write_text("half of a new file")
    connection.close()
    with pytest.raises(SecurityError, match=r"certificate .*server.pem and key .*server.key cannot be used"):
        security.check_pair()


@pytest.mark.parametrize("part", ["trainer.pem", "trainer.key", "authority.pem"])
def test_files_that_are_just_being_replaced_end_nothing(serve, authority, use, tmp_path, part, caplog):
    folder = shutil.copytree(authority, tmp_path / "job")
    use(folder, "trainer")
    endpoint = serve()
    connection, whole = Connection(endpoint), (folder / part).read_bytes()
    assert connection.call("Echo", [b"1"], 10.0) == b"1"
    for content in (b"", whole[: len(whole) // 2], None):  # gRPC ends the process at an empty certificate
        (folder / part).unlink() if content is None else (folder / part).write_bytes(content)
        for _ in range(3):
            assert connection.call("Echo", [b"2"], 10.0) == b"2"
        assert every_form(endpoint) == IN
    connection.close()
    assert caplog.text.count("keeping the certificates in use") in (2, 3)
    (folder / part).write_bytes(whole)
    make_certificates(folder, ["127.0.0.1"], days=1)
    assert every_form(endpoint) == IN
    assert security.certificates_in_use() == security.Certificates.read()


@pytest.mark.parametrize("start", [b"", b"half"])
def test_a_caller_does_not_begin_with_files_that_are_no_certificates(authority, use, tmp_path, start):
    folder = shutil.copytree(authority, tmp_path / "job")
    use(folder, "trainer")
    (folder / "trainer.pem").write_bytes(start)
    with pytest.raises(SecurityError, match=r"certificate .*trainer.pem and key .*trainer.key cannot be used"):
        Connection("127.0.0.1:1")


def test_a_token_file_that_is_just_being_written_keeps_nobody_out(serve, monkeypatch, tmp_path, caplog):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    monkeypatch.setenv("FLAGS_rpc_token_file", str(file))
    endpoint = serve()
    for content in ("", TOKEN[:5], None):
        file.unlink() if content is None else file.write_text(content)
        assert every_form(endpoint) == IN
    monkeypatch.setattr(security, "call_metadata", lambda: ((security.TOKEN_KEY, TOKEN[:5]),))
    assert every_form(endpoint) == OUT
    assert caplog.text.count("keeping the token in use") == 3


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"token": "short"}, "a token of 5 characters is no good"),
        ({"token": "a token that has spaces"}, "visible ASCII"),
        ({"token": TOKEN, "token_file": "{}"}, "FLAGS_rpc_token and FLAGS_rpc_token_file are both set"),
        ({"token_file": "{}"}, "has no token"),
        ({"token_file": "{}/nothing"}, "FLAGS_rpc_token_file: cannot read"),
        ({"tls_certificate": "{}"}, "FLAGS_rpc_tls_key is not set"),
        ({"tls_key": "{}"}, "FLAGS_rpc_tls_certificate is not set"),
        ({"tls_authority": "{}/nothing"}, "FLAGS_rpc_tls_authority: cannot read"),
        ({"tls_certificate": "{}", "tls_key": "{}"}, "cannot be used"),
    ],
)
def test_settings_that_cannot_be_right(endpoint, monkeypatch, tmp_path, variables, text):
    (tmp_path / "empty").write_text("\n")
    for name, value in variables.items():
        monkeypatch.setenv(f"FLAGS_rpc_{name}", value.format(tmp_path / "empty"))
    with pytest.raises(SecurityError, match=text):
        listen(endpoint, {}, threads=1)


@pytest.mark.parametrize("endpoint", ["0.0.0.0:0", "[::]:0", "192.0.2.1:6174", "no-such-host.example:6174"])
def test_plaintext_stays_on_this_machine_unless_asked_by_name(endpoint):
    with pytest.raises(PlaintextError, match=r"refusing to listen on .* in plaintext.*FLAGS_rpc_allow_plaintext=1"):
        listen(endpoint, {}, threads=1)


def test_plaintext_that_was_asked_for(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_allow_plaintext", "1")
    listen("0.0.0.0:0", {}, threads=1).stop(None)


def test_with_tls_any_address_is_fine(authority, use):
    use(authority, "server")
    listen("0.0.0.0:0", {}, threads=1).stop(None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.0.1", "::1", "localhost"])
def test_loopback(host):
    assert access.is_loopback(host)
