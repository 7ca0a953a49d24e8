"""Rows of a table: any ids, begun alike whenever and wherever, found again while it grows, given up and reused."""

import threading
import zlib

import jax
import ml_dtypes
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.ops.core.growing import ROW_INITIALIZERS, SHARDS
from refluid.ops.core.noise import fold_in
from refluid.ops.host.distributed import begin_rows
from refluid.runtime.tables.kernels import layout
from refluid.runtime.tables.kernels.merging import shards_of
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import Beginning, Rule
from refluid.runtime.tables.table import Table

SGD = Rule("sgd", {})


def beginning(seed, name, **options):
    """How rows begin in a program with a seed."""
    with jax.enable_x64(True):
        key = fold_in(jax.random.wrap_key_data(np.array([seed, 0], np.uint32)), zlib.crc32(name.encode()))
        return Beginning.read(np.asarray(begin_rows(**options, key=key)))


def uniform(width=4, **options):
    begins = beginning(7, "emb", initializer="uniform_random", first=-1.0, second=1.0)
    return Table("emb", RecordForm(width), SGD, begins, **options)


def any_ids(count, seed=0):
    """Different ids from all over int64, its ends among them."""
    ids = np.random.RandomState(seed).randint(-(2**63), 2**63 - 1, count)
    ids[:4] = [-(2**63), 2**63 - 1, 0, -1]
    return np.unique(ids)[np.random.RandomState(seed).permutation(len(np.unique(ids)))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "initializer",
    [
        fluid.initializer.Uniform(-0.3, 0.7),
        fluid.initializer.Normal(0.1, 2.0),
        fluid.initializer.TruncatedNormal(0.0, 0.5),
        fluid.initializer.Constant(0.25),
    ],
    ids=lambda made: type(made).__name__,
)
def test_rows_begin_as_those_of_the_local_program(initializer, dtype):
    fluid.default_startup_program().random_seed = 11
    fluid.layers.create_parameter([50, 12], dtype, attr=fluid.ParamAttr("emb", initializer=initializer))
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    expected = np.array(fluid.global_scope().find_var("emb").get_tensor())
    (op,) = fluid.default_startup_program().global_block().ops
    first, second = (op.attrs.get(name, 0.0) for name in ROW_INITIALIZERS[op.type])
    begins = beginning(11, "emb", initializer=op.type, first=first, second=second, dtype=op.attr("dtype"))
    table = Table("emb", RecordForm(12, np.dtype(dtype)), SGD, begins)
    np.testing.assert_allclose(table.read(np.arange(50)), expected, atol=1e-6 if dtype == "float32" else 1e-12)


def test_rows_begin_alike_in_any_order_and_any_batch():
    ids, one, other = any_ids(1000), uniform(), uniform()
    whole = one.read(ids)
    order = np.random.RandomState(1).permutation(len(ids))
    for begin in range(0, len(ids), 37):
        chosen = order[begin : begin + 37]
        np.testing.assert_array_equal(other.read(ids[chosen]), whole[chosen])
    assert len(one) == len(other) == len(ids)
    assert len(np.unique(whole)) > 0.99 * whole.size  # also those of ids beyond 2^32


def test_rows_are_found_while_the_table_grows():
    table, ids = uniform(width=1), any_ids(100_000)
    values = np.arange(len(ids), dtype=np.float32).reshape(-1, 1)
    start = table.read(ids)
    for begin in range(0, len(ids), 999):
        end = min(begin + 999, len(ids))
        table.update(ids[begin:end], -values[begin:end], table.begin_step(1.0))
        seen = np.random.RandomState(begin).randint(0, end, 50)
        np.testing.assert_array_equal(table.read(ids[seen]), start[seen] + values[seen])
    assert len(table) == len(ids)
    assert table.bytes < 1.3 * len(ids) * table.form.bytes


def test_a_server_with_one_shard_has_rows_in_all_segments():
    """Or 256 servers would hold a quarter of what they can, each under one lock."""
    table, ids = uniform(), any_ids(40_000)
    shards = np.empty(len(ids), np.int64)
    shards_of(ids, SHARDS, shards)
    chosen = ids[shards == 17]
    table.update(chosen, np.ones((len(chosen), 4), np.float32), table.begin_step(1.0))
    assert len(table) == len(chosen) > 100
    assert min(map(len, table.segments)) > len(chosen) / 8


def test_more_updates_than_rows_can_count_are_refused():
    """The last one would make its rows look as if they had been given up."""
    table, ids = uniform(), np.arange(3)
    table.step = layout.DEAD - 3
    table.update(ids, np.ones((3, 4), np.float32), table.begin_step(1.0))
    table.begin_step(1.0)
    with pytest.raises(OverflowError, match="emb has seen 4,294,967,294 updates.*--to lookup_table"):
        table.begin_step(1.0)
    assert len(table) == 3 and table.step == layout.DEAD - 1


def test_a_batch_may_repeat_an_id():
    table = uniform()
    ids = np.array([5, 7, 5, 5])
    rows = table.read(ids)
    np.testing.assert_array_equal(rows[0], rows[2])
    assert len(table) == 2


def test_reading_without_creating_shows_what_rows_would_begin_with():
    table, ids = uniform(), any_ids(100)
    shown = table.read(ids, creates=False)
    assert len(table) == 0
    np.testing.assert_array_equal(table.read(ids), shown)


def test_rows_are_given_up_by_age_norm_and_count_and_their_memory_is_used_again():
    table = Table("emb", RecordForm(2), SGD)
    ids = np.arange(5000)
    table.update(ids, -np.ones((5000, 2), np.float32), table.begin_step(1.0))
    table.update(ids[:1000], np.ones((1000, 2), np.float32), table.begin_step(1.0))  # now zero
    table.update(ids[1000:2000], np.ones((1000, 2), np.float32), table.begin_step(0.5))
    assert table.evict(norm=0.1) == 1000
    assert table.evict(before=3) == 3000
    assert len(table) == 1000 and table.evict(count=2.0) == 0
    np.testing.assert_array_equal(table.read(ids[1000:2000], creates=False), np.full((1000, 2), 0.5))
    assert not table.read(ids[:1000], creates=False).any()
    fresh = np.arange(10_000, 14_000)
    table.update(fresh, -np.ones((4000, 2), np.float32), table.begin_step(3.0))
    assert len(table) == 5000 and sum(segment.used for segment in table.segments) < 1.1 * 5000
    np.testing.assert_array_equal(table.read(fresh), np.full((4000, 2), 3.0))
    np.testing.assert_array_equal(table.read(ids[1000:2000]), np.full((1000, 2), 0.5))
    table.decay_counts(0.1)
    assert table.evict(count=0.15) == 4000


def test_rows_come_and_go_without_the_table_growing():
    table = Table("emb", RecordForm(1), SGD)
    for round_ in range(60):
        ids = np.arange(2000) + 1000 * round_
        table.update(ids, -np.ones((2000, 1), np.float32), table.begin_step(1.0))
        np.testing.assert_array_equal(table.read(ids[:1000]), 2.0 if round_ else 1.0)
        table.evict(before=round_ + 1)
        assert len(table) == 2000
    assert table.bytes < 4 * 2000 * table.form.bytes


def test_rows_that_come_back_into_the_memory_of_others_are_found():
    """While their old records, which nobody uses, still have their ids."""
    table, ids = Table("emb", RecordForm(1), SGD), np.arange(3000)
    table.update(ids, -np.ones((3000, 1), np.float32), table.begin_step(1.0))
    assert table.evict(count=100.0) == 3000 and len(table) == 0
    for number in range(3):
        table.update(ids[:1000], -np.ones((1000, 1), np.float32), table.begin_step(1.0))
        np.testing.assert_array_equal(table.read(ids[:1000]), number + 1.0)
        assert len(table) == 1000 == len(set(everything(table)[0]))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_weights_of_16_bits_that_are_set_are_rounded_to_nearest(precision):
    values = np.random.RandomState(0).randn(300, 7).astype(np.float32) * 10.0 ** np.random.RandomState(1).randint(
        -7, 5, (300, 1)
    )
    values[0] = [0.0, -0.0, 1e-30, 7e4, -7e4, np.inf, 65504]
    table = Table("emb", RecordForm(7, precision=precision, has_id=False), Rule("sgd", {}), fixed=(0, 300))
    table.set_weights(0, values.astype(np.float32))
    dtype = np.float16 if precision == "float16" else ml_dtypes.bfloat16
    with np.errstate(over="ignore"):
        expected = values.astype(np.float32).astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(table.read(np.arange(300)), expected)
    form = RecordForm(7, slots=("Moment",), precision=precision)
    assert form.bytes == 16 + 2 * 8 + 4 * 7 + 4  # an even number of weights, of words


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_updates_that_16_bits_cannot_show_are_not_lost_on_the_whole(precision):
    """Each of 400 updates is a tenth of the distance of two numbers near 1; rounded to nearest, none had an effect."""
    step = 2.0 ** (-8 if precision == "bfloat16" else -11) / 10  # below 1, numbers are so far apart
    begins, ids = Beginning(0, 1.0), any_ids(200)
    tables = [Table("emb", RecordForm(3, precision=precision), SGD, begins) for _ in range(2)]
    for table in tables:
        for _ in range(400):
            table.update(ids, np.full((len(ids), 3), step, np.float32), table.begin_step(1.0))
    moved = 1.0 - tables[0].read(ids)
    np.testing.assert_allclose(moved.mean(), 400 * step, rtol=0.01)
    np.testing.assert_allclose(moved, 400 * step, rtol=0.7)
    np.testing.assert_array_equal(*(table.read(ids) for table in tables))


def test_chance_admits_the_same_ids_in_every_table_with_the_same_key():
    ids, tables = any_ids(20_000), [uniform(), uniform()]
    plain = uniform().read(ids, creates=False)
    for table, order in zip(tables, (ids, ids[::-1]), strict=True):
        table.admit(probability=0.25)
        table.update(order, np.zeros((len(ids), 4), np.float32), table.begin_step(1.0))
    one, other = (table.read(ids) for table in tables)
    np.testing.assert_array_equal(one, other)
    admitted = one.any(1)
    assert 0.24 < admitted.mean() < 0.26 and len(tables[0]) == admitted.sum()
    np.testing.assert_array_equal(one[admitted], plain[admitted])


def test_an_id_gets_a_row_with_the_nth_update():
    table, ids = uniform(), any_ids(5000)
    table.admit(min_count=3)
    ones, begins = np.ones((len(ids), 4), np.float32), uniform().read(ids, creates=False)
    for expected in (0, 0, len(ids)):
        assert not table.read(ids, creates=False).any()  # reading does not count
        assert table.count_new(ids) == expected
        table.update(ids, ones, table.begin_step(1.0))
        assert len(table) == expected
    np.testing.assert_array_equal(table.read(ids), begins)  # without the gradients before
    table.update(ids, ones, table.begin_step(1.0))
    np.testing.assert_array_equal(table.read(ids), begins - 1.0)
    assert table.count_new(ids) == 0


def test_counts_of_ids_without_rows_take_bounded_memory_and_age():
    table = Table("emb", RecordForm(1), SGD)
    table.admit(min_count=2)
    before, ones = table.bytes, np.ones((100_000, 1), np.float32)
    table.update(any_ids(100_000), ones, table.begin_step(1.0))
    assert table.bytes == before and len(table) == 0
    (segment, *_) = table.segments
    segment.control[layout.SKETCH_LEFT] = 1
    seen = segment._sketch.as_array(np.uint8).sum()
    table.update(np.arange(1000), ones[:1000], table.begin_step(1.0))
    assert segment._sketch.as_array(np.uint8).sum() < 0.1 * seen
    assert len(table) < 10


def test_the_oldest_rows_are_given_up_first():
    table = Table("emb", RecordForm(1), SGD)
    for step in range(20):
        table.update(np.arange(100) + 100 * step, np.ones((100, 1), np.float32), table.begin_step(1.0))
    assert table.evict_oldest(250) == 250 and len(table) == 1750
    assert not table.read(np.arange(200), creates=False).any()
    assert table.read(np.arange(300, 2000), creates=False).all()
    assert table.evict_oldest(10_000) == 1750


def test_of_rows_of_the_same_age_the_same_go_wherever_they_lie():
    left = []
    for order in (np.arange(3000), np.arange(3000)[::-1]):
        table = Table("emb", RecordForm(1), SGD)
        table.update(order, np.ones((3000, 1), np.float32), table.begin_step(1.0))
        table.update(np.arange(100), np.ones((100, 1), np.float32), table.begin_step(1.0))
        assert table.evict_oldest(700) == 700
        left.append(np.sort(everything(table)[0]))
    np.testing.assert_array_equal(left[0], np.arange(2300))
    np.testing.assert_array_equal(left[1], left[0])


def test_a_snapshot_keeps_no_row_from_being_given_up():
    table = Table("emb", RecordForm(1), SGD)
    table.update(np.arange(40_000), np.ones((40_000, 1), np.float32), table.begin_step(1.0))
    with table.snapshot() as snapshot:
        assert table.evict(before=2) == 40_000
        assert sum(len(ids) for ids, _ in snapshot.records()) == 40_000


def test_a_table_of_fixed_height_finds_rows_by_their_number():
    table = Table(
        "emb", RecordForm(3, slots=("Moment",), has_id=False), Rule("adagrad", {}), fills=[0.5], fixed=(100, 20)
    )
    assert len(table) == 20
    table.set_weights(0, np.arange(60, dtype=np.float32).reshape(20, 3))
    np.testing.assert_array_equal(table.read(np.array([119, 100])), [[57, 58, 59], [0, 1, 2]])
    table.update(np.array([101]), np.ones((1, 3), np.float32), table.begin_step(1.0))
    np.testing.assert_allclose(table.weights(1, 2), np.array([[3, 4, 5]]) - 1 / (np.sqrt(1.5) + 1e-6), rtol=1e-6)
    with pytest.raises(ValueError, match="fixed number of rows"):
        table.evict(before=5)


def everything(table, mark=0):
    parts = list(table.records(mark))
    ids = np.concatenate([ids for ids, _ in parts])
    records = np.concatenate([records for _, records in parts])
    return ids, table.form.weights_of(records), records


def test_records_are_those_of_the_moment_a_snapshot_begins():
    """Rows change, appear and go while it is made; in each, the weight and the slot say in how many steps it was."""
    table = Table("emb", RecordForm(2, slots=("Velocity",)), Rule("momentum", {"mu": 1.0}))
    ids, ones = np.arange(60_000), -np.ones((60_000, 2), np.float32)
    table.update(ids, ones, table.begin_step(0.0))
    parts = table.records()
    seen = [next(parts)]
    stop, errors = threading.Event(), []

    def change():
        number = 0
        while not stop.is_set():
            number += 1
            try:
                table.update(ids[number % 7 :: 7] + 0, ones[number % 7 :: 7], table.begin_step(1.0))
                table.update(np.arange(10) + 100_000 + 10 * number, ones[:10], table.begin_step(1.0))
            except Exception as error:  # noqa: BLE001 - shown below
                errors.append(error)
                return

    thread = threading.Thread(target=change)
    thread.start()
    while table.step < 50:
        assert thread.is_alive()
    seen += list(parts)
    stop.set()
    thread.join()
    assert not errors
    records = np.concatenate([records for _, records in seen])
    found = np.concatenate([ids for ids, _ in seen])
    assert len(found) == len(ids) and set(found.tolist()) == set(ids.tolist())
    assert not table.form.weights_of(records).any()
    np.testing.assert_array_equal(table.form.slot_of(records, "Velocity"), -1.0)
    assert (table.form.versions_of(records) == 1).all()


def test_only_rows_that_were_changed_since_the_last_time():
    table, ids = uniform(), np.arange(5000)
    table.update(ids, np.ones((5000, 4), np.float32), table.begin_step(0.1))
    assert len(everything(table, layout.CHANGED)[0]) == 5000
    table.read(ids)
    assert len(everything(table, layout.CHANGED)[0]) == 0
    table.update(ids[10:20], np.ones((10, 4), np.float32), table.begin_step(0.1))
    changed, weights, _ = everything(table, layout.CHANGED)
    assert sorted(changed) == list(range(10, 20))
    np.testing.assert_array_equal(weights, table.read(changed))
    assert len(everything(table)[0]) == 5000


def test_rows_are_put_into_another_table():
    table, ids = Table("emb", RecordForm(3, slots=("Moment",)), Rule("adagrad", {})), any_ids(3000)
    table.update(ids, np.random.RandomState(0).randn(len(ids), 3).astype(np.float32), table.begin_step(0.1))
    copy = Table("emb", table.form, table.rule, step=table.step)
    for found, records in table.records():
        copy.put(found, records)
    np.testing.assert_array_equal(copy.read(ids), table.read(ids))
    again = np.ones((len(ids), 3), np.float32)
    for each in (table, copy):
        each.update(ids, again, each.begin_step(0.1))
    np.testing.assert_array_equal(copy.read(ids), table.read(ids))


def test_several_threads_lose_no_update():
    table = Table("emb", RecordForm(2), SGD)
    ids = any_ids(3000)

    def add():
        random = np.random.RandomState(threading.get_ident() % 2**31)
        for _ in range(40):
            chosen = random.permutation(ids)
            table.update(chosen, -np.ones((len(ids), 2), np.float32), table.begin_step(1.0))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(table.read(ids), 160.0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [((0,), "at least one weight"), ((4, np.dtype("int64")), "float32 or float64, not int64")],
)
def test_forms_that_cannot_be_are_refused(arguments, problem):
    with pytest.raises((ValueError, TypeError), match=problem):
        RecordForm(*arguments)
    with pytest.raises(ValueError, match="cannot be stored as float16"):
        RecordForm(4, np.dtype("float64"), precision="float16")
