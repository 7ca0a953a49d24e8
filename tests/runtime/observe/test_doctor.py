"""``refluid doctor``: asks servers that answer, and some that do not, each for a reason of its own."""

import json
import socket
from contextlib import contextmanager

import pytest

from cluster.jobs import free_endpoints
from cluster.statuses import status, trainer
from refluid import access
from refluid.cli import main
from refluid.runtime.launch.certificates import make_certificates
from refluid.runtime.observe import doctor
from refluid.runtime.transport import security, wire
from refluid.runtime.transport.listener import listen
from refluid.runtime.transport.wire import pb


@contextmanager
def serving(*methods, text=None, **changes):
    """A server that answers Status, with the given changes or text; or with other methods only."""
    (endpoint,) = free_endpoints(1)
    text = text or json.dumps(status(endpoint, **changes))
    handlers = {method: lambda message, context: wire.encode(pb.Text(text=text)) for method in methods or ["Status"]}
    made = listen(endpoint, handlers, threads=4)
    made.start()
    try:
        yield endpoint
    finally:
        made.stop(None).wait()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(doctor, "_REPLY_TIMEOUT", 1.0)


def test_a_healthy_job(capsys):
    with serving() as endpoint:
        assert main(["doctor", endpoint]) == 0
    assert capsys.readouterr().out == (
        "1 of 1 servers answer: mode sync, round 16, 2 of 2 trainers take part.\n\nNothing is wrong.\n"
    )


def test_servers_that_do_not_answer_are_findings_each_with_its_reason(capsys):
    (nothing,) = free_endpoints(1)
    with socket.socket() as silent, serving("Heartbeat") as other, serving() as endpoint:
        silent.bind(("127.0.0.1", 0))  # as a process that is stopped: the kernel accepts, and nobody reads
        silent.listen()
        stopped = f"127.0.0.1:{silent.getsockname()[1]}"
        unknown = "no-such-host.invalid:6174"
        assert main(["doctor", ",".join([nothing, stopped, unknown, other, endpoint])]) == 1
    shown = capsys.readouterr().out
    assert "1 of 5 servers answer" in shown
    for text in (
        f"server {nothing}: connection refused: no server listens there.\n   To do: it has ended or was never started",
        f"server {stopped}: it accepts connections and does not reply within 1 s: the process is stopped",
        f"server {unknown}: cannot resolve host 'no-such-host.invalid'",
        f"server {other}: what listens there is no parameter server.\n   To do: check the endpoint.",
    ):
        assert text in shown, shown


STATUS = status("a:1")
OLDER = {name: STATUS[name] for name in ("endpoint", "mode", "round")} | {"trainers": [{"trainer": 0}]}
NEWER = {**STATUS, "waits": [{"who": ["trainer 0"], "what": "x", "awaited": [], "seconds": 1, "new": 1}], "new": []}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hello", "Expecting value"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "the status.endpoint is missing"),
        (json.dumps([STATUS]), "the status is of the type list"),
        (json.dumps({**STATUS, "round": "16"}), "the status.round is of the type str"),
        (json.dumps({**STATUS, "trainers": [trainer(0, last_seen=float("nan"))]}), "trainers[].last_seen"),
        (json.dumps({**STATUS, "queues": {"inflight_bytes": [9]}}), "queues.inflight_bytes is of the type list"),
        (json.dumps({**STATUS, "round": 10**400}), "the status.round is no number that can be"),
        (json.dumps(OLDER), ""),
        (json.dumps(NEWER), ""),
        (json.dumps({**STATUS, "trainers": [trainer(0, host="\x1b[2Jx\r\n", last_seen=99)]}), ""),
    ],
)
def test_a_server_that_is_older_or_newer_or_says_nonsense_is_asked_like_the_others(capsys, text, problem):
    with serving(text=text) as strange, serving() as endpoint:
        main(["doctor", f"{strange},{endpoint}"])
        shown = capsys.readouterr().out
        assert main(["status", "--once", f"{strange},{endpoint}"]) == int(bool(problem))
        shown += capsys.readouterr().out
    assert (f"server {strange}: its answer cannot be read: " in shown) == bool(problem) and problem in shown
    assert f"{1 if problem else 2} of 2 servers answer" in shown
    assert "\x1b" not in shown and "\r" not in shown


def test_a_token_that_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_token", "the-token-of-the-job")
    with serving() as endpoint:
        assert main(["doctor", endpoint]) == 0
        monkeypatch.setattr(security, "call_metadata", lambda: ())
        assert main(["doctor", endpoint]) == 1
    shown = capsys.readouterr().out
    assert "it refuses this call, which has no token of the job" in shown and "FLAGS_rpc_token_file" in shown


def test_tls(capsys, monkeypatch, tmp_path):
    make_certificates(tmp_path, ["127.0.0.1"], days=1)
    for part, name in (("certificate", "server.pem"), ("key", "server.key"), ("authority", "authority.pem")):
        monkeypatch.setenv(f"FLAGS_rpc_tls_{part}", str(tmp_path / name))
    with serving() as endpoint:
        assert main(["doctor", endpoint]) == 0
        monkeypatch.setattr(security.Certificates, "read", lambda: None)
        assert main(["doctor", endpoint]) == 1
    assert "no secure connection, see FLAGS_rpc_tls_authority" in capsys.readouterr().out


def test_json_and_the_environment(capsys, monkeypatch):
    with serving() as endpoint:
        monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", endpoint)
        assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] and found["servers"][endpoint]["mode"] == "sync"


def test_what_cannot_be_asked_is_an_error(capsys, monkeypatch):
    monkeypatch.delenv("PADDLE_PSERVERS_IP_PORT_LIST", raising=False)
    assert main(["doctor"]) == 2
    assert "no servers given" in capsys.readouterr().err
    monkeypatch.setenv(access.TOKEN, "short")
    assert main(["doctor", "127.0.0.1:1"]) == 2
    assert "a token of 5 characters is no good" in capsys.readouterr().err
