"""Files travel between real Fluid 1.8.5 and refluid, both ways, and say the same on both sides.

What real Fluid wrote is kept in fixtures/ (see interchange/save_and_run.py and record_files.py). With REFLUID_ORACLE,
the path of an interpreter that has real Fluid, it also writes afresh and reads what refluid writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid.cli import main as command_line
from refluid.files.tensors import read_lod_tensor, read_selected_rows, write_holder
from refluid.ir import Program, VarType
from refluid.ir.protobuf import pb
from refluid.runtime.inference.any_rows import look_up_any
from refluid.runtime.tables.rules import zeros
from tables_to_save import make, save, train

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures"
SCRIPT = HERE / "interchange" / "save_and_run.py"
ORACLE = os.environ.get("REFLUID_ORACLE")
needs_oracle = pytest.mark.skipif(
    not ORACLE, reason="REFLUID_ORACLE does not name an interpreter that has real Fluid 1.8.5"
)

sys.path.insert(0, str(HERE / "interchange"))
import models  # noqa: E402
import record_files  # noqa: E402
import save_and_run  # noqa: E402

sys.path.pop(0)
# What real Fluid only finds when it runs: that these hold sequences, and their shapes.
FOUND_LATER = {
    *(("transcriber", name) for name in ("ctc_greedy_decoder_0.tmp_0", "save_infer_model/scale_0.tmp_0")),
    *(("translate", f"save_infer_model/scale_{i}.tmp_0") for i in range(2)),
}
NAMES = [build.__name__ for build in models.MODELS]


def unpack(name, folder):
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as packed:
        packed.extractall(folder / name)
    return folder / name


def outputs_in(path):
    values = save_and_run.read_values(path)
    return [values[f"output_{i}"] for i in range(sum(key.startswith("output_") for key in values))]


def assert_same_outputs(got, expected):
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert isinstance(mine, tuple) == isinstance(theirs, tuple)
        if isinstance(mine, tuple):
            assert mine[1] == theirs[1]
            mine, theirs = mine[0], theirs[0]
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def described(data):
    """A ProgramDesc in one form: sorted, defaults written out, without empty slots and Fluid's own notes."""
    message = pb.ProgramDesc()
    message.ParseFromString(data)
    message.ClearField("op_compatible_map")
    for block in message.blocks:
        ordered = sorted(block.vars, key=lambda variable: variable.name)
        del block.vars[:]
        block.vars.extend(ordered)
        for variable in block.vars:
            variable.persistable, variable.need_check_feed = variable.persistable, variable.need_check_feed
            if variable.type.HasField("lod_tensor"):
                held = variable.type.lod_tensor
                held.lod_level = held.lod_level
                held.tensor.dims[:] = [max(dim, -1) for dim in held.tensor.dims]  # Fluid multiplies unknown dims
        for op in block.ops:
            for slots in (op.inputs, op.outputs):
                kept = sorted((slot for slot in slots if slot.arguments), key=lambda slot: slot.parameter)
                del slots[:]
                slots.extend(kept)
            attrs = sorted(op.attrs, key=lambda attr: attr.name)
            del op.attrs[:]
            op.attrs.extend(attrs)
            op.ClearField("is_target")
    return message


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_real_fluid_loads_and_gives_the_same(name, tmp_path):
    folder = unpack(name, tmp_path)
    got = save_and_run.run(fluid, str(folder), save_and_run.read_feeds(folder))
    assert_same_outputs(got, outputs_in(folder / "data.npz"))


@pytest.mark.parametrize("name", NAMES)
def test_a_program_of_real_fluid_saved_again_describes_the_same(name, tmp_path):
    data = (unpack(name, tmp_path) / "__model__").read_bytes()
    assert described(Program.parse_from_string(data).desc.serialize_to_string()) == described(data)


@pytest.mark.parametrize("build", models.MODELS, ids=NAMES)
def test_a_model_saved_here_has_the_ops_and_variables_of_real_fluid(build, tmp_path):
    theirs = described((unpack(build.__name__, tmp_path) / "__model__").read_bytes()).blocks[0]
    save_and_run.save(fluid, build, str(tmp_path / "mine" / build.__name__))
    mine = described((tmp_path / "mine" / build.__name__ / "__model__").read_bytes()).blocks[0]

    assert [variable.name for variable in mine.vars] == [variable.name for variable in theirs.vars]
    read = {name for op in theirs.ops for slot in op.inputs for name in slot.arguments}
    for here, there in zip(mine.vars, theirs.vars, strict=True):
        if here.type.HasField("tensor_array"):  # of these real Fluid knows the levels when it runs
            there.type.tensor_array.lod_level = here.type.tensor_array.lod_level
        if here.name in read and (build.__name__, here.name) not in FOUND_LATER:
            assert here.type == there.type, here.name
        assert here.persistable == there.persistable, here.name
    assert [op.type for op in mine.ops] == [op.type for op in theirs.ops]
    for here, there in zip(mine.ops, theirs.ops, strict=True):
        if any(attr.name == "sub_block" for attr in there.attrs):  # real Fluid collects their variables in a set
            for slot in (*here.inputs, *there.inputs, *here.outputs, *there.outputs):
                slot.arguments[:] = sorted(slot.arguments)
        assert (list(here.inputs), list(here.outputs)) == (list(there.inputs), list(there.outputs))
        attrs = {attr.name: attr for attr in there.attrs}
        kept = [attr for attr in here.attrs if attr.name in attrs and not attr.name.startswith("op_")]
        assert [attr for attr in kept if attr != attrs[attr.name]] == []


@pytest.mark.parametrize("name", NAMES)
def test_parameters_of_real_fluid_saved_again_are_the_same_bytes(name, tmp_path):
    folder = unpack(name, tmp_path)
    program = fluid.io.load_inference_model(str(folder), None, None, save_and_run.params_file(name))[0]
    fluid.io.save_persistables(None, str(tmp_path / "again"), program, save_and_run.params_file(name))
    again = sorted(path.name for path in (tmp_path / "again").iterdir())
    assert again == sorted(set(os.listdir(folder)) - {"__model__", "data.npz"})
    for file in again:
        assert (tmp_path / "again" / file).read_bytes() == (folder / file).read_bytes(), file


@pytest.mark.parametrize("name", [*record_files.DTYPES, "float16", "sequences", "rows"])
def test_a_tensor_of_real_fluid_is_read_and_written_to_the_byte(name, tmp_path):
    path = unpack("tensors", tmp_path) / name
    with path.open("rb") as stream:
        holder = read_selected_rows(stream) if name == "rows" else read_lod_tensor(stream)
    with (tmp_path / "again").open("wb") as stream:
        write_holder(stream, holder)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    dtype = "float32" if name in ("sequences", "rows") else name
    value = np.asarray(holder.get_tensor().value if name == "rows" else holder.value)
    assert value.dtype == dtype
    np.testing.assert_array_equal(value.reshape(2, 3), record_files.value_of(dtype))
    if name == "sequences":
        assert holder.lod() == [[0, 2, 3], [0, 1, 4, 6]]
    if name == "rows":
        assert (holder.rows(), holder.height()) == ([4, 0], 9)


def test_training_goes_on_from_the_state_that_real_fluid_saved(tmp_path):
    folder = unpack("state", tmp_path)
    loss = record_files.build_training(fluid)
    main = fluid.default_main_program()
    fluid.load(main, str(folder / "model"))
    executor = fluid.Executor(fluid.CPUPlace())
    losses = [executor.run(main, feed=record_files.feed_of(step), fetch_list=[loss])[0] for step in range(3, 6)]
    with np.load(folder / "losses.npz") as data:
        np.testing.assert_allclose(np.concatenate(losses), data["losses"], rtol=1e-5)


def test_the_program_beside_a_state_of_real_fluid_loads(tmp_path):
    program = Program.parse_from_string((unpack("state", tmp_path) / "model.pdmodel").read_bytes())
    assert "adam" in [op.type for op in program.global_block().ops]
    assert program.global_block().var("x").type == VarType.LOD_TENSOR


def run_oracle(*arguments):
    """What real Fluid prints; with one thread, because several of them wait for each other at work."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [str(ORACLE), *map(str, arguments)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


@needs_oracle
def test_models_saved_by_real_fluid_now_load_here(tmp_path):
    run_oracle(SCRIPT, "save", tmp_path)
    for name in NAMES:
        got = save_and_run.run(fluid, str(tmp_path / name), save_and_run.read_feeds(tmp_path / name))
        assert_same_outputs(got, outputs_in(tmp_path / name / "data.npz"))


@needs_oracle
def test_models_saved_here_load_in_real_fluid(tmp_path):
    for build in models.MODELS:
        save_and_run.save(fluid, build, str(tmp_path / build.__name__))
    run_oracle(SCRIPT, "run", tmp_path)
    for name in NAMES:
        assert_same_outputs(outputs_in(tmp_path / name / "ran.npz"), outputs_in(tmp_path / name / "data.npz"))


@needs_oracle
def test_a_state_saved_here_loads_in_real_fluid(tmp_path):
    loss = record_files.build_training(fluid)
    main, executor = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    executor.run(main, feed=record_files.feed_of(0), fetch_list=[loss])
    fluid.save(main, str(tmp_path / "model"))
    (mine,) = executor.run(main, feed=record_files.feed_of(1), fetch_list=[loss])
    code = """
import sys; sys.path.insert(0, sys.argv[1])
import paddle.fluid as fluid, record_files
loss = record_files.build_training(fluid)
main, executor = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
fluid.load(main, sys.argv[2], executor)
print(float(executor.run(main, feed=record_files.feed_of(1), fetch_list=[loss])[0][0]))
"""
    printed = run_oracle("-c", code, HERE / "interchange", tmp_path / "model")
    np.testing.assert_allclose(float(printed.split()[-1]), mine[0], rtol=1e-5)


READ_ROWS = """
import sys
import numpy as np
import paddle.fluid as fluid
exe = fluid.Executor(fluid.CPUPlace())
program, feeds, fetches = fluid.io.load_inference_model(sys.argv[1], exe)
(rows,) = exe.run(program, feed={feeds[0]: np.load(sys.argv[1] + "/ids.npy")}, fetch_list=fetches)
np.save(sys.argv[1] + "/rows.npy", rows)
"""


@needs_oracle
def test_real_fluid_looks_up_any_ids_in_a_table_that_servers_trained(tmp_path):
    ids = np.array([7, 0, 10**15, 2**62])
    tables = make("adagrad", count=2)
    train(tables, ids)
    save(tables, tmp_path / "saved")
    main = Program()
    with fluid.program_guard(main, Program()):
        fed = fluid.layers.data("ids", [1], dtype="int64")
        found = fluid.layers.embedding(fed, [10, 3], is_sparse=True, param_attr="emb")
        look_up_any(main, "emb", zeros())
        exe, folder = fluid.Executor(fluid.CPUPlace()), str(tmp_path / "model")
        fluid.io.save_inference_model(folder, ["ids"], [found], exe, main, program_only=True)
    table = str(tmp_path / "saved" / "emb")
    assert command_line(["table", "export", table, f"{folder}/emb", "--to", "lookup_table"]) == 0
    np.save(f"{folder}/ids.npy", ids.reshape(-1, 1))
    subprocess.run([ORACLE, "-c", READ_ROWS, folder], check=True, capture_output=True)
    rows = np.load(f"{folder}/rows.npy")
    (expected,) = refluid.load(folder)(ids=ids.reshape(-1, 1))
    np.testing.assert_array_equal(rows, expected)
    assert rows.any(axis=1).all()
