"""Options of tables reach the servers, through programs that are saved and read again, and do there what they say."""

import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid.errors import ServerError
from refluid.ir import Program
from refluid.ir.table_options import TABLE_OPTIONS, TableOptions
from simulated_cluster import Job, bound, close_jobs, reread

BATCH = 6


@pytest.fixture(autouse=True)
def close():
    yield
    close_jobs()


def model(optimizer=lambda: fluid.optimizer.SGD(0.1), **options):
    """A click model with two tables that grow; the options are those of the first."""

    def build():
        fluid.default_startup_program().random_seed = 7
        ids, y = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("y", [1])
        found = [embedding(ids, name) for name in ("emb", "other")]
        if options:
            refluid.table_options("emb", **options)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(found, 1), y))
        optimizer().minimize(loss)

    return build


def embedding(ids, name):
    attr = fluid.ParamAttr(name, initializer=fluid.initializer.Uniform(-1.0, 1.0))
    return fluid.layers.embedding(ids, [50, 4], is_sparse=True, is_distributed=True, param_attr=attr)


def feeds(job, step, ids=None):
    random = np.random.RandomState(step)
    return [
        {
            "ids": random.randint(0, 40, (BATCH, 1)) if ids is None else ids,
            "y": random.randn(BATCH, 1).astype("float32"),
        }
        for _ in job.trainers
    ]


def trained(steps=20, servers=2, trainers=2, optimizer=lambda: fluid.optimizer.SGD(0.1), sync_mode=True, **options):
    job = Job(model(optimizer, **options), servers, trainers, sync_mode=sync_mode)
    for step in range(steps):
        job.step(feeds(job, step))
    return job


def rows_of(job, ids, table="emb"):
    trainer = job.trainers[0]
    with bound(trainer.session):
        return trainer[table].read_rows(np.asarray(ids))


def held(job, table="emb"):
    """The tables of a name on all servers."""
    shards = [server.server._exchange.shard for server in job.servers.values()]
    return [each for shard in shards for each in shard.growing if each.name == table]


def rows_held(job, table="emb"):
    return sum(each.rows for each in held(job, table))


IDS = np.arange(50)


def test_chance_admits_the_same_ids_on_any_number_of_servers():
    job, other = trained(servers=1, probability=0.5), trained(servers=3, probability=0.5)
    admitted = rows_of(job, IDS).any(1)
    assert 10 < admitted.sum() < 40 and rows_held(job) <= admitted.sum() < rows_held(job, "other")
    np.testing.assert_allclose(rows_of(other, IDS), rows_of(job, IDS), atol=1e-5)
    assert rows_of(job, IDS, "other").any(1).all()


def test_ids_get_rows_after_so_many_updates():
    job = Job(model(min_count=3))
    often, rare = np.full((BATCH, 1), 7), np.full((BATCH, 1), 8)
    for step in range(4):
        assert rows_held(job) == (step > 2)
        assert rows_of(job, [7]).any() == (step > 2)
        job.step(feeds(job, step, often))
    job.step(feeds(job, 4, rare))
    assert rows_held(job) == 1 and rows_held(job, "other") == 2
    assert rows_of(job, [7]).any() and not rows_of(job, [8]).any()


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_weights_of_16_bits_follow_those_of_32(precision):
    options = {"optimizer": lambda: fluid.optimizer.Adagrad(0.1), "trainers": 1, "servers": 1}
    plain, job = trained(40, **options), trained(40, **options, precision=precision)
    rows, short = rows_of(plain, IDS), rows_of(job, IDS)
    np.testing.assert_allclose(short, rows, atol=0.05 if precision == "bfloat16" else 0.01)
    assert held(job)[0].table.form.bytes == held(plain)[0].table.form.bytes - 8


@pytest.mark.parametrize(("wire", "sync_mode"), [("bfloat16", True), ("float16", False)])
def test_rows_may_travel_with_16_bits(wire, sync_mode):
    options = {"trainers": 1, "servers": 1, "sync_mode": sync_mode}
    plain, job = trained(**options), trained(wire=wire, **options)
    digits = 2.0 ** (-8 if wire == "bfloat16" else -11)
    rows, short = rows_of(plain, IDS), rows_of(job, IDS)
    assert (rows != short).any()
    np.testing.assert_allclose(short, rows, atol=4 * digits)
    sent = [
        sum(server.server.metrics.status([])["bytes_sent"] for server in each.servers.values()) for each in (plain, job)
    ]
    assert sent[1] < sent[0]


def test_a_full_table_refuses_an_update_and_names_itself():
    job = Job(model(budget=10 * 70))
    with pytest.raises((ServerError, RuntimeError), match=r"table emb\S* is full: it has \d+ rows on server 127.0.0.1"):
        for step in range(5):
            job.step(feeds(job, step, np.arange(step * BATCH, (step + 1) * BATCH)[:, None]))
    full = [each for each in held(job) if each.rows > 4]
    assert full and all(each.rows <= each.life.most_rows for each in held(job))


def test_a_trainer_has_rows_given_up():
    job = trained(10)
    before = rows_held(job), rows_held(job, "other")
    with bound(job.trainers[0].session):
        assert refluid.shrink_tables(["emb"]) == {"emb": 0}  # it has no options
        gone = refluid.shrink_tables(["emb"], max_age=3)
        assert gone == {"emb": before[0] - rows_held(job)} and 0 < gone["emb"] < before[0]
        assert rows_held(job, "other") == before[1]
        left = rows_held(job)
        assert refluid.shrink_tables(min_norm=100.0) == {"emb": left, "other": before[1]}
        with pytest.raises(ServerError, match="fc_0.w_0 is not a table that grows; here these are: emb, other"):
            refluid.shrink_tables(["fc_0.w_0"])
    status = next(iter(job.servers.values())).server.metrics.status([])["tables"]
    assert [(each["table"], each["rows"], each["budget"]) for each in status] == [("emb", 0, 0), ("other", 0, 0)]
    assert sum(each.evicted for each in held(job)) == before[0]


def test_only_trainers_can_have_rows_given_up():
    with pytest.raises(RuntimeError, match="no trainer of a job"):
        refluid.shrink_tables(max_age=3)


def test_options_are_saved_with_the_program():
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        model(min_count=2, budget="1.5GB")()
    refluid.table_options("emb", program=main, on_full="evict")
    lookup = next(op for op in reread(main).global_block().ops if op.type == "lookup_table")
    expected = TableOptions(min_count=2, budget=1_500_000_000, on_full="evict")
    assert TableOptions.parse(lookup.attr(TABLE_OPTIONS)) == expected


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"min_count": 0}, "min_count must be between 1 and 255, not 0"),
        ({"min_count": 2.5}, "min_count must be an integer, not 2.5"),
        ({"probability": 1.5}, "probability must be between 0.0 and 1.0"),
        ({"precision": "int8"}, "precision must be one of .*, not 'int8'"),
        ({"on_full": "panic"}, "on_full must be one of .*, not 'panic'"),
        ({"budget": "8 apples"}, "budget must be bytes, such as .*, not '8 apples'"),
        ({"max_age": -1}, "max_age must be at least 0"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, problem):
    embedding(fluid.layers.data("ids", [1], dtype="int64"), "emb")
    with pytest.raises((ValueError, TypeError), match=problem):
        refluid.table_options("emb", **options)


def test_a_table_that_does_not_grow_has_no_options():
    ids = fluid.layers.data("ids", [1], dtype="int64")
    fluid.layers.embedding(ids, [50, 4], is_sparse=True, param_attr="emb")
    with pytest.raises(ValueError, match="has emb as a table with is_sparse=True and is_distributed=True"):
        refluid.table_options("emb", min_count=2)


def test_only_float32_is_shortened():
    ids = fluid.layers.data("ids", [1], dtype="int64")
    fluid.layers.embedding(ids, [5, 4], is_sparse=True, is_distributed=True, param_attr="emb", dtype="float64")
    with pytest.raises(ValueError, match="only float32 can be stored or sent as bfloat16, and emb is not float32"):
        refluid.table_options("emb", precision="bfloat16")


def test_two_descriptions_of_a_table_are_refused():
    def build():
        model(min_count=2)()
        lookups = [op for op in fluid.default_main_program().global_block().ops if op.type == "lookup_table"]
        lookups[1].set_attr(TABLE_OPTIONS, str(TableOptions(min_count=3)))
        lookups[1].inputs["W"] = ["emb"]

    with pytest.raises(ValueError, match="two lookups give table emb different options: .*2.* and .*3"):
        Job(build)
