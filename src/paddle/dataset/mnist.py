"""MNIST: handwritten digits. A sample is 784 float32 pixels in [-1, 1] and the digit."""

import gzip
import struct

import numpy as np

from paddle.dataset import common
from refluid.readers import synthetic
from refluid.readers.dataset_files import named, opened
from refluid.readers.synthetic import digits

__all__ = ["test", "train"]

URL_PREFIX = "https://dataset.bj.bcebos.com/mnist/"
TEST_IMAGE_URL = URL_PREFIX + "t10k-images-idx3-ubyte.gz"
TEST_IMAGE_MD5 = "9fb629c4189551a2d022fa330f9573f3"
TEST_LABEL_URL = URL_PREFIX + "t10k-labels-idx1-ubyte.gz"
TEST_LABEL_MD5 = "ec29112dd5afa0611ce80d1b7f02629c"
TRAIN_IMAGE_URL = URL_PREFIX + "train-images-idx3-ubyte.gz"
TRAIN_IMAGE_MD5 = "f68b3c2dcbeaaa9fbdd348bbdeb94873"
TRAIN_LABEL_URL = URL_PREFIX + "train-labels-idx1-ubyte.gz"
TRAIN_LABEL_MD5 = "d53e105ee54ea40749a09fcbcd1e9432"

_IMAGES_MAGIC, _LABELS_MAGIC = 2051, 2049


def train():
    """Returns a reader of the training digits."""
    return reader_creator(*_train_files(), 100)


def test():
    """Returns a reader of the test digits."""
    return reader_creator(*_test_files(), 100)


def fetch():
    """Downloads all four files."""
    _train_files()
    _test_files()


def convert(path):
    """Writes all samples to recordio files in a folder; their names are spelled as Fluid spells them."""
    common.convert(path, train(), 1000, "minist_train")
    common.convert(path, test(), 1000, "minist_test")


def reader_creator(image_filename, label_filename, buffer_size):
    """Returns a reader of a pair of gzipped idx files, decoded ``buffer_size`` images at a time."""
    images, labels = image_filename, label_filename

    def reader():
        with (
            opened(images) as zipped_images,
            opened(labels) as zipped_labels,
            gzip.open(zipped_images) as image_file,
            gzip.open(zipped_labels) as label_file,
        ):
            count, height, width = _header(image_file, ">4i", _IMAGES_MAGIC, "pictures", images)
            (label_count,) = _header(label_file, ">2i", _LABELS_MAGIC, "labels", labels)
            if count != label_count:
                raise ValueError(f"{named(images)} has {count} images, but {named(labels)} has {label_count} labels")
            size = height * width
            for start in range(0, count, buffer_size):
                step = min(buffer_size, count - start)
                pixels = np.frombuffer(_read_exactly(image_file, step * size, images), np.uint8)
                pictures = pixels.reshape(step, size).astype(np.float32) / 255.0 * 2.0 - 1.0
                yield from zip(pictures, _read_exactly(label_file, step, labels), strict=True)

    return reader


def _header(file, layout, magic, what, source):
    found, *sizes = struct.unpack(layout, _read_exactly(file, struct.calcsize(layout), source))
    if found != magic:
        raise ValueError(f"{named(source)} is not an idx file of {what}: it starts with {found}, not {magic}")
    return sizes


def _read_exactly(file, size, source):
    data = file.read(size)
    if len(data) != size:
        raise ValueError(f"{named(source)} is truncated: expected {size} more bytes, found {len(data)}")
    return data


def _train_files():
    if synthetic.wanted():
        return digits.mnist(6000, seed=0)
    images = common.download(TRAIN_IMAGE_URL, "mnist", TRAIN_IMAGE_MD5)
    return images, common.download(TRAIN_LABEL_URL, "mnist", TRAIN_LABEL_MD5)


def _test_files():
    if synthetic.wanted():
        return digits.mnist(1000, seed=1)
    images = common.download(TEST_IMAGE_URL, "mnist", TEST_IMAGE_MD5)
    return images, common.download(TEST_LABEL_URL, "mnist", TEST_LABEL_MD5)
