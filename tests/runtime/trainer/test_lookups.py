"""Rows of tables that live on servers: every lookup gets the rows of its own ids."""

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.one_process import Role, servers

TABLE = np.arange(40, dtype="float32").reshape(20, 2) + 1
FIRST, SECOND, THIRD = [1, 19, 7, 3], [3, 0, 19, 12], [7, 7, 19, 2]


def three_lookups():
    """Lookups of one table in one exchange: other ids, other padding, other lengths."""
    initializer = fluid.initializer.NumpyArrayInitializer(TABLE)
    attr = fluid.ParamAttr("shared", initializer=initializer)
    ids = [fluid.layers.data(name, [1], dtype="int64") for name in ("first", "second", "third")]
    found = [
        fluid.layers.embedding(each, list(TABLE.shape), is_sparse=True, param_attr=attr, padding_idx=padding)
        for each, padding in zip(ids, (None, 3, 7), strict=True)
    ]
    return fluid.layers.mean(fluid.layers.concat(found, axis=1)), found


@pytest.mark.parametrize("count", [1, 2])
def test_two_lookups_of_one_table_each_get_the_rows_of_their_own_ids(count):
    built = {}

    def network():
        loss, built["found"] = three_lookups()
        return loss

    with servers(count, network=network) as endpoints:
        trainer = Role(endpoints, network=network)
        trainer.start()
        feed = {
            name: np.array(ids).reshape(-1, 1)
            for name, ids in zip(("first", "second", "third"), (FIRST, SECOND, THIRD), strict=True)
        }
        found = trainer.exe.run(trainer.main, feed=feed, fetch_list=built["found"], scope=trainer.scope)
        trainer.close()
    for ids, padding, rows in zip((FIRST, SECOND, THIRD), (None, 3, 7), found, strict=True):
        expected = np.where(np.equal(ids, padding)[:, None], 0, TABLE[ids])
        np.testing.assert_array_equal(rows, expected)
