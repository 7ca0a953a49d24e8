"""Kernels compile where nothing can be cached, too."""

from refluid.datasets.kernels.compiled import kernel


def test_a_kernel_needs_no_cache():
    names = {}
    exec("def double(x):\n    return 2 * x", names)  # numba finds no file whose folder could hold a cache
    assert kernel("int64(int64)")(names["double"])(21) == 42
