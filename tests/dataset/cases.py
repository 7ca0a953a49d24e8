"""What is asked of `paddle.dataset`, of ours and of real Fluid's (Python 3.7), and how answers are compared.

Fluid numbers some names in the order of a set, which differs from run to run: there the names are compared.
"""

import hashlib
import inspect
import itertools
import json
import re

import numpy as np


def movielens_names(d, samples):
    categories = {number: name for name, number in d.movielens.movie_categories().items()}
    words = {number: name for name, number in d.movielens.get_movie_title_dict().items()}
    for sample in samples:
        yield [*sample[:5], [categories[c] for c in sample[5]], [words[w] for w in sample[6]], sample[7]]


def conll05_names(d, samples):
    labels = {number: name for name, number in d.conll05.get_dict()[2].items()}
    for sample in samples:
        yield (*sample[:8], [labels[label] for label in sample[8]])


def conll05_dicts(d):
    words, verbs, labels = d.conll05.get_dict()
    distances = [labels["I-" + label[2:]] - number for label, number in labels.items() if label.startswith("B")]
    return [words, verbs, sorted(labels), labels["O"], distances]


def movielens_tables(d):
    m = d.movielens
    numbers = [sorted(table.values()) for table in (m.movie_categories(), m.get_movie_title_dict())]
    names = [sorted(m.movie_categories()), sorted(m.get_movie_title_dict())]
    people = [(n, u.value(), str(u)) for n, u in m.user_info().items()]
    films = [(n, f.index, f.title, f.categories, str(f)) for n, f in m.movie_info().items()]
    return [numbers, names, m.max_movie_id(), m.max_user_id(), m.max_job_id(), people, films]


def wmt16_dicts(d):
    """Real Fluid has no dictionary before a reader made it."""
    list(d.wmt16.train(12, 11)())
    return [list(d.wmt16.get_dict("en", 12).items()), list(d.wmt16.get_dict("de", 11, reverse=True).items())]


def imdb_reader(part, cutoff):
    pattern = re.compile(r"aclImdb/train/.*/.*\.txt$")
    return lambda d: getattr(d.imdb, part)(d.imdb.build_dict(pattern, cutoff))()


def imikolov_reader(part, n, kind, least=3):
    return lambda d: getattr(d.imikolov, part)(d.imikolov.build_dict(least), n, kind)()


def flowers_reader(part):
    def read(d):
        np.random.seed(7)
        return getattr(d.flowers, part)(use_xmap=False)()

    return read


CASES = {
    "cifar.train10": lambda d: d.cifar.train10()(),
    "cifar.test10": lambda d: d.cifar.test10()(),
    "cifar.test10, cycle": lambda d: itertools.islice(d.cifar.test10(cycle=True)(), 450),
    "cifar.train100": lambda d: d.cifar.train100()(),
    "cifar.test100": lambda d: d.cifar.test100()(),
    "conll05.get_dict": conll05_dicts,
    "conll05.test": lambda d: conll05_names(d, d.conll05.test()()),
    "flowers.test": flowers_reader("test"),
    "flowers.train": flowers_reader("train"),
    "flowers.valid": flowers_reader("valid"),
    "imdb.build_dict": lambda d: d.imdb.build_dict(re.compile(r"aclImdb/test/pos/.*\.txt$"), 2).items(),
    "imdb.test": imdb_reader("test", 3),
    "imdb.train": imdb_reader("train", 10),
    "imikolov.build_dict": lambda d: d.imikolov.build_dict(2).items(),
    "imikolov.test": imikolov_reader("test", 3, 1),
    "imikolov.test, longest 6": imikolov_reader("test", 6, 2),
    "imikolov.train": imikolov_reader("train", 5, 1),
    "imikolov.train, sequences": imikolov_reader("train", 0, 2),
    "mnist.test": lambda d: d.mnist.test()(),
    "mnist.train": lambda d: d.mnist.train()(),
    "movielens.test": lambda d: movielens_names(d, d.movielens.test()()),
    "movielens.train": lambda d: movielens_names(d, d.movielens.train(rand_seed=9, test_ratio=0.4)()),
    "movielens, tables": movielens_tables,
    "mq2007.test, listwise": lambda d: d.mq2007.test(format="listwise"),
    "mq2007.test, plain_txt": lambda d: d.mq2007.test(format="plain_txt"),
    "mq2007.test, pointwise": lambda d: d.mq2007.test(format="pointwise"),
    "mq2007.train, pairwise": lambda d: d.mq2007.train(),
    "sentiment.get_word_dict": lambda d: d.sentiment.get_word_dict(),
    "sentiment.test": lambda d: d.sentiment.test(),
    "sentiment.train": lambda d: d.sentiment.train(),
    "uci_housing.test": lambda d: d.uci_housing.test()(),
    "uci_housing.train": lambda d: d.uci_housing.train()(),
    "voc2012.test": lambda d: d.voc2012.test()(),
    "voc2012.train": lambda d: d.voc2012.train()(),
    "voc2012.val": lambda d: d.voc2012.val()(),
    "wmt14.gen": lambda d: d.wmt14.gen(30)(),
    "wmt14.get_dict": lambda d: list(d.wmt14.get_dict(9)) + list(d.wmt14.get_dict(8, reverse=False)),
    "wmt14.test": lambda d: d.wmt14.test(10)(),
    "wmt14.train": lambda d: d.wmt14.train(10000)(),
    "wmt16.get_dict": wmt16_dicts,
    "wmt16.test, from German": lambda d: d.wmt16.test(12, 11, "de")(),
    "wmt16.train": lambda d: d.wmt16.train(10000, 10000)(),
    "wmt16.validation": lambda d: d.wmt16.validation(14, 9)(),
}


def described(value):
    """A value as JSON that keeps its types; of a large array, the checksum of its bytes."""
    if isinstance(value, np.ndarray):
        flat = np.ascontiguousarray(value)
        shown = hashlib.md5(flat.tobytes()).hexdigest() if flat.size > 8 else flat.tolist()
        return {"array": str(flat.dtype), "shape": list(flat.shape), "is": shown}
    if isinstance(value, dict):
        return {"dict": [[described(k), described(v)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [described(item) for item in value]}
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if value is None or type(value) in (bool, int, float, str):
        return value
    return {type(value).__name__: repr(value)}


def answer(case, datasets):
    """The answer to a case: how many samples, the first ones, and the checksum of all."""
    samples = [described(sample) for sample in CASES[case](datasets)]
    text = json.dumps(samples, sort_keys=True)
    first = [s for s in samples[:2] if len(json.dumps(s)) < 500]
    return {"count": len(samples), "first": first, "md5": hashlib.md5(text.encode()).hexdigest()}


def arguments(function):
    """The names of a function's arguments, with the defaults that are numbers or strings."""
    parameters = inspect.signature(function).parameters.values()
    plain = (bool, int, float, str, type(None))
    return [[p.name, repr(p.default) if isinstance(p.default, plain) else p.default is not p.empty] for p in parameters]
