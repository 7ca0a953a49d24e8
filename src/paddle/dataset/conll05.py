"""CoNLL 2005: semantic roles, of which the test set is free. A sample is nine lists, one number per word of a sentence.

Words; the words two before, one before, at, one after and two after the verb, each repeated; the verb, repeated; 1 at
these five words and 0 elsewhere; roles.
"""

import atexit
import gzip
import os
import re
import tempfile
from functools import lru_cache

from paddle.dataset import common
from refluid.readers import synthetic
from refluid.readers.dataset_files import named, tar_members, text_lines
from refluid.readers.synthetic import roles

__all__ = ["get_dict", "get_embedding", "test"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/conll05st/conll05st-tests.tar.gz"
DATA_MD5 = "387719152ae52d60422c016e92a742fc"
WORDDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FwordDict.txt"
WORDDICT_MD5 = "ea7fb7d4c75cc6254716f0177a506baa"
VERBDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FverbDict.txt"
VERBDICT_MD5 = "0d2977293bbb6cbefab5b0f97db1e77c"
TRGDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FtargetDict.txt"
TRGDICT_MD5 = "d8c7f03ceb5fc2e5a0fa7503a4353751"
EMB_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2Femb"
EMB_MD5 = "bf436eb0faa1f6f9103017f8be57cdb7"

UNK_IDX = 0

_BRACKET = re.compile(r"(?:\(([^()*]+))?\*(\))?")
_FOLDER = "conll05st-release/test.wsj"
_WORDS, _ROLES = f"{_FOLDER}/words/test.wsj.words.gz", f"{_FOLDER}/props/test.wsj.props.gz"


def test():
    """Returns a reader of the test sentences, once for each of their verbs."""
    return reader_creator(corpus_reader(_data(), _WORDS, _ROLES), *get_dict())


def get_dict():
    """Returns three dicts, of words, verbs and roles, to numbers."""
    wanted = synthetic.wanted()
    words = roles.word_dictionary() if wanted else common.download(WORDDICT_URL, "conll05st", WORDDICT_MD5)
    verbs = roles.verb_dictionary() if wanted else common.download(VERBDICT_URL, "conll05st", VERBDICT_MD5)
    tags = roles.tag_dictionary() if wanted else common.download(TRGDICT_URL, "conll05st", TRGDICT_MD5)
    return load_dict(words), load_dict(verbs), load_label_dict(tags)


def get_embedding():
    """Returns the path of a file with 32 float32 numbers per word, after a header of 16 bytes."""
    return _synthetic_embedding() if synthetic.wanted() else common.download(EMB_URL, "conll05st", EMB_MD5)


def fetch():
    """Downloads all five files."""
    _data()
    get_dict()
    get_embedding()


def convert(path):
    """Writes all samples to recordio files in a folder; their names are spelled as Fluid spells them."""
    common.convert(path, test(), 1000, "conl105_train")
    common.convert(path, test(), 1000, "conl105_test")


def load_dict(filename):
    """Reads a file with a word per line; returns a dict of words to line numbers from 0 on."""
    return {word: number for number, word in enumerate(text_lines(filename))}


def load_label_dict(filename):
    """Reads a file of roles; returns a dict with two numbers per role, for its beginning and its inside, and "O" last.

    Fluid numbers roles in the order of a set, which differs from run to run; here it is the order of the file.
    """
    tags = dict.fromkeys(line[2:] for line in text_lines(filename) if line.startswith(("B-", "I-")))
    names = [f"{place}-{tag}" for tag in tags for place in "BI"]
    return {name: number for number, name in enumerate([*names, "O"])}


def corpus_reader(data_path, words_name, props_name):
    """Returns a reader of (words, verb, roles) of an archive's sentences, once for each verb of a sentence."""

    def reader():
        words, rows = [], []
        for number, (word, row) in enumerate(_word_rows(data_path, words_name, props_name), 1):
            if word.strip():
                words.append(word.strip())
                rows.append((number, row.split()))
                continue
            yield from _by_verb(words, rows, f"{props_name} in {named(data_path)}")
            words, rows = [], []

    return reader


def reader_creator(corpus_reader, word_dict=None, predicate_dict=None, label_dict=None):
    """Returns a reader of samples made of the sentences of ``corpus_reader``."""

    def reader():
        for words, verb, tags in corpus_reader():
            if "B-V" not in tags:
                raise ValueError(
                    f"conll05: a sentence has no word with the role V of its verb {verb}: {' '.join(words)}"
                )
            at, length = tags.index("B-V"), len(words)
            near = [words[at + shift] if 0 <= at + shift < length else _outside(shift) for shift in range(-2, 3)]
            context = [[_number(word_dict, word)] * length for word in near]
            mark = [int(abs(place - at) <= 2) for place in range(length)]
            yield (
                [_number(word_dict, word) for word in words],
                *context,
                [_number(predicate_dict, verb)] * length,
                mark,
                [_label(label_dict, tag) for tag in tags],
            )

    return reader


def _word_rows(source, words_name, props_name):
    """Lines of the two files side by side; a line without a word ends a sentence."""
    files = {}
    for name, stream in tar_members(source, lambda name: name in (words_name, props_name)):
        files[name] = [*gzip.decompress(stream.read()).decode("utf-8").rstrip().split("\n"), ""]
    if len(files) != 2:
        raise ValueError(f"{named(source)} lacks {words_name} or {props_name}")
    words, rows = files[words_name], files[props_name]
    if len(words) != len(rows):
        raise ValueError(f"{named(source)}: {words_name} has {len(words)} lines, but {props_name} has {len(rows)}")
    return zip(words, rows, strict=True)


def _by_verb(words, rows, name):
    """(words, verb, roles) for each verb of a sentence: rows are the verb or -, and a column of brackets per verb."""
    if not rows:
        return
    width = len(rows[0][1])
    for number, row in rows:
        if len(row) != width:
            raise ValueError(f"{name}, line {number}: expected {width} columns, found {len(row)}")
    verbs = [row[0] for _, row in rows if row[0] != "-"]
    if len(verbs) != width - 1:
        raise ValueError(f"{name}, line {rows[0][0]}: a sentence with {len(verbs)} verbs has {width - 1} columns")
    for column, verb in enumerate(verbs, 1):
        yield words, verb, _tags([(number, row[column]) for number, row in rows], name)


def _tags(cells, name):
    """The role of each word, from brackets such as (A0*, *, *), (V*)."""
    tags, role = [], "O"
    for number, cell in cells:
        match = _BRACKET.fullmatch(cell)
        if match is None:
            raise ValueError(f"{name}, line {number}: expected a bracket such as (A0*, * or *), found {cell!r}")
        begins, ends = match.groups()
        role = begins or role
        tags.append("O" if role == "O" else f"{'B' if begins else 'I'}-{role}")
        role = "O" if ends else role
    return tags


def _outside(shift):
    return "bos" if shift < 0 else "eos"


def _number(dictionary, word):
    return dictionary.get(word, UNK_IDX)


def _label(dictionary, tag):
    if tag not in dictionary:
        raise ValueError(f"conll05: the role {tag} is not in the dictionary of roles")
    return dictionary[tag]


def _data():
    return roles.tests() if synthetic.wanted() else common.download(DATA_URL, "conll05st", DATA_MD5)


@lru_cache(maxsize=1)
def _synthetic_embedding():
    # Scripts open the file themselves, so it must be one; it goes when the process ends.
    handle, path = tempfile.mkstemp(prefix="refluid-embedding-")
    atexit.register(lambda: os.path.exists(path) and os.unlink(path))
    with os.fdopen(handle, "wb") as file:
        file.write(roles.embedding())
    return path
