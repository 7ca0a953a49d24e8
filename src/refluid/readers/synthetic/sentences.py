"""Sentences of a small grammar: the Penn Treebank archive, and translations for WMT'14 and WMT'16."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from refluid.readers.synthetic.archives import tar

_ARTICLES = "the a every this".split()
_ADJECTIVES = "old small red quiet happy strong".split()
_NOUNS = "dog cat bird child woman man king teacher river house tree boat".split()
_VERBS = "sees follows likes finds paints carries hears watches".split()
_PLACES = "near behind under above".split()

# The other language: every word in another form.
_WORDS = [*_ARTICLES, *_ADJECTIVES, *_NOUNS, *_VERBS, *_PLACES]


@lru_cache(maxsize=1)
def treebank() -> bytes:
    """simple-examples.tgz: the files of the Penn Treebank that language models use; rare words are <unk>."""
    random = np.random.RandomState(31)
    files = {}
    for part, count in (("test", 100), ("train", 1500), ("valid", 150)):
        lines = (" " + " ".join(_sentence(random)) + " \n" for _ in range(count))
        files[f"./simple-examples/data/ptb.{part}.txt"] = "".join(lines).encode("ascii")
    return tar(files)


@lru_cache(maxsize=1)
def wmt14() -> bytes:
    """wmt14.tgz: pairs of sentences, and the dictionaries of both languages."""
    random = np.random.RandomState(32)
    marks = ["<s>", "<e>", "<unk>"]
    files = {
        "wmt14/src.dict": _lines([*marks, *_WORDS]),
        "wmt14/trg.dict": _lines([*marks, *map(_translated, _WORDS)]),
    }
    for part, count in (("train", 1000), ("test", 100), ("gen", 20)):
        files[f"wmt14/{part}/{part}"] = _lines(["\t".join(_pair(random)) for _ in range(count)])
    return tar(files)


@lru_cache(maxsize=1)
def wmt16() -> bytes:
    """wmt16.tar.gz: pairs of sentences, English first."""
    random = np.random.RandomState(33)
    files = {}
    for part, count in (("test", 100), ("train", 1000), ("val", 100)):
        files[f"wmt16/{part}"] = _lines(["\t".join(_pair(random)) for _ in range(count)])
    return tar(files)


def _sentence(random: np.random.RandomState) -> list[str]:
    """A subject, what it does and to whom; each word narrows down the next."""
    subject = random.randint(len(_NOUNS))
    words = [*_noun_phrase(random, subject), _VERBS[(subject + _rarely(random)) % len(_VERBS)]]
    other = (subject + 1 + _rarely(random)) % len(_NOUNS)
    words += _noun_phrase(random, other)
    if random.randint(3) == 0:
        words += [_PLACES[other % len(_PLACES)], *_noun_phrase(random, (other + 5) % len(_NOUNS))]
    if random.randint(20) == 0:
        words[random.randint(len(words))] = "<unk>"
    return words


def _noun_phrase(random: np.random.RandomState, noun: int) -> list[str]:
    adjective = [_ADJECTIVES[noun % len(_ADJECTIVES)]] if random.randint(2) else []
    article = noun if random.randint(4) else random.randint(len(_ARTICLES))
    return [_ARTICLES[article % len(_ARTICLES)], *adjective, _NOUNS[noun]]


def _rarely(random: np.random.RandomState) -> int:
    return int(random.randint(4) == 0)


def _pair(random: np.random.RandomState) -> tuple[str, str]:
    """A sentence and its translation: word for word, but the verb comes last."""
    words = _sentence(random)
    verbs = [word for word in words if word in _VERBS]
    moved = [word for word in words if word not in _VERBS] + verbs
    return " ".join(words), " ".join(map(_translated, moved))


def _translated(word: str) -> str:
    return word if word.startswith("<") else word[::-1] + "o"


def _lines(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode("utf-8")
