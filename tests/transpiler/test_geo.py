"""GEO-SGD: trainers train by themselves, servers add up what has changed."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid
from programs_to_distribute import FIRST, assert_survives_protobuf, config, lines, regression, tagger, transpile
from refluid.errors import OpError
from refluid.ir import VarType


def geo(**fields):
    return config(sync_mode=False, geo_sgd_mode=True, geo_sgd_need_push_nums=5, **fields)


def test_a_trainer_updates_by_itself_and_exchanges_parameters():
    tagger()
    before = lines(fluid.default_main_program().global_block())
    program = transpile(geo()).get_trainer_program(wait_port=False)
    now = lines(program.global_block(), "send_varnames", "recv_varnames", "sections", "geo_push_nums", "is_sparse")
    assert [line.split(" = ")[0] for line in now[:-4]] == [line.split(" = ")[0] for line in before]
    assert now[-4:] == [
        " = send(emb, word, send_varnames=['emb.block0', 'emb.block1'], sections=[5, 5], geo_push_nums=5, "
        "is_sparse=True)",
        " = send(fc_0.w_0, send_varnames=['fc_0.w_0'], sections=[4], geo_push_nums=5, is_sparse=False)",
        "emb = recv(recv_varnames=['emb.block0', 'emb.block1'], sections=[5, 5])",
        "fc_0.w_0 = recv(recv_varnames=['fc_0.w_0'], sections=[4])",
    ]
    assert_survives_protobuf(program)


def test_a_server_adds_what_has_changed():
    tagger()
    program = transpile(geo()).get_pserver_program(FIRST)
    assert [lines(block) for block in program.blocks[1:]] == [
        ["emb.block0 = sum(emb.block0, emb.block0.delta)"],
        ["fc_0.w_0 = sum(fc_0.w_0, fc_0.w_0.delta)"],
    ]
    (listen,) = program.global_block().ops
    assert listen.input("X") == ["emb.block0.delta", "fc_0.w_0.delta"]
    assert listen.attr("distributed_mode") == 3
    assert listen.attr("slices") == ["emb.block0|emb|0|5|10,4", "fc_0.w_0|fc_0.w_0|0|4|4,1"]
    kinds = [program.global_block().var(name).type for name in listen.input("X")]
    assert kinds == [VarType.SELECTED_ROWS, VarType.LOD_TENSOR]
    assert_survives_protobuf(program)


def test_a_table_that_decays_is_sent_whole():
    """Weight decay changes every row, not only those that were looked up."""
    word, y = fluid.layers.data("word", [1], dtype="int64"), fluid.layers.data("y", [4])
    found = fluid.layers.embedding(word, [10, 4], is_sparse=True, param_attr="emb")
    decay = fluid.regularizer.L2Decay(0.1)
    fluid.optimizer.SGD(0.1, regularization=decay).minimize(fluid.layers.mean(found - y))
    transpiler = transpile(geo())
    assert (
        lines(transpiler.get_trainer_program(wait_port=False).global_block(), "is_sparse", last=2)[0]
        == " = send(emb, is_sparse=False)"
    )
    server = transpiler.get_pserver_program(FIRST).global_block()
    assert server.var("emb.block0.delta").type == VarType.LOD_TENSOR


def test_only_sgd_can_be_added_up():
    regression(fluid.optimizer.Adam(0.1))
    with pytest.raises(OpError, match="GEO training requires SGD; fc_0.b_0 is updated by adam"):
        transpile(geo())
