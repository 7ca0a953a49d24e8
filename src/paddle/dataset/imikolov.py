"""Penn Treebank, as prepared by Tomas Mikolov: n-grams or sequences of the numbers of words.

Words are bytes, as in Fluid on Python 3; only the keys ``"<s>"``, ``"<e>"`` and ``"<unk>"`` are str.
"""

import collections

from paddle.dataset import common
from refluid.readers import synthetic
from refluid.readers.dataset_files import tar_member
from refluid.readers.synthetic import sentences

__all__ = ["build_dict", "test", "train"]

URL = "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz"
MD5 = "30177ea32e27c525793142b6bf2c8e2d"

_TRAIN, _VALID = "simple-examples/data/ptb.train.txt", "simple-examples/data/ptb.valid.txt"


class DataType:
    """What a sample is: a tuple of n words, or a sequence and the same sequence one word later."""

    NGRAM = 1
    SEQ = 2


def train(word_idx, n, data_type=DataType.NGRAM):
    """Returns a reader of the training text.

    Args:
      word_idx: the dict of `build_dict`.
      n: the length of n-grams; for sequences, longer ones are left out, and 0 keeps all.
      data_type: ``DataType.NGRAM`` or ``DataType.SEQ``.
    """
    return reader_creator(_TRAIN, word_idx, n, data_type)


def test(word_idx, n, data_type=DataType.NGRAM):
    """Returns a reader of the validation text; see `train`."""
    return reader_creator(_VALID, word_idx, n, data_type)


def build_dict(min_word_freq=50):
    """Returns a dict of the words that occur more than ``min_word_freq`` times, the most frequent first."""
    counts = collections.Counter()
    for ending in (_VALID, _TRAIN):
        word_count(tar_member(_archive(), ending), counts)
    frequent = sorted((item for item in counts.items() if item[1] > min_word_freq), key=_by_frequency)
    numbers = {word: number for number, (word, _) in enumerate(frequent)}
    numbers["<unk>"] = len(numbers)
    return numbers


def word_count(f, word_freq=None):
    """Adds the words of some lines to a dict of counts; every line also has a ``"<s>"`` and an ``"<e>"``."""
    counts = collections.defaultdict(int) if word_freq is None else word_freq
    for line in f:
        for word in [*line.strip().split(), "<s>", "<e>"]:
            counts[word] += 1
    return counts


def fetch():
    """Downloads the archive."""
    _archive()


def convert(path):
    """Writes all samples to recordio files in a folder."""
    numbers = build_dict()
    common.convert(path, train(numbers, 5), 1000, "imikolov_train")
    common.convert(path, test(numbers, 5), 1000, "imikolov_test")


def reader_creator(filename, word_idx, n, data_type):
    """Returns a reader of the lines of the files whose names end like ``filename``."""
    if data_type not in (DataType.NGRAM, DataType.SEQ):
        raise ValueError(f"imikolov: data_type must be DataType.NGRAM (1) or DataType.SEQ (2), not {data_type!r}")
    if data_type == DataType.NGRAM and n < 1:
        raise ValueError(f"imikolov: n-grams have at least one word, but n is {n}")
    archive, samples = _archive(), _grams if data_type == DataType.NGRAM else _sequences

    def reader():
        unknown = word_idx["<unk>"]
        for line in tar_member(archive, filename):
            words = [word_idx.get(word, unknown) for word in line.strip().split()]
            yield from samples(words, word_idx, n)

    return reader


def _grams(words, word_idx, n):
    line = [word_idx["<s>"], *words, word_idx["<e>"]]
    for end in range(n, len(line) + 1):
        yield tuple(line[end - n : end])


def _sequences(words, word_idx, n):
    source, target = [word_idx["<s>"], *words], [*words, word_idx["<e>"]]
    if n <= 0 or len(source) <= n:
        yield source, target


def _by_frequency(item):
    word, count = item
    return -count, word.encode() if isinstance(word, str) else word


def _archive():
    return sentences.treebank() if synthetic.wanted() else common.download(URL, "imikolov", MD5)
