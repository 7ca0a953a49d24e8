"""When a trainer is lost, and what follows: decisions from flags."""

import pytest

from refluid import flags
from refluid.ir.modes import Mode
from refluid.runtime.server.liveness import Liveness, Policy


@pytest.fixture
def given(monkeypatch):
    """Sets flags for a test."""
    monkeypatch.setattr(flags, "_set", found := {})
    return found


def test_by_default_a_lost_trainer_is_noticed_within_half_a_minute_and_numbers_do_not_change_silently(given):
    sync = Liveness.of_flags(Mode.SYNC)
    assert (sync.silence, sync.heartbeat) == (30, 5)
    assert (sync.when_silent, sync.when_failed) == (Policy.WAIT, Policy.FAIL)
    for mode in (Mode.ASYNC, Mode.HALF_ASYNC, Mode.GEO):
        rules = Liveness.of_flags(mode)
        assert (rules.when_silent, rules.when_failed) == (Policy.LEAVE_OUT, Policy.LEAVE_OUT)


@pytest.mark.parametrize("policy", Policy)
def test_a_policy_that_is_asked_for_holds_in_every_mode_and_for_failures_too(given, policy):
    given["FLAGS_rpc_lost_trainer"] = policy.value
    for mode in Mode:
        rules = Liveness.of_flags(mode)
        assert (rules.when_silent, rules.when_failed) == (policy, policy)


def test_heartbeats_are_frequent_enough_for_the_silence_that_is_allowed(given):
    given["FLAGS_worker_update_interval_secs"] = 3
    assert Liveness.of_flags(Mode.SYNC).heartbeat == 0.5
    given["FLAGS_worker_update_interval_secs"] = 900  # as in Fluid
    assert Liveness.of_flags(Mode.SYNC).heartbeat == 5


def test_flags_that_cannot_be_are_refused(given):
    given["FLAGS_rpc_lost_trainer"] = "ignore"
    with pytest.raises(ValueError, match="FLAGS_rpc_lost_trainer is 'ignore'; expected wait, leave_out or fail"):
        Liveness.of_flags(Mode.SYNC)
    given.update({"FLAGS_rpc_lost_trainer": "", "FLAGS_worker_update_interval_secs": 0})
    with pytest.raises(ValueError, match="FLAGS_worker_update_interval_secs is 0; expected seconds, more than 0"):
        Liveness.of_flags(Mode.SYNC)
