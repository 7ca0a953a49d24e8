"""MQ2007 of LETOR 4.0: queries, and documents with 46 features whose relevance is 0, 1 or 2.

Unlike in other modules, `train` and `test` are readers themselves: ``paddle.batch(mq2007.train, 64)``, or
``functools.partial(mq2007.train, format="listwise")``.
"""

import importlib
import itertools
import os
import random

import numpy as np

from paddle.dataset import common
from refluid.readers import synthetic
from refluid.readers.dataset_files import named, opened
from refluid.readers.synthetic import ranking

URL = "http://www.bigdatalab.ac.cn/benchmark/upload/download_source/7b6dbbe2-842c-11e4-a536-bcaec51b9163_MQ2007.rar"
MD5 = "7be1640ae95c6408dab0ae7207bdc706"

_TRAIN, _TEST = "MQ2007/MQ2007/Fold1/train.txt", "MQ2007/MQ2007/Fold1/test.txt"
_FEATURES = 46


class Query:
    """A document that is an answer to a query: its relevance and its features."""

    def __init__(self, query_id=-1, relevance_score=-1, feature_vector=None, description=""):
        self.query_id, self.relevance_score = query_id, relevance_score
        self.feature_vector = [] if feature_vector is None else feature_vector
        self.description = description

    def __str__(self):
        return " ".join(map(str, [self.relevance_score, self.query_id, *self.feature_vector]))


class QueryList:
    """The documents of one query."""

    def __init__(self, querylist=None):
        self.query_id, self.querylist = -1, []
        for query in querylist or []:
            self._add_query(query)

    def __iter__(self):
        return iter(self.querylist)

    def __len__(self):
        return len(self.querylist)

    def __getitem__(self, i):
        return self.querylist[i]

    def _correct_ranking_(self):
        """Sorts the documents, the most relevant first."""
        self.querylist.sort(key=lambda query: query.relevance_score, reverse=True)

    def _add_query(self, query):
        if self.query_id == -1:
            self.query_id = query.query_id
        elif self.query_id != query.query_id:
            raise ValueError(f"a document of query {query.query_id} does not belong to query {self.query_id}")
        self.querylist.append(query)


def train(*, filepath=_TRAIN, format="pairwise", shuffle=False, fill_missing=-1):
    """Yields the training samples of the first fold, without queries that have no relevant document.

    Args:
      filepath: another file of the archive, such as one of its other four folds.
      format: "pairwise" for `gen_pair` and "listwise" for `gen_list` of each query; "pointwise" and "plain_txt" for the
        first sample of `gen_point` and of `gen_plain_txt`, that is, for the most relevant document of each query.
      shuffle: shuffle the queries, with Python's ``random``.
      fill_missing: the value of features that a line lacks.
    """
    return _samples(filepath, format, shuffle, fill_missing)


def test(*, filepath=_TEST, format="pairwise", shuffle=False, fill_missing=-1):
    """Yields the test samples of the first fold; see `train`."""
    return _samples(filepath, format, shuffle, fill_missing)


def gen_plain_txt(querylist):
    """Yields (query, relevance, features) of each document, the most relevant first."""
    for query in _ranked(querylist):
        yield query.query_id, query.relevance_score, np.array(query.feature_vector)


def gen_point(querylist):
    """Yields (relevance, features) of each document, the most relevant first."""
    for query in _ranked(querylist):
        yield query.relevance_score, np.array(query.feature_vector)


def gen_pair(querylist, partial_order="full"):
    """Yields ([1], features of the better document, features of the worse one) of each pair that differs.

    Args:
      partial_order: "full" or "neighbour", which are the same, as in Fluid.
    """
    for better, worse in itertools.combinations(_ranked(querylist), 2):
        if better.relevance_score > worse.relevance_score:
            yield np.array([1]), np.array(better.feature_vector), np.array(worse.feature_vector)


def gen_list(querylist):
    """Yields (relevance of all documents, their features), the most relevant first: shapes [n, 1] and [n, 46]."""
    ranked = list(_ranked(querylist))
    yield np.array([[query.relevance_score] for query in ranked]), np.array([query.feature_vector for query in ranked])


def query_filter(querylists):
    """Returns the queries that have a relevant document."""
    return [querylist for querylist in querylists if any(query.relevance_score > 0 for query in querylist)]


def load_from_text(filepath, shuffle=False, fill_missing=-1):
    """Reads a LETOR file; returns a list of QueryLists. A relative path starts at `common.DATA_HOME`."""
    return _load(_file(filepath), shuffle, fill_missing)


def fetch():
    """Downloads and unpacks the archive; unpacking needs the package rarfile, and a program such as unrar."""
    _file(_TRAIN)


def _samples(filepath, format, shuffle, fill_missing):
    firsts = {"plain_txt": gen_plain_txt, "pointwise": gen_point}
    alls = {"pairwise": gen_pair, "listwise": gen_list}
    if format not in {**firsts, **alls}:
        raise ValueError(f"mq2007: format must be one of {', '.join(sorted({**firsts, **alls}))}, not {format!r}")
    source = _file(filepath)

    def samples():
        for querylist in query_filter(_load(source, shuffle, fill_missing)):
            if format in firsts:
                yield next(firsts[format](querylist))
            else:
                yield from alls[format](querylist)

    return samples()


def _ranked(querylist):
    if not isinstance(querylist, QueryList):
        querylist = QueryList(querylist)
    querylist._correct_ranking_()
    return iter(querylist)


def _load(source, shuffle, fill_missing):
    with opened(source) as file:
        queries = [_parse(line, fill_missing, f"{named(source)}, line {n}") for n, line in enumerate(file, 1)]
    lists = [QueryList(same) for _, same in itertools.groupby(queries, key=lambda query: query.query_id)]
    if shuffle:
        random.shuffle(lists)
    return lists


def _parse(line, fill_missing, place):
    """A line such as ``2 qid:10 1:0.5 2:0.0 ... 46:1.0 #docid = GX01``."""
    text, _, description = line.decode("ascii", "replace").partition("#")
    relevance, query, *pairs = text.split() if text.strip() else [""] * 2
    features = [float(fill_missing)] * _FEATURES
    try:
        kind, number = query.split(":")
        if kind != "qid":
            raise ValueError(query)
        for pair in pairs:
            key, value = pair.split(":")
            if not 1 <= int(key) <= _FEATURES:
                raise ValueError(pair)
            if value != "NULL":  # LETOR's word for a missing value
                features[int(key) - 1] = float(value)
        return Query(int(number), int(relevance), features, description.strip())
    except ValueError as error:
        expected = f"a relevance, qid:number and features 1:value to {_FEATURES}:value"
        raise ValueError(f"{place}: expected {expected}, found {text.strip()[:60]!r} ({error})") from error


def _file(filepath):
    if synthetic.wanted() and filepath in (_TRAIN, _TEST):
        return ranking.letor("train" if filepath == _TRAIN else "test")
    path = os.path.join(common.DATA_HOME, filepath)
    if not os.path.exists(path):
        _unpack(path)
    return path


def _unpack(path):
    archive = common.download(URL, "MQ2007", MD5)
    folder = os.path.dirname(archive)
    try:
        importlib.import_module("rarfile").RarFile(archive).extractall(folder)
    except Exception as error:
        raise RuntimeError(
            f"could not unpack {archive}: {error}\n"
            f"  expected file  {path}\n"
            f"  hint           unpack the archive in {folder} yourself (unrar x), or pip install rarfile and install "
            f"unrar, unar or bsdtar"
        ) from error
