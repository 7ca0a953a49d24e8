"""The ops of parameter-server programs: schema, and what they say when somebody runs one by itself."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.ops.core import registry
from refluid.ops.core.values import SelectedRows

EXCHANGED = (
    "checkpoint_notify distributed_lookup_table fake_init fetch_barrier listen_and_serv recv send send_barrier "
    "server_sum split_byref split_selected_rows"
).split()


@pytest.mark.parametrize("type", EXCHANGED)
def test_an_op_of_an_exchange_does_not_run_by_itself(type):
    definition = registry.lookup(type)
    assert definition.host and not definition.has_grad
    with pytest.raises(RuntimeError, match=f"{type} is not run by itself.*inside an exchange"):
        definition.rule()


def test_ref_by_trainer_id_takes_the_variable_of_that_trainer():
    main = fluid.default_main_program().global_block()
    names = ["a", "b", "c"]
    for name in names:
        main.create_var(name=name, shape=[2], dtype="float32", is_data=True)
    main.create_var(name="id", shape=[1], dtype="int64", is_data=True)
    out = main.create_var(name="out", dtype="float32")
    main.append_op(type="ref_by_trainer_id", inputs={"X": names, "TrainerId": "id"}, outputs={"Out": out})
    assert out.shape == (2,)
    feed = {name: np.full(2, place, "float32") for place, name in enumerate(names)}
    exe = fluid.Executor(fluid.CPUPlace())
    for trainer in range(3):
        feed["id"] = np.array([trainer], "int64")
        np.testing.assert_array_equal(exe.run(feed=feed, fetch_list=[out])[0], [trainer, trainer])


@pytest.mark.parametrize("type", ["lookup_table_grad", "lookup_table_v2_grad"])
def test_the_gradient_of_a_table_on_servers_needs_its_height_only(type):
    rule = registry.lookup(type).rule
    ids, w, out_grad = np.array([[3], [1]]), np.zeros((7, 2), "float32"), np.ones((2, 2), "float32")
    here = rule(ids, w, out_grad, is_sparse=True)
    there = rule(ids, None, out_grad, is_sparse=True, height=7)
    assert isinstance(there, SelectedRows) and there.height == here.height == 7
    np.testing.assert_array_equal(there.rows, here.rows)
    np.testing.assert_array_equal(there.values, here.values)
