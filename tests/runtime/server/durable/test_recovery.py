"""Servers that are killed and restarted, in one process: the numbers are those of a job that nobody disturbed."""

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid import flags
from refluid.errors import ServerError
from refluid.runtime.server import exchange
from refluid.runtime.server.durable.snapshots import SnapshotError
from refluid.runtime.transport.request import RetryPolicy
from simulated_cluster import InMemoryConnection, Job, Server, close_jobs, shipped

ROWS = 30
CLOCKS = {"monotonic": time.monotonic, "perf_counter": time.perf_counter}


@pytest.fixture
def survives(tmp_path):
    """Has servers keep snapshots and, unless told otherwise, logs in a folder."""

    def use(log=True):
        flags.write_flag("FLAGS_rpc_server_snapshots", str(tmp_path / "snapshots"))
        flags.write_flag("FLAGS_rpc_server_log", str(tmp_path / "log") if log else "")
        return tmp_path

    yield use
    close_jobs()
    for name in ("FLAGS_rpc_server_snapshots", "FLAGS_rpc_server_log"):
        flags.write_flag(name, "")


def network(optimizer, min_count=1, **table):
    def build():
        x = fluid.layers.data("x", [4])
        ids = fluid.layers.data("ids", [1], dtype="int64")
        rows = fluid.layers.embedding(ids, [ROWS, 3], is_sparse=True, param_attr="table", **table)
        if min_count > 1:
            refluid.table_options("table", min_count=min_count)
        hidden = fluid.layers.fc(fluid.layers.concat([x, rows], axis=1), 8, act="tanh", param_attr="hidden")
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 1, param_attr="out") - 1.0))
        optimizer().minimize(loss)
        fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 5

    return build


def adam():
    rate = fluid.layers.exponential_decay(0.05, 3, 0.7)
    return fluid.optimizer.Adam(rate, regularization=fluid.regularizer.L2Decay(0.01))


def clipped():
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.1))
    return fluid.optimizer.Momentum(0.1, 0.9)


def feeds(step, trainers=2):
    random = np.random.RandomState(step)
    return [
        {"x": random.randn(5, 4).astype("float32"), "ids": random.randint(0, ROWS, [5, 1])} for _ in range(trainers)
    ]


def config(mode):
    def make():
        found = fluid.DistributeTranspilerConfig()
        found.min_block_size = 4
        found.half_async = mode == "half_async"
        found.enable_dc_asgd = mode == "dc_asgd"
        found.geo_sgd_mode = mode == "geo"
        found.geo_sgd_need_push_nums = 2
        return found

    return make


def restart(job, place=0):
    """Replaces a server by a new process, as it were: all that is left of the old one are its files."""
    endpoint = job.endpoints[place]
    old = job.servers[endpoint]
    crash(old.server)
    job.servers[endpoint] = Server(old.program, old.startup, job.servers)
    for trainer in job.trainers:
        trainer.session._members.join(endpoint)
    return job.servers[endpoint].server


def crash(server):
    server._recovery.close(finished=False)


def values(job):
    return {name: job.whole(name) for name in ("hidden", "out")}


def rows(job):
    ids = np.arange(ROWS)
    return np.concatenate([np.asarray(job.trainers[0].scope.find_var("table").value.read_rows(ids))])


@pytest.mark.parametrize(
    ("optimizer", "table"),
    [
        (adam, {}),
        (adam, {"is_distributed": True}),
        (adam, {"is_distributed": True, "min_count": 3}),
        (clipped, {}),
        (clipped, {"is_distributed": True}),
    ],
)
def test_with_a_log_a_restart_leaves_no_trace(survives, optimizer, table):
    undisturbed = Job(network(optimizer, **table), config=config("sync"))
    survives()
    job = Job(network(optimizer, **table), config=config("sync"))
    for step in range(9):
        undisturbed.step(feeds(step))
        job.step(feeds(step))
        if step == 2:
            job.servers[job.endpoints[0]].server._recovery.snapshot()
        if step in (3, 6):
            restart(job, place=step // 6)
    expected, found = values(undisturbed), values(job)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    np.testing.assert_array_equal(rows(job), rows(undisturbed))


@pytest.mark.parametrize("mode", ["async", "half_async", "geo"])
@pytest.mark.parametrize("table", [{}, {"is_distributed": True}])
def test_other_modes_go_on_with_the_state_they_had(survives, mode, table):
    survives()
    job = Job(network(clipless, **table), config=config(mode), sync_mode=False)
    for step in range(4):
        job.step(feeds(step))
    is_remote = bool(table) or mode != "geo"  # GEO trainers hold tables of fixed height
    held = rows(job) if is_remote else None
    before, version = values(job), job.servers[job.endpoints[0]].server._exchange.rounds.version
    server = restart(job)
    after = values(job)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)
    if is_remote:
        np.testing.assert_array_equal(rows(job), held)
    assert server._exchange.rounds.version == version
    job.step(feeds(4))
    job.step(feeds(5))
    assert server._exchange.rounds.version > version


def clipless():
    return fluid.optimizer.SGD(0.1)


def dense():
    x = fluid.layers.data("x", [4])
    hidden = fluid.layers.fc(x, 8, act="tanh", param_attr="hidden")
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 1, param_attr="out") - 1.0))
    fluid.optimizer.SGD(0.05).minimize(loss)
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 5


@pytest.mark.parametrize(("mode", "build"), [("dc_asgd", dense), ("geo", dense), ("geo", network(clipless))])
def test_with_a_log_modes_whose_servers_remember_pulls_leave_no_trace(survives, monkeypatch, mode, build):
    def train(*, restarts):
        clock = SimpleNamespace(time=lambda: now, **CLOCKS)
        monkeypatch.setattr(exchange, "time", clock)
        now = 0.0  # means of GEO weigh values by their age
        job = Job(build, config=config(mode), sync_mode=False)
        for step in range(8):
            for trainer, feed in zip(job.trainers, feeds(step), strict=True):
                now += 0.125
                trainer.step(feed)
            if restarts and step == 2:
                job.servers[job.endpoints[0]].server._recovery.snapshot()
            if restarts and step in (3, 6):
                restart(job, place=step // 6)
        return [np.asarray(trainer[name]) for name in ("hidden", "out") for trainer in job.trainers]

    undisturbed = train(restarts=False)
    survives()
    for value, expected in zip(train(restarts=True), undisturbed, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_a_snapshot_does_not_wait_for_pushes_that_a_restart_has_lost(survives):
    survives(log=False)
    job = Job(network(clipless), config=config("half_async"), sync_mode=False)
    first, second = (job.servers[endpoint].server for endpoint in job.endpoints)
    first._recovery.snapshot()
    for step in range(3):
        job.step(feeds(step))
    second = restart(job, place=1)
    assert second.applied() != first.applied()
    first._recovery.snapshot()  # fails if it has to wait for a push
    assert [trainer.session.lost_updates for trainer in job.trainers] == [3, 3]


@pytest.mark.parametrize("mode", ["sync", "half_async", "async", "geo"])
def test_all_servers_killed_without_a_log_go_back_to_one_moment(survives, monkeypatch, mode):
    monkeypatch.setattr("simulated_cluster.InMemoryConnection", Reconnecting)
    monkeypatch.setattr(RetryPolicy, "pause", lambda self, attempt: 0.0)
    survives(log=False)
    job = Job(network(clipless), config=config(mode), sync_mode=mode == "sync")
    for step in range(4):
        job.step(feeds(step))
    job.servers[job.endpoints[0]].server._recovery.snapshot()
    before, counted = values(job), [server.server.applied() for server in job.servers.values()]
    for step in range(4, 8):
        job.step(feeds(step))
    old = list(job.servers.values())
    for server in old:
        crash(server.server)
    for endpoint, server in zip(job.endpoints, old, strict=True):
        job.servers[endpoint] = Server(server.program, server.startup, job.servers)
    for name, value in values(job).items():
        np.testing.assert_array_equal(value, before[name])
    assert [server.server.applied() for server in job.servers.values()] == counted
    for step in range(8, 10):
        job.step(feeds(step))
    pushes = 4 // 2 if mode == "geo" else 4
    assert [trainer.session.lost_updates for trainer in job.trainers] == [2 * pushes] * 2, "of two servers"


def count_pushes():
    """Every push adds 1 to all elements of a large vector, and to all rows of a table."""
    x = fluid.layers.data("x", [1 << 21], append_batch_size=False)
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [ROWS, 3], is_sparse=True, param_attr=constant("table"))
    weight = fluid.layers.create_parameter([1 << 21], "float32", attr=constant("vector"))
    loss = fluid.layers.reduce_sum(weight * x) + fluid.layers.reduce_sum(fluid.layers.scale(rows, -1.0))
    fluid.optimizer.SGD(1.0).minimize(loss)


def constant(name):
    return fluid.ParamAttr(name, initializer=fluid.initializer.Constant(0.0))


def test_no_tensor_and_no_row_mixes_two_instants(survives):
    survives(log=False)
    job = Job(count_pushes, sync_mode=False)
    feed = {"x": np.full(1 << 21, -1.0, "float32"), "ids": np.arange(ROWS).reshape(-1, 1)}
    running = True

    def train(trainer):
        while running:
            trainer.step(feed)

    with ThreadPoolExecutor(2) as threads:
        training = [threads.submit(train, trainer) for trainer in job.trainers]
        first = job.servers[job.endpoints[0]].server._recovery
        for _ in range(4):
            first.snapshot()
        running = False
        for each in training:
            each.result()
    old = list(job.servers.values())
    for server in old:
        crash(server.server)
    for endpoint, server in zip(job.endpoints, old, strict=True):
        job.servers[endpoint] = Server(server.program, server.startup, job.servers)
    (counted,) = {tuple(sorted(server.server.applied().items())) for server in job.servers.values()}
    total = sum(count for _, count in counted)
    assert total > 0
    for name in ("vector", "table"):
        assert set(np.unique(job.whole(name))) == {total}


def test_a_server_that_was_killed_after_the_job_had_ended_ends(survives):
    survives()
    job = Job(network(clipless), servers=1, config=config("sync"))
    job.step(feeds(0))
    for trainer in job.trainers:
        trainer.session.leave()
    old = job.servers[job.endpoints[0]]
    crash(old.server)
    assert Server(old.program, old.startup, job.servers).server.all_left.is_set()


def test_a_server_says_what_a_restart_has_lost_of_a_trainer_that_leaves(survives, caplog):
    survives(log=False)
    job = Job(network(clipless), servers=1, config=config("async"), sync_mode=False)
    job.servers[job.endpoints[0]].server._recovery.snapshot()
    for step in range(3):
        job.step(feeds(step))
    server = restart(job)
    job.trainers[0].session.leave()
    assert "a trainer leaves whose last updates are lost" in caplog.text and "trainer=0 lost=3" in caplog.text
    assert server.metrics.lost._value.get() == 3


def test_a_log_that_cannot_be_written_is_an_error_for_all_who_wait(survives, monkeypatch):
    survives()
    job = Job(network(clipless), servers=1, config=config("sync"))
    job.step(feeds(0))
    monkeypatch.setattr("os.writev", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    for _ in range(2):
        with ThreadPoolExecutor(2) as threads:
            steps = [threads.submit(t.step, f) for t, f in zip(job.trainers, feeds(1), strict=True)]
            for step in steps:
                with pytest.raises(ServerError, match=r"cannot write the log in .*No space left"):
                    step.result()
    monkeypatch.undo()


class Reconnecting(InMemoryConnection):
    """Has trainers join a restarted server again, as gRPC would."""

    def call(self, method, buffers, timeout, reply_size=0):
        try:
            return b"".join(self._servers[self.endpoint].server.handle(method, b"".join(buffers)))
        except shipped.RestartedError as error:
            raise LostError from error


class LostError(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return "the connection was lost"


def test_snapshots_are_deltas_and_old_ones_go(survives):
    folder = survives(log=False) / "snapshots"
    job = Job(network(adam, is_distributed=True), servers=1, config=config("sync"))
    server = job.servers[job.endpoints[0]].server
    for step in range(20):
        job.step(feeds(step))
        server._recovery.snapshot()
        found = sorted(folder.rglob("manifest.json"))
        assert 1 <= len(found) <= 8, "a whole snapshot and the deltas that follow it"
    rows_then, values_then = rows(job), values(job)
    restart(job)
    np.testing.assert_array_equal(rows(job), rows_then)
    for name, value in values_then.items():
        np.testing.assert_array_equal(values(job)[name], value)


def test_files_of_another_job_are_refused_by_name(survives):
    survives()
    job = Job(network(adam), servers=1, config=config("sync"))
    crash(job.servers[job.endpoints[0]].server)
    with pytest.raises(SnapshotError, match="was saved with trainers 2; this server has 3.*FLAGS_rpc_server_snapshots"):
        Job(network(adam), servers=1, trainers=3, config=config("sync"))
    with pytest.raises(SnapshotError, match="not in what was saved|no table|was saved as"):
        Job(network(clipped), servers=1, config=config("sync"))


def test_a_damaged_snapshot_is_refused_and_named(survives):
    folder = survives() / "snapshots"
    job = Job(network(adam), servers=1, config=config("sync"))
    crash(job.servers[job.endpoints[0]].server)
    (state,) = folder.rglob("state")
    data = bytearray(state.read_bytes())
    data[len(data) // 2] ^= 1
    state.write_bytes(data)
    with pytest.raises(SnapshotError, match="state is damaged"):
        Job(network(adam), servers=1, config=config("sync"))


def test_a_log_without_snapshots_is_refused():
    flags.write_flag("FLAGS_rpc_server_log", "somewhere")
    try:
        with pytest.raises(ValueError, match="a log is read after a snapshot"):
            Job(network(adam), servers=1, config=config("sync"))
    finally:
        flags.write_flag("FLAGS_rpc_server_log", "")
