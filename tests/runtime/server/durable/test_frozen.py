"""Arrays at one moment, copied while they are in use."""

import threading

import numpy as np
import pytest

from refluid.runtime.server.durable import frozen
from refluid.runtime.server.durable.frozen import FrozenArrays


@pytest.mark.parametrize("helpers", [0, 3])
def test_all_who_finish_share_the_work_and_return_when_it_is_done(monkeypatch, helpers):
    monkeypatch.setattr(frozen, "_PIECE", 1000)
    sources = {"w": np.arange(12345.0).reshape(5, -1), "b": np.ones(7, np.int64), "rate": np.array(0.5, np.float32)}
    copies = FrozenArrays(sources, {})
    complete = []

    def help_out():
        copies.finish()
        complete.append(copies.is_complete)

    threads = [threading.Thread(target=help_out) for _ in range(helpers)]
    for thread in threads:
        thread.start()
    help_out()
    for thread in threads:
        thread.join()
    assert complete == [True] * (helpers + 1)
    for name, source in sources.items():
        assert copies.arrays[name].dtype == source.dtype
        np.testing.assert_array_equal(copies.arrays[name], source)
        assert not np.shares_memory(copies.arrays[name], source)


def test_memory_is_used_again_for_arrays_of_the_same_form():
    first = FrozenArrays({"w": np.zeros(3), "b": np.zeros(2)}, {})
    first.finish()
    second = FrozenArrays({"w": np.ones(3), "b": np.ones(4)}, first.arrays)
    second.finish()
    assert second.arrays["w"] is first.arrays["w"] and second.arrays["b"] is not first.arrays["b"]
    np.testing.assert_array_equal(second.arrays["w"], 1)
