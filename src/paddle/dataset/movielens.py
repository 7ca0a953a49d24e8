"""MovieLens 1M: people, films and ratings. A sample is a user's numbers, a film's numbers and [rating].

``[user, gender, age, job, movie, [categories], [title words], [rating]]``: gender is 0 for men and 1 for women, age a
position in `age_table`, and a rating of 1 to 5 stars is a number from -3 to 5.
"""

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from paddle.dataset import common
from refluid.readers import synthetic
from refluid.readers.dataset_files import named, opened_zip
from refluid.readers.synthetic import ratings

__all__ = [
    "age_table",
    "get_movie_title_dict",
    "max_job_id",
    "max_movie_id",
    "max_user_id",
    "movie_categories",
    "movie_info",
    "test",
    "train",
    "user_info",
]

URL = "https://dataset.bj.bcebos.com/movielens%2Fml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"

age_table = [1, 18, 25, 35, 45, 50, 56]

_TITLE = re.compile(r"^(.*)\((\d+)\)$")


class MovieInfo:
    """A film: number, title without its year, and names of categories."""

    def __init__(self, index, categories, title):
        self.index, self.categories, self.title = int(index), categories, title

    def value(self):
        """Returns [number, numbers of categories, numbers of the title's words]."""
        categories, words = movie_categories(), get_movie_title_dict()
        return [
            self.index,
            [categories[category] for category in self.categories],
            [words[word.lower()] for word in self.title.split()],
        ]

    def __str__(self):
        return f"<MovieInfo id({self.index}), title({self.title}), categories({self.categories})>"

    __repr__ = __str__


class UserInfo:
    """A person: number, gender, position of the age in `age_table`, and job."""

    def __init__(self, index, gender, age, job_id):
        self.index, self.is_male, self.job_id = int(index), gender == "M", int(job_id)
        self.age = age_table.index(int(age))

    def value(self):
        """Returns [number, 0 if male or 1 if female, position of the age, job]."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]

    def __str__(self):
        gender = "M" if self.is_male else "F"
        return f"<UserInfo id({self.index}), gender({gender}), age({age_table[self.age]}), job({self.job_id})>"

    __repr__ = __str__


def train(rand_seed=0, test_ratio=0.1):
    """Returns a reader of the ratings that are not in the test set.

    Args:
      rand_seed: decides which ratings are in which set; use the same for both.
      test_ratio: the share of the test set.
    """
    return _reader(rand_seed, test_ratio, is_test=False)


def test(rand_seed=0, test_ratio=0.1):
    """Returns a reader of the ratings in the test set; see `train`."""
    return _reader(rand_seed, test_ratio, is_test=True)


def get_movie_title_dict():
    """Returns a dict of the words in titles, in lower case, to numbers."""
    return _catalogue(_archive()).words


def movie_categories():
    """Returns a dict of categories to numbers."""
    return _catalogue(_archive()).categories


def max_movie_id():
    """Returns the largest number of a film."""
    return max(movie_info())


def max_user_id():
    """Returns the largest number of a user."""
    return max(user_info())


def max_job_id():
    """Returns the largest number of a job."""
    return max(user.job_id for user in user_info().values())


def movie_info():
    """Returns a dict of numbers to films."""
    return _catalogue(_archive()).movies


def user_info():
    """Returns a dict of numbers to users."""
    return _catalogue(_archive()).users


def fetch():
    """Downloads the archive."""
    _archive()


def convert(path):
    """Writes all samples to recordio files in a folder."""
    common.convert(path, train(), 1000, "movielens_train")
    common.convert(path, test(), 1000, "movielens_test")


class _Catalogue(NamedTuple):
    movies: dict
    users: dict
    words: dict
    categories: dict


@lru_cache(maxsize=1)
def _catalogue(source):
    movies, users = {}, {}
    for index, title, categories in _rows(source, "movies", 3):
        match = _TITLE.match(title)
        if match is None:
            raise ValueError(f"movies.dat in {named(source)}: the title {title!r} does not end with a year in brackets")
        movies[int(index)] = MovieInfo(index, categories.split("|"), match.group(1))
    for index, gender, age, job, _ in _rows(source, "users", 5):
        users[int(index)] = UserInfo(index, gender, age, job)
    words = {word.lower() for movie in movies.values() for word in movie.title.split()}
    categories = {category for movie in movies.values() for category in movie.categories}
    # Fluid numbers them in the order of a set, which differs from run to run.
    return _Catalogue(movies, users, _numbered(words), _numbered(categories))


def _numbered(names):
    return {name: number for number, name in enumerate(sorted(names))}


def _reader(rand_seed, test_ratio, *, is_test):
    source = _archive()

    def reader():
        catalogue, dice = _catalogue(source), np.random.RandomState(rand_seed)
        for user, movie, rating, _ in _rows(source, "ratings", 4):
            if (dice.random_sample() < test_ratio) == is_test:
                who, what = catalogue.users[int(user)], catalogue.movies[int(movie)]
                yield [*who.value(), *what.value(), [float(rating) * 2 - 5.0]]

    return reader


def _rows(source, name, width):
    """The fields of each line of a file in the archive."""
    with opened_zip(source) as archive, archive.open(f"ml-1m/{name}.dat") as file:
        for number, line in enumerate(file, 1):
            fields = line.decode("latin-1").strip().split("::")
            if len(fields) != width:
                raise ValueError(
                    f"{name}.dat in {named(source)}, line {number}: expected {width} fields, found {len(fields)}"
                )
            yield fields


def _archive():
    return ratings.movielens() if synthetic.wanted() else common.download(URL, "movielens", MD5)
