"""Tensors that arrive are compared with the server's program before anything counts as pushed."""

from types import SimpleNamespace

import numpy as np
import pytest

from refluid.runtime.server.compatibility import Arriving
from refluid.runtime.transport.wire import Rows

VARIABLES = {
    "w": ("float32", (4, 3), False),
    "w@GRAD": ("float32", (4, 3), False),
    "table": ("float32", (100, 8), False),
    "table@GRAD": ("float32", (100, 8), True),
}


@pytest.fixture
def arriving(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_max_inflight_mb", "1")
    pushable = {name: None for name in VARIABLES if name.endswith("@GRAD")}
    return Arriving(SimpleNamespace(describe=VARIABLES.__getitem__, pushable=pushable))  # pyright: ignore


def rows(count, width=8, dtype=np.float32):
    return Rows(np.zeros(count, np.int64), np.zeros((count, width), dtype))


def test_what_fits(arriving):
    dense = np.zeros((4, 3), np.float32)
    arriving.check({"w": dense, "w@GRAD": dense, "table@GRAD": rows(5), "table": np.arange(7)})
    arriving.check({"table@GRAD": rows(5, dtype=np.float16), "table": np.zeros((100, 8), np.float32)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("w@GRAD", np.zeros((3, 4), np.float32)),
        ("w@GRAD", np.zeros((4, 3), np.float64)),
        ("w@GRAD", np.zeros((0, 2**40), np.float32)),
        ("w@GRAD", rows(4, 3)),
        ("w", np.zeros((4, 3, 1), np.float32)),
        ("table", np.zeros((100, 8), np.int64)),
        ("table", rows(3)),
        ("table@GRAD", np.zeros((100, 8), np.float32)),
        ("table@GRAD", rows(3, 9)),
        ("table@GRAD", Rows(np.zeros(0, np.int64), np.zeros((0, 2**40), np.float32))),
    ],
)
def test_what_does_not(arriving, name, value):
    with pytest.raises(ValueError, match=f"{name} arrives as .*; on this server it is float32"):
        arriving.check({name: value})


def test_rows_that_no_reply_could_hold(arriving):
    with pytest.raises(
        ValueError, match=r"40000 rows of table take 1 MB; 1 MB are allowed, see FLAGS_rpc_max_inflight_mb"
    ):
        arriving.check({"table": np.arange(40_000)})


def test_names_that_the_program_has_not(arriving):
    with pytest.raises(KeyError):
        arriving.check({"other": np.arange(3)})
