"""What a server replies to each method; its handlers are called without sockets."""

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cluster.handlers import Trainer, gradients, make_servers
from cluster.jobs import wait_until
from refluid import flags
from refluid.runtime.server import exchange, membership, server
from refluid.runtime.transport.wire import pb

READ, START, OFFER, ROWS, WAIT = (
    getattr(pb.ExchangeRequest, purpose) for purpose in ("READ", "START", "OFFER", "ROWS", "WAIT")
)


@pytest.fixture
def quick(monkeypatch):
    """Pending replies and reports come at once; a silent holder loses its id soon."""
    monkeypatch.setattr(exchange, "_PENDING_AFTER", 0.05)
    monkeypatch.setattr(server, "_REPORT_EVERY", 0.0)
    monkeypatch.setattr(server, "_DECIDE_EVERY", 0.01)
    monkeypatch.setattr(membership, "TAKEOVER_AFTER", 0.1)


def one_server(**options):
    (found,) = make_servers(**options).values()
    return found


def awaited(reply):
    """Who is awaited, whatever the times."""
    return [re.sub(r"\d+ s", "… s", text) for text in reply.awaited]


def parameters(held):
    return [text.split("|")[0] for text in held._exchange.shard.slices]


def test_every_method_of_the_protocol_is_served():
    service = pb.DESCRIPTOR.services_by_name["ParameterServer"]

    assert sorted(one_server().methods) == sorted(service.methods_by_name)


def test_a_step_of_a_single_trainer_is_applied_and_returns_the_new_parameters():
    held = one_server()
    trainer = Trainer(held)
    trainer.join()
    (bias,) = [name for name in parameters(held) if name.startswith("fc_0.b_0") and name.endswith(("b_0", "block0"))]
    before = trainer.exchange(READ, wanted=[bias])[1][bias]
    reply, values = trainer.push(gradients(held), wanted=[bias])

    assert reply.version == 1 and not reply.pending
    assert (values[bias] < before).all(), "Adam moves against the gradient"
    np.testing.assert_array_equal(trainer.exchange(READ, wanted=[bias])[1][bias], values[bias])


def test_a_repeated_push_is_applied_once():
    held = one_server()
    trainer = Trainer(held)
    trainer.join()
    trainer.push(gradients(held))
    reply, _ = trainer.exchange(pb.ExchangeRequest.STEP, gradients(held), sequence=1)

    assert reply.version == 1
    assert trainer.join().sequence == 1, "a trainer learns where it was"


def test_a_round_that_waits_names_the_trainer_it_waits_for(quick):
    held = one_server(trainers=2)
    here, late = Trainer(held, 0), Trainer(held, 1)
    here.join()
    reply, _ = here.push(gradients(held))
    assert reply.pending and reply.waited_seconds > 0
    assert awaited(reply) == ["trainer 1 (has not joined in … s)"]

    late.join()
    reply, _ = here.exchange(WAIT)
    assert awaited(reply) == ["trainer 1 on node1:11 (last seen … s ago)"]
    assert late.push(gradients(held))[0].version == 2, "the steps of both"
    assert here.exchange(WAIT)[0].version == 2


def test_initial_parameters_are_waited_for_by_name(quick):
    held = one_server(trainers=2)
    first, second = Trainer(held, 0), Trainer(held, 1)
    second.join()
    name = parameters(held)[0]
    reply, _ = second.exchange(START, wanted=[name])
    assert reply.pending and awaited(reply) == ["trainer 0 (has not joined in … s)"]

    first.join()
    value = first.exchange(READ, wanted=[name])[1][name] + 1
    first.exchange(OFFER, {name: value})
    np.testing.assert_array_equal(second.exchange(START, wanted=[name])[1][name], value)


def test_a_barrier_names_who_is_missing(quick):
    held = one_server(trainers=2)
    one, other = Trainer(held, 0), Trainer(held, 1)
    one.join()
    other.join()
    reply = one.barrier(1)
    assert reply.pending and awaited(reply) == ["trainer 1 on node1:11 (last seen … s ago)"]
    assert reply.waited_seconds > 0
    assert not other.barrier(1).pending and not one.barrier(1).pending


def reports(held, caplog):
    caplog.clear()
    held.check_trainers()
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("sync_mode", [True, False])
def test_a_server_reports_whom_it_waits_for(quick, caplog, sync_mode):
    held = one_server(trainers=2, sync_mode=sync_mode)
    trainers = [Trainer(held, number) for number in range(2)]
    trainers[0].join()
    (text,) = reports(held, caplog)
    assert 'msg="waiting for trainers to join"' in text and 'awaited="trainer 1 (has not joined in ' in text

    trainers[1].join()
    assert reports(held, caplog) == []
    trainers[0].exchange(START, wanted=[parameters(held)[0]])
    (text,) = reports(held, caplog)
    assert 'msg="waiting for initial parameters"' in text and 'awaited="trainer 0 on node0:10' in text
    trainers[0].exchange(OFFER, {})

    trainers[0].push(gradients(held))
    found = reports(held, caplog)
    assert len(found) == sync_mode, "no update waits in the other modes"
    if sync_mode:
        assert 'msg="waiting for pushes of round 1"' in found[0] and "trainer 1 on node1:11" in found[0]
        trainers[1].push(gradients(held))

    trainers[0].barrier(1)
    (text,) = reports(held, caplog)
    assert 'msg="waiting for barrier 1"' in text and "trainer 1 on node1:11" in text
    trainers[1].barrier(1)

    trainers[0].tell("Leave")
    (text,) = reports(held, caplog)
    assert 'msg="waiting for trainers to train on or leave"' in text and "trainer 1 on node1:11" in text
    trainers[1].tell("Leave")
    assert reports(held, caplog) == [] and held.all_left.is_set()


def test_a_wait_is_reported_every_few_seconds_only(caplog):
    held = one_server(trainers=2)
    assert reports(held, caplog) == [], "it has just begun"
    held._membership.started -= 100
    assert len(reports(held, caplog)) == 1
    assert reports(held, caplog) == [], "it was reported just now"


def test_a_silent_trainer_is_evicted_and_the_other_servers_are_told(monkeypatch, caplog):
    leaves_out = {"FLAGS_worker_update_interval_secs": 0.01, "FLAGS_rpc_lost_trainer": "leave_out"}
    monkeypatch.setattr(flags, "_set", leaves_out)
    one, other = make_servers(count=2, trainers=2).values()
    Trainer(one, 1).join()
    time.sleep(0.02)
    one.check_trainers()

    assert "trainer 1 (node1:11) was silent for 0 s and is left out" in caplog.text
    assert "trainer 1 was lost before it joined this server and is left out" in caplog.text, (
        "the trainer never joined the other server"
    )
    assert not other.all_left.is_set()


def test_a_second_process_is_refused_while_the_holder_of_its_id_sends_heartbeats(quick):
    held = one_server()
    holder, second = Trainer(held, incarnation=1), Trainer(held, incarnation=2)
    holder.join()
    stop = threading.Event()

    def beat():
        while not stop.wait(0.05):
            holder.tell("Heartbeat")

    with ThreadPoolExecutor(1) as pool:
        beating = pool.submit(beat)
        with pytest.raises(ValueError, match="already running as node0:1 .* and node0:2 tried to join"):
            second.join()
        stop.set()
        beating.result()
    holder.push(gradients(held))


def test_a_process_that_was_replaced_is_refused_by_every_method(quick, caplog):
    held = one_server()
    old, new = Trainer(held, incarnation=1), Trainer(held, incarnation=2)
    old.join()
    new.join()  # the old one is silent
    assert "replaces=node0:1" in caplog.text

    for request in (
        lambda: old.push(gradients(held)),
        lambda: old.exchange(READ, wanted=[]),
        lambda: old.barrier(1),
        lambda: old.tell("Heartbeat"),
        lambda: old.tell("Leave"),
        lambda: old.tell("Inventory", pb.Text),
        lambda: old.call("Snapshot", pb.SnapshotRequest(caller=old.caller, folder="/nowhere")),
    ):
        with pytest.raises(ValueError, match="no longer trainer 0: node0:2 joined with the same id"):
            request()
    assert not held.all_left.is_set() and held.round == 0
    assert new.push(gradients(held))[0].version == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"protocol": 1}, "speaks protocol version 1; this server speaks"),
        ({"endpoint": "elsewhere:1"}, "looks for server elsewhere:1; this server is 127.0.0.1:1"),
        ({"mode": "geo"}, "trains in mode geo; this server is configured for mode sync"),
        ({"trainers": 3}, "expects 3 trainers; this server is configured for 1"),
        ({"pushes": [pb.Tensor(name="x@GRAD", dtype="float32")]}, "pushes x@GRAD, which this server does not have"),
        (
            {"pulls": [pb.Tensor(name="table", dtype="float32", dims=[2])]},
            r"pulls table as float32\[2\]; on this server",
        ),
    ],
)
def test_a_trainer_of_another_job_is_refused(change, text):
    with pytest.raises(ValueError, match=text):
        Trainer(one_server()).join(**change)


def test_a_trainer_out_of_range_is_refused():
    with pytest.raises(ValueError, match="there is no trainer 1 in a job of 1 trainers"):
        Trainer(one_server(), number=1).join()


def test_a_push_stands_for_so_many_steps_and_not_more():
    held = one_server()
    trainer = Trainer(held)
    trainer.join()
    trainer.sequence = 1
    request = pb.ExchangeRequest(caller=trainer.caller, sequence=1, steps=2**32 - 1)
    with pytest.raises(ValueError, match="stands for 4294967295 steps; 100000 are allowed"):
        trainer.call("Exchange", request, gradients(held), reply=pb.ExchangeReply)
    assert held.round == 0


def test_a_process_that_goes_wrong_does_not_fill_the_log(caplog):
    held = one_server()
    trainer = Trainer(held)
    trainer.join(host="\x1b[31mnode7\n" + "x" * 9000)
    for number in range(1000):
        with pytest.raises(KeyError):
            trainer.exchange(READ, wanted=[f"{number}" * 9000])
    assert len(caplog.text) < 600_000
    assert max(map(len, json.loads(trainer.tell("Status", reply=pb.Text).text)["trainers"][0]["host"].split())) <= 300


def test_rows_outside_a_table_are_refused():
    held = one_server()
    trainer = Trainer(held)
    trainer.join()
    with pytest.raises(IndexError, match="row 40 of table"):
        trainer.exchange(ROWS, {"table": np.array([1, 40])})
    assert json.loads(trainer.tell("Status", pb.Text).text)["refused"] == 1


def test_an_async_update_that_fails_concerns_only_the_trainer_that_pushed(monkeypatch):
    held = one_server(trainers=2, sync_mode=False)
    trainers = [Trainer(held, number) for number in range(2)]
    for trainer in trainers:
        trainer.join()
    with monkeypatch.context() as broken:
        broken.setattr(held._exchange.shard, "update", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            trainers[0].push(gradients(held))
    trainers[1].push(gradients(held))
    assert held.round == 1
    for trainer in trainers:
        trainer.tell("Leave")


def test_an_update_that_fails_is_reported_to_every_trainer_of_its_round(monkeypatch):
    held = one_server(trainers=2)
    trainers = [Trainer(held, number) for number in range(2)]
    for trainer in trainers:
        trainer.join()
    monkeypatch.setattr(held._exchange.shard, "update", lambda *_, **__: 1 / 0)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(trainers[0].push, gradients(held))
        wait_until(lambda: len(held._exchange.queue) == 1)
        with pytest.raises(ZeroDivisionError):
            trainers[1].push(gradients(held))
        with pytest.raises(RuntimeError, match="update 1 failed: ZeroDivisionError"):
            waits.result(timeout=10)
    for trainer in trainers:
        trainer.tell("Leave")
    assert held.all_left.is_set()
