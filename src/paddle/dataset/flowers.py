"""Oxford flowers: pictures of 102 kinds. By default a sample is 150528 float32 numbers, 3 x 224 x 224, and the kind."""

import functools
import itertools
import multiprocessing

from paddle.dataset import common
from paddle.dataset.image import load_image_bytes, simple_transform
from paddle.reader import map_readers, xmap_readers
from refluid.readers import images, synthetic
from refluid.readers.dataset_files import named, tar_members
from refluid.readers.matlab import read_matrices
from refluid.readers.synthetic import flowers

__all__ = ["test", "train", "valid"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/flowers/102flowers.tgz"
DATA_MD5 = "52808999861908f626f3c1f4e79d11fa"
LABEL_URL = "http://paddlemodels.bj.bcebos.com/flowers/imagelabels.mat"
LABEL_MD5 = "e0620be6f572b9609742df49c70aed4d"
SETID_URL = "http://paddlemodels.bj.bcebos.com/flowers/setid.mat"
SETID_MD5 = "a5357ecc9cb78c4bef273ce3793fc85c"

# The original training set is small and the test set large; as in Fluid, they change places.
TRAIN_FLAG, TEST_FLAG, VALID_FLAG = "tstid", "trnid", "valid"

_MEAN = [103.94, 116.78, 123.68]  # of blue, green and red


def default_mapper(is_train, sample):
    """Decodes, resizes and crops a picture (for training in a random place, perhaps mirrored); subtracts the mean."""
    content, label = sample
    picture = simple_transform(load_image_bytes(content), 256, 224, is_train, mean=_MEAN)
    return picture.flatten().astype("float32"), label


train_mapper = functools.partial(default_mapper, True)
test_mapper = functools.partial(default_mapper, False)


def train(mapper=train_mapper, buffered_size=1024, use_xmap=True, cycle=False):
    """Returns a reader of the training pictures.

    Args:
      mapper: makes a sample of (encoded picture, kind from 0 on).
      buffered_size: how many samples threads prepare ahead.
      use_xmap: map in threads, which changes the order; otherwise in the loop that reads.
      cycle: begin again at the end.
    """
    return reader_creator(*_files(), TRAIN_FLAG, mapper, buffered_size, use_xmap, cycle)


def test(mapper=test_mapper, buffered_size=1024, use_xmap=True, cycle=False):
    """Returns a reader of the test pictures; see `train`."""
    return reader_creator(*_files(), TEST_FLAG, mapper, buffered_size, use_xmap, cycle)


def valid(mapper=test_mapper, buffered_size=1024, use_xmap=True):
    """Returns a reader of the validation pictures; see `train`."""
    return reader_creator(*_files(), VALID_FLAG, mapper, buffered_size, use_xmap)


def fetch():
    """Downloads the pictures, their kinds and the three sets."""
    _files()


def reader_creator(
    data_file, label_file, setid_file, dataset_name, mapper, buffered_size=1024, use_xmap=True, cycle=False
):
    """Returns a reader of the pictures of a set, in the order of the archive."""
    labels = dict(enumerate(_row(label_file, "labels"), 1))
    numbers = _row(setid_file, dataset_name)
    unknown = sorted(set(numbers) - set(labels))
    if unknown:
        raise ValueError(f"{named(setid_file)} names picture {unknown[0]}, which has no label in {named(label_file)}")
    kinds = {f"jpg/image_{number:05d}.jpg": labels[number] - 1 for number in numbers}

    def encoded():
        for _ in itertools.count() if cycle else range(1):
            for name, stream in tar_members(data_file, lambda name: name in kinds):
                yield stream.read(), kinds[name]

    if use_xmap:
        return xmap_readers(mapper, encoded, multiprocessing.cpu_count(), buffered_size)
    return map_readers(mapper, encoded)


def _row(source, name):
    matrices = read_matrices(source)
    if name not in matrices:
        raise ValueError(f"{named(source)} has no matrix {name!r}; it has {', '.join(matrices) or 'none'}")
    return matrices[name].reshape(-1).astype(int).tolist()


def _files():
    if synthetic.wanted():
        return flowers.pictures(images.library()), flowers.labels(), flowers.sets()
    return (
        common.download(DATA_URL, "flowers", DATA_MD5),
        common.download(LABEL_URL, "flowers", LABEL_MD5),
        common.download(SETID_URL, "flowers", SETID_MD5),
    )
