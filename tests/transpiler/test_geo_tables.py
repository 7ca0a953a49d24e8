"""Tables that grow in GEO training: trainers hold copies of rows, and have the numbers of those with whole tables."""

import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from paddle.fluid.regularizer import L2Decay
from refluid.runtime.tables.copies import Copies
from refluid.runtime.trainer.server_calls import ROWS, STEP
from simulated_cluster import EXE, Job, bound, close_jobs

HEIGHT, WIDTH, BATCH, STEPS, PUSH = 23, 3, 6, 13, 4
UNIFORM = fluid.initializer.Uniform(-1.0, 1.0)
WILD = np.random.RandomState(0).randint(-(2**63), 2**63 - 1, HEIGHT)


@pytest.fixture(autouse=True)
def close():
    yield
    close_jobs()


def model(*, grows=True, dtype="float32", clip=None, rate=0.1, decay=None, initializer=UNIFORM, padding=5, **options):
    """Two slots of one table, one of them sequences that may be empty, and a table of its own for the second."""

    def build():
        fluid.default_startup_program().random_seed = 7
        y = fluid.layers.data("y", [1], dtype=dtype)
        a = fluid.layers.data("a", [1], dtype="int64")
        b = fluid.layers.data("b", [1], dtype="int64", lod_level=1)
        found = []
        for ids, name in ((a, "emb"), (b, "emb"), (b, "other")):
            size, attr = [HEIGHT, WIDTH], fluid.ParamAttr(name, initializer=initializer)
            skipped = padding if ids is a else None
            found.append(fluid.layers.embedding(ids, size, True, grows, skipped, attr, dtype))
        if options:
            refluid.table_options("emb", **options)
        found = [found[0], *(fluid.layers.sequence_pool(each, "sum") for each in found[1:])]
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(found, 1), y))
        tests.append(fluid.default_main_program().clone(for_test=True))
        if clip is not None:
            fluid.clip.set_gradient_clip(clip)
        learning_rate = fluid.layers.exponential_decay(0.1, 20, 0.7) if rate == "decays" else rate
        fluid.optimizer.SGD(learning_rate, regularization=decay).minimize(loss)
        losses.append(loss)

    tests, losses = [], []
    build.tests, build.losses = tests, losses
    return build


def geo():
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode, config.geo_sgd_mode, config.geo_sgd_need_push_nums = False, True, PUSH
    config.min_block_size = 8
    return config


def job_of(build, servers=2, trainers=2, **options):
    return Job(build, servers, trainers, geo, sync_mode=False, **options)


def feed(step, trainer, names=None, dtype="float32"):
    random = np.random.RandomState(100 * step + trainer)
    names = np.arange(HEIGHT) if names is None else names
    lengths = random.permutation([0, 1, 2, 3, 1, 2])  # as many rows in every step: a program compiles once
    rows = names[random.randint(0, HEIGHT - 2, (lengths.sum(), 1))]
    return {
        "y": random.randn(BATCH, 1).astype(dtype),
        "a": names[random.randint(0, HEIGHT - 2, (BATCH, 1))],
        "b": fluid.create_lod_tensor(rows, [lengths.tolist()], fluid.CPUPlace()),
    }


def train(job, steps=STEPS, **options):
    """Steps of all trainers, one after the other, so that two jobs do the same."""
    for step in range(steps):
        for number, trainer in enumerate(job.trainers):
            trainer.step(feed(step, number, **options))
    return job


def finish(job):
    for trainer in job.trainers:
        with bound(trainer.session):
            trainer.session.flush()


def rows_of(job, table, ids):
    trainer = job.trainers[0]
    with bound(trainer.session):
        return trainer[table].read_rows(np.asarray(ids))


def copies(trainer, table, ids):
    """Rows as a trainer uses them."""
    with bound(trainer.session):
        return trainer.session.copies.look_up({table: np.asarray(ids)}, keeps=False)[table]


def hold_all(job, ids):
    """Has trainers hold all rows from the beginning: one that is looked up later includes what others have done."""
    for trainer in job.trainers:
        with bound(trainer.session):
            for table in ("emb", "other"):
                trainer.session.copies.hold(trainer[table].sliced, 0)
            trainer.session.copies.look_up({"emb": ids, "other": ids})


def assert_like_whole_tables(rows, whole, ids):
    for one, other in zip(whole.trainers, rows.trainers, strict=True):
        for table in ("emb", "other"):
            found = copies(other, table, ids)
            np.testing.assert_allclose(found, np.asarray(one[table]), rtol=1e-5, atol=1e-6, err_msg=table)
        np.testing.assert_allclose(other["fc_0.w_0"], one["fc_0.w_0"], rtol=1e-5, atol=1e-6)
    finish(whole), finish(rows)
    for table in ("emb", "other"):
        np.testing.assert_allclose(rows_of(rows, table, ids), whole.whole(table), rtol=1e-5, atol=1e-6, err_msg=table)


@pytest.mark.parametrize(
    ("servers", "trainers", "options"),
    [
        (1, 2, {"clip": fluid.clip.GradientClipByGlobalNorm(0.3)}),
        (3, 2, {"rate": "decays", "dtype": "float64"}),
    ],
)
def test_numbers_are_those_of_trainers_that_hold_whole_tables(servers, trainers, options):
    dtype = options.get("dtype", "float32")
    whole = train(job_of(model(grows=False, **options), servers, trainers), dtype=dtype)
    rows = job_of(model(**options), servers, trainers)
    hold_all(rows, np.arange(HEIGHT))
    assert_like_whole_tables(train(rows, dtype=dtype), whole, np.arange(HEIGHT))


def test_ids_may_be_any_and_only_rows_that_are_used_are_held():
    options = {"initializer": fluid.initializer.Constant(0.1), "padding": None}
    whole = train(job_of(model(grows=False, **options), trainers=1))
    rows = train(job_of(model(**options), trainers=1), names=WILD)
    (trainer,) = rows.trainers
    assert trainer.session.copies.count("emb") == HEIGHT - 2  # the last two are never used
    assert_like_whole_tables(rows, whole, WILD)
    held = [table for server in rows.servers.values() for table in server.server._exchange.shard.growing]
    assert sum(table.rows for table in held) == 2 * (HEIGHT - 2)


def test_rows_that_were_not_used_for_long_are_given_up_and_nothing_of_them_is_lost():
    """With one trainer servers get all that it learns, so the numbers stay."""
    row = Copies("emb", WIDTH, np.dtype("float32")).row_bytes
    whole = train(job_of(model(grows=False), trainers=1))
    rows = job_of(model(trainer_budget=16 * row), trainers=1)
    counts = []
    for step in range(STEPS):
        rows.trainers[0].step(feed(step, 0))
        counts.append(rows.trainers[0].session.copies.count("emb"))
    assert max(counts) == 16 and rows.trainers[0].session.copies.count("other") > 16
    assert_like_whole_tables(rows, whole, np.arange(HEIGHT))


def test_a_batch_that_needs_more_rows_than_the_budget_is_an_error():
    job = job_of(model(trainer_budget="100B"), trainers=1)
    with pytest.raises(
        ValueError, match=r"trainer 0 uses \d+ rows of table emb .* trainer_budget of 100 bytes .* for 1:"
    ):
        job.trainers[0].step(feed(0, 0))


def test_rows_that_a_trainer_lacks_cost_one_message_and_others_none():
    job = job_of(model(), trainers=1)
    (trainer,) = job.trainers
    exchange, requests = trainer.session.exchange, []
    trainer.session.exchange = lambda purpose, *rest: (requests.append(purpose), exchange(purpose, *rest))[1]
    for _ in range(PUSH):
        trainer.step(feed(0, 0))
    assert requests.count(ROWS) == 1, "two tables share it"
    assert requests == [ROWS, STEP]


def test_programs_without_servers_read_what_the_trainer_has_learned():
    build = model()
    job = job_of(build, trainers=2)
    train(job, steps=PUSH + 1)
    trainer, (test, loss) = job.trainers[1], (build.tests[1], build.losses[1])
    held = trainer.session.copies.count("emb"), trainer.session.copies.count("other")
    batch = feed(99, 1)
    with bound(trainer.session):
        (found,) = EXE.run(test, feed=batch, fetch_list=[loss.name], scope=trainer.scope)
        (trained,) = EXE.run(trainer.program, feed=batch, fetch_list=[loss.name], scope=trainer.scope)
    np.testing.assert_allclose(found, trained, rtol=1e-5)
    assert held < (HEIGHT, HEIGHT), "the test has read rows that are not held"


def test_rows_may_travel_with_16_bits():
    job, ids = train(job_of(model(wire="bfloat16"), 1, 1)), np.arange(HEIGHT)
    finish(job)
    held = [server.server._exchange.shard.tables["emb"] for server in job.servers.values()]
    (originals,) = (table.table.read(ids, creates=False) for table in held)
    found = copies(job.trainers[0], "emb", ids)
    assert (found != originals).any()
    # What was rounded off is sent later: a copy and its original differ by less than a rounding.
    np.testing.assert_allclose(found, originals, atol=2.0**-6)


def test_any_job_with_sgd_goes_on_with_what_was_saved(tmp_path):
    job = train(job_of(model(), servers=2), steps=PUSH)
    finish(job)
    (trainer, *_), ids = job.trainers, np.arange(HEIGHT)
    with bound(trainer.session), fluid.scope_guard(trainer.scope):
        fluid.io.save_persistables(EXE, str(tmp_path), trainer.program)
    expected = {table: rows_of(job, table, ids) for table in ("emb", "other")}
    close_jobs()
    for begin in (job_of, Job):  # GEO and sync
        job = begin(model(), servers=3, trainers=1, load=tmp_path)
        for table, value in expected.items():
            np.testing.assert_array_equal(rows_of(job, table, ids), value)
        job.step([feed(0, 0)])
        assert (rows_of(job, "emb", ids) != expected["emb"]).any()
        close_jobs()


@pytest.mark.parametrize("options", [{"min_count": 2}, {"probability": 0.5}])
def test_options_that_need_servers_to_see_every_id_are_refused(options):
    with pytest.raises(ValueError, match="table emb has table_options min_count or probability, but GEO trainers"):
        job_of(model(**options))


def test_the_budget_of_trainers_is_refused_where_they_hold_no_rows():
    with pytest.raises(ValueError, match="table emb has table_options trainer_budget, but only GEO trainers hold rows"):
        Job(model(trainer_budget="1MB"))


def test_a_table_that_decays_is_held_whole_and_has_no_options():
    job = job_of(model(decay=L2Decay(0.1)), trainers=1)
    train(job, steps=1)
    assert np.asarray(job.trainers[0]["emb"]).shape == (HEIGHT, WIDTH)
    with pytest.raises(ValueError, match="table emb has table_options.* in GEO training with weight decay"):
        job_of(model(decay=L2Decay(0.1), budget="1MB"))
