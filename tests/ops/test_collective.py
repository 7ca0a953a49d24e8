"""Rules of collective ops, on replicas that are simulated by a mapped axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.layers import collective
from refluid.errors import OpError
from refluid.ops.core import replicas
from refluid.ops.core.registry import lookup
from refluid.ops.core.values import SelectedRows

X = np.array([[[1.0, -2.0], [3.0, 0.0]], [[2.0, -2.0], [0.5, 4.0]]], np.float32)  # [replica, row, column]
G = np.array([[[1.0, 2.0], [3.0, 4.0]], [[10.0, 20.0], [30.0, 40.0]]], np.float32)


def on_replicas(type, *values, **attrs):
    """The results of an op on replicas, stacked like its arguments."""
    definition = lookup(type)

    def one(*own):
        arguments = {slot: [value] for slot, value in zip(definition.input_names, own, strict=True)}
        return definition.call(arguments, attrs)[definition.output_names[0]][0]

    with replicas.traced_for(len(jax.tree.leaves(values)[0])):
        return jax.vmap(one, axis_name=replicas.AXIS)(*values)


ALL = [X.reshape(4, 2)] * 2
REPLICATED = [
    ("c_allreduce_sum", {}, [X.sum(0)] * 2),
    ("c_allreduce_prod", {}, [X.prod(0)] * 2),
    ("c_allreduce_max", {}, [X.max(0)] * 2),
    ("c_allreduce_min", {}, [X.min(0)] * 2),
    ("allreduce", {}, [X.sum(0)] * 2),
    ("allreduce", {"reduce_type": 1}, [X.prod(0)] * 2),
    ("allreduce", {"reduce_type": 2}, [X.max(0)] * 2),
    ("allreduce", {"reduce_type": 3}, [X.min(0)] * 2),
    ("c_broadcast", {"root": 1}, [X[1]] * 2),
    ("broadcast", {"root": 0}, [X[0]] * 2),
    ("c_allgather", {"nranks": 2}, ALL),
    ("c_reducescatter", {"nranks": 2}, X.sum(0)[:, None]),
    ("c_sync_calc_stream", {}, X),
    ("c_sync_comm_stream", {}, X),
]


@pytest.mark.parametrize(("type", "attrs", "expected"), REPLICATED)
def test_replicas_communicate(type, attrs, expected):
    np.testing.assert_allclose(on_replicas(type, X, **attrs), expected)


def test_any_dtype_is_broadcast():
    np.testing.assert_array_equal(on_replicas("broadcast", X > 0, root=0), [X[0] > 0] * 2)
    np.testing.assert_array_equal(on_replicas("c_broadcast", np.array([3, 7]), root=1), [7, 7])


def test_gradients_are_those_of_the_sum_of_all_losses():
    """Each is compared with jax.grad of the same function of all replicas' x, without replicas."""

    def expected(function):
        return jax.grad(lambda x: jnp.sum(function(x) * G))(jnp.asarray(X))

    cases = [
        (on_replicas("c_allreduce_sum_grad", G), lambda x: jnp.stack([x.sum(0)] * 2)),
        (on_replicas("c_allreduce_prod_grad", X, G), lambda x: jnp.stack([x.prod(0)] * 2)),
        (on_replicas("c_allreduce_max_grad", X, np.stack([X.max(0)] * 2), G), lambda x: jnp.stack([x.max(0)] * 2)),
        (on_replicas("c_allreduce_min_grad", X, np.stack([X.min(0)] * 2), G), lambda x: jnp.stack([x.min(0)] * 2)),
        (on_replicas("c_broadcast_grad", G, root=1), lambda x: jnp.stack([x[1]] * 2)),
    ]
    for found, function in cases:
        np.testing.assert_allclose(found, expected(function), rtol=1e-6)
    gathered = np.arange(16, dtype=np.float32).reshape(2, 4, 2)
    back = jax.grad(lambda x: jnp.sum(jnp.stack([x.reshape(4, 2)] * 2) * gathered))(jnp.asarray(X))
    np.testing.assert_allclose(on_replicas("c_allgather_grad", gathered), back)
    np.testing.assert_allclose(on_replicas("c_reducescatter_grad", G[:, :1]), [G[:, 0]] * 2)


def test_sparse_gradients_are_sums_of_all_rows():
    sparse = SelectedRows(jnp.array([[0, 2], [2, 3]]), jnp.asarray(X), 5)
    dense = jax.vmap(lambda x: x.to_dense())(on_replicas("c_allreduce_sum", sparse))
    np.testing.assert_allclose(dense[0], [[1, -2], [0, 0], [5, -2], [0.5, 4], [0, 0]])
    np.testing.assert_allclose(dense[0], dense[1])
    copied = jax.vmap(lambda x: x.to_dense())(on_replicas("c_broadcast", sparse, root=1))
    np.testing.assert_allclose(copied[0], [[0, 0], [0, 0], [2, -2], [0.5, 4], [0, 0]])
    with pytest.raises(TypeError, match="only sums and broadcasts"):
        on_replicas("c_allreduce_max", sparse)


def test_many_sums_are_one_collective():
    definition = lookup("c_allreduce_sum")
    values = [X, 2 * X[:, 0], np.arange(2), np.zeros((2, 1 << 15), np.float32)]

    def together(*own):
        found = definition.call_together([{"X": [value]} for value in own], {})
        return [each["Out"][0] for each in found]

    with replicas.traced_for(2):
        mapped = jax.vmap(together, axis_name=replicas.AXIS)
        for found, value in zip(mapped(*values), values, strict=True):
            np.testing.assert_allclose(found, [value.sum(0)] * 2)
        inner = jax.make_jaxpr(together, axis_env=[(replicas.AXIS, 2)])(*(value[0] for value in values))
    # Two float32 arrays travel as one; another dtype and the large array do not.
    assert sum("psum" in str(equation.primitive) for equation in inner.eqns) == 3


def test_one_replica_passes_values_on():
    x = jnp.asarray(X[0])
    for type in ("c_allreduce_sum", "c_allreduce_prod", "c_broadcast", "c_allgather", "c_reducescatter", "allreduce"):
        assert lookup(type).call({"X": [x]}, {})["Out"][0] is x


def test_programs_that_communicate_run_on_one_device():
    x = fluid.data("x", [4, 2])
    x.stop_gradient = False
    total = collective._c_allreduce(collective._c_broadcast(x))
    gathered = collective._c_allgather(total, 1)
    loss = fluid.layers.mean(collective._c_reducescatter(gathered, 1))
    (gradient,) = fluid.gradients(loss, x)
    fed = np.ones((4, 2), np.float32)
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": fed}, fetch_list=[loss, gradient])
    np.testing.assert_allclose(found[0], 1.0)
    np.testing.assert_allclose(found[1], fed / 8)


def test_wrong_arguments_are_named():
    x = fluid.data("x", [4, 2])
    with pytest.raises(TypeError, match="reduce_type must be one of sum, prod, max, min, not 'avg'"):
        collective._c_allreduce(x, reduce_type="avg")
    with pytest.raises(ValueError, match="x has 4 rows, which cannot be divided evenly among 3 replicas"):
        collective._c_reducescatter(x, 3)
    with pytest.raises(ValueError, match="root is 2; with 2 replicas"):
        on_replicas("c_broadcast", X, root=2)
    gathered = collective._c_allgather(x, 2)
    with pytest.raises(OpError, match="nranks is 2, but the program runs in 1 replicas"):
        fluid.Executor(fluid.CPUPlace()).run(feed={"x": X.reshape(4, 2)}, fetch_list=[gathered])
