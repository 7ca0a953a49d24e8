"""Trainer programs: lookups first, gradients sent where they are ready, nothing of the updates between them."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid
from programs_to_distribute import FIRST, SECOND, assert_survives_protobuf, config, lines, regression, tagger, transpile
from refluid.errors import OpError
from refluid.ir import OpRole
from refluid.ir.remote import look_up_locally


def main():
    return fluid.default_main_program().global_block()


def test_gradients_are_sent_where_they_are_ready_and_parameters_received_at_the_end():
    """Before: ..., sgd, sgd. The updates are gone; sliced gradients are split, sliced parameters put together."""
    regression(size=2)
    program = transpile().get_trainer_program(wait_port=False)
    assert lines(program.global_block(), "epmap", "send_varnames", "recv_varnames", "sections", last=9) == [
        f" = send(fc_0.b_0@GRAD, epmap=['{FIRST}'], send_varnames=['fc_0.b_0@GRAD'], sections=[2])",
        "@EMPTY@ fc_0.w_0@GRAD = mul_grad(x, fc_0.w_0, fc_0.tmp_0, fc_0.tmp_0@GRAD)",
        "fc_0.w_0@GRAD.block0 fc_0.w_0@GRAD.block1 = split_byref(fc_0.w_0@GRAD, sections=[4, 4])",
        f" = send(fc_0.w_0@GRAD.block0, fc_0.w_0@GRAD.block1, epmap=['{SECOND}', '{FIRST}'], "
        "send_varnames=['fc_0.w_0@GRAD.block0', 'fc_0.w_0@GRAD.block1'], sections=[4, 4])",
        " = send_barrier()",
        f"fc_0.b_0 = recv(epmap=['{FIRST}'], recv_varnames=['fc_0.b_0'], sections=[2])",
        f"fc_0.w_0.block0 fc_0.w_0.block1 = recv(epmap=['{SECOND}', '{FIRST}'], "
        "recv_varnames=['fc_0.w_0.block0', 'fc_0.w_0.block1'], sections=[4, 4])",
        " = fetch_barrier()",
        "fc_0.w_0 = concat(fc_0.w_0.block0, fc_0.w_0.block1)",
    ]
    assert "sgd" not in [op.type for op in program.global_block().ops]


def test_every_operator_of_an_exchange_says_who_talks_to_whom():
    tagger()
    for program in (transpile(trainer_id=1).get_trainer_program(wait_port=False), fluid.default_startup_program()):
        talking = [op for op in program.global_block().ops if op.role & (OpRole.RPC | OpRole.Dist)]
        assert talking
        for op in talking:
            found = [op.attrs[name] for name in ("trainer_id", "trainers", "endpoints", "distributed_mode")]
            assert found == [1, 2, [FIRST, SECOND], 0], op.type
        assert_survives_protobuf(program)


def test_rows_of_a_table_are_looked_up_on_servers_and_their_gradients_sent_as_rows():
    tagger(padding_idx=3)
    program = transpile().get_trainer_program(wait_port=False)
    first, *_ = program.global_block().ops
    wanted = {
        "table_name": "emb",
        "table_names": ["emb.block0", "emb.block1"],
        "epmap": [FIRST, SECOND],
        "height_sections": [5, 5],
        "padding_idx": 3,
        "dtype": 5,
        "emb_dim": 4,
        "lookup_version": 1,
    }
    assert (first.type, first.inputs, first.outputs) == (
        "distributed_lookup_table",
        {"Ids": ["word"]},
        {"Outputs": ["embedding_0.tmp_0"]},
    )
    assert {name: first.attrs[name] for name in wanted} == wanted
    assert lines(program.global_block(), "height", "height_sections")[-6:-3] == [
        "emb@GRAD = lookup_table_grad(word, embedding_0.tmp_0@GRAD, height=10)",
        "emb@GRAD.block0 emb@GRAD.block1 = split_selected_rows(emb@GRAD, height_sections=[5, 5])",
        " = send(emb@GRAD.block0, emb@GRAD.block1)",
    ]
    assert "emb" not in {name for op in program.global_block().ops if op.type == "recv" for name in op.output("Out")}
    assert program.global_block().var("emb").persistable


def embed(ids, name, **options):
    return fluid.layers.embedding(ids, [10, 4], is_sparse=True, param_attr=name, **options)


def finish(found):
    loss = fluid.layers.mean(fluid.layers.concat(found, axis=1) if isinstance(found, list) else found)
    fluid.optimizer.SGD(0.1).minimize(loss)


def test_all_slots_of_a_table_are_one_lookup_and_stand_first():
    words = [fluid.layers.data(f"word{i}", [1], dtype="int64") for i in range(3)]
    found = [fluid.layers.fc(embed(word, "emb"), 2) for word in words[:2]]
    found.append(embed(words[2], "emb", padding_idx=0))
    finish([*found, embed(words[0], "other")])
    transpile()
    assert lines(main(), "table_name", "padding_idx")[:4] == [
        "embedding_0.tmp_0 embedding_1.tmp_0 = distributed_lookup_table(word0, word1, table_name=emb, padding_idx=-1)",
        "embedding_2.tmp_0 = distributed_lookup_table(word2, table_name=emb, padding_idx=0)",
        "embedding_3.tmp_0 = distributed_lookup_table(word0, table_name=other, padding_idx=-1)",
        "fc_0.tmp_0 = mul(embedding_0.tmp_0, fc_0.w_0)",
    ]


def test_what_makes_ids_comes_before_the_lookups():
    word = fluid.layers.data("word", [3], dtype="int64")
    hidden = fluid.layers.fc(fluid.layers.data("x", [2]), 2)
    found = embed(fluid.layers.reshape(word, [-1, 3, 1]), "emb")
    finish([hidden, fluid.layers.reduce_sum(found, 1)])
    transpile()
    assert [op.type for op in main().ops[:3]] == ["reshape2", "distributed_lookup_table", "mul"]


def test_lookups_that_need_others_wait_for_them():
    first = embed(fluid.layers.data("word", [1], dtype="int64"), "emb")
    chosen = fluid.layers.reshape(fluid.layers.argmax(first, axis=1), [-1, 1])
    finish([embed(chosen, "other"), first])
    transpile()
    types = [op.type for op in main().ops[:4]]
    assert types == ["distributed_lookup_table", "arg_max", "reshape2", "distributed_lookup_table"]


def test_ids_that_are_overwritten_after_somebody_read_them_stay_where_they_are():
    word = fluid.layers.data("word", [1], dtype="int64")
    counter = fluid.layers.elementwise_add(word, word)
    before = fluid.layers.cast(counter, "float32")
    fluid.layers.increment(counter)
    finish([before, embed(counter, "emb")])
    transpile()
    assert [op.type for op in main().ops[:4]] == ["elementwise_add", "cast", "increment", "distributed_lookup_table"]


def test_a_table_that_is_also_used_otherwise_is_held_by_trainers():
    word = fluid.layers.data("word", [1], dtype="int64")
    found = embed(word, "emb")
    weights = main().var("emb")
    finish(fluid.layers.matmul(found, weights, transpose_y=True))
    transpile()
    assert "lookup_table" in [op.type for op in main().ops]
    assert ["emb"] in [op.output("Out") for op in main().ops if op.type == "concat"]


def test_looking_up_locally_undoes_looking_up_remotely():
    word, ids = fluid.layers.data("word", [1], dtype="int64"), fluid.layers.data("ids", [2], dtype="int64")
    found = [embed(word, "emb"), embed(word, "emb", padding_idx=2)]
    found.append(fluid.layers.reduce_sum(fluid.embedding(ids, [10, 4], is_sparse=True, param_attr="emb"), 1))
    loss = fluid.layers.mean(fluid.layers.concat(found, axis=1))
    before = sorted(lines(main(), "padding_idx", "is_sparse"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    transpile()
    back = fluid.default_main_program().clone(for_test=True)
    look_up_locally(back)
    assert sorted(lines(back.global_block(), "padding_idx", "is_sparse")) == before


def test_a_test_clone_keeps_lookups_and_drops_the_exchange():
    tagger()
    transpile()
    test = fluid.default_main_program().clone(for_test=True)
    assert [op.type for op in test.global_block().ops] == [
        "distributed_lookup_table",
        "mul",
        "elementwise_sub",
        "square",
        "mean",
    ]


def test_sums_of_rows_that_are_only_sent_leave_merging_to_the_send():
    word = fluid.layers.data("word", [1], dtype="int64")
    finish([embed(word, "emb"), embed(word, "emb", padding_idx=2)])
    assert [op.attrs.get("merges_rows", True) for op in main().ops if op.type == "sum"] == [True]
    trainer = transpile().get_trainer_program(wait_port=False)
    sums = [op for op in trainer.global_block().ops if op.type == "sum"]
    assert [op.attrs.get("merges_rows") for op in sums] == [False]


def test_sums_of_rows_that_a_trainer_reads_merge_them():
    word = fluid.layers.data("word", [1], dtype="int64")
    found = [embed(word, "emb"), embed(word, "emb", padding_idx=2)]
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(1.0))
    finish(found)
    trainer = transpile(sync_mode=False).get_trainer_program(wait_port=False)
    types = [op.type for op in trainer.global_block().ops]
    sums = [op for op in trainer.global_block().ops if op.type == "sum"]
    assert "clip" in types and all(op.attrs.get("merges_rows", True) for op in sums)


def test_what_looks_at_updated_parameters_comes_after_the_exchange():
    regression()
    average = fluid.optimizer.ExponentialMovingAverage(0.9)
    average.update()
    transpile()
    types = [op.type for op in main().ops]
    last = max(place for place, type in enumerate(types) if type == "fetch_barrier")
    readers = [place for place, op in enumerate(main().ops) if "fc_0.w_0" in op.input_arg_names]
    assert last < readers[-1] and readers[-2] < last


def test_a_schedule_stays_where_something_looks_at_it():
    rate = fluid.layers.exponential_decay(0.1, 10, 0.9)
    regression(fluid.optimizer.SGD(rate))
    fluid.layers.scale(rate, 2.0)
    program = transpile()
    assert "increment" in [op.type for op in main().ops]
    assert "increment" in [op.type for op in program.get_pserver_program(FIRST).block(1).ops]


def test_trainers_cannot_read_what_servers_keep():
    regression(fluid.optimizer.Momentum(0.1, 0.9))
    fluid.layers.reduce_sum(main().var("fc_0.w_0_velocity_0"))
    with pytest.raises(OpError, match="fc_0.w_0_velocity_0 lives on the servers; trainers cannot read it"):
        transpile()


def test_parameters_that_something_else_writes_cannot_be_distributed():
    x = fluid.layers.data("x", [8])
    fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1)).minimize(fluid.layers.mean(fluid.layers.fc(x, 1)))
    with pytest.raises(OpError, match="it writes fc_0.w_0, which servers update"):
        transpile()


def test_async_trainers_clip_before_they_send_and_wait_for_nobody():
    regression(clip=fluid.clip.GradientClipByGlobalNorm(1.0))
    transpile(sync_mode=False)
    types = [op.type for op in main().ops]
    assert {"sqrt", "elementwise_div", "elementwise_mul"} < set(types)
    assert not {"send_barrier", "fetch_barrier", "sgd"} & set(types)
    sends = [line for line in lines(main(), "send_varnames") if line.startswith(" = send(")]
    assert sends == [
        " = send(elementwise_mul_0.tmp_0, send_varnames=['fc_0.b_0@GRAD'])",
        " = send(elementwise_mul_1.tmp_0, send_varnames=['fc_0.w_0@GRAD'])",
    ]


def test_half_async_trainers_have_a_barrier_of_their_own():
    regression()
    transpile(config(sync_mode=False, half_async=True))
    assert lines(main(), "half_async", last=3)[0] == " = send_barrier(half_async=True)"


def test_whole_variables_may_be_cut_on_the_way():
    regression(size=2)
    transpile(config(sync_mode=False, runtime_split_send_recv=True))
    assert lines(main(), "sections", last=3) == [
        " = send(fc_0.w_0@GRAD, sections=[4, 4])",
        "fc_0.b_0 = recv(sections=[2])",
        "fc_0.w_0 = recv(sections=[4, 4])",
    ]
