"""The command line, run in this process."""

import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid.cli import main
from refluid.inference.samples import make_samples
from saved_models import MODELS, feed_of, save


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_inspect_shows_what_a_model_holds(tmp_path, capsys):
    save(tmp_path, "recommender")
    options = ("--ops", "--dot", tmp_path / "graph.dot", "--picture", tmp_path / "graph.svg")
    code, out, _ = run(capsys, "inspect", tmp_path, *options)
    assert code == 0
    for words in ("feed     user  int64[-1, 1]", "fetch    save_infer_model/scale_0", "lookup_table", "-> fetch"):
        assert words in out
    assert "6 parameters, 341 elements, 1,364 bytes" in out
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")
    assert (tmp_path / "graph.svg").read_text().startswith("<svg")


def test_inspect_needs_no_parameters(tmp_path, capsys):
    save(tmp_path, "dense", params_filename="weights")
    (tmp_path / "weights").unlink()
    assert run(capsys, "inspect", tmp_path)[0] == 0


@pytest.mark.parametrize("form", ["stablehlo", "safetensors", "combined", "separate"])
def test_convert_writes_a_model_that_loads(tmp_path, capsys, form):
    expected = save(tmp_path / "model", "dense")
    code, out, _ = run(capsys, "convert", tmp_path / "model", tmp_path / "out", "--to", form)
    assert code == 0 and out.startswith("wrote ")
    np.testing.assert_allclose(refluid.load(tmp_path / "out")(**feed_of("dense"))[0], expected[0], rtol=1e-5)


@pytest.mark.parametrize("form", ["stablehlo", "combined"])
def test_convert_does_not_write_into_the_model_it_reads(tmp_path, capsys, form):
    save(tmp_path / "model", "dense")
    (tmp_path / "link").symlink_to(tmp_path / "model")
    before = sorted((tmp_path / "model").iterdir())
    for out in ("model", "link", "model/../model"):
        code, _, err = run(capsys, "convert", tmp_path / "model", tmp_path / out, "--to", form)
        assert code == 2 and "is the model's own folder; choose another one to write" in err
    with pytest.raises(ValueError, match="own folder"):
        refluid.export(tmp_path / "model", tmp_path / "model")
    assert sorted((tmp_path / "model").iterdir()) == before


def test_convert_fixes_shapes(tmp_path, capsys):
    save(tmp_path / "model", "dense")
    options = ("--to=stablehlo", "--platforms=cpu,tpu", "--shape")
    arguments = ("convert", tmp_path / "model", tmp_path / "out", *options)
    assert run(capsys, *arguments, "x=5,13")[0] == 0
    code, _, err = run(capsys, *arguments, "x=five")
    assert code == 2 and "--shape must look like FEED=8,13" in err


def test_convert_fixes_the_sizes_of_sequences(tmp_path, capsys):
    save(tmp_path / "model", "text")
    arguments = ("convert", tmp_path / "model", tmp_path / "out", "--to=stablehlo")
    assert "--sequences words=8,256,64" in run(capsys, *arguments)[2]
    assert "--sequences must look like FEED=8,256,64, not words=3" in run(capsys, *arguments, "--sequences=words=3")[2]
    assert run(capsys, *arguments, "--sequences=words=3,9,4")[0] == 0
    code, out, _ = run(capsys, "inspect", tmp_path / "out")
    assert code == 0 and "words  int64[-1, 1], up to 3 sequences of 9 rows in all and 4 in the longest" in out
    assert "runs on  cpu" in out and "embedding_0.w_0  float32  [30, 4]    480" in out


@pytest.mark.parametrize("name", MODELS)
def test_check_compares_the_forms(tmp_path, capsys, name):
    save(tmp_path, name)
    code, out, err = run(capsys, "check", tmp_path)
    assert code == 0, err
    assert "eager" in out and "the forms agree" in out
    assert "exported" in out and "not compared" not in out


def test_check_takes_data(tmp_path, capsys):
    save(tmp_path / "model", "dense")
    np.savez(tmp_path / "data.npz", **feed_of("dense"))
    assert run(capsys, "check", tmp_path / "model", "--data", tmp_path / "data.npz")[0] == 0
    save(tmp_path / "text", "text")
    np.savez(tmp_path / "text.npz", **{"words": np.zeros([4, 1], "int64"), "words.lengths": [1, 3]})
    assert run(capsys, "check", tmp_path / "text", "--data", tmp_path / "text.npz")[0] == 0
    np.savez(tmp_path / "data.npz", z=1)
    code, _, err = run(capsys, "check", tmp_path / "model", "--data", tmp_path / "data.npz")
    assert code == 2 and "has no array x" in err


def test_check_finds_a_model_that_is_not_what_was_trained(tmp_path, capsys):
    _, (predicted,) = MODELS["dense"]()
    label = fluid.layers.data("label", [1], dtype="int64")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(predicted, label))
    fluid.optimizer.Adam(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [predicted], exe)
    (tmp_path / "program").write_bytes(fluid.default_main_program().desc.serialize_to_string())
    fluid.io.save_persistables(exe, str(tmp_path / "params"))
    fluid.io.save_persistables(exe, str(tmp_path), filename="all_params")
    arguments = ("check", tmp_path / "model", "--program", tmp_path / "program")
    for extra in ((), ("--params", tmp_path / "all_params")):
        code, out, err = run(capsys, *arguments, *extra)
        assert code == 0, err
        assert "training" in out and "parameter" not in out

    exe.run(feed={**feed_of("dense"), "label": np.zeros([5, 1], "int64")}, fetch_list=[loss])
    fluid.io.save_persistables(exe, str(tmp_path / "params"))
    code, out, _ = run(capsys, *arguments, "--params", tmp_path / "params")
    assert code == 1 and "too far" in out and "differences are too large" in out
    assert "parameter  fc_0.w_0" in out


def test_what_cannot_be_done_is_told_on_standard_error(tmp_path, capsys):
    for command in (["inspect"], ["check"], ["convert", tmp_path / "out", "--to", "combined"]):
        code, out, err = run(capsys, command[0], tmp_path / "absent", *command[1:])
        assert code == 2 and out == "" and err.startswith(f"refluid {command[0]}: there is no model file")
    with pytest.raises(SystemExit) as exit:
        main(["convert", "a", "b", "--to", "zip"])
    assert exit.value.code == 2
    save(tmp_path / "model", "dense")
    refluid.export(tmp_path / "model", tmp_path / "exported")
    code, _, err = run(capsys, "check", tmp_path / "exported")
    assert code == 2 and "is an exported model" in err


def test_made_up_ids_stay_in_the_smallest_table_they_reach():
    ids = fluid.layers.data("ids", [1], dtype="int64")
    fluid.layers.embedding(fluid.layers.reshape(ids, [-1, 1]), [7, 2])
    fluid.layers.one_hot(ids, depth=3)
    label = fluid.layers.data("label", [1], dtype="int64")
    fluid.layers.cross_entropy(fluid.layers.data("p", [5]), label)
    found = make_samples(fluid.default_main_program(), ["ids", "label", "p"], 200)
    assert set(found["ids"].ravel()) == {0, 1, 2} and found["label"].max() == 4
    assert found["p"].shape == (200, 5) and found["p"].dtype == np.float32
