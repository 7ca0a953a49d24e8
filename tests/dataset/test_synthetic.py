"""REFLUID_SYNTHETIC_DATA=1 serves made-up data that can be learned, and touches no file."""

import numpy as np
import pytest

from paddle.dataset import common, mnist, uci_housing


@pytest.fixture(autouse=True)
def synthetic_data(tmp_path, monkeypatch):
    monkeypatch.setenv("REFLUID_SYNTHETIC_DATA", "1")
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path / "home"))
    yield
    assert not (tmp_path / "home").exists()


def least_squares(inputs, targets):
    padded = np.column_stack([inputs, np.ones(len(inputs))])
    solution = np.linalg.solve(padded.T @ padded + 1e-6 * np.eye(padded.shape[1]), padded.T @ targets)
    return lambda rows: np.column_stack([rows, np.ones(len(rows))]) @ solution


def test_digits_can_be_told_apart_by_a_linear_model():
    images, digits = (np.array(column) for column in zip(*mnist.train()(), strict=True))
    model = least_squares(images, np.eye(10)[digits])
    images, digits = (np.array(column) for column in zip(*mnist.test()(), strict=True))
    assert images.dtype == np.float32 and images.min() >= -1 and images.max() <= 1
    assert (model(images).argmax(1) == digits).mean() > 0.8


def test_prices_follow_the_features():
    features, price = (np.array(column) for column in zip(*uci_housing.train()(), strict=True))
    model = least_squares(features, price)
    features, price = (np.array(column) for column in zip(*uci_housing.test()(), strict=True))
    assert np.abs(model(features) - price).mean() < 2 < np.abs(price.mean() - price).mean()


def test_every_run_serves_the_same_data():
    first, second = next(mnist.train()()), next(mnist.train()())
    assert first[1] == second[1] and (first[0] == second[0]).all()


def test_zero_turns_the_switch_off(monkeypatch):
    from refluid.readers import synthetic

    for value in ("0", ""):
        monkeypatch.setenv("REFLUID_SYNTHETIC_DATA", value)
        assert not synthetic.wanted()
