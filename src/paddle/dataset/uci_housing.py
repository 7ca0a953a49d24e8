"""Boston housing: 506 houses with 13 features and a price, in lines of 14 numbers."""

import os
import tarfile
import tempfile

import numpy as np

from paddle.dataset import common
from refluid import charts
from refluid.readers import synthetic
from refluid.readers.dataset_files import named, opened
from refluid.readers.synthetic import houses

__all__ = ["test", "train"]

URL = "http://paddlemodels.bj.bcebos.com/uci_housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"
FLUID_URL_MODEL = "https://github.com/PaddlePaddle/book/raw/develop/01.fit_a_line/fluid/fit_a_line.fluid.tar"
FLUID_MD5_MODEL = "6e6dd637ccd5993961f68bfbde46090b"

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
        _, rows = _load()
        yield (rows[0, :-1],)

    return reader


def fetch():
    """Downloads the file."""
    _file()


def convert(path):
    """Writes all samples to recordio files in a folder; their names are spelled as Fluid spells them."""
    common.convert(path, train(), 1000, "uci_housing_train")
    common.convert(path, test(), 1000, "uci_houseing_test")


def fluid_model():
    """Downloads an inference model that Fluid trained on this data; returns the folder it is unpacked in."""
    archive = common.download(FLUID_URL_MODEL, "uci_housing", FLUID_MD5_MODEL, "fit_a_line.fluid.tar")
    folder = tempfile.mkdtemp()
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder


def feature_range(maximums, minimums):
    """Draws the ranges of the features as bars into ``image/ranges.png``, with matplotlib."""
    figure, axes = charts.figure()
    places = range(len(maximums))
    axes.bar(places, [high - low for high, low in zip(maximums, minimums, strict=True)], color="r", align="center")
    axes.set_title("feature scale")
    axes.set_xticks(places, feature_names[: len(maximums)], rotation=45)
    os.makedirs("image", exist_ok=True)
    figure.savefig("image/ranges.png", dpi=48)


def load_data(filename, feature_num=14, ratio=0.8):
    """Reads a file of houses; returns the training and the test set.

    Features are centered and divided by their range over all houses; the price is unchanged.
    """
    with opened(filename) as file:
        numbers = np.array(file.read().split(), dtype=np.float64)
    if numbers.size == 0 or numbers.size % feature_num:
        raise ValueError(
            f"{named(filename)} must hold lines of {feature_num} numbers, but it has {numbers.size} numbers"
        )
    rows = numbers.reshape(-1, feature_num)
    features = rows[:, :-1]
    spread = features.max(axis=0) - features.min(axis=0)
    features -= features.mean(axis=0)
    features /= np.where(spread == 0, 1, spread)
    cut = int(len(rows) * ratio)
    return rows[:cut], rows[cut:]


def _load():
    return load_data(_file())


def _file():
    return houses.text() if synthetic.wanted() else common.download(URL, "uci_housing", MD5)


def _reader(part):
    def reader():
        for row in _load()[part]:
            yield row[:-1], row[-1:]

    return reader
