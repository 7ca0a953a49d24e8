"""Convolutions of batches whose size is not known, as exported models have them."""

import jax
import pytest
from jax import export

from refluid.ops.nn.conv.rules import conv2d, conv2d_transpose, conv3d
from refluid.ops.nn.pool import pool2d


@pytest.mark.parametrize(
    ("rule", "channels", "filters", "kernel", "groups"),
    [
        (conv2d, 1, 20, 5, 1),
        (conv2d, 3, 8, 7, 1),
        (conv2d, 32, 32, 3, 1),
        (conv2d, 8, 4, 1, 1),
        (conv2d, 8, 8, 3, 2),
        (conv2d, 8, 8, 3, 8),
        (conv2d, 32, 32, 3, 16),
        (conv2d_transpose, 4, 4, 3, 1),
        (conv3d, 2, 3, 3, 1),
    ],
)
def test_a_batch_of_any_size_stays_open(rule, channels, filters, kernel, groups):
    rank = 3 if rule is conv3d else 2
    (batch,) = export.symbolic_shape("batch")
    x = jax.ShapeDtypeStruct((batch, channels, *[9] * rank), "float32")
    w = jax.ShapeDtypeStruct((filters, channels // groups, *[kernel] * rank), "float32")
    out = jax.eval_shape(lambda x, w: rule(x, w, groups=groups), x, w)
    size = 9 + kernel - 1 if rule is conv2d_transpose else 9 - kernel + 1
    assert out.shape == (batch, filters, *[size] * rank)


@pytest.mark.parametrize("how", [{}, {"global_pooling": True}, {"adaptive": True}])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling_a_batch_of_any_size_stays_open(how, kind):
    (batch,) = export.symbolic_shape("batch")
    x = jax.ShapeDtypeStruct((batch, 2, 9, 9), "float32")
    assert jax.eval_shape(lambda x: pool2d(x, pooling_type=kind, ksize=(2, 2), **how), x).shape[0] == batch
