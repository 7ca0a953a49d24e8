"""Rows that are requested before the step that looks them up: when, and when they are too old to be used."""

import numpy as np
import pytest

from refluid.ir.slices import Slice
from refluid.runtime.trainer.exchange_plan import SlicedVariable
from refluid.runtime.trainer.packing import Message, Tensors
from refluid.runtime.trainer.row_requests import RowRequest
from refluid.runtime.trainer.rows_ahead import Expected, RowsAhead

REPLIES = {"s1": Tensors({"table": np.ones((2, 3))}, 7)}
LOOKUP = 5
TABLE = SlicedVariable("table", (Slice("table", "table", 0, 9, (9, 3), "s1"),), np.dtype(np.float32))


def ids(*values):
    """What the step looks up, unless it has the very feeds that were announced."""
    return lambda: {"table": np.array(values)}


def expected(feeds, ask=lambda: REPLIES, ids=(1, 4)):
    ids = {"table": np.array(ids)}
    return Expected(feeds, ids, RowRequest({"table": (TABLE, ids["table"])}), ask)


@pytest.fixture
def ahead():
    rows = RowsAhead()
    yield rows
    rows.close()


def test_a_request_declares_how_large_its_reply_is():
    rows = RowRequest({"table": (TABLE, np.array([1, 4, 4]))})
    assert {at: message.reply_size for at, message in rows.messages().items()} == {"s1": 24}


def test_a_push_asks_for_rows_that_may_lack_no_step(ahead):
    feeds = [object()]
    ahead.expect(LOOKUP, expected(feeds), step=3)
    messages, shared = ahead.share({"s1": Message({"g": np.zeros(2)}, ["w"], 8)})
    assert list(messages["s1"].asked) == ["table"] and messages["s1"].reply_size == 32
    assert list(messages["s1"].pushed) == ["g"]
    ahead.receive(shared, REPLIES, included=4)
    assert ahead.share(messages)[1] == []
    assert ahead.take(LOOKUP, feeds, ids(7), step=4) is shared[0]
    assert ahead.lag == 0
    assert ahead.take(LOOKUP, feeds, ids(7), step=4) is None


def test_two_lookups_in_the_same_table_do_not_share_a_push(ahead):
    """A reply has one set of rows for a table."""
    train, test = expected([object()]), expected([object()])
    ahead.expect(LOOKUP, train, step=3)
    ahead.expect(LOOKUP + 1, test, step=3)
    shared = ahead.share({"s1": Message({})})[1]
    assert len(shared) == 1
    ahead.receive(shared, REPLIES, included=4)
    following = ahead.share({"s1": Message({})})[1]
    assert len(following) == 1 and {id(each) for each in (*shared, *following)} == {id(train), id(test)}


def test_rows_of_a_server_that_is_not_pushed_to_are_not_shared(ahead):
    ahead.expect(LOOKUP, expected([object()]), step=3)
    assert ahead.share({"s2": Message({})}) == ({"s2": Message({})}, [])


def test_rows_are_requested_at_once_where_they_may_lack_a_step(ahead):
    ahead.allowed, ahead.outstanding = lambda: 2, lambda: 1
    feeds = [object()]
    ahead.expect(LOOKUP, expected(feeds), step=3)
    assert ahead.share({"s1": Message({})})[1] == []
    found = ahead.take(LOOKUP, feeds, ids(7), step=4)
    assert found is not None and found.replies is REPLIES
    assert ahead.lag == 2  # the step that was not applied yet, and the one that was computed meanwhile


def test_as_many_steps_as_are_allowed_may_be_outstanding_but_none_more(ahead):
    ahead.allowed, ahead.outstanding = lambda: 2, lambda: 2
    ahead.expect(LOOKUP, expected([object()], ask=lambda: pytest.fail("too early")), step=3)
    assert len(ahead.share({"s1": Message({})})[1]) == 1


def test_rows_that_lack_too_many_steps_by_now_are_not_used(ahead):
    allowed = [2]
    ahead.allowed = lambda: allowed[0]
    feeds = [object()]
    ahead.expect(LOOKUP, expected(feeds), step=3)
    allowed[0] = 0
    assert ahead.take(LOOKUP, feeds, ids(7), step=4) is None
    assert ahead.lag == 0


def test_other_feeds_than_expected_are_looked_up_anew(ahead):
    following = [object()]
    ahead.expect(LOOKUP, expected(following), step=3)
    shared = ahead.share({"s1": Message({})})[1]
    assert ahead.take(LOOKUP, [object()], ids(7), step=3) is None  # the step before has not run yet
    ahead.receive(shared, REPLIES, included=4)
    assert ahead.take(LOOKUP, following, ids(7), step=4) is shared[0]


def test_a_request_that_fails_is_made_again_by_the_step(ahead):
    ahead.allowed = lambda: 1

    def fail():
        raise ConnectionError

    feeds = [object()]
    ahead.expect(LOOKUP, expected(feeds, fail), step=3)
    assert ahead.take(LOOKUP, feeds, ids(7), step=4) is None


def test_other_feeds_with_the_ids_that_were_expected_get_their_rows(ahead):
    """As when a batch is padded after it was announced, or is a part of it."""
    ahead.expect(LOOKUP, expected([object()], ids=(4, 1, 4, 6)), step=3)
    assert ahead.take(LOOKUP, [object()], ids(1, 4), step=3) is None, "nothing was asked for so far"
    shared = ahead.share({"s1": Message({})})[1]
    replies = {"s1": Tensors({"table": np.array([[4.0] * 3, [1.0] * 3, [6.0] * 3])}, 7)}
    ahead.receive(shared, replies, included=4)
    assert ahead.take(LOOKUP, [object()], ids(1, 5), step=4) is None, "5 was not asked for"
    found = ahead.take(LOOKUP, [object()], ids(6, 1, 1), step=4)
    assert found is shared[0] and not found.is_of([object()])
    np.testing.assert_array_equal(found.wanted.rows(replies, ids(6, 1, 1)())["table"][:, 0], [6, 1, 1])
    np.testing.assert_array_equal(found.wanted.rows(replies, ids(1, 6, 4)())["table"][:, 0], [1, 6, 4])
    np.testing.assert_array_equal(found.wanted.rows(replies)["table"][:, 0], [4, 1, 4, 6])
