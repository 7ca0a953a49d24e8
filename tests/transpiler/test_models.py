"""Models as scripts write them, distributed in every mode: programs that lack nothing and survive protobuf."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid
from golden.train_models import CASES
from programs_to_distribute import SERVERS, assert_survives_protobuf, config
from refluid.errors import OpError

MODES = {
    "sync": {},
    "async": {"sync_mode": False, "runtime_split_send_recv": True},
    "half_async": {"sync_mode": False, "half_async": True},
    "geo": {"sync_mode": False, "geo_sgd_mode": True},
}


def assert_lacks_nothing(blocks, given):
    """What operators read is declared, and written before, kept or given."""
    known = {v.name for v in blocks[0].program.list_vars() if v.persistable or v.is_data} | {"@EMPTY@", *given}
    for op in (op for block in blocks for op in block.ops):
        unknown = [name for name in op.input_arg_names if name not in known]
        assert not unknown, f"{op.type} reads {unknown}"
        assert all(op.block.find_var_recursive(name) for name in op.output_arg_names if name != "@EMPTY@")
        known |= {name for inner in op.within() for name in inner.output_arg_names}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_model_can_be_distributed(case, mode):
    case.build(fluid)
    transpiler = fluid.DistributeTranspiler(config(min_block_size=64, **MODES[mode]))
    optimizers = {op.type for op in fluid.default_main_program().global_block().ops if op.input("Param")}
    if mode == "geo" and optimizers != {"sgd"}:
        with pytest.raises(OpError, match="GEO training requires SGD"):
            transpiler.transpile(0, pservers=SERVERS, trainers=2)
        return
    transpiler.transpile(0, pservers=SERVERS, trainers=2)
    trainer = transpiler.get_trainer_program(wait_port=False)
    assert_lacks_nothing([trainer.global_block()], ())
    assert_survives_protobuf(trainer)
    assert_survives_protobuf(fluid.default_startup_program())
    for endpoint in SERVERS.split(","):
        server, startup = transpiler.get_pserver_programs(endpoint)
        (listen,) = server.global_block().ops
        assert_lacks_nothing(listen.attr("optimize_blocks"), listen.input("X"))
        made = {name for op in startup.global_block().ops for name in op.output_arg_names}
        assert {v.name for v in server.list_vars() if v.persistable} <= made
        assert_survives_protobuf(server)
        assert_survives_protobuf(startup)
