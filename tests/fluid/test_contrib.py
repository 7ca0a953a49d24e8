"""Tools of contrib: weight decay apart from the gradient, costs of a model, tables that servers held."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid

contrib = fluid.contrib


def line():
    x = fluid.layers.data("x", [3])
    one = fluid.initializer.Constant(1.0)
    weight, bias = fluid.ParamAttr("w", initializer=one), fluid.ParamAttr("b", initializer=one)
    return fluid.layers.mean(fluid.layers.fc(x, 1, param_attr=weight, bias_attr=bias))


def train(optimizer, steps):
    optimizer.minimize(line())
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    seen = []
    for _ in range(steps):
        exe.run(feed={"x": np.ones((2, 3), "float32")})
        seen.append([float(fluid.executor._fetch_var(name).flat[0]) for name in "wb"])
    return seen


def test_decay_apart_from_the_gradient_is_as_in_real_fluid():
    adam = contrib.extend_with_decoupled_weight_decay(fluid.optimizer.Adam)(learning_rate=0.1, weight_decay=0.01)
    seen = train(adam, 3)
    assert [w for w, _ in seen] == pytest.approx([0.89, 0.7811, 0.67329], rel=1e-5)  # recorded from Fluid 1.8.5
    types = [op.type for op in fluid.default_main_program().global_block().ops]
    assert types[-8:] == "scale scale elementwise_sub assign elementwise_sub assign adam adam".split()
    assert str(adam) == "Weight Decay, params: b,w"


def test_some_parameters_may_not_decay():
    sgd = contrib.extend_with_decoupled_weight_decay(fluid.optimizer.SGD)
    chosen = sgd(learning_rate=0.1, weight_decay=0.5, apply_decay_param_fun=lambda name: name == "b")
    assert train(chosen, 1) == [pytest.approx([0.9, 0.4])]


def test_decay_must_be_a_number_and_its_base_an_optimizer():
    with pytest.raises(TypeError, match="expected a class of optimizers, not 3"):
        contrib.extend_with_decoupled_weight_decay(3)
    with pytest.raises(TypeError, match="weight_decay must be a float or a variable"):
        contrib.extend_with_decoupled_weight_decay(fluid.optimizer.SGD)("much", learning_rate=0.1)


def test_a_summary_counts_parameters_and_operations_as_real_fluid_does(capsys):
    image = fluid.layers.data("image", [3, 8, 8])
    hidden = fluid.layers.pool2d(fluid.layers.conv2d(image, 4, 3, act="relu"), 2, "max", 2)
    fluid.layers.fc(fluid.layers.batch_norm(hidden), 5)
    contrib.model_stat.summary(fluid.default_main_program())
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == "| No. |       TYPE |     INPUT |    OUTPUT | PARAMs | FLOPs |"
    assert shown[3] == "|   0 |     conv2d | (3, 8, 8) | (4, 6, 6) |    108 |  7776 |"
    assert shown[7] == "|   4 |        mul | (4, 3, 3) |      (5,) |    181 |   180 |"
    assert shown[-2:] == ["Total PARAMs: 297(0.0003M)", "Total FLOPs: 8460(0.00G)"]


def table_program():
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [10, 2], is_sparse=True, is_distributed=True, param_attr="table")
    loss = fluid.layers.mean(fluid.layers.fc(rows, 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return rows


def test_a_trainer_program_becomes_one_that_holds_its_table():
    rows = table_program()
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, pservers="127.0.0.1:6174", trainers=1)
    program = transpiler.get_trainer_program(wait_port=False).clone(for_test=True)
    assert "distributed_lookup_table" in [op.type for op in program.global_block().ops]
    assert contrib.convert_dist_to_sparse_program(program) is program
    (lookup,) = (op for op in program.global_block().ops if op.type == "lookup_table")
    assert (lookup.input("W"), lookup.output("Out")) == (["table"], [rows.name])
    assert lookup.attr("is_sparse") and not lookup.attr("is_distributed")


def test_a_program_without_such_a_table_is_returned():
    with pytest.warns(UserWarning, match="no distributed table"):
        assert contrib.convert_dist_to_sparse_program(fluid.default_main_program()) is fluid.default_main_program()


def test_a_saved_table_is_loaded_to_go_on_and_to_predict(tmp_path):
    table_program()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    main = fluid.default_main_program()
    fluid.io.save_persistables(exe, str(tmp_path), main)
    expected = fluid.executor._fetch_var("table")
    (tmp_path / "tables").mkdir()
    (tmp_path / "table").rename(tmp_path / "tables" / "part")
    with fluid.scope_guard(fluid.Scope()):
        contrib.load_persistables_for_increment(str(tmp_path), exe, main, "table", str(tmp_path / "tables" / "part"))
        assert (fluid.executor._fetch_var("table") == expected).all()
    (tmp_path / "tables" / "part").rename(tmp_path / "table")
    with fluid.scope_guard(fluid.Scope()):
        loaded = contrib.load_persistables_for_inference(str(tmp_path), exe, main, "table")
        assert loaded is main and (fluid.executor._fetch_var("table") == expected).all()
        with pytest.raises(ValueError, match="the program has no table other"):
            contrib.load_persistables_for_inference(str(tmp_path), exe, main, "other")
