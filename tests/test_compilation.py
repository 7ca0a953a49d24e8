"""Compilations that take long are announced, and not blamed for what other processes take."""

from __future__ import annotations

import time

import pytest

import paddle.fluid as fluid
from refluid import compilation


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("talks", "begins", "ends"),
    [
        (False, "refluid: compiling a program of 0 ops, once for these shapes ...", "refluid: compiled in "),
        (
            True,
            "refluid: compiling a program of 0 ops, once for these shapes, or waiting for other processes ...",
            "refluid: done after ",
        ),
    ],
)
def test_what_takes_long_is_announced(talks, begins, ends, monkeypatch, capfd):
    monkeypatch.setattr(compilation, "ANNOUNCE_AFTER", 0.0)
    said = []
    with compilation.announced(fluid.Program(), None, talks):
        wait_for(lambda: said.append(capfd.readouterr().err) or "".join(said))
    said.append(capfd.readouterr().err)
    first, last = "".join(said).splitlines()
    assert first == begins
    assert last.startswith(ends)


def test_what_is_fast_is_not_announced(capfd):
    with compilation.announced(fluid.Program(), None, False):
        pass
    assert not capfd.readouterr().err
