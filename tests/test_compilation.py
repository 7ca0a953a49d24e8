"""Compilations that take long are announced, and not blamed for what other processes take."""

from __future__ import annotations

import logging
import time

import pytest

import paddle.fluid as fluid
from refluid import compilation


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def messages(caplog):
    caplog.set_level(logging.INFO, "refluid")
    return lambda: [record.fields for record in caplog.records if record.name == "refluid.compiler"]


@pytest.mark.parametrize(
    ("communicates", "begins", "ends"),
    [
        (False, "compiling a program, once for these shapes ...", "compiled"),
        (True, "compiling a program, once for these shapes, or waiting for other processes ...", "done"),
    ],
)
def test_what_takes_long_is_announced(communicates, begins, ends, monkeypatch, messages):
    monkeypatch.setattr(compilation, "ANNOUNCE_AFTER", 0.0)
    with compilation.announced(fluid.Program(), None, communicates):
        wait_for(messages)
    first, last = messages()
    assert (first["msg"], first["ops"]) == (begins, 0)
    assert last["msg"] == ends and last["seconds"] >= 0


def test_what_is_fast_is_not_announced(messages):
    with compilation.announced(fluid.Program(), None, False):
        pass
    assert not messages()
