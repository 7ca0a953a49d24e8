"""Ops that bring the processes of a collective job together."""

import sys
from types import SimpleNamespace

import pytest

import paddle.fluid as fluid
from refluid.ir import VarType

ENDPOINTS = ["127.0.0.1:6170", "127.0.0.1:6171", "127.0.0.1:6172"]
IDS = {
    "c_gen_nccl_id": ("Out", {"rank": 1, "endpoint": ENDPOINTS[1], "other_endpoints": [ENDPOINTS[0], ENDPOINTS[2]]}),
    "gen_nccl_id": ("NCCLID", {"trainer_id": 1, "trainers": ENDPOINTS}),
}


@pytest.fixture
def joined(monkeypatch):
    """The calls of `refluid.runtime.collective.join`."""
    calls = []
    runtime = SimpleNamespace(join=lambda endpoints, rank: calls.append((endpoints, rank)))
    monkeypatch.setitem(sys.modules, "refluid.runtime.collective", runtime)
    return calls


def run(type, slot, attrs):
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name="id", type=VarType.RAW, persistable=True)
    block.append_op(type=type, outputs={slot: "id"}, attrs=attrs)
    block.append_op(type="c_comm_init", inputs={"X": "id"}, attrs={"nranks": 3, "rank": 1, "ring_id": 0})
    block.append_op(type="c_comm_init_all", attrs={"devices": [], "ring_id": 0})
    fluid.Executor(fluid.CPUPlace()).run(program)


@pytest.mark.parametrize("type", IDS)
def test_a_startup_program_joins_processes(type, joined):
    run(type, *IDS[type])
    assert joined == [(tuple(ENDPOINTS), 1)]


def test_a_single_process_joins_nobody(joined):
    run("gen_nccl_id", "NCCLID", {"trainer_id": 0, "trainers": ENDPOINTS[:1]})
    assert joined == []
