"""Pascal VOC 2012, segmentation: a sample is a picture uint8[height, width, 3] and the class of each pixel.

Classes are uint8[height, width]: 0 for background, 1 to 20, and 255 for borders.
"""

import io
import tarfile

import numpy as np

from paddle.dataset import common
from refluid.readers import images, synthetic
from refluid.readers.dataset_files import named, opened
from refluid.readers.synthetic import scenes

__all__ = ["test", "train", "val"]

VOC_URL = "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar"
VOC_MD5 = "6cd6e144f989b92b3379bac3b3de84fd"
SET_FILE = "VOCdevkit/VOC2012/ImageSets/Segmentation/{}.txt"
DATA_FILE = "VOCdevkit/VOC2012/JPEGImages/{}.jpg"
LABEL_FILE = "VOCdevkit/VOC2012/SegmentationClass/{}.png"
CACHE_DIR = "voc2012"


def train():
    """Returns a reader of the pictures for training and validation."""
    return reader_creator(_archive(), "trainval")


def test():
    """Returns a reader of the pictures for training; those of the test set have no public labels."""
    return reader_creator(_archive(), "train")


def val():
    """Returns a reader of the pictures for validation."""
    return reader_creator(_archive(), "val")


def fetch():
    """Downloads the archive."""
    _archive()


def reader_creator(filename, sub_name):
    """Returns a reader of the pictures that the list ``sub_name`` of an archive names, in its order."""
    pillow = images.library()

    def reader():
        with opened(filename) as file, tarfile.open(fileobj=file) as archive:
            for line in _content(archive, SET_FILE.format(sub_name), filename).decode("utf-8").splitlines():
                names = (pattern.format(line.strip()) for pattern in (DATA_FILE, LABEL_FILE))
                yield tuple(np.array(pillow.open(io.BytesIO(_content(archive, name, filename)))) for name in names)

    return reader


def _content(archive, name, source):
    try:
        return archive.extractfile(name).read()
    except KeyError:
        raise ValueError(f"{named(source)} holds no {name}") from None


def _archive():
    return scenes.voc2012(images.library()) if synthetic.wanted() else common.download(VOC_URL, CACHE_DIR, VOC_MD5)
