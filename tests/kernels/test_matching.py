"""The kernel that matches priors with objects agrees with operations that any backend has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from refluid.kernels import matching as kernel
from refluid.ops.detection import matching as rules

OFFSETS = jnp.asarray([0, 3, 3, 9, 10])


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def distances(columns: int, ties: bool) -> jax.Array:
    values = np.random.RandomState(columns).uniform(-0.2, 1, (12, columns)).astype("float32")
    values = np.round(values * 4) / 4 if ties else values
    values[4, columns // 2] = np.nan
    return jnp.asarray(values)


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize(("columns", "threshold"), [(2, np.inf), (40, 0.5), (4, 1e-6)])
def test_the_kernel_matches_what_the_rule_matches(columns, threshold, ties):
    arguments = distances(columns, ties), OFFSETS
    found = [jax.jit(match, static_argnums=(2, 3))(*arguments, 6, threshold) for match in (kernel.match, rules._match)]
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert (found[0][0][1] == -1).all()  # there is nothing in the second image


def test_the_result_does_not_depend_on_how_work_is_shared(monkeypatch):
    results = []
    for worth in (1 << 40, 1):
        monkeypatch.setattr(kernel, "_WORTH_A_THREAD", worth)
        results.append(jax.jit(lambda x: kernel.match(x, OFFSETS, 6, 0.3))(distances(40, True)))
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_offsets_beyond_the_rows_are_clipped():
    found, _ = jax.jit(lambda x: kernel.match(x, jnp.asarray([0, -3, 400]), 6, 0.3))(distances(5, False))
    assert found.shape == (2, 5) and (found < 12).all()
