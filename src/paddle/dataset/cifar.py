"""CIFAR: small pictures of things. A sample is 3072 float32 pixels in [0, 1], colour by colour, and the class."""

import numpy as np

from paddle.dataset import common
from refluid.files.pickles import PickleError, read_pickle
from refluid.readers import synthetic
from refluid.readers.dataset_files import named, tar_members
from refluid.readers.synthetic import pictures

__all__ = ["test10", "test100", "train10", "train100"]

URL_PREFIX = "https://dataset.bj.bcebos.com/cifar/"
CIFAR10_URL = URL_PREFIX + "cifar-10-python.tar.gz"
CIFAR10_MD5 = "c58f30108f718f92721af3b95e74349a"
CIFAR100_URL = URL_PREFIX + "cifar-100-python.tar.gz"
CIFAR100_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"


def train100():
    """Returns a reader of the training pictures of 100 classes."""
    return reader_creator(_cifar100(), "train")


def test100():
    """Returns a reader of the test pictures of 100 classes."""
    return reader_creator(_cifar100(), "test")


def train10(cycle=False):
    """Returns a reader of the training pictures of 10 classes; with ``cycle`` it begins again at the end."""
    return reader_creator(_cifar10(), "data_batch", cycle=cycle)


def test10(cycle=False):
    """Returns a reader of the test pictures of 10 classes; with ``cycle`` it begins again at the end."""
    return reader_creator(_cifar10(), "test_batch", cycle=cycle)


def fetch():
    """Downloads both archives."""
    _cifar10()
    _cifar100()


def convert(path):
    """Writes all samples to recordio files in a folder."""
    common.convert(path, train100(), 1000, "cifar_train100")
    common.convert(path, test100(), 1000, "cifar_test100")
    common.convert(path, train10(), 1000, "cifar_train10")
    common.convert(path, test10(), 1000, "cifar_test10")


def reader_creator(filename, sub_name, cycle=False):
    """Returns a reader of the batches in an archive whose names contain ``sub_name``, in the archive's order."""

    def reader():
        while True:
            for name, stream in tar_members(filename, lambda name: sub_name in name):
                yield from _samples(stream.read(), f"{name} in {named(filename)}")
            if not cycle:
                return

    return reader


def _samples(content, name):
    try:
        batch = read_pickle(content)
        pixels, labels = batch["data"], batch.get("labels", batch.get("fine_labels"))
    except (PickleError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is not a batch of CIFAR pictures: {error!r}") from error
    if not isinstance(pixels, np.ndarray) or labels is None or len(labels) != len(pixels):
        raise ValueError(f"{name} is not a batch of CIFAR pictures: pictures and labels do not match")
    for picture, label in zip(pixels, labels, strict=True):
        yield (picture / 255.0).astype(np.float32), int(label)


def _cifar10():
    return pictures.cifar10() if synthetic.wanted() else common.download(CIFAR10_URL, "cifar", CIFAR10_MD5)


def _cifar100():
    return pictures.cifar100() if synthetic.wanted() else common.download(CIFAR100_URL, "cifar", CIFAR100_MD5)
