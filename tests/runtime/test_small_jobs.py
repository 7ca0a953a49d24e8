"""What servers and trainers say to each other, with real sockets."""

import json
import socket
import threading

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.jobs import free_endpoints, wait_until
from cluster.one_process import Role, servers
from refluid import flags
from refluid.errors import OutOfRangeError, ServerBusyError, ServerError, ServersMissingError
from refluid.runtime.trainer import membership, session
from refluid.runtime.trainer.packing import Message
from refluid.runtime.trainer.server_calls import READ, STEP
from refluid.runtime.transport import port_wait as waiting
from refluid.runtime.transport import wire
from refluid.runtime.transport.connection import Connection
from refluid.runtime.transport.wire import pb


@pytest.fixture
def short_deadline(monkeypatch):
    """RPCs time out after two seconds."""
    monkeypatch.setitem(flags._set, "FLAGS_rpc_deadline", 2000)


def test_a_port_in_use_is_said_so():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(ServerBusyError, match=f"server {endpoint} cannot listen.*in use"):
            Role([endpoint]).serve(endpoint)


def test_missing_servers_are_named(short_deadline):
    endpoints = free_endpoints(2)

    with pytest.raises(ServersMissingError, match=f"trainer 0: no reply from {endpoints[0]}, {endpoints[1]}"):
        Role(endpoints).start()


def test_wait_port_waits_for_the_ports_of_servers(short_deadline, monkeypatch, caplog):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        here = f"127.0.0.1:{listening.getsockname()[1]}"
        (missing,) = free_endpoints(1)
        both = Role([here, missing])
        assert both.transpiler.get_trainer_program(wait_port=False) is both.main
        monkeypatch.setattr(waiting, "_REMINDER_INTERVAL", 0.1)
        with pytest.raises(ServersMissingError, match=rf"trainer 0: no reply from {missing} within \d+ s"):
            both.transpiler.get_trainer_program()
        assert f"missing={missing} " in caplog.text
        alone = Role([here])
        assert alone.transpiler.get_trainer_program() is alone.main
    assert alone.transpiler.get_trainer_program() is alone.main, "they are waited for once"
    with pytest.raises(ServerError, match="cannot resolve host 'no-such-host.invalid'"):
        Role(["no-such-host.invalid:6174"]).transpiler.get_trainer_program()


def test_an_unknown_host_is_not_waited_for():
    with pytest.raises(ServerError, match="cannot resolve host 'no-such-host.invalid'"):
        Role(["no-such-host.invalid:6174"]).start()


def test_another_program_is_refused_with_both_descriptions(caplog):
    with servers() as endpoints:
        trainer = Role(endpoints, width=5)
        with pytest.raises(
            ServerError, match=r"trainer 0 .* fc_0.w_0.* as float32\[.*on this server it is float32\["
        ) as refused:
            trainer.start()
            trainer.step()
    assert "trainer 0, step 0, server 127.0.0.1:" in str(refused.value)
    assert "request failed" in caplog.text, "the server logs it too"


def test_another_mode_or_number_of_trainers_is_refused():
    with servers() as endpoints:
        with pytest.raises(
            ServerError, match="expects 3 trainers; this server is configured for 1; .*Do both run the same script"
        ):
            Role(endpoints, trainers=3).start()
        with pytest.raises(ServerError, match="trains in mode async; this server is configured for mode sync"):
            Role(endpoints, sync_mode=False).start()
        trainer = Role(endpoints)
        trainer.start()
        trainer.close()


def test_ids_outside_the_table_are_refused_before_anything_is_sent():
    with servers() as endpoints:
        trainer = Role(endpoints)
        trainer.start()
        with pytest.raises(OutOfRangeError, match="id 40 is not in the table table, which has 40 rows"):
            trainer.step(ids=[3, 40])
        assert session.current().sequence[endpoints[0]] == 0
        trainer.step()
        trainer.close()


def test_a_push_that_is_sent_twice_counts_once():
    with servers() as endpoints:
        trainer = Role(endpoints)
        trainer.start()
        trainer.step()
        held = session.current()
        before = read(held, endpoints)
        again = {e: Message({n: np.ones(s, "float32") for n, s in pushable(held, e).items()}) for e in endpoints}
        held.exchange(STEP, again, steps=1)  # with the number of the step that was applied already

        assert before and any(message.pushed for message in again.values())
        assert all(np.array_equal(before[n], value) for n, value in read(held, endpoints).items())
        trainer.close()


def read(held, endpoints):
    """All that servers hold."""
    inventory = {e: ask(held, e, "Inventory") for e in endpoints}
    wanted = {e: Message({}, [line.split("|")[0] for line in lines]) for e, lines in inventory.items()}
    replies = held.exchange(READ, wanted)
    return {(e, name): np.array(value) for e, values in replies.items() for name, value in values.items()}


def pushable(held, endpoint):
    """Dense gradients a server takes, and their shapes."""
    lines = [line.split("|") for line in ask(held, endpoint, "Inventory")]
    parameters = [line for line in lines if line[1] in ("fc_0.w_0", "fc_0.b_0")]
    shapes = {}
    for name, _, start, end, dims in parameters:
        gradient = name.replace(".block", "@GRAD.block") if ".block" in name else name + "@GRAD"
        shapes[gradient] = (int(end) - int(start), *map(int, dims.split(",")[1:]))
    return shapes


def ask(held, endpoint, method):
    message = held.call(endpoint, method, pb.CallerRequest(caller=held.caller))
    return json.loads(wire.decode(pb.Text, message).text)


def test_a_trainer_that_died_before_it_joined_all_servers_is_evicted_by_all(monkeypatch, caplog):
    monkeypatch.setattr(membership, "_HEARTBEAT_INTERVAL", 0.2)
    settings = {"FLAGS_worker_update_interval_secs": 4, "FLAGS_rpc_lost_trainer": "leave_out"}
    monkeypatch.setattr(flags, "_set", settings)
    with servers(trainers=2) as endpoints:
        trainer = Role(endpoints, trainers=2)
        trainer.start()
        hello = pb.JoinRequest(caller=pb.Caller(trainer=1), protocol=wire.PROTOCOL, endpoint=endpoints[0])
        hello.trainers, hello.mode = 2, "sync"
        half_joined = Connection(endpoints[0])
        half_joined.call("Join", wire.encode(hello), 10.0)
        half_joined.close()
        trainer.step()  # waits on both servers until they go on without trainer 1
        assert [status["round"] for status in session.current().status()] == [1, 1]
        wait_until(lambda: caplog.text.count("and is left out") == 3)  # on both servers; the trainer hears of it
        trainer.close()


def test_a_status_tells_who_is_there():
    with servers() as endpoints:
        trainer = Role(endpoints)
        trainer.start()
        trainer.step()
        status = ask(session.current(), endpoints[0], "Status")
        trainer.close()

    assert status["mode"] == "sync"
    assert status["round"] == 1
    assert [t["trainer"] for t in status["trainers"]] == [0]
    assert status["trainers"][0]["last_seen"] < 60


def test_what_a_trainer_saves_is_whole_and_other_servers_go_on_from_it(tmp_path):
    with servers(count=2, normalised=True) as endpoints:
        trainer = Role(endpoints, normalised=True)
        trainer.start()
        trainer.step(1)
        averages = value(trainer, "batch_norm_0.w_1")
        with fluid.scope_guard(trainer.scope):
            fluid.io.save_persistables(trainer.exe, str(tmp_path / "saved"), trainer.main)
            fluid.io.save_inference_model(
                str(tmp_path / "model"), ["x", "ids"], [trainer.loss], trainer.exe, trainer.main
            )
        expected = [trainer.step(seed) for seed in (2, 3)]
        trainer.close()

    saved = {path.name for path in (tmp_path / "saved").iterdir()}
    assert {"table", "fc_0.w_0", "fc_0.b_0", "table_moment1_0", "fc_0.w_0_moment2_0", "learning_rate_0"} <= saved
    assert not any(".block" in name for name in saved)
    with servers(count=3, folder=str(tmp_path / "saved"), normalised=True) as endpoints:
        trainer = Role(endpoints, normalised=True)
        trainer.start()
        assert averages.any()
        np.testing.assert_array_equal(value(trainer, "batch_norm_0.w_1"), averages, "what trainers keep goes on too")
        assert [trainer.step(seed) for seed in (2, 3)] == expected
        trainer.close()

    model, _, _ = fluid.io.load_inference_model(str(tmp_path / "model"), fluid.Executor(fluid.CPUPlace()))
    assert "distributed_lookup_table" not in [op.type for op in model.global_block().ops]


def value(trainer, name):
    return np.array(trainer.scope.find_var(name).get_tensor())


def test_a_trainer_that_has_left_cannot_save(tmp_path):
    with servers() as endpoints:
        trainer = Role(endpoints)
        trainer.start()
        trainer.close()
    with pytest.raises(RuntimeError, match="save before exe.close"):
        fluid.io.save_persistables(trainer.exe, str(tmp_path), trainer.main)


def test_servers_write_their_variables_when_notified(tmp_path):
    with servers() as endpoints:
        trainer = Role(endpoints)
        trainer.start()
        notify = fluid.Program()
        attrs = {"epmap": endpoints, "dir": str(tmp_path / "kept"), "op_role": 4}
        notify.global_block().append_op(type="checkpoint_notify", inputs={}, outputs={}, attrs=attrs)
        trainer.exe.run(notify)
        trainer.close()

    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"table.block0", "table.block1"} <= kept


def test_large_tensors_travel_in_chunks(monkeypatch):
    from refluid.runtime.transport import connection as transport

    monkeypatch.setattr(transport, "LARGE", 64)
    monkeypatch.setattr(transport, "CHUNK", 48)
    with servers() as endpoints:
        trainer = Role(endpoints)
        trainer.start()
        in_chunks = [float(trainer.step(seed)[0]) for seed in range(3)]
        trainer.close()
    monkeypatch.undo()
    with servers() as endpoints:
        trainer = Role(endpoints)
        trainer.start()
        whole = [float(trainer.step(seed)[0]) for seed in range(3)]
        trainer.close()
    assert in_chunks == whole


def test_no_thread_is_left_behind():
    before = set(threading.enumerate())
    with servers(sync_mode=False) as endpoints:
        trainer = Role(endpoints, sync_mode=False)
        trainer.start()
        trainer.step()
        trainer.close()
    left = [
        t.name
        for t in set(threading.enumerate()) - before
        if t.name in ("heartbeat", "wait-log", "push_loop", "pull_loop")
    ]
    assert not left
