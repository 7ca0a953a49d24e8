"""Film reviews whose words tell the opinion: the archive of IMDB and nltk's corpus of film reviews."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from refluid.readers.synthetic.archives import tar, zip_

_GOOD = "wonderful moving brilliant charming clever superb touching gripping delightful fresh honest masterful".split()
_BAD = "dull awful boring clumsy tedious lazy stupid bland messy hollow painful forgettable".split()
_PLAIN = """
    the a this that film story plot actor scene music camera director ending with without and but very it was is of
    one most last first night city hero family war love part role line
""".split()
_MARKS = [".", ",", "!", " -", ";", "..."]


@lru_cache(maxsize=1)
def imdb() -> bytes:
    """aclImdb_v1.tar.gz: 200 training and 50 test reviews of each kind, and some without a label."""
    random = np.random.RandomState(21)
    files = {}
    for part, count in (("test", 50), ("train", 200)):
        for kind, stars in (("neg", "1234"), ("pos", "789")):
            for number in range(count):
                name = f"aclImdb/{part}/{kind}/{number}_{stars[number % len(stars)]}.txt"
                files[name] = _review(random, kind, 60).encode("ascii")
    for number in range(10):
        files[f"aclImdb/train/unsup/{number}_0.txt"] = _review(random, "pos", 60).encode("ascii")
    return tar(files)


@lru_cache(maxsize=1)
def movie_reviews() -> bytes:
    """movie_reviews.zip: 1000 reviews of each kind, as many as the original has, but short."""
    random = np.random.RandomState(22)
    files = {"movie_reviews/README": b"Synthetic reviews.\n"}
    for kind in ("neg", "pos"):
        for number in range(1000):
            name = f"movie_reviews/{kind}/cv{number:03d}_{random.randint(30000)}.txt"
            files[name] = _review(random, kind, 20).lower().encode("ascii")
    return zip_(files)


def _review(random: np.random.RandomState, kind: str, length: int) -> str:
    """A few sentences; one word in five is an opinion, and most opinions are of this kind."""
    words = []
    for _ in range(random.randint(length // 2, length * 3 // 2)):
        draw = random.randint(100)
        if draw < 20:
            words.append(_pick(random, _GOOD if (kind == "pos") == (draw < 17) else _BAD))
        else:
            words.append(_pick(random, _PLAIN))
        if random.randint(8) == 0:
            words[-1] += _pick(random, _MARKS)
    return " ".join(words).capitalize() + ".\n"


def _pick(random: np.random.RandomState, words: Sequence[str]) -> str:
    if words is not _PLAIN:
        return words[random.randint(len(words))]
    return words[min(random.geometric(0.08), len(words)) - 1]  # few words are frequent, many are rare
