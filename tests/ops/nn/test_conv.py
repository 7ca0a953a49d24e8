"""Convolutions of batches whose size is not known, as exported models have them, and with fused activations."""

import jax
import numpy as np
import pytest
from jax import export

from refluid.ops.core import registry
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


@pytest.mark.parametrize(
    ("type", "attrs", "expected"),
    [
        ("conv2d", {"fuse_activation": "relu"}, [[0, 8]]),
        ("conv2d", {"fuse_relu": True}, [[0, 8]]),
        ("conv2d", {"fuse_brelu": True}, [[0, 6]]),
        ("conv2d_transpose", {"fuse_relu": True}, [[0, 8]]),
        ("conv2d_transpose", {"fuse_activation": "leaky_relu", "fuse_alpha": 0.5}, [[-1, 8]]),
    ],
)
def test_an_activation_fused_into_a_convolution_is_applied(type, attrs, expected):
    arguments = {"Input": [np.float32([-1, 4]).reshape(1, 1, 1, 2)], "Filter": [np.full((1, 1, 1, 1), 2, np.float32)]}
    (out,) = registry.lookup(type).call(arguments, attrs)["Output"]
    np.testing.assert_array_equal(np.asarray(out)[0, 0], expected)


def test_an_unknown_activation_of_a_convolution_is_refused():
    arguments = {"Input": [np.zeros((1, 1, 2, 2), np.float32)], "Filter": [np.zeros((1, 1, 1, 1), np.float32)]}
    with pytest.raises(ValueError, match="fuse_activation must be relu, relu6, leaky_relu or swish, not gelu"):
        registry.lookup("conv2d").call(arguments, {"fuse_activation": "gelu"})
