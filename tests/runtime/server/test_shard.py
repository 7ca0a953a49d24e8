"""A server's variables and their updates, called directly."""

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.handlers import make_servers
from refluid.runtime.transport.wire import Rows

RATE = 0.5
BIAS, TABLE = "fc_0.b_0", "table"


def make_shard(optimizer=lambda: fluid.optimizer.SGD(RATE), **options):
    """The shard of a single server, which holds whole variables."""
    (held,) = make_servers(optimizer=optimizer, slice_var_up=False, **options).values()
    return held._exchange.shard


def push(shard, bias=0.0, rows=(0,), table=0.0):
    """A push that is zero but for a bias and some rows of a table."""
    found = {}
    for name in shard.pushable:
        dtype, shape, sparse = shard.describe(name)
        value = {f"{BIAS}@GRAD": bias, f"{TABLE}@GRAD": table}.get(name, 0.0)
        values = np.full((len(rows), *shape[1:]) if sparse else shape, value, dtype)
        found[name] = Rows(np.array(rows, np.int64), values) if sparse else values
    return found


def read(shard, name):
    return np.array(shard.read([name])[name])


def test_an_update_applies_the_mean_of_all_pushes():
    shard = make_shard(trainers=2)
    before = read(shard, BIAS)
    shard.update([push(shard, bias=1.0), push(shard, bias=3.0)])

    np.testing.assert_allclose(read(shard, BIAS), before - RATE * 2.0, rtol=1e-6)


def test_trainers_that_have_left_do_not_count_in_the_mean():
    shard = make_shard(trainers=3)
    before = read(shard, BIAS)
    shard.update([push(shard, bias=1.0), push(shard, bias=3.0)])

    np.testing.assert_allclose(read(shard, BIAS), before - RATE * 2.0, rtol=1e-6)


def test_only_touched_rows_change_and_repeated_rows_add_up():
    shard = make_shard()
    before = read(shard, TABLE)
    shard.update([push(shard, rows=(3, 5, 3), table=1.0)])

    changed = before - read(shard, TABLE)
    np.testing.assert_allclose(changed[3], 2 * RATE, rtol=1e-5)
    np.testing.assert_allclose(changed[5], RATE, rtol=1e-5)
    assert not np.delete(changed, [3, 5], axis=0).any()


def test_what_was_read_does_not_change_with_the_next_update():
    shard = make_shard()
    view = shard.read([BIAS])[BIAS]
    before = np.array(view)
    shard.update([push(shard, bias=1.0)])

    np.testing.assert_array_equal(view, before)


def test_without_rounds_the_schedule_advances_as_it_is_told():
    decayed = lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(1.0, 1, 0.5))  # noqa: E731
    shard = make_shard(decayed, trainers=2, sync_mode=False)
    rates = []
    for steps in (1, 0, 2):
        before = read(shard, BIAS)
        shard.update([push(shard, bias=1.0)], trainer=0, schedule_steps=steps)
        rates.append(float((before - read(shard, BIAS))[0]))

    assert rates == pytest.approx([1.0, 1.0, 0.25], rel=1e-5)


def test_values_of_another_shape_are_not_written():
    shard = make_shard()
    shard.write(BIAS, np.arange(8, dtype="float32"))
    np.testing.assert_array_equal(read(shard, BIAS), np.arange(8))
    with pytest.raises(ValueError, match=r"cannot write float32\[7\] to fc_0.b_0, which is float32\[8\]"):
        shard.write(BIAS, np.zeros(7, "float32"))


def test_names_and_rows_that_do_not_exist_are_errors():
    shard = make_shard()
    with pytest.raises(KeyError, match="variable nothing has no value on this server"):
        shard.read(["nothing"])
    with pytest.raises(KeyError, match="no variable nothing"):
        shard.describe("nothing")
    for row in (-1, 40):
        with pytest.raises(IndexError, match=f"row {row} of table was requested; on this server it has 40 rows"):
            shard.rows(TABLE, np.array([0, row]))
    np.testing.assert_array_equal(shard.rows(TABLE, np.array([7, 7])), read(shard, TABLE)[[7, 7]])


def test_every_variable_is_saved_to_a_file(tmp_path):
    shard = make_shard(optimizer=None)  # Adam, which has state of its own
    shard.save(str(tmp_path))

    saved = {path.name for path in tmp_path.iterdir()}
    assert {BIAS, TABLE, "fc_0.b_0_moment1_0", "learning_rate_0"} <= saved
