"""What flags mean for the pace of an async trainer."""

import pytest

from refluid import flags
from refluid.runtime.trainer.pacing import Pacing, max_lead


@pytest.fixture
def given(monkeypatch):
    """Sets flags of the communicator; all others are as at the start of a process."""
    for name in [name for name in flags._DEFAULTS if "communicator" in name]:
        monkeypatch.delenv(name, raising=False)
    values = {}
    monkeypatch.setattr(flags, "_set", values)
    return lambda **chosen: values.update({f"FLAGS_communicator_{name}": value for name, value in chosen.items()})


def pacing(gradients=4, in_background=True, sums=True):
    return Pacing.of_flags(gradients, in_background=in_background, sums=sums)


def test_without_flags_nothing_waits_and_parameters_come_with_every_reply(given):
    assert pacing() == Pacing(4, adapts=True, max_merged=None, merge_wait=0.0, pull_after=1)


def test_a_program_without_a_communicator_waits_for_every_message_as_in_fluid(given):
    assert pacing(in_background=False) == Pacing(0)


def test_optimizers_with_memory_get_every_step_as_an_update_of_its_own(given):
    assert pacing(sums=False) == Pacing(1, adapts=True, max_merged=1)
    given(max_merge_var_num=3)
    assert pacing(sums=False).max_merged == 3, "on request, by their mean"


def test_a_bound_that_is_set_holds_as_it_is(given):
    given(max_staleness=5)
    assert pacing() == pacing(in_background=False) == Pacing(5)
    given(max_staleness=0)
    assert pacing() == Pacing(0)


def test_messages_wait_for_more_steps_only_if_the_flag_for_it_is_set(given):
    given(max_merge_var_num=6)
    assert pacing().merge_wait == 0
    given(send_wait_times=5)
    assert pacing() == pacing(in_background=False) == Pacing(12, max_merged=6, merge_wait=0.05)
    given(max_merge_var_num=1)
    assert pacing().merge_wait == 0, "there is nothing to wait for"


def test_parameters_are_requested_after_as_many_gradients_as_the_flag_says(given):
    given(min_send_grad_num_before_recv=10)
    assert pacing(gradients=4) == Pacing(6, pull_after=3)


def test_a_queue_is_a_bound_as_well(given):
    given(send_queue_size=2)
    assert pacing().max_staleness == 3


def test_a_lead_bounds_what_servers_do_not_know_of(given):
    assert max_lead(7, "of the test") is None
    given(max_lead=3)
    assert pacing().max_staleness == 3
    assert max_lead(3, "of the test") == max_lead(1, "of the test") == 3
    with pytest.raises(ValueError, match="FLAGS_communicator_max_lead is 3, but GEO .*: it must be 19 or more"):
        max_lead(19, "GEO exchanges every 20 steps")
