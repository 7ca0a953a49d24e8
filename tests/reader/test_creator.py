"""Readers of arrays and files, and the older spelling of the package."""

import importlib
import pickle

import numpy as np
import pytest

import paddle
from paddle.reader import creator
from refluid.files.pickles import PickleError
from refluid.files.recordio import Compressor, Writer


def test_np_array_gives_rows():
    rows = list(creator.np_array(np.arange(6).reshape(2, 3))())
    assert [row.tolist() for row in rows] == [[0, 1, 2], [3, 4, 5]]
    assert list(creator.np_array(7)()) == [7]


def test_text_file_gives_lines_without_their_ends(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("a \n\nb", encoding="utf-8")
    assert list(creator.text_file(path)()) == ["a ", "", "b"]


def write_samples(path, samples, protocol=2):
    with Writer(path, Compressor.NoCompress) as writer:
        for sample in samples:
            writer.write(pickle.dumps(sample, protocol))


def test_recordio_gives_the_samples_of_all_files(tmp_path):
    write_samples(tmp_path / "a-0", [(np.arange(2.0), 1)], protocol=4)
    write_samples(tmp_path / "a-1", [([3], "x")])
    write_samples(tmp_path / "b", [7])
    (array, label), *others = creator.recordio(f"{tmp_path}/a-*,{tmp_path}/b")()
    assert array.tolist() == [0.0, 1.0] and label == 1
    assert others == [([3], "x"), 7]
    assert list(creator.recordio([tmp_path / "b", tmp_path / "a-1"], buf_size=1)()) == [7, ([3], "x")]


def test_recordio_names_files_that_it_does_not_find(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file matches .*/c-\\*"):
        list(creator.recordio(f"{tmp_path}/c-*")())


def test_recordio_runs_nothing_that_a_file_asks_for(tmp_path):
    write_samples(tmp_path / "a", [1, print])
    samples = creator.recordio(str(tmp_path / "a"))()
    assert next(samples) == 1
    with pytest.raises(PickleError, match="a, record 1: .*print"):
        next(samples)


def test_paddle_v2_is_the_same_package_under_its_older_name():
    import paddle.v2
    import paddle.v2.dataset.mnist
    from paddle.v2.reader import creator as aliased

    assert aliased is creator
    assert paddle.v2.dataset is paddle.dataset
    assert paddle.v2.batch is paddle.batch
    assert creator.__spec__.name == creator.__name__ == "paddle.reader.creator"


def test_fluid_has_its_older_name_too():
    import paddle.fluid
    import paddle.v2.fluid as fluid
    from paddle.v2.fluid import layers

    assert fluid is paddle.fluid
    assert layers is paddle.fluid.layers
    assert importlib.import_module("paddle.v2.fluid.layers.math_op_patch") is paddle.fluid.layers.math_op_patch


def test_paddle_v2_says_what_it_does_not_have():
    import paddle.v2

    with pytest.raises(AttributeError, match="has no attribute 'layer'"):
        paddle.v2.layer  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("paddle.v2.layer")


def test_a_second_paddle_in_the_environment_is_refused(monkeypatch):
    monkeypatch.setattr(paddle._metadata, "version", lambda name: "1.8.5")
    with pytest.raises(ImportError, match=r"paddlepaddle 1\.8\.5 and refluid are installed in the same environment"):
        paddle._refuse_a_second_paddle()
