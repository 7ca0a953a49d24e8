"""fluid.io: what is saved comes back, in every form, all of it or nothing."""

import os
import pickle
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import UninitializedError
from refluid.files.pickles import PickleError

FEED = {"x": np.linspace(0, 1, 8, dtype="float32").reshape(2, 4), "y": np.ones((2, 1), "float32")}


def build():
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 3, act="relu"))
    predicted = fluid.layers.fc(hidden, 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(predicted, y))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return predicted, loss


@pytest.fixture
def model():
    predicted, loss = build()
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    executor.run(feed=FEED, fetch_list=[loss])
    return executor, predicted, loss


def values(predicate=fluid.io.is_persistable):
    scope = fluid.global_scope()
    chosen = [v.name for v in fluid.default_main_program().list_vars() if predicate(v)]
    return {name: np.array(scope.find_var(name).get_tensor()) for name in chosen}


def spoil():
    for name, value in values().items():
        fluid.global_scope().find_var(name).get_tensor().set(value * 0 - 1, fluid.CPUPlace())


def assert_same(got, expected):
    assert sorted(got) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


@pytest.mark.parametrize("filename", [None, "all"])
def test_persistables_come_back(model, tmp_path, filename):
    before = values()
    fluid.io.save_persistables(model[0], str(tmp_path / "saved"), filename=filename)
    assert sorted(os.listdir(tmp_path / "saved")) == (sorted(before) if filename is None else ["all"])
    spoil()
    fluid.io.load_persistables(model[0], str(tmp_path / "saved"), filename=filename)
    assert_same(values(), before)


def test_parameters_are_saved_without_optimizer_state(model, tmp_path):
    fluid.io.save_params(model[0], str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted(values(fluid.io.is_parameter))


def test_variables_are_chosen_by_list_or_predicate(model, tmp_path):
    main = fluid.default_main_program()
    fluid.io.save_vars(model[0], str(tmp_path / "list"), main, vars=[main.global_block().var("fc_0.w_0")])
    fluid.io.save_vars(
        model[0], str(tmp_path / "chosen"), main, predicate=lambda v: v.persistable and "fc_1.w" in v.name
    )
    assert os.listdir(tmp_path / "list") == ["fc_0.w_0"]
    assert sorted(os.listdir(tmp_path / "chosen")) == ["fc_1.w_0", "fc_1.w_0_velocity_0"]


def test_variables_travel_as_bytes(model):
    before = values()
    data = fluid.io.save_persistables(model[0], None)
    spoil()
    fluid.io.load_persistables(model[0], None, filename=data)
    assert_same(values(), before)


@pytest.mark.parametrize("filename", [None, "all"])
def test_a_bad_file_leaves_every_variable_as_it_was(model, tmp_path, filename):
    fluid.io.save_persistables(model[0], str(tmp_path), filename=filename)
    damaged = tmp_path / (filename or sorted(os.listdir(tmp_path))[-1])
    damaged.write_bytes(damaged.read_bytes()[:-1])
    spoil()
    before = values()
    last = sorted(before)[-1]
    problem = f"variable {last}: {damaged}: the file ends too early: .* missing, .* are left; expected float32"
    with pytest.raises(ValueError, match=problem):
        fluid.io.load_persistables(model[0], str(tmp_path), filename=filename)
    assert_same(values(), before)


def test_loading_says_what_does_not_fit(model, tmp_path):
    executor, folder = model[0], str(tmp_path)
    fluid.io.save_persistables(executor, folder)
    fluid.io.save_persistables(executor, folder, filename="all")
    os.remove(tmp_path / "fc_0.b_0")
    with pytest.raises(FileNotFoundError, match=r"variable fc_0.b_0: there is no file"):
        fluid.io.load_persistables(executor, folder)
    first = fluid.default_main_program().global_block().var("batch_norm_0.b_0")
    with pytest.raises(ValueError, match="holds more than the tensors of batch_norm_0.b_0"):
        fluid.io.load_vars(executor, folder, vars=[first], filename="all")
    with pytest.raises(FileNotFoundError, match="no file .*/absent, which should hold batch_norm_0.b_0, .* more"):
        fluid.io.load_persistables(executor, folder, filename="absent")
    fluid.io.save_params(executor, folder, filename="parameters")
    more = [*fluid.default_main_program().all_parameters(), fluid.Program().global_block().create_var(name="z")]
    more[-1].shape, more[-1].dtype = [2], "int64"
    with pytest.raises(ValueError, match=r"variable z: .*parameters does not hold it; .* of .*, expected int64\[2\]"):
        fluid.io.load_vars(executor, folder, vars=more, filename="parameters")
    other = fluid.Program()
    other.global_block().create_parameter(name="fc_1.w_0", shape=[5, 1], dtype="float32")
    with pytest.raises(ValueError, match=r"has shape \[5, 1\], but .* holds \[3, 1\]"):
        fluid.io.load_params(executor, folder, other)
    other = fluid.Program()
    other.global_block().create_parameter(name="fc_1.w_0", shape=[3, 1], dtype="float64")
    with pytest.raises(ValueError, match=r"is float64, but .* holds float32"):
        fluid.io.load_params(executor, folder, other)
    with fluid.scope_guard(fluid.Scope()), pytest.raises(UninitializedError, match="run the startup program"):
        fluid.io.save_params(executor, folder)


def test_a_forged_name_does_not_lead_out_of_the_folder(model, tmp_path):
    forged = fluid.Program()
    forged.global_block().create_parameter(name="../outside", shape=[1], dtype="float32")
    fluid.global_scope().var("../outside").get_tensor().set(np.ones(1, "float32"), fluid.CPUPlace())
    with pytest.raises(ValueError, match="is not a name for a file"):
        fluid.io.save_params(model[0], str(tmp_path / "folder"), forged)
    with pytest.raises(ValueError, match="is not a name for a file"):
        fluid.io.load_params(model[0], str(tmp_path / "folder"), forged)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("params", [None, "params"])
@pytest.mark.parametrize("name", [None, "model"])
def test_an_inference_model_gives_what_the_program_gives(model, tmp_path, params, name):
    executor, predicted, _ = model
    test = fluid.default_main_program().clone(for_test=True)
    (expected,) = executor.run(test, feed=FEED, fetch_list=[predicted])
    version = fluid.default_main_program()._version
    names = fluid.io.save_inference_model(
        str(tmp_path), ["x"], [predicted], executor, model_filename=name, params_filename=params
    )
    assert names == ["save_infer_model/scale_0.tmp_0"]
    assert fluid.default_main_program()._version == version  # saving does not change, hence not recompile, training
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), executor, name, params)
        assert feeds == ["x"] and [v.name for v in fetches] == names
        assert {op.type for op in program.global_block().ops}.isdisjoint({"mean", "momentum", "square", "mul_grad"})
        (got,) = executor.run(program, feed={"x": FEED["x"]}, fetch_list=fetches)
    np.testing.assert_array_equal(got, expected)


def test_an_inference_model_can_be_cut_inside_and_saved_again(model, tmp_path):
    executor, predicted, _ = model
    fluid.io.save_inference_model(str(tmp_path / "1"), ["batch_norm_0.tmp_2"], [predicted], executor)
    program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path / "1"), executor)
    assert feeds == ["batch_norm_0.tmp_2"]
    assert sorted(os.listdir(tmp_path / "1")) == ["__model__", "fc_1.b_0", "fc_1.w_0"]
    fluid.io.save_inference_model(str(tmp_path / "2"), feeds, fetches, executor, program)
    again = fluid.io.load_inference_model(str(tmp_path / "2"), executor)[0]
    types = [op.type for op in again.global_block().ops]
    assert types == ["feed", "mul", "elementwise_add", "scale", "scale", "fetch"]


def test_the_program_alone_or_the_whole_program_can_be_saved(model, tmp_path):
    executor, predicted, _ = model
    fluid.io.save_inference_model(str(tmp_path / "only"), ["x"], predicted, executor, program_only=True)
    assert os.listdir(tmp_path / "only") == ["__model__"]
    fluid.io.save_inference_model(str(tmp_path / "whole"), "x", predicted, executor, export_for_deployment=False)
    assert sorted(os.listdir(tmp_path / "whole")) == sorted(["__model__.main_program", *values()])
    data = (tmp_path / "whole" / "__model__.main_program").read_bytes()
    assert "momentum" in [op.type for op in fluid.Program.parse_from_string(data).global_block().ops]


def test_an_inference_model_of_one_variable_needs_no_list(model, tmp_path):
    executor, predicted, _ = model
    assert len(fluid.io.save_inference_model(str(tmp_path), "x", predicted, executor)) == 1
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), executor)
        assert feeds == ["x"]
        assert executor.run(program, feed={"x": FEED["x"]}, fetch_list=fetches)[0].shape == (2, 1)


def test_an_inference_model_travels_as_bytes(model, tmp_path):
    executor, predicted, _ = model
    fluid.io.save_inference_model(str(tmp_path), ["x"], [predicted], executor, params_filename="params")
    with fluid.scope_guard(fluid.Scope()):
        contents = [(tmp_path / name).read_bytes() for name in ("__model__", "params")]
        program, _, fetches = fluid.io.load_inference_model(None, executor, *contents)
        assert executor.run(program, feed={"x": FEED["x"]}, fetch_list=fetches)[0].shape == (2, 1)
    with pytest.raises(ValueError, match="must be the contents of the files"):
        fluid.io.load_inference_model(None, executor)


def test_inference_models_explain_what_is_wrong(model, tmp_path):
    executor, predicted, _ = model
    with pytest.raises(ValueError, match="the program has no variable z"):
        fluid.io.save_inference_model(str(tmp_path), ["z"], [predicted], executor)
    with pytest.raises(ValueError, match="target_vars must be a non-empty list of variables"):
        fluid.io.save_inference_model(str(tmp_path), ["x"], [], executor)
    with pytest.raises(ValueError, match="there is no folder .*absent"):
        fluid.io.load_inference_model(str(tmp_path / "absent"), executor)
    with pytest.raises(FileNotFoundError, match="there is no model file"):
        fluid.io.load_inference_model(str(tmp_path), executor)
    (tmp_path / "__model__").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="__model__: these 19 bytes are not a Fluid program"):
        fluid.io.load_inference_model(str(tmp_path), executor)


def test_save_and_load_bring_back_everything(model, tmp_path):
    before, main = values(), fluid.default_main_program()
    fluid.save(main, str(tmp_path / "folder" / "model"))
    assert sorted(os.listdir(tmp_path / "folder")) == ["model.pdmodel", "model.pdopt", "model.pdparams"]
    spoil()
    fluid.load(main, str(tmp_path / "folder" / "model"), model[0])
    assert_same(values(), before)
    spoil()
    fluid.load(main, str(tmp_path / "folder" / "model.pdparams"))
    assert_same(values(), before)


def test_load_reads_folders_and_files_of_variables_too(model, tmp_path):
    before, main = values(), fluid.default_main_program()
    fluid.io.save_persistables(model[0], str(tmp_path / "each"))
    fluid.io.save_persistables(model[0], str(tmp_path / "one"), filename="all")
    variables = fluid.io.get_program_persistable_vars(main)
    spoil()
    fluid.load(main, str(tmp_path / "each"), model[0])
    assert_same(values(), before)
    spoil()
    fluid.load(main, str(tmp_path / "one" / "all"), model[0], var_list=variables)
    assert_same(values(), before)
    assert_same(fluid.load_program_state(str(tmp_path / "each")), before)
    assert_same(fluid.load_program_state(str(tmp_path / "one" / "all"), variables), before)
    with pytest.raises(ValueError, match="pass var_list"):
        fluid.load(main, str(tmp_path / "one" / "all"), model[0])
    with pytest.raises(FileNotFoundError, match="there is neither"):
        fluid.load(main, str(tmp_path / "nothing"), model[0])
    (tmp_path / "each" / "notes").write_text("not a tensor")
    with pytest.raises(ValueError, match="each/notes: .*every file of a folder is read"):
        fluid.load_program_state(str(tmp_path / "each"))


def test_a_program_state_can_be_read_changed_and_set(model, tmp_path):
    main = fluid.default_main_program()
    fluid.save(main, str(tmp_path / "model"))
    state = fluid.load_program_state(str(tmp_path / "model"))
    state["fc_0.w_0"] += 1
    fluid.set_program_state(main, state)
    assert_same(values(), state)
    with pytest.warns(UserWarning, match="no variable for surplus"):
        fluid.set_program_state(main, {"surplus": np.ones(1)})
    with pytest.raises(ValueError, match="has shape"):
        fluid.set_program_state(main, {"fc_0.w_0": np.ones((1, 1), "float32")})


def test_a_state_that_is_no_plain_data_is_not_loaded(model, tmp_path):
    main, before = fluid.default_main_program(), values()
    fluid.save(main, str(tmp_path / "model"))
    target = tmp_path / "made"
    command = f"touch '{target}'".encode()
    (tmp_path / "model.pdopt").write_bytes(b"cos\nsystem\n(X" + struct.pack("<I", len(command)) + command + b"tR.")
    with pytest.raises(PickleError, match=r"model.pdopt: the pickle refers to os.system"):
        fluid.load(main, str(tmp_path / "model"))
    (tmp_path / "model.pdparams").write_bytes(pickle.dumps(dict.fromkeys(before, "text")))
    with pytest.raises(PickleError, match=r"variable .*: .*model.pdparams holds a str for it"):
        fluid.load(main, str(tmp_path / "model"))
    assert_same(values(), before)
    assert not target.exists()


def test_one_parameter_can_be_read(model):
    main = fluid.default_main_program()
    value = fluid.io.get_parameter_value_by_name("fc_0.w_0", model[0])
    np.testing.assert_array_equal(value, values()["fc_0.w_0"])
    with pytest.raises(TypeError, match="is not a parameter"):
        fluid.io.get_parameter_value(main.global_block().var("x"), model[0])


def test_loaded_values_can_be_trained_without_warnings(model, tmp_path):
    executor, _, loss = model
    fluid.io.save_persistables(executor, str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fluid.io.load_persistables(executor, str(tmp_path))
        first = executor.run(feed=FEED, fetch_list=[loss])[0]
        fluid.io.load_persistables(executor, str(tmp_path))
        assert executor.run(feed=FEED, fetch_list=[loss])[0] == first


@pytest.mark.parametrize("way", ["separate", "combined", "state"])
def test_a_kill_at_any_write_leaves_all_old_values_or_all_new_ones(tmp_path, way):
    script = Path(__file__).parent / "saving_to_kill.py"
    run = subprocess.run([sys.executable, script, tmp_path, way], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = run.stdout.split("\n")[:-1]
    assert set(found) == {"1", "2"} and found == sorted(found)
    assert len(found) > 6  # points were tried
