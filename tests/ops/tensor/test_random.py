"""Random ops draw what they say, also where golden cases can only compare shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.ops.core.registry import lookup


def draw(type, attrs, inputs=None, seed=0):
    definition = lookup(type)
    services = {"key": jax.random.key(seed)} if definition.random else {}
    with jax.enable_x64(True):
        arguments = {slot: [jnp.asarray(value)] for slot, value in (inputs or {}).items()}
        outputs = definition.call(arguments, attrs, **services)
        return {slot: np.asarray(values[0]) for slot, values in outputs.items()}


def run(fetches, feed=None, program=None):
    return fluid.Executor(fluid.CPUPlace()).run(program, feed=feed or {}, fetch_list=fetches)


def test_uniform_random_stays_in_its_range():
    out = draw("uniform_random", {"shape": [200, 100], "min": -2.0, "max": 3.0})["Out"]
    assert out.dtype == np.float32
    assert out.min() >= -2.0 and out.max() < 3.0
    assert out.mean() == pytest.approx(0.5, abs=0.05)
    assert out.std() == pytest.approx(5 / 12**0.5, abs=0.05)


def test_uniform_random_sets_a_diagonal():
    attrs = {"shape": [5, 5], "diag_num": 5, "diag_step": 5, "diag_val": 7.0}
    out = draw("uniform_random", attrs)["Out"]
    np.testing.assert_array_equal(np.diag(out), np.full(5, 7.0))
    assert (np.abs(out[~np.eye(5, dtype=bool)]) <= 1.0).all()
    with pytest.raises(ValueError, match="do not fit 25 elements"):
        draw("uniform_random", {**attrs, "diag_num": 6})


def test_gaussian_random_has_mean_and_std():
    out = draw("gaussian_random", {"shape": [200, 100], "mean": 3.0, "std": 0.5, "dtype": 6})["Out"]
    assert out.dtype == np.float64
    assert (out.mean(), out.std()) == (pytest.approx(3.0, abs=0.02), pytest.approx(0.5, abs=0.02))


def test_truncated_gaussian_random_stays_within_two_deviations():
    out = draw("truncated_gaussian_random", {"shape": [200, 100], "mean": 1.0, "std": 2.0})["Out"]
    assert out.min() >= -3.0 and out.max() <= 5.0
    assert out.std() == pytest.approx(2 * 0.8796, abs=0.05)


def test_randint_covers_its_range():
    out = draw("randint", {"shape": [1000], "low": -2, "high": 3})["Out"]
    assert sorted(set(out.tolist())) == [-2, -1, 0, 1, 2]
    with pytest.raises(ValueError, match="high must be greater than low"):
        draw("randint", {"shape": [3], "low": 2, "high": 2})


def test_randperm_is_a_permutation():
    first, second = (draw("randperm", {"n": 50}, seed=seed)["Out"] for seed in (0, 1))
    assert sorted(first.tolist()) == list(range(50))
    assert first.tolist() != second.tolist()


def test_shuffle_batch_says_where_each_row_came_from():
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    outputs = draw("shuffle_batch", {}, {"X": x, "Seed": np.array([3])})
    np.testing.assert_array_equal(outputs["Out"], x[outputs["ShuffleIdx"]])
    assert sorted(outputs["ShuffleIdx"].tolist()) == list(range(6))
    again = draw("shuffle_batch", {}, {"X": x, "Seed": outputs["SeedOut"]})
    assert again["ShuffleIdx"].tolist() != outputs["ShuffleIdx"].tolist()


def test_random_crop_cuts_windows_at_different_places():
    image = np.arange(100, dtype=np.float32).reshape(10, 10)
    x = np.stack([image] * 40)
    outputs = draw("random_crop", {"shape": [4, 3]}, {"X": x, "Seed": np.array([5])})
    corners = outputs["Out"][:, 0, 0].astype(int)
    for crop, corner in zip(outputs["Out"], corners, strict=True):
        row, column = divmod(corner, 10)
        np.testing.assert_array_equal(crop, image[row : row + 4, column : column + 3])
    assert corners.max() // 10 <= 6 and (corners % 10).max() <= 7
    assert len(set(corners.tolist())) > 10


def test_random_crop_checks_its_window():
    with pytest.raises(ValueError, match="does not fit"):
        draw("random_crop", {"shape": [11, 3]}, {"X": np.zeros((2, 10, 10), np.float32)})


def test_random_crop_moves_on_at_each_run():
    x = fluid.layers.data("x", [20, 20])
    out = fluid.layers.random_crop(x, [5, 5], seed=3)
    run([], program=fluid.default_startup_program())
    image = np.tile(np.arange(400, dtype=np.float32).reshape(1, 20, 20), (8, 1, 1))
    first, second = (run([out], {"x": image})[0] for _ in range(2))
    assert first.shape == (8, 5, 5)
    assert not np.array_equal(first, second)


def test_dropout_keeps_the_mean_and_repeats_its_mask_in_the_gradient():
    x = fluid.layers.data("x", [1000])
    x.stop_gradient = False
    for implementation, kept_value in (("downgrade_in_infer", 1.0), ("upscale_in_train", 1.25)):
        out = fluid.layers.dropout(x, 0.2, dropout_implementation=implementation)
        gradient = fluid.gradients([out], [x])[0]
        found, found_gradient = run([out, gradient], {"x": np.ones((50, 1000), np.float32)})
        np.testing.assert_array_equal(found, found_gradient)
        np.testing.assert_allclose(np.unique(found), [0.0, kept_value])
        assert (found != 0).mean() == pytest.approx(0.8, abs=0.01)


def test_a_seed_fixes_what_is_dropped_and_the_program_seed_does_not():
    fluid.default_main_program().random_seed = 5
    x = fluid.layers.data("x", [200])
    fixed, moving = fluid.layers.dropout(x, 0.5, seed=3), fluid.layers.dropout(x, 0.5)
    runs = [run([fixed, moving], {"x": np.ones((4, 200), np.float32)}) for _ in range(2)]
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    assert not np.array_equal(runs[0][1], runs[1][1])
    assert not np.array_equal(runs[0][0], runs[0][1])


def test_dropout_takes_its_seed_from_a_tensor():
    x = np.ones((4, 50), np.float32)
    first, again, other = (
        draw("dropout", {"dropout_prob": 0.5}, {"X": x, "Seed": np.array([n], np.int32)}, seed=key)["Mask"]
        for n, key in ((7, 0), (7, 1), (8, 0))
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"dropout_prob": 1.5}, "between 0 and 1"),
        ({"dropout_implementation": "sometimes"}, "downgrade_in_infer or upscale_in_train"),
    ],
)
def test_dropout_checks_its_attributes(attrs, words):
    with pytest.raises(ValueError, match=words):
        draw("dropout", attrs, {"X": np.ones((2, 2), np.float32)})


def test_uniform_random_keeps_float64():
    out = fluid.layers.uniform_random([2, 3], "float64")
    assert run([out])[0].dtype == np.float64


@pytest.mark.parametrize("shape", [[], 3, "23"])
def test_random_layers_check_their_shape(shape):
    for layer in (fluid.layers.uniform_random, fluid.layers.gaussian_random):
        with pytest.raises(TypeError, match="shape must be a Variable or a non-empty list"):
            layer(shape)
