"""Large fed arrays are copied to where XLA reads them in place; nobody sees a difference."""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.alignment import aligned, phase_of
from refluid.lowering.staging import Shifted, Staging

SHAPE = (200, 200)  # large enough for XLA to copy it on another thread


def address(array):
    return array.__array_interface__["data"][0]


def misaligned(value):
    memory = np.empty(value.nbytes + 128, np.uint8)
    start = -address(memory) % 64 + 16
    array = memory[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    array[...] = value
    return array


def test_only_large_arrays_at_odd_addresses_are_copied():
    stage = Staging()
    small, large = misaligned(np.ones((4, 4), "float32")), misaligned(np.ones(SHAPE, "float32"))
    ready = aligned(SHAPE, np.dtype("float32"))
    first, second, copy = stage([small, ready, large])
    assert first is small
    assert second is ready
    assert copy is not large
    assert address(copy) % 64 == 0
    np.testing.assert_array_equal(copy, large)
    assert stage([small, ready, misaligned(large + 1)])[2] is copy  # kept from step to step


def test_arrays_that_are_not_contiguous_are_copied():
    turned = aligned(SHAPE, np.dtype("float32")).T
    turned[...] = np.arange(turned.size).reshape(SHAPE)
    (copy,) = Staging()([turned])
    assert copy.flags.c_contiguous
    np.testing.assert_array_equal(copy, turned)


def from_aligned_bytes(count):
    """Numbers in memory that belongs to bytes, as received messages have it."""
    memory = bytearray(4 * count + 64)
    start = -phase_of(np.frombuffer(memory, np.uint8)) % 64
    return np.frombuffer(memory, "float32", count, start)


@pytest.mark.parametrize("before", [0, 4, 12])
def test_the_end_of_an_aligned_array_is_read_in_place(before):
    memory = from_aligned_bytes(before + 40000)
    memory[:] = np.arange(memory.size)
    array = memory[before:].reshape(SHAPE)
    shifted = Shifted.of(array)
    assert (shifted.start, shifted.shape) == (before, SHAPE)
    assert np.shares_memory(shifted.memory, memory)
    np.testing.assert_array_equal(jax.jit(lambda x: x.array() * 2)(shifted), array * 2)


def test_arrays_that_are_no_such_end_stay_as_they_are():
    memory = from_aligned_bytes(50000)
    for array in (memory[1::2], memory[-100:], misaligned(np.ones(SHAPE, "float32")), np.ones(SHAPE)):
        assert Shifted.of(array) is array


@pytest.mark.parametrize("return_numpy", [True, False])
def test_what_was_fetched_or_kept_stays_when_other_values_are_fed(return_numpy):
    x = fluid.layers.data("x", list(SHAPE), append_batch_size=False)
    same, kept = fluid.layers.assign(x), fluid.layers.create_global_var(SHAPE, 0.0, "float32", persistable=True)
    fluid.layers.assign(x, kept)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())

    def run(value, fetches):
        return exe.run(feed={"x": misaligned(np.full(SHAPE, value, "float32"))}, fetch_list=fetches, **options)

    options = {"return_numpy": return_numpy}
    first = [run(1, [same, x, kept]) for _ in range(2)][-1]
    held = fluid.global_scope().find_var(kept.name).get_tensor().value
    run(2, [same, x, kept])
    run(3, [])
    for value in (*first, held):
        np.testing.assert_array_equal(np.array(value), np.ones(SHAPE, "float32"))
    assert np.array(fluid.global_scope().find_var(kept.name).get_tensor()).min() == 3


def test_threads_do_not_see_each_others_arrays():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.layers.data("x", [-1, SHAPE[1]], append_batch_size=False)
        total = fluid.layers.reduce_sum(x)
        for _ in range(20):  # long enough for threads to meet
            x = fluid.layers.matmul(x, x) * 0.0 + x
        after = fluid.layers.reduce_sum(x)
        program = total.block.program
    exe = fluid.Executor()

    def differs(number):
        value = misaligned(np.full(SHAPE, number, "float32"))
        results = exe.run(program, feed={"x": value}, fetch_list=[total, after])
        return [float(r) for r in results] != [number * value.size] * 2

    assert not differs(1.0)
    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(differs, [1.0, 2.0, 3.0, 4.0] * 10))


def test_threads_train_one_after_the_other():
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        x = fluid.layers.data("x", [4])
        weight = fluid.layers.create_parameter([4], "float32", "weight")
        loss = fluid.layers.reduce_sum(x * weight)
        fluid.optimizer.SGD(0.5).minimize(loss)
    exe = fluid.Executor()
    exe.run(startup, scope=scope)
    before = np.array(scope.find_var("weight").get_tensor())

    def train(number):
        exe.run(main, feed={"x": np.full((1, 4), number, "float32")}, fetch_list=[loss], scope=scope)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(train, range(40)))
    np.testing.assert_allclose(scope.find_var("weight").get_tensor(), before - 0.5 * sum(range(40)), rtol=1e-5)
