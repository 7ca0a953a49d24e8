"""refluid.load, refluid.export, and models in their different forms."""

import builtins
import sys

import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid.errors import FeedError
from refluid.inference.models import FORMS, open_model, save_model
from saved_models import MODELS, feed_of, save

PLAIN = [name for name in MODELS if name != "text"]


def assert_same(found, expected, tolerance=1e-6):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_a_function(tmp_path, name):
    expected = save(tmp_path, name)
    model = refluid.load(tmp_path)
    assert model.feeds == list(feed_of(name)) and len(model.fetches) == len(expected)
    assert_same(model(**feed_of(name)), expected)
    assert_same(model(*feed_of(name).values()), expected)


def test_a_model_is_compiled_once_for_each_shape(tmp_path):
    save(tmp_path, "dense")
    model = refluid.load(tmp_path)
    for count in (5, 5, 2, 5, 2):
        model(**feed_of("dense", count))
    assert model._executor.compilations == 2


def test_feeds_that_do_not_fit_are_told(tmp_path):
    save(tmp_path, "recommender")
    model, feed = refluid.load(tmp_path), feed_of("recommender")
    with pytest.raises(FeedError, match="feed item: the model needs it"):
        model(user=feed["user"])
    with pytest.raises(FeedError, match="feed other: the model has no such feed"):
        model(other=feed["user"], **feed)
    with pytest.raises(FeedError, match="feed user: it is given twice"):
        model(feed["user"], **feed)
    with pytest.raises(TypeError, match="takes 2 feeds"):
        model(1, 2, 3)


@pytest.mark.parametrize("form", FORMS)
def test_parameters_change_their_form_and_back(tmp_path, form):
    expected = save(tmp_path / "model", "recommender")
    save_model(open_model(tmp_path / "model"), tmp_path / form, form)
    assert_same(refluid.load(tmp_path / form)(**feed_of("recommender")), expected)
    save_model(open_model(tmp_path / form), tmp_path / "back", "separate")
    for path in (tmp_path / "model").iterdir():
        assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_combined_file_of_any_name_is_found(tmp_path):
    expected = save(tmp_path, "dense", params_filename="weights")
    assert_same(refluid.load(tmp_path)(**feed_of("dense")), expected)
    (tmp_path / "notes").write_text("which of the two?")
    with pytest.raises(FileNotFoundError, match="no file for 4 of 4 parameters: fc_0.b_0"):
        refluid.load(tmp_path)
    assert_same(refluid.load(tmp_path, params_filename="weights")(**feed_of("dense")), expected)


def test_what_is_no_model_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no model file"):
        refluid.load(tmp_path)
    save(tmp_path, "dense")
    with pytest.raises(ValueError, match="a model is saved separate, combined, safetensors, not 'zip'"):
        save_model(open_model(tmp_path), tmp_path / "out", "zip")


def test_a_safetensors_file_of_another_model_or_none_is_told(tmp_path):
    save(tmp_path / "one", "dense")
    save(tmp_path / "other", "image")
    for name in ("one", "other"):
        save_model(open_model(tmp_path / name), tmp_path / f"{name}_st", "safetensors")
    file = tmp_path / "one_st" / "parameters.safetensors"
    file.write_bytes((tmp_path / "other_st" / "parameters.safetensors").read_bytes())
    with pytest.raises(ValueError, match="fc_0.b_0 has shape"):
        refluid.load(tmp_path / "one_st")
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="is not a safetensors file"):
        refluid.load(tmp_path / "one_st")


@pytest.mark.parametrize(("package", "form"), [("safetensors", "safetensors"), ("flatbuffers", "stablehlo")])
def test_a_missing_package_is_named(tmp_path, monkeypatch, package, form):
    save(tmp_path, "dense")
    model = open_model(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def refuse(name, *rest):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        if form == "stablehlo":
            refluid.export(model, tmp_path / "out")
        else:
            save_model(model, tmp_path / "out", form)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", PLAIN)
def test_an_exported_model_gives_the_same_numbers_for_any_batch(tmp_path, name):
    expected = save(tmp_path / "model", name)
    refluid.export(tmp_path / "model", tmp_path / "exported")
    model = refluid.load(tmp_path / "exported")
    assert model.feeds == list(feed_of(name))
    assert_same(model(**feed_of(name)), expected)
    assert_same(model(**feed_of(name, 3)), refluid.load(tmp_path / "model")(**feed_of(name, 3)))
    with pytest.raises(FeedError, match="the model needs it"):
        model()


def test_an_exported_model_runs_without_refluid(tmp_path):
    import json

    import jax

    expected = save(tmp_path / "model", "dense")
    refluid.export(tmp_path / "model", tmp_path / "out", platforms=["cpu", "cuda", "tpu"])
    exported = jax.export.deserialize(bytearray((tmp_path / "out" / "model.jax_export").read_bytes()))
    with np.load(tmp_path / "out" / "parameters.npz") as arrays:
        parameters = dict(arrays)
    signature = json.loads((tmp_path / "out" / "signature.json").read_text())
    assert signature["platforms"] == ["cpu", "cuda", "tpu"]
    feed = feed_of("dense")
    assert_same(exported.call(parameters, [feed[f["name"]] for f in signature["feeds"]]), expected, 1e-5)
    assert "stablehlo.dot_general" in (tmp_path / "out" / "model.mlir").read_text()


def test_fixed_shapes_and_sequences_in_exports(tmp_path):
    save(tmp_path / "dense", "dense")
    refluid.export(tmp_path / "dense", tmp_path / "fixed", shapes={"x": [5, 13]})
    assert refluid.load(tmp_path / "fixed")(**feed_of("dense"))[0].shape == (5, 3)
    with pytest.raises(FeedError, match="no such feed"):
        refluid.export(tmp_path / "dense", tmp_path / "none", shapes={"z": [5, 13]})
    save(tmp_path / "text", "text")
    with pytest.raises(ValueError, match="feed words holds sequences"):
        refluid.export(tmp_path / "text", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_sequences_of_any_lengths_that_fit_run_in_an_export(tmp_path):
    expected = save(tmp_path / "text", "text")
    refluid.export(tmp_path / "text", tmp_path / "out", sequences={"words": (3, 10, 4)})
    model = refluid.load(tmp_path / "out")
    assert_same(model(**feed_of("text")), expected, 1e-6)
    other = fluid.create_lod_tensor(np.arange(10).reshape(10, 1), [[4, 4, 2]], fluid.CPUPlace())
    assert_same(model(other), refluid.load(tmp_path / "text")(other), 1e-6)
    for lengths in ([4, 4, 3], [5, 1, 1], [2, 2]):
        wrong = fluid.create_lod_tensor(np.zeros([sum(lengths), 1], "int64"), [lengths], fluid.CPUPlace())
        with pytest.raises(FeedError, match="exported for up to 3 sequences of 10 rows in all and 4 in the longest"):
            model(wrong)
    with pytest.raises(FeedError, match="it holds sequences"):
        model(np.zeros([3, 1], "int64"))


def test_sequences_come_out_of_an_export(tmp_path):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=2)
    extra = fluid.layers.data("extra", [2])
    embedded = fluid.layers.embedding(words, [9, 2])
    sentences = fluid.layers.sequence_pool(embedded, "sum")
    out = fluid.layers.fc(fluid.layers.concat([fluid.layers.sequence_pool(sentences, "sum"), extra], axis=1), 1)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path / "m"), ["words", "extra"], [sentences, embedded, out], exe)
    feed = {
        "words": fluid.create_lod_tensor(np.arange(6).reshape(6, 1), [[2, 1], [1, 3, 2]], fluid.CPUPlace()),
        "extra": np.ones([2, 2], "float32"),
    }
    refluid.export(tmp_path / "m", tmp_path / "out", sequences={"words": (2, 8, 4)})
    got, expected = (refluid.load(tmp_path / name).run(feed) for name in ("out", "m"))
    assert [t.lod() for t in got[:2]] == [t.lod() for t in expected[:2]] == [[[0, 2, 3]], [[0, 2, 3], [0, 1, 4, 6]]]
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.array(mine), np.array(theirs), rtol=1e-6)
