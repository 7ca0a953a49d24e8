"""Film reviews of nltk's corpus movie_reviews. A sample is the numbers of a review's words, and 0 (negative) or 1.

Unlike in other modules, `train` and `test` are readers themselves: ``paddle.batch(sentiment.train, 64)``.
"""

import collections
import re
from functools import lru_cache

from paddle.dataset import common
from refluid.readers import synthetic
from refluid.readers.dataset_files import named, opened_zip
from refluid.readers.synthetic import reviews

__all__ = ["get_word_dict", "test", "train"]

URL = "https://corpora.bj.bcebos.com/movie_reviews%2Fmovie_reviews.zip"
MD5 = "155de2b77c6834dd8eea7cbe88e93acb"
NUM_TRAINING_INSTANCES = 1600
NUM_TOTAL_INSTANCES = 2000

_TOKEN = re.compile(r"\w+|[^\w\s]+")  # how nltk cuts this corpus into words


def train():
    """Yields the first 1600 reviews, negative and positive ones in turn."""
    return reader_creator(load_sentiment_data()[:NUM_TRAINING_INSTANCES])


def test():
    """Yields the other 400 reviews, negative and positive ones in turn."""
    return reader_creator(load_sentiment_data()[NUM_TRAINING_INSTANCES:])


def get_word_dict():
    """Returns a list of (word, number), the most frequent word first."""
    counts = collections.Counter()
    for words in _corpus(_archive()).values():
        counts.update(words)
    return [(word, number) for number, (word, _) in enumerate(counts.most_common())]


def sort_files():
    """Returns the names of the reviews, negative and positive ones in turn."""
    names = list(_corpus(_archive()))
    kinds = [[name for name in names if name.startswith(kind)] for kind in ("neg/", "pos/")]
    return [name for pair in zip(*kinds, strict=True) for name in pair]


def load_sentiment_data():
    """Returns a list of all samples."""
    numbers, corpus = dict(get_word_dict()), _corpus(_archive())
    return [([numbers[word] for word in corpus[name]], int(name.startswith("pos/"))) for name in sort_files()]


def reader_creator(data):
    """Yields the samples of a list."""
    yield from data


def fetch():
    """Downloads the corpus."""
    _archive()


def download_data_if_not_yet():
    """Downloads the corpus; the older name of `fetch`."""
    fetch()


def convert(path):
    """Writes all samples to recordio files in a folder."""
    common.convert(path, train, 1000, "sentiment_train")
    common.convert(path, test, 1000, "sentiment_test")


@lru_cache(maxsize=1)
def _corpus(source):
    """The words of each review by its name, such as neg/cv000_29416.txt, in sorted order."""
    texts = {}
    with opened_zip(source) as archive:
        for name in sorted(archive.namelist()):
            if re.fullmatch(r"movie_reviews/(neg|pos)/.*\.txt", name):
                texts[name.removeprefix("movie_reviews/")] = _TOKEN.findall(archive.read(name).decode("utf-8"))
    if not texts:
        raise ValueError(f"{named(source)} holds no reviews: files movie_reviews/neg/*.txt are expected in it")
    return texts


def _archive():
    return reviews.movie_reviews() if synthetic.wanted() else common.download(URL, "corpora", MD5, "movie_reviews.zip")
