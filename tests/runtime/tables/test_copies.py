"""Copies of rows: nobody's work is lost, and nobody's counts twice."""

import numpy as np
import pytest

from refluid.runtime.tables.copies import Copies

IDS = np.array([-5, 2**62, 7])


def originals(*values):
    return np.array([[value, value] for value in values], np.float32)


@pytest.fixture
def copies():
    made = Copies("emb", 2, np.dtype(np.float32))
    made.add(IDS, originals(0, 10, 20))
    return made


def rows(copies, ids=IDS):
    return copies.read(ids, creates=False)[:, 0].tolist()


def test_only_rows_without_a_copy_are_missing(copies):
    assert sorted(copies.missing(np.array([7, 8, -5, 9]))) == [8, 9]


def test_changes_are_sent_in_shares_until_nothing_is_left(copies):
    copies.train(IDS[:2], originals(-4, -8), rate=0.5)
    assert rows(copies) == [2, 14, 20]
    assert copies.take_changes(IDS, 2).tolist() == [[1, 1], [2, 2], [0, 0]]
    assert copies.take_changes(IDS[:1], 2).tolist() == [[0.5, 0.5]], "half of what the servers do not have"
    assert copies.take_changes(IDS[1:2], 1).tolist() == [[2, 2]]
    assert copies.take_changes(IDS[1:2], 1).tolist() == [[0, 0]]


def test_what_others_have_done_is_added_once(copies):
    copies.train(IDS[:1], originals(-1), rate=1.0)
    copies.receive(np.array([-5, 99]), originals(5, 1))  # there is no copy of 99
    assert rows(copies) == [6, 10, 20]
    copies.receive(IDS[:1], originals(5))
    assert rows(copies) == [6, 10, 20]
    assert copies.take_changes(IDS[:1], 1).tolist() == [[1, 1]], "this trainer's own work"
    assert copies.missing(np.array([99])).tolist() == [99]


def test_what_is_rounded_off_is_sent_later(copies):
    copies.train(IDS[:1], originals(-(1 + 2.0**-10)), rate=1.0)
    assert copies.take_changes(IDS[:1], 1, np.dtype(np.float16)).tolist() == [[1 + 2.0**-10] * 2]
    copies.train(IDS[:1], originals(-(1 + 2.0**-12)), rate=1.0)
    assert copies.take_changes(IDS[:1], 1, np.dtype(np.float16)).tolist() == [[1.0] * 2]
    assert copies.take_changes(IDS[:1], 1, np.dtype(np.float16)).tolist() == [[2.0**-12] * 2]


def test_rows_that_were_given_up_are_missing_again(copies):
    copies.train(IDS[1:], originals(0, 0), rate=1.0)
    assert copies.evict_oldest(1) == 1
    assert copies.missing(IDS).tolist() == [-5]
