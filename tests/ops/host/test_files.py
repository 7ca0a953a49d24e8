"""save, load, save_combine and load_combine inside programs."""

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OpError
from refluid.ir import VarType


def run(program, **arguments):
    return fluid.Executor(fluid.CPUPlace()).run(program, **arguments)


def test_a_program_saves_what_it_computes_and_another_loads_it(tmp_path):
    path = str(tmp_path / "folder" / "doubled")
    x = fluid.layers.data("x", [3])
    doubled = fluid.layers.scale(x, 2.0)
    fluid.default_main_program().global_block().append_op(type="save", inputs={"X": doubled}, attrs={"file_path": path})
    value = np.arange(6, dtype="float32").reshape(2, 3)
    run(fluid.default_main_program(), feed={"x": value})

    reader = fluid.Program()
    with fluid.program_guard(reader):
        loaded = reader.global_block().create_var(name="loaded", shape=[-1, 3], dtype="float32")
        fluid.layers.load(loaded, path)
        tripled = fluid.layers.scale(loaded, 3.0)
    np.testing.assert_array_equal(run(reader, fetch_list=[tripled])[0], 6 * value)


def test_sequences_and_selected_rows_are_saved_and_loaded(tmp_path):
    scope, block = fluid.global_scope(), fluid.default_main_program().global_block()
    tensor = scope.var("sequences").get_tensor()
    tensor.set(np.arange(5, dtype="int64").reshape(5, 1), fluid.CPUPlace())
    tensor.set_lod([[0, 2, 5]])
    rows = scope.var("rows").get_selected_rows()
    rows.set_rows([4, 1])
    rows.set_height(6)
    rows.get_tensor().set(np.ones((2, 3), "float32"), fluid.CPUPlace())
    kinds = {"sequences": VarType.LOD_TENSOR, "rows": VarType.SELECTED_ROWS}
    for name, kind in kinds.items():
        block.create_var(name=name, type=kind, dtype="int64" if name == "sequences" else "float32", persistable=True)
    attrs = {"file_path": str(tmp_path / "both")}
    block.append_op(type="save_combine", inputs={"X": list(kinds)}, attrs=attrs)
    run(fluid.default_main_program())

    loader = fluid.Program()
    for name, kind in kinds.items():
        loader.global_block().create_var(name=name, type=kind, persistable=True)
    loader.global_block().append_op(type="load_combine", outputs={"Out": list(kinds)}, attrs=attrs)
    with fluid.scope_guard(fluid.Scope()):
        run(loader)
        loaded = fluid.global_scope().find_var("sequences").get_tensor()
        assert loaded.lod() == [[0, 2, 5]] and np.array(loaded).ravel().tolist() == [0, 1, 2, 3, 4]
        rows = fluid.global_scope().find_var("rows").get_selected_rows()
        assert (rows.rows(), rows.height(), rows.get_tensor().shape()) == ([4, 1], 6, [2, 3])


def test_a_part_of_a_tensor_or_half_precision_can_be_loaded(tmp_path):
    path = str(tmp_path / "w")
    x = fluid.layers.data("x", [4], append_batch_size=False)
    fluid.default_main_program().global_block().append_op(type="save", inputs={"X": x}, attrs={"file_path": path})
    run(fluid.default_main_program(), feed={"x": np.arange(4, dtype="float32")})
    loader = fluid.Program()
    part, half = (loader.global_block().create_var(name=name) for name in ("part", "half"))
    attrs = {"file_path": path, "seek": 1, "shape": [1, 2]}
    loader.global_block().append_op(type="load", outputs={"Out": part}, attrs=attrs)
    with fluid.program_guard(loader):
        fluid.layers.load(half, path, load_as_fp16=True)
    got = run(loader, fetch_list=[part, half])
    np.testing.assert_array_equal(got[0], [[1, 2]])
    assert got[1].dtype == np.float16


def test_errors_name_the_file(tmp_path):
    path = str(tmp_path / "w")
    out = fluid.default_main_program().global_block().create_var(name="out", shape=[1], dtype="float32")
    fluid.layers.load(out, path)
    with pytest.raises(OpError, match="does not exist"):
        run(fluid.default_main_program())
    (tmp_path / "w").write_bytes(b"nonsense")
    with pytest.raises(OpError, match="variable out: .*w: the file ends too early"):
        run(fluid.default_main_program())
    saver = fluid.Program()
    x = saver.global_block().create_var(name="x", shape=[1], dtype="float32", persistable=True)
    saver.global_block().append_op(type="save", inputs={"X": x}, attrs={"file_path": path, "overwrite": False})
    fluid.global_scope().var("x").get_tensor().set(np.ones(1, "float32"), fluid.CPUPlace())
    with pytest.raises(OpError, match="already exists, and the op has overwrite=False"):
        run(saver)
