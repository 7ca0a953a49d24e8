"""A place decides where values live: observed in a process with three CPU devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import paddle.fluid as fluid
from refluid.places import CPUPlace

SCRIPT = Path(__file__).with_name("placed_programs.py")


@pytest.fixture(scope="module")
def observed():
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "3"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("kind", "devices"), [("plain", [0, 1, 2]), ("host", [0, 2]), ("eager", [0, 1]), ("recurrent", [0, 1])]
)
def test_state_and_fetches_live_on_the_device_of_the_place(observed, kind, devices):
    for device, found in zip(devices, observed[kind], strict=True):
        assert [found[what] for what in ("startup", "state", "fetched")] == [[device]] * 3


@pytest.mark.parametrize("kind", ["plain", "host", "eager", "recurrent"])
def test_every_device_trains_to_the_same_numbers(observed, kind):
    first, *others = [found["losses"] for found in observed[kind]]
    assert len(set(first)) == len(first)
    assert all(losses == first for losses in others)


def test_kernels_run_on_other_devices(observed):
    assert "lstm" in observed["kernels"]


def test_a_scope_that_runs_at_another_place_moves_there(observed):
    losses, devices = zip(*observed["moved"], strict=True)
    assert list(losses) == observed["plain"][0]["losses"]
    assert list(devices) == [[1], [2], [1], [2]]


def test_loaded_values_go_where_programs_run(observed):
    assert observed["loaded"] == [[1], [1]]


def test_a_server_holds_its_variables_at_its_place(observed):
    assert observed["shard"] == [2]


def test_arrays_fed_from_another_device_are_copied(observed):
    assert observed["fed"] == observed["plain"][1]["losses"][:2]


def test_cpu_places_are_the_devices_there_are(observed):
    assert observed["places"] == ["CPUPlace()", "CPUPlace(1)", "CPUPlace(2)", "CPUPlace()"]


def test_cpu_places_are_equal_by_device():
    assert fluid.CPUPlace() == CPUPlace(0)
    assert hash(fluid.CPUPlace()) == hash(CPUPlace(0))
    assert repr(fluid.CPUPlace()) == "CPUPlace()"


def test_a_cpu_device_that_is_not_there_is_refused():
    with pytest.raises(RuntimeError, match=r"CPUPlace\(99\): JAX sees \d+ CPU devices?; .*jax_num_cpu_devices"):
        CPUPlace(99)


@pytest.mark.parametrize("wrong", ["cpu", 0, fluid.CPUPlace])
def test_an_executor_takes_places_only(wrong):
    with pytest.raises(TypeError, match=r"Executor takes a place, such as fluid.CPUPlace\(\) .*, not .* of type"):
        fluid.Executor(wrong)
