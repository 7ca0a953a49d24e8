import json
from contextlib import closing

import pytest
from prometheus_client import generate_latest

from cluster.jobs import free_endpoints
from refluid.cli import main
from refluid.runtime.observe.answers import read_status
from refluid.runtime.observe.server_metrics import ServerMetrics
from refluid.runtime.observe.status import Watcher, amount, next_trainer, tables
from refluid.runtime.server.membership import JoinAttempt, Membership
from refluid.runtime.server.rounds import Rounds
from refluid.runtime.transport import security, wire
from refluid.runtime.transport.listener import listen
from refluid.runtime.transport.wire import pb
from refluid.tables import as_text


class Held:
    """A table that grows."""

    name, rows, bytes, budget, most_rows, evicted = "emb", 1000, 60_000, 80_000, 1250, 7


class World:
    """A server's state, as its metrics see it."""

    def __init__(self):
        self.membership, self.rounds = Membership(2, started=0.0), Rounds(2, waits=False)
        self.metrics = ServerMetrics("127.0.0.1:6174", "async", self.membership, self.rounds, (), [Held()])


def train_a_little():
    """Two updates happen, and the parameters of a push of trainer 0 included none of them."""
    world = World()
    world.membership.join(JoinAttempt(0, 11, "node7:4711", began=0.0), now=0.0)
    world.metrics.pulled()
    world.rounds.round = 2
    world.membership.members[0].max_staleness = 8
    world.membership.members[0].max_lead = 3
    world.metrics.applied(0, staleness=2)
    world.metrics.called("Exchange", received=1000, sent=3000, seconds=0.002)
    world.metrics.called("Heartbeat", received=10, sent=5, seconds=1.0)
    world.metrics.update_seconds.observe(0.0005)
    return world


def test_a_server_tells_what_it_has_done():
    status = train_a_little().metrics.status(awaited=[1])
    assert json.loads(json.dumps(status)) == status
    assert (status["role"], status["mode"], status["round"], status["awaited"]) == ("server", "async", 2, [1])
    assert (status["bytes_received"], status["bytes_sent"]) == (1010, 3005)
    assert (status["pushes"], status["pulls"], status["exchange_ms"]) == (1, 1, {"p50": 1.5, "p99": 1.99})
    (held,) = status["tables"]
    assert held == {"table": "emb", "rows": 1000, "bytes": 60_000, "budget": 80_000, "most_rows": 1250, "evicted": 7}
    first, second = status["trainers"]
    assert (first["joined"], first["left"], first["staleness"]) == (True, False, 2)
    assert (first["max_staleness"], first["max_lead"], status["staleness"]) == (8, 3, {"2": 1})
    assert (second["joined"], second["last_seen"]) == (False, None)
    rest = {"version": 2, "queues": {"queued_pushes": 1}, "waits": [], "cause": None, "problem": ""}
    assert read_status(json.dumps({**status, **rest})) == {**status, **rest}


def test_pushes_that_say_anything_do_not_make_the_status_longer_and_longer():
    world = World()
    for staleness in (7, 999, 1000, 12_345, 12_399, 2**64 - 1, *range(5000, 6000)):
        world.metrics.applied(0, staleness=staleness)
    counted = world.metrics.status(awaited=[])["staleness"]
    assert [counted[each] for each in ("7", "999", "1000", "12000", "5900")] == [1, 1, 1, 2, 100]
    assert len(counted) == 15


def test_a_server_has_the_same_for_prometheus():
    text = generate_latest(train_a_little().metrics.registry).decode()
    labels = 'endpoint="127.0.0.1:6174",mode="async",role="server"'
    for line in (
        f"refluid_round{{{labels}}} 2.0",
        f"refluid_bytes_received_total{{{labels}}} 1010.0",
        'refluid_exchange_seconds_bucket{endpoint="127.0.0.1:6174",le="0.002",mode="async",role="server"} 1.0',
        f'refluid_staleness{{{labels},trainer="0"}} 2.0',
        f'refluid_table_rows{{{labels},table="emb"}} 1000.0',
        f'refluid_table_budget_bytes{{{labels},table="emb"}} 80000.0',
        f'refluid_max_staleness{{{labels},trainer="0"}} 8.0',
        f'refluid_max_lead{{{labels},trainer="0"}} 3.0',
        f'refluid_max_lead{{{labels},trainer="1"}} NaN',
        'refluid_push_staleness_bucket{endpoint="127.0.0.1:6174",le="1.0",mode="async",role="server"} 0.0',
        'refluid_push_staleness_bucket{endpoint="127.0.0.1:6174",le="2.0",mode="async",role="server"} 1.0',
        f'refluid_last_seen_seconds{{{labels},trainer="1"}} NaN',
        f"refluid_trainers{{{labels}}} 1.0",
    ):
        assert f"{line}\n" in text


def test_tables_of_servers_and_trainers():
    status = train_a_little().metrics.status(awaited=[1])
    before = {**status, "round": 1}
    shown = as_text(tables({"a:1": status, "b:2": None}, {"a:1": before, "b:2": None}, seconds=0.5)).splitlines()
    heads = "server mode round per s in out pushes pulls p50 ms p99 ms update ms queue stale waits for"
    assert shown[0].split() == heads.split()
    assert shown[1].split() == "a:1 async 2 2.0 1.0 kB 3.0 kB 1 1 1.50 1.99 0.35 0 2 2 2 trainer 1".split()
    assert shown[2].split() == "b:2 no reply".split()
    assert shown[4].split() == "table server rows memory budget full evicted".split()
    assert shown[5].split() == "emb a:1 1000 60.0 kB 80.0 kB 80% 7".split()
    heads = "trainer host steps behind last push last seen staleness own at most lead at most state"
    assert shown[7].split() == heads.split()
    assert shown[8].split()[:3] == ["0", "node7:4711", "0"] and shown[8].split()[-4:] == ["2", "8", "3", "training"]
    assert shown[9].split() == "1 0 0 never never 0 0 any has not joined".split()


def test_a_straggler_is_told_from_a_lost_trainer_and_from_one_that_was_added():
    world = World()
    for trainer in range(3):
        world.membership.join(JoinAttempt(trainer, 11, f"node{trainer}:1", began=0.0), now=0.0)
    world.metrics.add_trainer(2)
    world.membership.applied(0, 12)
    world.membership.applied(1, 5)
    world.membership.lose(0, "was silent for 31 s", now=31.0)
    status = world.metrics.status(awaited=[])
    assert [(each["steps"], each["behind"]) for each in status["trainers"]] == [(12, 0), (5, 7), (0, 12)]
    assert 'trainer="2"} 12.0' in generate_latest(world.metrics.registry).decode()
    without = {**status, "trainers": status["trainers"][:2]}  # a server that the third has not joined yet
    shown = as_text(tables({"a:1": status, "b:2": without}, dict.fromkeys(("a:1", "b:2")), 1.0)).splitlines()
    assert [line.split()[0] for line in shown[-3:]] == ["0", "1", "2"]
    assert shown[-3].endswith("lost, waited for") and shown[-2].endswith("training")
    world.membership.evict(0)
    assert world.metrics.status(awaited=[])["trainers"][0]["left_out"]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000, "2.5 MB"), (7e12, "7.0 TB")]
)
def test_bytes_for_people(size, text):
    assert amount(size) == text


@pytest.fixture
def endpoint():
    """A server that serves Status only."""
    text = json.dumps(train_a_little().metrics.status(awaited=[]))
    (endpoint,) = free_endpoints(1)
    server = listen(endpoint, {"Status": lambda message, context: wire.encode(pb.Text(text=text))}, threads=2)
    server.start()
    yield endpoint
    server.stop(None).wait()


def test_the_command_asks_once(endpoint, capsys):
    assert main(["status", "--once", endpoint]) == 0
    assert f"{endpoint}  async" in capsys.readouterr().out
    assert main(["status", "--once", f"{endpoint},127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in (out := capsys.readouterr().out) and "no reply" in out


def test_the_command_speaks_json_and_knows_the_environment(endpoint, capsys, monkeypatch):
    monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", endpoint)
    assert main(["status", "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[endpoint]["round"] == 2


def test_the_next_trainer_has_a_number_that_none_has_had(endpoint):
    assert next_trainer([endpoint]) == 2
    with pytest.raises(ValueError, match="no reply from 127.0.0.1:1: .* give --first"):
        next_trainer([endpoint, "127.0.0.1:1"])


def test_the_command_needs_endpoints(capsys, monkeypatch):
    monkeypatch.delenv("PADDLE_PSERVERS_IP_PORT_LIST", raising=False)
    assert main(["status"]) == 2
    assert "no servers given: name them, such as 127.0.0.1:6174" in capsys.readouterr().err
    assert main(["status", "nowhere"]) == 2
    assert "invalid endpoint 'nowhere'" in capsys.readouterr().err


def test_who_watches_without_the_token_is_told_so(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_token", "the-token-of-the-job")
    monkeypatch.setattr(security, "call_metadata", lambda: ())
    (endpoint,) = free_endpoints(1)
    server = listen(endpoint, {"Status": lambda message, context: wire.encode(pb.Text(text="{}"))}, threads=4)
    server.start()
    try:
        with closing(Watcher([endpoint])) as watcher, pytest.raises(ValueError, match="no token of the job"):
            watcher.request()
    finally:
        server.stop(None).wait()
