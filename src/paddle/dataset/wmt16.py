"""WMT'16 (Multi30K): captions of pictures in English and German.

A sample is three lists of numbers: the sentence between ``<s>`` and ``<e>``, the translation after ``<s>``, and the
translation before ``<e>``.
"""

import collections

from paddle.dataset import common
from refluid.readers import synthetic
from refluid.readers.dataset_files import tar_member
from refluid.readers.synthetic import sentences

__all__ = ["fetch", "get_dict", "test", "train", "validation"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/wmt/wmt16.tar.gz"
DATA_MD5 = "0c38be43600334966403524a40dcd81e"
TOTAL_EN_WORDS, TOTAL_DE_WORDS = 11250, 19220
START_MARK, END_MARK, UNK_MARK = "<s>", "<e>", "<unk>"

_COLUMNS = {"en": 0, "de": 1}
_TOTALS = {"en": TOTAL_EN_WORDS, "de": TOTAL_DE_WORDS}


def train(src_dict_size, trg_dict_size, src_lang="en"):
    """Returns a reader of the training pairs.

    Args:
      src_dict_size, trg_dict_size: how many words the dictionaries have, with ``<s>``, ``<e>`` and ``<unk>``.
      src_lang: "en" to translate from English to German, "de" the other way.
    """
    return _reader("wmt16/train", src_dict_size, trg_dict_size, src_lang)


def test(src_dict_size, trg_dict_size, src_lang="en"):
    """Returns a reader of the test pairs; see `train`."""
    return _reader("wmt16/test", src_dict_size, trg_dict_size, src_lang)


def validation(src_dict_size, trg_dict_size, src_lang="en"):
    """Returns a reader of the validation pairs; see `train`."""
    return _reader("wmt16/val", src_dict_size, trg_dict_size, src_lang)


def get_dict(lang, dict_size, reverse=False):
    """Returns the dictionary of "en" or "de": word to number or, with ``reverse``, number to word."""
    _checked(lang)
    dictionary = _dictionary(_archive(), lang, dict_size)
    return {number: word for word, number in dictionary.items()} if reverse else dictionary


def fetch():
    """Downloads the archive."""
    _archive()


def convert(path, src_dict_size, trg_dict_size, src_lang):
    """Writes all samples to recordio files in a folder; the other arguments are those of `train`."""
    sizes = (src_dict_size, trg_dict_size, src_lang)
    common.convert(path, train(*sizes), 1000, "wmt16_train")
    common.convert(path, test(*sizes), 1000, "wmt16_test")
    common.convert(path, validation(*sizes), 1000, "wmt16_validation")


def reader_creator(tar_file, file_name, src_dict_size, trg_dict_size, src_lang):
    """Returns a reader of a file in an archive; the dictionaries are those of the training pairs."""
    other = "de" if _checked(src_lang) == "en" else "en"

    def reader():
        source_words = _dictionary(tar_file, src_lang, src_dict_size)
        target_words = _dictionary(tar_file, other, trg_dict_size)
        start, end = source_words[START_MARK], source_words[END_MARK]
        for pair in _pairs(tar_file, file_name):
            source = _numbers(pair[_COLUMNS[src_lang]], source_words)
            target = _numbers(pair[_COLUMNS[other]], target_words)
            yield [start, *source, end], [start, *target], [*target, end]

    return reader


def _reader(file_name, src_dict_size, trg_dict_size, src_lang):
    _checked(src_lang)
    return reader_creator(_archive(), file_name, src_dict_size, trg_dict_size, src_lang)


def _checked(lang):
    if lang not in _COLUMNS:
        raise ValueError(f'wmt16 has the languages "en" (English) and "de" (German), not {lang!r}')
    return lang


def _pairs(source, ending):
    for line in tar_member(source, ending):
        columns = line.decode("utf-8").strip().split("\t")
        if len(columns) == 2:
            yield columns


def _numbers(text, dictionary):
    return [dictionary.get(word, dictionary[UNK_MARK]) for word in text.split()]


def _dictionary(source, lang, dict_size):
    """The marks and the most frequent words; of equally frequent words those that occur first."""
    counts = collections.Counter()
    for pair in _pairs(source, "wmt16/train"):
        counts.update(pair[_COLUMNS[lang]].split())
    size = min(dict_size, _TOTALS[lang])
    words = [START_MARK, END_MARK, UNK_MARK, *(word for word, _ in counts.most_common())]
    return {word: number for number, word in enumerate(words[:size])}


def _archive():
    if synthetic.wanted():
        return sentences.wmt16()
    return common.download(DATA_URL, "wmt16", DATA_MD5, "wmt16.tar.gz")
