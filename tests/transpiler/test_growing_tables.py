"""Tables that grow (is_distributed) train as ordinary tables of the local program do, with any ids and any servers."""

import itertools
import os

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.regularizer import L1Decay, L2Decay
from refluid.errors import FeedError, ServerError
from refluid.ir import Program
from refluid.ir.slices import NO_ROW, SHARDS, Slice
from refluid.scope import Scope
from simulated_cluster import EXE, Job, bound, close_jobs

EVERYTHING = bool(os.environ.get("REFLUID_EVERY_SERVER_COUNT"))  # 100 steps on 1, 2, 3 and 5 servers: some minutes
HEIGHT, WIDTH, BATCH, STEPS = 13, 3, 8, 100 if EVERYTHING else 50
WILD = np.array([-(2**63), 2**63 - 2, -1, 0, 2**40, 2**33 + 7, -(2**31), 17, 18, 10**15, 5, -6, 2**62])  # ids of rows


@pytest.fixture(autouse=True)
def close():
    yield
    close_jobs()


def model(optimizer, *, grows, initializer=None, clip=None, dtype="float32", weights=None):
    """Two slots of one table, one of them sequences that may be empty, and a table of its own for the second."""

    def build():
        fluid.default_startup_program().random_seed = 7
        y = fluid.layers.data("y", [1], dtype=dtype)
        a = fluid.layers.data("a", [1], dtype="int64")
        b = fluid.layers.data("b", [1], dtype="int64", lod_level=1)
        found = []
        for ids, name in ((a, "emb"), (b, "emb"), (b, "other")):
            attr = fluid.ParamAttr(name, initializer=initializer)
            found.append(
                fluid.layers.embedding(
                    ids, [HEIGHT, WIDTH], is_sparse=True, is_distributed=grows, param_attr=attr, dtype=dtype
                )
            )
        found = [found[0], *(fluid.layers.sequence_pool(each, "sum") for each in found[1:])]
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(found, 1, param_attr=weights), y))
        if clip is not None:
            fluid.clip.set_gradient_clip(clip)
        optimizer().minimize(loss)

    return build


def batches(names=None, dtype="float32", steps=STEPS):
    """Batches; ``names`` are the ids of rows 0, 1, 2, ..."""
    names, random = np.arange(HEIGHT) if names is None else names, np.random.RandomState(3)
    for _ in range(steps):
        lengths = random.randint(0, 4, BATCH)
        yield {
            "y": random.randn(BATCH, 1).astype(dtype),
            "a": names[random.randint(0, HEIGHT - 2, (BATCH, 1))],  # the last two rows are never touched
            "b": [names[random.randint(0, HEIGHT - 2, (length, 1))] for length in lengths],
        }


def part(batch, trainer, trainers):
    """A trainer's part of a batch."""
    sequences = batch["b"][trainer::trainers]
    rows = np.concatenate([*sequences, np.empty((0, 1), np.int64)])
    fed = fluid.create_lod_tensor(rows, [[len(each) for each in sequences]], fluid.CPUPlace())
    return {"y": batch["y"][trainer::trainers], "a": batch["a"][trainer::trainers], "b": fed}


def train_locally(build, dtype="float32"):
    main, startup, scope = Program(), Program(), Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        build()
    EXE.run(startup, scope=scope)
    for batch in batches(dtype=dtype):
        EXE.run(main, feed=part(batch, 0, 1), scope=scope)
    return {v.name: np.asarray(scope.find_var(v.name).value) for v in main.list_vars() if v.persistable}


def train_as_job(build, servers, names=None, dtype="float32", steps=STEPS, **options):
    job = Job(build, servers, **options)
    for batch in batches(names, dtype, steps):
        job.step([part(batch, trainer, len(job.trainers)) for trainer in range(len(job.trainers))])
    return job


def rows_of(job, table, names=None):
    """The rows of a table, through a trainer, in the order of the local program's."""
    trainer = job.trainers[0]
    with bound(trainer.session):
        return trainer[table].read_rows(np.arange(HEIGHT) if names is None else names)


def decay():
    return fluid.layers.exponential_decay(0.05, 20, 0.7)


OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(decay()),
    "sgd, l2": lambda: fluid.optimizer.SGD(0.1, regularization=L2Decay(0.01)),
    "momentum": lambda: fluid.optimizer.Momentum(0.02, 0.9, use_nesterov=True),
    "momentum, l1": lambda: fluid.optimizer.Momentum(0.02, 0.9, regularization=L1Decay(0.002)),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.1, initial_accumulator_value=0.1),
    "decayed adagrad": lambda: fluid.optimizer.DecayedAdagrad(0.02),
    "adadelta": lambda: fluid.optimizer.Adadelta(0.1, epsilon=1e-3),
    "adam": lambda: fluid.optimizer.Adam(decay(), regularization=L2Decay(0.01)),
    "lazy adam": lambda: fluid.optimizer.Adam(0.02, lazy_mode=True),
    "adamax": lambda: fluid.optimizer.Adamax(0.02),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.01, momentum=0.5, centered=True),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.1, l1=0.01, l2=0.1),
}
SERVERS = list(zip(OPTIMIZERS, [1, 2, 3, 5, 2, 3, 5, 2, 1, 3, 2, 5], strict=True))
if EVERYTHING:
    SERVERS = list(itertools.product(OPTIMIZERS, [1, 2, 3, 5]))


@pytest.mark.parametrize(("optimizer", "servers"), SERVERS)
def test_a_sync_job_equals_local_training(optimizer, servers):
    local = train_locally(model(OPTIMIZERS[optimizer], grows=False))
    job = train_as_job(model(OPTIMIZERS[optimizer], grows=True), servers)
    for table in ("emb", "other"):
        np.testing.assert_allclose(rows_of(job, table), local[table], rtol=1e-5, atol=1e-5, err_msg=table)
    np.testing.assert_allclose(job.whole("fc_0.w_0"), local["fc_0.w_0"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("servers", [1, 2, 3, 5])
def test_rows_have_any_ids_on_any_number_of_servers(servers):
    constant = fluid.initializer.Constant(0.1)
    clip = fluid.clip.GradientClipByGlobalNorm(0.3)
    local = train_locally(model(OPTIMIZERS["adagrad"], grows=False, initializer=constant, clip=clip))
    job = train_as_job(model(OPTIMIZERS["adagrad"], grows=True, initializer=constant, clip=clip), servers, WILD)
    for table in ("emb", "other"):
        np.testing.assert_allclose(rows_of(job, table, WILD), local[table], rtol=1e-5, atol=1e-5)
    held = [table.table for server in job.servers.values() for table in server.server._exchange.shard.tables.values()]
    assert sum(map(len, held)) == 2 * (HEIGHT - 2)  # rows that were only read do not exist


def test_a_trainer_reads_rows_by_their_ids():
    job = train_as_job(model(OPTIMIZERS["sgd"], grows=True), 2, WILD, steps=3)
    trainer = job.trainers[0]
    with bound(trainer.session):
        tensor, expected = fluid.core.LoDTensor(trainer["emb"]), rows_of(job, "emb", WILD)
        np.testing.assert_array_equal(tensor[WILD], expected)
        np.testing.assert_array_equal(tensor[-1], expected[2])  # -1 is an id as any other
        np.testing.assert_array_equal(tensor[WILD.reshape(1, -1)[:, :4], 1], expected[None, :4, 1])
        np.testing.assert_array_equal(tensor[:3], rows_of(job, "emb", np.arange(3)))
        for wrong, problem in ((NO_ROW, "stands for padding"), (np.uint64(2**64 - 1), f"there is no row {2**64 - 1}")):
            with pytest.raises(IndexError, match=f"emb: .*{problem}"):
                tensor[wrong]


def test_float64_tables_have_all_their_digits():
    """With numbers that float32 has too: attributes of servers' programs are as short as in Fluid's files."""

    def momentum():
        return fluid.optimizer.Momentum(0.125, 0.5, regularization=L2Decay(2.0**-7))

    options = {
        "initializer": fluid.initializer.Uniform(-0.5, 0.5),
        "weights": fluid.ParamAttr(initializer=fluid.initializer.Uniform(-0.5, 0.5)),
        "clip": fluid.clip.GradientClipByValue(2.0**-6),
        "dtype": "float64",
    }
    local = train_locally(model(momentum, grows=False, **options), "float64")
    job = train_as_job(model(momentum, grows=True, **options), 2, dtype="float64")
    np.testing.assert_allclose(rows_of(job, "emb"), local["emb"], rtol=1e-12, atol=1e-12)


def test_two_runs_are_the_same_bit_by_bit():
    jobs = [train_as_job(model(OPTIMIZERS["adam"], grows=True), 3) for _ in range(2)]
    np.testing.assert_array_equal(*(rows_of(job, "emb") for job in jobs))


def test_one_async_trainer_whose_pushes_are_applied_at_once_equals_local_training():
    local = train_locally(model(OPTIMIZERS["adagrad"], grows=False))
    job = train_as_job(model(OPTIMIZERS["adagrad"], grows=True), 2, trainers=1, sync_mode=False)
    np.testing.assert_allclose(rows_of(job, "emb"), local["emb"], rtol=1e-5, atol=1e-5)


def test_servers_are_told_how_rows_begin():
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        model(OPTIMIZERS["adagrad"], grows=True, initializer=fluid.initializer.Normal(0.5, 0.25))()
    endpoints = ["127.0.0.1:6170", "127.0.0.1:6171"]
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, main, ",".join(endpoints), trainers=1, startup_program=startup)
    shards = []
    for endpoint in endpoints:
        server = transpiler.get_pserver_program(endpoint)
        ops = transpiler.get_startup_program(endpoint, server).global_block().ops
        begins = {part.whole: op for op in ops if op.type == "begin_rows" for part in held(op)}
        weights, states = begins["emb"], begins["emb_moment_0"]
        assert [weights.attr(name) for name in ("initializer", "first", "second")] == ["gaussian_random", 0.5, 0.25]
        assert states.attr("first") == pytest.approx(0.1)
        (part,) = held(weights)
        shards += range(part.start, part.end)
    assert shards == list(range(SHARDS))
    filled = [op.type for op in startup.global_block().ops if "emb" in op.output_arg_names]
    assert filled == ["fake_init"], "trainers have no rows"


def held(op):
    return [Slice.parse(text) for text in op.attr("slices")]


def test_the_id_that_stands_for_padding_is_refused():
    job = Job(model(OPTIMIZERS["sgd"], grows=True), trainers=1)
    feed = part(next(batches(steps=1)), 0, 1)
    with pytest.raises(fluid.core.EnforceNotMet, match=f"emb must be int64; these contain {NO_ROW}"):
        job.step([{**feed, "a": np.full((BATCH, 1), NO_ROW)}])


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (
            {"width": 4},
            r"pushes emb@GRAD.block[01] as float32\[-1, 4\] rows; on this server it is float32\[-1, 3\] rows",
        ),
        ({"dtype": "float64"}, r"pushes emb@GRAD.block[01] as float64\[-1, 3\] rows; on this server it is float32"),
        ({"grows": False}, "pushes emb@GRAD, which this server does not have"),
    ],
)
def test_a_trainer_that_describes_a_table_differently_is_refused_and_changes_nothing(other, problem):
    def build():
        chosen = {"width": 3, "dtype": "float32", "grows": True, **(other if built else {})}
        ids = fluid.layers.data("ids", [1], dtype="int64")
        size = [HEIGHT, chosen["width"]]
        rows = fluid.layers.embedding(ids, size, True, chosen["grows"], param_attr="emb", dtype=chosen["dtype"])
        fluid.optimizer.SGD(1.0).minimize(fluid.layers.mean(rows))
        built.append(chosen)

    built = []
    job = Job(build, 2, trainers=2, sync_mode=False)
    before = rows_of(job, "emb")
    with pytest.raises(ServerError, match=rf"trainer 1, .* server 127.0.0.1:617[01]: .*{problem}.* the same program\?"):
        job.trainers[1].step({"ids": np.arange(HEIGHT).reshape(-1, 1)})
    np.testing.assert_array_equal(rows_of(job, "emb"), before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint64"])
def test_ids_of_another_kind_are_refused(dtype):
    job = Job(model(OPTIMIZERS["sgd"], grows=True), trainers=1)
    feed = part(next(batches(steps=1)), 0, 1)
    with pytest.raises(FeedError, match=rf"feed a: expected int64\[-1, 1\], got {dtype}"):
        job.step([{**feed, "a": feed["a"].astype(dtype)}])


def test_an_initialiser_that_needs_the_whole_table_is_refused():
    with pytest.raises(ValueError, match="other is initialised by assign_value; rows of a table with is_distributed"):
        Job(model(OPTIMIZERS["sgd"], grows=True, initializer=fluid.initializer.NumpyArrayInitializer(np.ones((13, 3)))))
