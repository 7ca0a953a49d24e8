"""The options of a table on one server: budgets, rows given up after a time, and what the log says."""

import logging

import numpy as np
import pytest

from refluid.ir.table_options import TableOptions
from refluid.runtime.server.table_life import Life
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import Rule
from refluid.runtime.tables.table import Table

HERE = "127.0.0.1:6174"


class Held:
    """A table with a life, as a server updates it."""

    def __init__(self, **options):
        self.table = Table("emb", RecordForm(2), Rule("sgd", {}))
        self.life = Life(self.table, TableOptions(**options), HERE)

    def update(self, ids, size=-1.0):
        ids = np.asarray(ids)
        self.life.check_room(ids)
        self.table.update(ids, np.full((len(ids), 2), size, np.float32), self.table.begin_step(1.0))
        self.life.after_update()


def budget_for(rows):
    return rows * Table("emb", RecordForm(2), Rule("sgd", {})).row_bytes


def test_a_full_table_refuses_new_rows_and_applies_nothing():
    held = Held(budget=budget_for(100))
    held.update(np.arange(95))
    problem = "emb is full: it has 95 rows on server 127.0.0.1:6174, an update would add 6, .* bytes is enough for 100"
    with pytest.raises(ValueError, match=problem):
        held.update(np.arange(90, 101))
    np.testing.assert_array_equal(held.table.read(np.arange(101), creates=False)[90:], [[1, 1]] * 5 + [[0, 0]] * 6)
    assert held.table.step == 1
    held.update(np.arange(5, 100))  # rows that exist, and five that there is room for
    assert len(held.table) == 100


def test_ids_that_get_no_row_need_no_room():
    held = Held(budget=budget_for(10), min_count=2)
    for begin in range(0, 100, 20):
        held.update(np.arange(begin, begin + 20))
    with pytest.raises(ValueError, match="would add 20"):
        held.update(np.arange(20))


def test_a_full_table_gives_up_its_oldest_rows_and_says_so_once(caplog):
    held = Held(budget=budget_for(1600), on_full="evict")
    with caplog.at_level(logging.WARNING, "refluid"):
        for begin in range(0, 10_000, 50):
            held.update(np.arange(begin, begin + 50))
            assert len(held.table) <= 1600
    (record,) = caplog.records
    assert record.fields["table"] == "emb" and "oldest rows are given up" in record.getMessage()
    assert held.table.read(np.arange(9000, 10_000), creates=False).all()
    assert held.life.evicted == 10_000 - len(held.table)
    assert held.table.bytes < budget_for(1600) + (1 << 16)


def test_a_table_may_outgrow_its_budget_with_a_warning(caplog):
    held = Held(budget=budget_for(100), on_full="grow")
    with caplog.at_level(logging.WARNING, "refluid"):
        held.update(np.arange(101))
        held.update(np.arange(300))
    (record,) = caplog.records
    assert "has outgrown its budget" in record.getMessage() and record.fields["rows"] == 101
    assert len(held.table) == 300


def test_rows_are_given_up_after_so_many_updates():
    held = Held(max_age=2, shrink_every=4)
    for begin in range(0, 30, 10):
        held.update(np.arange(begin, begin + 10))
    assert len(held.table) == 30
    held.update(np.arange(20, 40))
    assert len(held.table) == 30 and held.life.evicted == 10
    held.update(np.arange(10), size=-3.0)  # one that comes back begins anew
    np.testing.assert_array_equal(held.table.read(np.arange(10)), 3.0)


def test_a_shrink_may_have_options_of_its_own():
    held = Held()
    held.update(np.arange(10), size=0.001)
    held.update(np.arange(5, 20))
    assert held.life.shrink() == 0
    assert held.life.shrink(TableOptions(min_norm=0.1)) == 5
    assert held.life.shrink(TableOptions(count_decay=0.5, keep_count=0.9)) == 10
    assert len(held.table) == 5
