"""CoNLL 2005: sentences in which the place of a word beside the verb tells its role."""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np

from refluid.readers.synthetic.archives import gz, tar

_PEOPLE = "Anna Ben Clara David Emma Frank Greta Hugo".split()
_THINGS = "books apples letters bread songs flowers boats maps".split()
_TIMES = "today yesterday often always".split()
# The forms of a verb, and its base form, which is what the annotation names.
_VERBS = {"sold": "sell", "bought": "buy", "wrote": "write", "found": "find", "lost": "lose", "wanted": "want"}
_WORDS = ["bos", "eos", *_PEOPLE, "and", "to", *_THINGS, *_TIMES, *_VERBS, "."]
_TAGS = ["A0", "A1", "AM-TMP", "V"]
_DIMENSION = 32


@lru_cache(maxsize=1)
def tests() -> bytes:
    """conll05st-tests.tar.gz: words and their annotation, a word per line, of 300 sentences with one or two verbs."""
    random = np.random.RandomState(51)
    words, annotation = [], []
    for _ in range(300):
        rows = _sentence(random)
        words += [row[0] for row in rows] + [""]
        annotation += ["  ".join(row[1:]) for row in rows] + [""]
    folder = "conll05st-release/test.wsj"
    return tar(
        {
            f"{folder}/words/test.wsj.words.gz": gz(_lines(words)),
            f"{folder}/props/test.wsj.props.gz": gz(_lines(annotation)),
        }
    )


def word_dictionary() -> bytes:
    """wordDict.txt: a word per line, the unknown word first."""
    return _lines(["<unk>", *_WORDS])


def verb_dictionary() -> bytes:
    """verbDict.txt: the base form of a verb per line."""
    return _lines(list(_VERBS.values()))


def tag_dictionary() -> bytes:
    """targetDict.txt: the beginning and the inside of every role, and no role."""
    return _lines([f"{place}-{tag}" for tag in _TAGS for place in "BI"] + ["O"])


@lru_cache(maxsize=1)
def embedding() -> bytes:
    """emb: a header of 16 bytes, then 32 numbers for each word of the dictionary."""
    rows = np.random.RandomState(52).normal(0, 0.1, (1 + len(_WORDS), _DIMENSION)).astype("<f4")
    return struct.pack("<iIQ", 0, 4, rows.size) + rows.tobytes()


def _sentence(random: np.random.RandomState) -> list[list[str]]:
    """Rows of word, verb or -, and the brackets of each verb's roles."""
    first = _clause(random)
    if random.randint(2):
        return [[word, verb, role] for word, verb, role in first] + [[".", "-", "*"]]
    second = _clause(random)
    rows = [[word, verb, role, "*"] for word, verb, role in first] + [["and", "-", "*", "*"]]
    return rows + [[word, verb, "*", role] for word, verb, role in second] + [[".", "-", "*", "*"]]


def _clause(random: np.random.RandomState) -> list[tuple[str, str, str]]:
    """Who does what, perhaps when: (word, verb, bracket)."""
    form = list(_VERBS)[random.randint(len(_VERBS))]
    who, what = _PEOPLE[random.randint(len(_PEOPLE))], _THINGS[random.randint(len(_THINGS))]
    rows = [(who, "-", "(A0*)")]
    if random.randint(3) == 0:
        other = _PEOPLE[random.randint(len(_PEOPLE))]
        rows = [(who, "-", "(A0*"), ("and", "-", "*"), (other, "-", "*)")]
    rows += [(form, _VERBS[form], "(V*)"), (what, "-", "(A1*)")]
    if random.randint(2):
        rows.append((_TIMES[random.randint(len(_TIMES))], "-", "(AM-TMP*)"))
    return rows


def _lines(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode("utf-8")
