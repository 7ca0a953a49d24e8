"""Boston housing: 506 houses with 13 features and a price, in lines of 14 numbers."""

import numpy as np

from paddle.dataset import common
from refluid.readers import synthetic

__all__ = ["test", "train"]

URL = "http://paddlemodels.bj.bcebos.com/uci_housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"

feature_names = ["CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"]


def train():
    """Returns a reader of (13 features, price) for the first four fifths of the houses."""
    return _reader(0)


def test():
    """Returns a reader of (13 features, price) for the last fifth of the houses."""
    return _reader(1)


def predict_reader():
    """Returns a reader of the features of the first test house."""

    def reader():
        _, houses = _load()
        yield (houses[0, :-1],)

    return reader


def fetch():
    """Downloads the file."""
    return common.download(URL, "uci_housing", MD5)


def load_data(filename, feature_num=14, ratio=0.8):
    """Reads a file of houses; returns the training and the test set.

    Features are centered and divided by their range over all houses; the price is unchanged.
    """
    with open(filename, encoding="ascii") as file:
        return _parse(file.read(), feature_num, ratio, filename)


def _parse(text, feature_num, ratio, origin):
    numbers = np.array(text.split(), dtype=np.float64)
    if numbers.size == 0 or numbers.size % feature_num:
        raise ValueError(f"{origin} must hold lines of {feature_num} numbers, but it has {numbers.size} numbers")
    houses = numbers.reshape(-1, feature_num)
    features = houses[:, :-1]
    spread = features.max(axis=0) - features.min(axis=0)
    features -= features.mean(axis=0)
    features /= np.where(spread == 0, 1, spread)
    cut = int(len(houses) * ratio)
    return houses[:cut], houses[cut:]


def _load():
    if synthetic.wanted():
        return _parse(synthetic.housing_text(), 14, 0.8, "the synthetic data")
    return load_data(fetch())


def _reader(part):
    def reader():
        for house in _load()[part]:
            yield house[:-1], house[-1:]

    return reader
