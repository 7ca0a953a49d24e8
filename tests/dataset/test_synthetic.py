"""REFLUID_SYNTHETIC_DATA=1 serves made-up data that simple models can learn, and touches no file."""

import collections
import itertools
import os

import numpy as np
import pytest

from paddle.dataset import (
    cifar,
    common,
    conll05,
    flowers,
    imdb,
    imikolov,
    mnist,
    movielens,
    mq2007,
    sentiment,
    uci_housing,
    voc2012,
    wmt14,
    wmt16,
)
from refluid.readers import synthetic


@pytest.fixture(autouse=True)
def synthetic_data(tmp_path, monkeypatch):
    monkeypatch.setenv("REFLUID_SYNTHETIC_DATA", "1")
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path / "home"))
    yield
    assert not (tmp_path / "home").exists()


def least_squares(inputs, targets):
    padded = np.column_stack([inputs, np.ones(len(inputs))])
    solution = np.linalg.solve(padded.T @ padded + 1e-3 * np.eye(padded.shape[1]), padded.T @ targets)
    return lambda rows: np.column_stack([rows, np.ones(len(rows))]) @ solution


def columns(reader):
    return (np.array(column) for column in zip(*reader, strict=True))


def accuracy(features, train, test):
    """The share of test samples, pairs of something and its class, that a linear model of their features gets right."""
    inputs, labels = columns(train)
    kinds = np.unique(labels)
    model = least_squares(features(inputs), (labels[:, None] == kinds).astype(float))
    inputs, labels = columns(test)
    return (kinds[model(features(inputs)).argmax(1)] == labels).mean()


def test_digits_can_be_told_apart_by_their_pixels():
    images, _ = columns(mnist.test()())
    assert images.dtype == np.float32 and images.min() >= -1 and images.max() <= 1
    assert accuracy(lambda pixels: pixels, mnist.train()(), mnist.test()()) > 0.8


def test_prices_follow_the_features():
    features, price = columns(uci_housing.train()())
    model = least_squares(features, price)
    features, price = columns(uci_housing.test()())
    assert np.abs(model(features) - price).mean() < 2 < np.abs(price.mean() - price).mean()


def spectrum(pixels):
    """Which stripes a picture has, wherever they begin, and of what colour."""
    planes = pixels.reshape(len(pixels), 3, 32, 32)
    waves = np.abs(np.fft.rfft2(planes.mean(1)))[:, :6, :6].reshape(len(pixels), -1)
    strength = waves / waves.sum(1, keepdims=True)
    colour = planes.mean((2, 3))
    products = np.einsum("ni,nj->nij", strength, np.column_stack([colour, colour**2])).reshape(len(pixels), -1)
    return np.column_stack([strength, colour, colour**2, products])


def test_pictures_of_ten_classes_differ_in_colour():
    colours = lambda pixels: pixels.reshape(-1, 3, 1024).mean(2)  # noqa: E731
    squares = lambda pixels: np.column_stack([colours(pixels), colours(pixels) ** 2])  # noqa: E731
    assert accuracy(squares, cifar.train10()(), cifar.test10()()) > 0.8


def test_pictures_of_a_hundred_classes_differ_in_colour_and_stripes():
    assert accuracy(spectrum, cifar.train100()(), cifar.test100()()) > 0.5


@pytest.mark.parametrize("module", [imdb, sentiment])
def test_words_of_reviews_tell_the_opinion(module):
    if module is imdb:
        numbers = imdb.word_dict()
        train, test = imdb.train(numbers)(), imdb.test(numbers)()
    else:
        numbers, train, test = sentiment.get_word_dict(), sentiment.train(), sentiment.test()
    bags = [
        [(np.bincount(words, minlength=len(numbers)), label) for words, label in samples] for samples in (train, test)
    ]
    assert accuracy(lambda counts: counts, *bags) > 0.85


def majority(pairs):
    """The most frequent answer to each question."""
    answers = collections.defaultdict(collections.Counter)
    for question, answer in pairs:
        answers[question][answer] += 1
    return {question: counts.most_common(1)[0][0] for question, counts in answers.items()}


def share_right(train, test):
    model, pairs = majority(train), list(test)
    return sum(model.get(question) == answer for question, answer in pairs) / len(pairs)


def test_words_of_a_sentence_depend_on_those_before():
    numbers = imikolov.build_dict()
    train, test = (list(part(numbers, 3)()) for part in (imikolov.train, imikolov.test))
    assert share_right(((g[:2], g[2]) for g in train), ((g[:2], g[2]) for g in test)) > 0.4
    assert share_right(*([((), g[2]) for g in part] for part in (train, test))) < 0.2


def test_ratings_follow_age_gender_and_kind_of_film():
    size = len(movielens.movie_categories())

    def rows(samples):
        for _, gender, age, _, _, kinds, _, rating in samples:
            liked = np.zeros((2, 7, size))
            liked[gender, age, kinds] = 1 / len(kinds)
            yield liked.reshape(-1), rating[0]

    inputs, ratings = columns(rows(movielens.train()()))
    model = least_squares(inputs, ratings)
    inputs, ratings = columns(rows(movielens.test()()))
    assert ((model(inputs) - ratings) ** 2).mean() < 0.4 * ratings.var()


def test_roles_follow_from_the_word_and_its_distance_to_the_verb():
    samples = list(conll05.test()())
    places = [
        ((word, place - mark.index(1)), label)
        for words, *_, mark, labels in samples
        for place, (word, label) in enumerate(zip(words, labels, strict=True))
    ]
    assert share_right(places[::2], places[1::2]) > 0.9
    assert {label for _, label in places} <= set(conll05.get_dict()[2].values())


def test_the_embedding_has_a_row_for_each_word():
    path = conll05.get_embedding()
    with open(path, "rb") as file:
        assert len(file.read(16)) == 16
        rows = np.fromfile(file, np.float32).reshape(-1, 32)
    assert len(rows) == len(conll05.get_dict()[0])
    assert conll05.get_embedding() == path and os.path.exists(path)


@pytest.mark.parametrize("module, sizes", [(wmt14, [100]), (wmt16, [100, 100])])
def test_a_sentence_has_the_words_of_its_translation(module, sizes):
    pairs = list(module.train(*sizes)())
    counts, together = collections.Counter(), collections.Counter()
    for source, target, _ in pairs:
        words = set(source)
        counts.update(words)
        together.update(itertools.product(words, set(target)))
    likely = majority((s, t) for (s, t), n in together.items() for _ in range(int(n > 0.99 * counts[s])) if s > 2 < t)
    assert len(likely) > 20


def test_relevance_follows_from_the_features():
    rows = [row for part in mq2007.train(format="listwise") for row in zip(*part, strict=True)]
    model = least_squares(np.array([features for _, features in rows]), np.array([score[0] for score, _ in rows]))
    pairs = list(mq2007.test(format="pairwise"))
    better, worse = (model(np.array([pair[side] for pair in pairs])) for side in (1, 2))
    assert (better > worse).mean() > 0.85


def test_kinds_of_flowers_differ_in_colour():
    pytest.importorskip("PIL")
    mean = lambda sample: (sample[0].reshape(3, -1).mean(1), sample[1] % 10)  # noqa: E731
    train, test = (
        [mean(flowers.test_mapper(sample)) for sample in itertools.islice(part(mapper=tuple, use_xmap=False)(), 60)]
        for part in (flowers.train, flowers.test)
    )
    assert accuracy(lambda colours: np.column_stack([colours, colours**2]), train, test) > 0.5
    assert len(list(flowers.valid(mapper=tuple)())) == 51


def test_classes_of_pixels_differ_in_colour():
    pytest.importorskip("PIL")

    def pixels(samples):
        for picture, labels in samples:
            assert (picture.dtype, labels.dtype, picture.shape[:2]) == (np.uint8, np.uint8, labels.shape)
            yield from zip(map(tuple, picture[::3, ::3].reshape(-1, 3) // 32), labels[::3, ::3].ravel(), strict=True)

    inside = [(colour, label) for colour, label in pixels(voc2012.test()()) if label != 255]
    assert share_right(inside[::2], inside[1::2]) > 0.8


def test_every_run_serves_the_same_data():
    first, second = next(mnist.train()()), next(mnist.train()())
    assert first[1] == second[1] and (first[0] == second[0]).all()


def test_fetching_everything_needs_no_network():
    pytest.importorskip("PIL")
    common.fetch_all()


def test_zero_turns_the_switch_off(monkeypatch):
    for value in ("0", ""):
        monkeypatch.setenv("REFLUID_SYNTHETIC_DATA", value)
        assert not synthetic.wanted()
