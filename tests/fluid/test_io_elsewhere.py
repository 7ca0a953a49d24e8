"""Wherever a path is taken, it may be one that fsspec knows; ``memory://`` stands for all of them."""

import fsspec
import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid.cli import main
from refluid.files.storage import at, files_below

FEED = {"x": np.linspace(0, 1, 8, dtype="float32").reshape(2, 4)}
ROOT = "memory://models"


@pytest.fixture(autouse=True)
def empty_memory():
    fsspec.filesystem("memory").store.clear()
    yield
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def model():
    x = fluid.layers.data("x", [4])
    predicted = fluid.layers.fc(fluid.layers.fc(x, 3, act="relu"), 1)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor, predicted


def values():
    names = [v.name for v in fluid.default_main_program().list_vars() if fluid.io.is_persistable(v)]
    return {name: np.array(fluid.global_scope().find_var(name).get_tensor()) for name in names}


def spoil():
    for name, value in values().items():
        fluid.global_scope().find_var(name).get_tensor().set(value * 0 - 1, fluid.CPUPlace())


def assert_same(got, expected):
    assert sorted(got) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


@pytest.mark.parametrize("filename", [None, "all"])
def test_variables(model, filename):
    before = values()
    fluid.io.save_persistables(model[0], f"{ROOT}/vars", filename=filename)
    assert files_below(at(f"{ROOT}/vars")) == (sorted(before) if filename is None else ["all"])
    spoil()
    fluid.io.load_persistables(model[0], f"{ROOT}/vars", filename=filename)
    assert_same(values(), before)
    with pytest.raises(FileNotFoundError):
        fluid.io.load_persistables(model[0], f"{ROOT}/absent", filename=filename)


def test_states(model):
    before = values()
    fluid.save(fluid.default_main_program(), f"{ROOT}/state/model")
    fluid.io.save_persistables(model[0], f"{ROOT}/vars")
    spoil()
    fluid.load(fluid.default_main_program(), f"{ROOT}/state/model")
    assert_same(values(), before)
    spoil()
    fluid.load(fluid.default_main_program(), f"{ROOT}/vars")
    assert_same(values(), before)
    assert_same(fluid.io.load_program_state(f"{ROOT}/state/model"), before)
    assert_same(fluid.io.load_program_state(f"{ROOT}/vars"), before)
    with pytest.raises(FileNotFoundError, match="memory://models/absent"):
        fluid.load(fluid.default_main_program(), f"{ROOT}/absent")


def test_files_without_a_folder(model):
    before, main = values(), fluid.default_main_program()
    fluid.save(main, "memory://model")
    fluid.io.save_persistables(model[0], None, filename="memory://all")
    assert files_below(at("memory://")) == ["all", "model.pdmodel", "model.pdopt", "model.pdparams"]
    for load in (
        lambda: fluid.load(main, "memory://model"),
        lambda: fluid.io.load_persistables(model[0], None, filename="memory://all"),
        lambda: fluid.load(main, "memory://all", var_list=fluid.io.get_program_persistable_vars(main)),
    ):
        spoil()
        load()
        assert_same(values(), before)


@pytest.mark.parametrize("params_filename", [None, "params"])
def test_inference_models(model, params_filename):
    executor, predicted = model
    (expected,) = executor.run(feed=FEED, fetch_list=[predicted])
    folder = f"{ROOT}/inference"
    fluid.io.save_inference_model(folder, ["x"], [predicted], executor, params_filename=params_filename)
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = fluid.io.load_inference_model(folder, executor, params_filename=params_filename)
        np.testing.assert_array_equal(executor.run(program, feed=FEED, fetch_list=fetches)[0], expected)
    np.testing.assert_array_equal(refluid.load(folder)(**FEED)[0], expected)
    config = fluid.core.AnalysisConfig(folder)
    if params_filename:
        config = fluid.core.AnalysisConfig(f"{folder}/__model__", f"{folder}/{params_filename}")
    (found,) = fluid.core.create_paddle_predictor(config).run([fluid.core.PaddleTensor(FEED["x"])])
    np.testing.assert_array_equal(found.as_ndarray(), expected)


def test_the_command_line(model, capsys):
    executor, predicted = model
    fluid.io.save_inference_model(f"{ROOT}/m", ["x"], [predicted], executor)
    with at(f"{ROOT}/m/__model__").open("rb") as stream:
        assert stream.read(1)
    assert main(["inspect", f"{ROOT}/m", "--dot", f"{ROOT}/graph.dot"]) == 0
    assert main(["convert", f"{ROOT}/m", f"{ROOT}/exported", "--to", "stablehlo"]) == 0
    assert main(["convert", f"{ROOT}/m", f"{ROOT}/tensors", "--to", "safetensors"]) == 0
    assert "memory:///models/graph.dot" in capsys.readouterr().out
    expected = refluid.load(f"{ROOT}/m")(**FEED)[0]
    for form in ("exported", "tensors"):
        np.testing.assert_allclose(refluid.load(f"{ROOT}/{form}")(**FEED)[0], expected, rtol=1e-6)
    assert main(["inspect", f"{ROOT}/absent"]) == 2
    assert "memory:///models/absent/__model__" in capsys.readouterr().err


def test_ops_that_save_and_load(model):
    block = fluid.default_main_program().global_block()
    block.append_op(type="save", inputs={"X": ["fc_0.w_0"]}, attrs={"file_path": f"{ROOT}/w"})
    model[0].run(feed=FEED, fetch_list=[])
    loading = fluid.Program()
    loaded = loading.global_block().create_var(name="fc_0.w_0", dtype="float32", shape=[4, 3], persistable=True)
    loading.global_block().append_op(type="load", outputs={"Out": [loaded]}, attrs={"file_path": f"{ROOT}/w"})
    before = values()
    spoil()
    model[0].run(loading)
    np.testing.assert_array_equal(values()["fc_0.w_0"], before["fc_0.w_0"])


def test_a_trainer_goes_on_from_checkpoints_elsewhere():
    def train_func():
        x, y = fluid.layers.data("x", [2]), fluid.layers.data("y", [1])
        return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))

    def reader():
        for step in range(4):
            yield [(np.full(2, step, "float32"), np.ones(1, "float32"))]

    def trainer():
        config = fluid.CheckpointConfig(f"{ROOT}/checkpoints", step_interval=1)
        return fluid.Trainer(train_func, lambda: fluid.optimizer.SGD(0.1), checkpoint_config=config)

    def die(event):
        if isinstance(event, fluid.EndStepEvent) and event.step == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer().train(1, die, reader, ["x", "y"])
    steps, second = [], trainer()
    second.train(1, lambda e: steps.append(e.step) if isinstance(e, fluid.EndStepEvent) else None, reader, ["x", "y"])
    assert steps == [2, 3]
    assert files_below(at(f"{ROOT}/checkpoints")) == []
    second.save_params(f"{ROOT}/params")
    third = fluid.Trainer(train_func, lambda: fluid.optimizer.SGD(0.1), param_path=f"{ROOT}/params")
    w = [np.array(each.scope.find_var("fc_0.w_0").get_tensor()).tolist() for each in (second, third)]
    assert w[0] == w[1]


def test_programs_traces_and_samples(model):
    from paddle.dataset import common
    from paddle.fluid.incubate.fleet.utils import utils
    from paddle.reader import creator

    main = fluid.default_main_program()
    for is_text in (False, True):
        utils.save_program(main, f"{ROOT}/program", is_text)
        loaded = utils.load_program(f"{ROOT}/program", is_text)
        assert loaded.desc.serialize_to_string() == main.desc.serialize_to_string()
    utils.parse_program(main, f"{ROOT}/lists")
    with fluid.profiler.profiler("CPU", profile_path=f"{ROOT}/lists/trace"):
        pass
    assert files_below(at(f"{ROOT}/lists")) == ["ops.log", "trace", "vars_all.log", "vars_persistable.log"]
    common.split(lambda: iter(["a\n", "b\n"]), 2, f"{ROOT}/%d", lambda lines, file: file.write("".join(lines).encode()))
    assert list(creator.text_file(f"{ROOT}/0")()) == ["a", "b"]
