"""MovieLens: people rate the kinds of films that people of their age and gender like."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from refluid.readers.synthetic.archives import zip_

_USERS, _MOVIES, _RATINGS = 120, 80, 4000
_AGES = [1, 18, 25, 35, 45, 50, 56]
_KINDS = "Action Adventure Animation Comedy Crime Drama Fantasy Horror Musical Romance".split()
_TITLES = "Night River King Summer Last Lost Dance War Dream City Road Letter Star Winter".split()


@lru_cache(maxsize=1)
def movielens() -> bytes:
    """ml-1m.zip: users, films and ratings, in lines of fields that are separated by two colons."""
    random = np.random.RandomState(41)
    users = np.column_stack([random.randint(2, size=_USERS), random.randint(7, size=_USERS)])
    kinds = [sorted(random.choice(len(_KINDS), 1 + random.randint(3), replace=False)) for _ in range(_MOVIES)]
    files = {
        "ml-1m/movies.dat": [_movie(random, number, kinds[number]) for number in range(_MOVIES)],
        "ml-1m/ratings.dat": [_rating(random, users, kinds) for _ in range(_RATINGS)],
        "ml-1m/users.dat": [
            f"{number + 1}::{'FM'[gender]}::{_AGES[age]}::{random.randint(21)}::{random.randint(10000, 99999)}"
            for number, (gender, age) in enumerate(users)
        ],
    }
    return zip_({name: "".join(line + "\n" for line in lines).encode("latin-1") for name, lines in files.items()})


def _movie(random: np.random.RandomState, number: int, kinds: list[int]) -> str:
    title = " ".join(random.choice(_TITLES, 1 + random.randint(3), replace=False))
    if number == 0:
        title = "Cité, La"  # the original is latin-1 and has accents
    return f"{number + 1}::{title} ({1930 + random.randint(70)})::{'|'.join(_KINDS[kind] for kind in kinds)}"


def _rating(random: np.random.RandomState, users: np.ndarray, kinds: list[list[int]]) -> str:
    user, movie = random.randint(_USERS), random.randint(_MOVIES)
    gender, age = users[user]
    likes = [(3 * gender + age + kind) % len(_KINDS) < 5 for kind in kinds[movie]]
    score = round(1.5 + 3 * sum(likes) / len(likes) + random.normal(0, 0.4))
    return f"{user + 1}::{movie + 1}::{min(max(score, 1), 5)}::{960000000 + random.randint(10**7)}"
