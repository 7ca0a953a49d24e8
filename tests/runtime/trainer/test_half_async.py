"""Half-async: gradients of several steps, or threads, become one push."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.one_process import Role, servers
from refluid import flags
from refluid.runtime.trainer import session
from refluid.runtime.trainer.half_async import steps_per_exchange

FLAG = "FLAGS_communicator_max_merge_var_num"
HALF = {"sync_mode": False, "half_async": True}


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    """Flags are as at the start of a process, and again afterwards."""
    monkeypatch.setattr(flags, "_set", {})
    monkeypatch.delenv(FLAG, raising=False)
    monkeypatch.delenv("CPU_NUM", raising=False)


def test_scripts_and_the_environment_say_how_many_steps_are_merged(monkeypatch):
    assert steps_per_exchange() == 1, "not the 20 of async mode"
    monkeypatch.setenv("CPU_NUM", "4")
    assert steps_per_exchange() == 4
    monkeypatch.setenv(FLAG, "3")
    assert steps_per_exchange() == 3
    fluid.set_flags({FLAG: 2})
    assert steps_per_exchange() == 2


def rounds():
    return [status["round"] for status in session.current().status()]


def test_three_steps_are_one_update_with_the_mean_of_their_gradients(tmp_path):
    with servers(**HALF) as endpoints:
        whole = Role(endpoints, **HALF)
        whole.start()
        whole.step(range(3))  # the samples of three steps in one batch
        expected = float(whole.step(9)[0])
        whole.close()
    fluid.set_flags({FLAG: 3})
    with servers(**HALF) as endpoints:
        trainer = Role(endpoints, **HALF)
        trainer.start()
        seen = []
        for seed in (0, 1, 2, 9, 4):
            seen.append((rounds(), float(trainer.step(seed)[0]), session.current().communicators[0].queued))
        assert [count for count, _, _ in seen] == [[0, 0]] * 3 + [[1, 1]] * 2
        assert [queued for _, _, queued in seen] == [1, 2, 0, 1, 2]
        with fluid.scope_guard(trainer.scope):  # saving sends the rest first
            fluid.io.save_persistables(trainer.exe, str(tmp_path), trainer.main)
        assert rounds() == [2, 2]
        communicator = fluid.communicator.Communicator(trainer.main)
        trainer.step(5)
        communicator.stop()
        assert rounds() == [3, 3]
        with pytest.raises(RuntimeError, match="start it again"):
            trainer.step(6)
        communicator.start()
        trainer.step(6)
        trainer.close()
    assert seen[3][1] == pytest.approx(expected, rel=1e-5)


def test_steps_that_one_server_has_of_a_predecessor_are_not_merged_with_later_ones():
    fluid.set_flags({FLAG: 3})
    with servers(**HALF) as endpoints:
        trainer = Role(endpoints, **HALF)
        trainer.start()
        session.current()._members._passed_over[endpoints[0]] = 2
        seen = []
        for seed in range(5):
            trainer.step(seed)
            seen.append(rounds())
        assert seen == [[0, 0], [0, 1], [0, 1], [0, 1], [1, 2]]
        trainer.close()


def test_threads_share_a_merge_and_the_state_of_the_program():
    fluid.set_flags({FLAG: 2})
    with servers(normalised=True, **HALF) as endpoints:
        trainer = Role(endpoints, normalised=True, **HALF)
        trainer.start()
        with ThreadPoolExecutor(4) as threads:
            losses = list(threads.map(trainer.step, range(20)))
        assert rounds() == [10, 10]
        assert session.current().step == 20
        trainer.close()
    assert np.isfinite(losses).all()
