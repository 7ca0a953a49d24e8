"""WMT'14: sentences and their translations, with the dictionaries that belong to them.

A sample is three lists of numbers: the sentence between ``<s>`` and ``<e>``, the translation after ``<s>``, and the
translation before ``<e>``.
"""

import itertools

from paddle.dataset import common
from refluid.readers import synthetic
from refluid.readers.dataset_files import named, tar_member
from refluid.readers.synthetic import sentences

__all__ = ["get_dict", "test", "train"]

# The parts that the original site offers, for `fetch` of old scripts only.
URL_DEV_TEST = "http://www-lium.univ-lemans.fr/~schwenk/cslm_joint_paper/data/dev+test.tgz"
MD5_DEV_TEST = "7d7897317ddd8ba0ae5c5fa7248d3ff5"
URL_TRAIN = "http://paddlemodels.bj.bcebos.com/wmt/wmt14.tgz"
MD5_TRAIN = "0791583d57d5beb693b9414c5b36798c"
URL_MODEL = "http://paddlemodels.bj.bcebos.com/wmt%2Fwmt14.tgz"
MD5_MODEL = "0cb4a5366189b6acba876491c8724fa3"

START, END, UNK = "<s>", "<e>", "<unk>"
UNK_IDX = 2

_LONGEST = 80  # longer pairs are left out


def train(dict_size):
    """Returns a reader of the training pairs; words beyond the first ``dict_size`` of a dictionary are ``<unk>``."""
    return reader_creator(_archive(), "train/train", dict_size)


def test(dict_size):
    """Returns a reader of the test pairs; see `train`."""
    return reader_creator(_archive(), "test/test", dict_size)


def gen(dict_size):
    """Returns a reader of the pairs to try a model on; see `train`."""
    return reader_creator(_archive(), "gen/gen", dict_size)


def get_dict(dict_size, reverse=True):
    """Returns the two dictionaries: number to word or, with ``reverse=False``, word to number."""
    pair = _dictionaries(_archive(), dict_size)
    return tuple({number: word for word, number in one.items()} for one in pair) if reverse else pair


def fetch():
    """Downloads the archive."""
    _archive()


def convert(path):
    """Writes all samples to recordio files in a folder."""
    common.convert(path, train(30000), 1000, "wmt14_train")
    common.convert(path, test(30000), 1000, "wmt14_test")


def reader_creator(tar_file, file_name, dict_size):
    """Returns a reader of the files in an archive whose names end like ``file_name``."""

    def reader():
        source_words, target_words = _dictionaries(tar_file, dict_size)
        for line in tar_member(tar_file, file_name):
            columns = line.decode("utf-8").strip().split("\t")
            if len(columns) != 2:
                continue
            source = _numbers([START, *columns[0].split(), END], source_words)
            target = _numbers(columns[1].split(), target_words)
            if len(source) <= _LONGEST and len(target) <= _LONGEST:
                yield source, [target_words[START], *target], [*target, target_words[END]]

    return reader


def _numbers(words, dictionary):
    return [dictionary.get(word, UNK_IDX) for word in words]


def _dictionaries(source, dict_size):
    return _dictionary(source, "src.dict", dict_size), _dictionary(source, "trg.dict", dict_size)


def _dictionary(source, ending, dict_size):
    lines = itertools.islice(tar_member(source, ending), dict_size)
    dictionary = {line.decode("utf-8").strip(): number for number, line in enumerate(lines)}
    if dictionary.get(START) is None or dictionary.get(END) is None:
        raise ValueError(f"wmt14: the first {dict_size} words of {ending} in {named(source)} lack {START} or {END}")
    return dictionary


def _archive():
    return sentences.wmt14() if synthetic.wanted() else common.download(URL_TRAIN, "wmt14", MD5_TRAIN)
