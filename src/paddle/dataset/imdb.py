"""IMDB: film reviews. A sample is the numbers of a review's words, and 0 if it is positive, 1 if negative.

Words are bytes, as in Fluid on Python 3; only the key ``"<unk>"`` is a str.
"""

import collections
import re
import string

from paddle.dataset import common
from refluid.readers import synthetic
from refluid.readers.dataset_files import tar_members
from refluid.readers.synthetic import reviews

__all__ = ["build_dict", "test", "train"]

URL = "https://dataset.bj.bcebos.com/imdb%2FaclImdb_v1.tar.gz"
MD5 = "7c2ac02c03563afcf9b574c7e56c153a"

_LABELLED = re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$")
_RARE = 150  # words of the usual dictionary occur more often than this


def train(word_idx):
    """Returns a reader of the training reviews: all positive ones, then all negative ones."""
    return _part("train", word_idx)


def test(word_idx):
    """Returns a reader of the test reviews: all positive ones, then all negative ones."""
    return _part("test", word_idx)


def word_dict():
    """Returns a dict of all words that occur more than 150 times, the most frequent first."""
    return build_dict(_LABELLED, _RARE)


def build_dict(pattern, cutoff):
    """Returns a dict of the words in files that match ``pattern``: word to number, in order of frequency.

    Args:
      cutoff: words that occur no more often than this are left out; they are ``"<unk>"``, the last number.
    """
    counts = collections.Counter()
    for words in tokenize(pattern):
        counts.update(words)
    frequent = sorted((item for item in counts.items() if item[1] > cutoff), key=lambda item: (-item[1], item[0]))
    numbers = {word: number for number, (word, _) in enumerate(frequent)}
    numbers["<unk>"] = len(numbers)
    return numbers


def tokenize(pattern):
    """Yields the words of each file whose name matches: in lower case, without punctuation."""
    for _, stream in tar_members(_archive(), lambda name: bool(pattern.match(name))):
        text = stream.read().rstrip(b"\n\r").translate(None, string.punctuation.encode("ascii"))
        yield text.lower().split()


def fetch():
    """Downloads the archive."""
    _archive()


def convert(path):
    """Writes all samples to recordio files in a folder."""
    numbers = word_dict()
    common.convert(path, train(numbers), 1000, "imdb_train")
    common.convert(path, test(numbers), 1000, "imdb_test")


def reader_creator(pos_pattern, neg_pattern, word_idx):
    """Returns a reader of the files that match two patterns; reads them immediately and keeps their numbers."""
    unknown = word_idx["<unk>"]
    samples = [
        ([word_idx.get(word, unknown) for word in words], label)
        for label, pattern in enumerate((pos_pattern, neg_pattern))
        for words in tokenize(pattern)
    ]

    def reader():
        yield from samples

    return reader


def _part(part, word_idx):
    positive, negative = (re.compile(rf"aclImdb/{part}/{kind}/.*\.txt$") for kind in ("pos", "neg"))
    return reader_creator(positive, negative, word_idx)


def _archive():
    return reviews.imdb() if synthetic.wanted() else common.download(URL, "imdb", MD5)
