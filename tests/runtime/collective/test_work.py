"""What counts as work, in the script and in calls of refluid."""

import os

import pytest

from refluid.runtime.collective import work
from refluid.runtime.collective.work import Work

used = work._Used(at=10.0, processor=1.0, read=100, written=100)


@pytest.mark.parametrize(
    ("after", "in_refluid", "in_script"),
    [
        ({}, False, False),
        ({"processor": 2.0}, True, False),  # an endless loop of the script computes as well
        ({"read": 10_000}, True, True),
        ({"written": 10_000}, True, False),  # it may also print
        ({"read": 300, "written": 300, "processor": 1.001}, False, False),
    ],
)
def test_signs_of_work(monkeypatch, after, in_refluid, in_script):
    for inside, expected in ((False, in_refluid), (True, in_script)):
        looks = iter([used, used._replace(at=10.5, **after)])
        monkeypatch.setattr(work, "_used", lambda looks=looks: next(looks))
        assert Work().look(inside) == (expected, after.get("processor", 0) == 2.0)


def test_what_the_process_reads_and_writes_is_counted(tmp_path):
    before = Work()
    (tmp_path / "data").write_bytes(os.urandom(10_000))
    assert before.look(in_script=False)[0]
    assert not before.look(in_script=True)[0]
    (tmp_path / "data").read_bytes()
    assert before.look(in_script=True)[0]


def test_where_nobody_counts_what_is_read_only_the_processor_is_known(monkeypatch):
    def missing(*_):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    assert work._used()[2:] == (0, 0)
