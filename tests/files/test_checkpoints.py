"""Checkpoints: the newest complete one is found, whatever happened to the others."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from refluid.errors import CheckpointWarning
from refluid.files import checkpoints
from refluid.ir import Program
from refluid.scope import Scope
from refluid.tensors import LoDTensor, SelectedRowsTensor


def make(names=("w",), fill=0.0):
    program, scope = Program(), Scope()
    for name in names:
        program.global_block().create_var(name=name, shape=[2], dtype="float32", persistable=True)
        scope.var(name).holder = LoDTensor(np.full(2, fill, "float32"))
    return program, scope


def save(folder, *fills, keep=3):
    for fill in fills:
        program, scope = make(fill=fill)
        checkpoints.save_checkpoint(folder, scope, program, {"step": fill}, keep)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_process_killed_at_any_write_leaves_the_checkpoint_before_it(tmp_path):
    script = Path(__file__).parent / "checkpoints_to_kill.py"
    run = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    *found, last = run.stdout.split("\n")[:-1]
    assert len(found) > 40  # points were tried
    numbers = [-1 if line == "none" else int(line) for line in found]
    assert numbers == sorted(numbers)  # later deaths never lose what was there
    assert set(numbers) == {-1, 0, 1, 2, 3}
    assert last == "finished with 2 checkpoints"


def test_an_empty_or_absent_folder_has_no_checkpoint(tmp_path):
    assert checkpoints.newest_checkpoint(tmp_path) is None
    assert checkpoints.newest_checkpoint(tmp_path / "absent") is None


def test_only_the_newest_are_kept_and_numbers_go_on(tmp_path):
    save(tmp_path, 1, 2, 3, 4, keep=2)
    assert names_in(tmp_path) == ["checkpoint_2", "checkpoint_3"]
    found = checkpoints.newest_checkpoint(tmp_path)
    assert found.number == 3 and found.progress == {"step": 4}


def test_values_come_back_with_sequences_and_selected_rows(tmp_path):
    program, scope = make(("w", "seen"))
    rows = SelectedRowsTensor([3, 1], height=9)
    rows.get_tensor().value = np.array([[1.0], [2.0]], "float32")
    from refluid.ir import VarType

    program.global_block().create_var(name="rows", type=VarType.SELECTED_ROWS, persistable=True)
    scope.var("rows").holder = rows
    scope.var("seen").holder = LoDTensor(np.array([4, 5], "float32"), [[0, 1, 2]])
    checkpoints.save_checkpoint(tmp_path, scope, program, {}, 1)
    scope.var("seen").holder = LoDTensor(np.zeros(2, "float32"))
    checkpoints.load_checkpoint(checkpoints.newest_checkpoint(tmp_path), scope, program)
    assert scope.var("seen").get_tensor().lod() == [[0, 1, 2]]
    assert np.array(scope.var("seen").get_tensor()).tolist() == [4, 5]
    assert scope.var("rows").get_selected_rows().rows() == [3, 1]


@pytest.mark.parametrize("name", [checkpoints.VARIABLES, checkpoints.PROGRESS, checkpoints.MANIFEST])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, name, damage):
    save(tmp_path, 1, 2)
    path = tmp_path / "checkpoint_1" / name
    content = path.read_bytes()
    if damage == "flip":  # in the middle of the manifest is a checksum
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif damage == "cut":
        path.write_bytes(content[:-3])
    else:
        path.unlink()
    with pytest.warns(CheckpointWarning, match="checkpoint_1 is not used: "):
        found = checkpoints.newest_checkpoint(tmp_path)
    assert found.progress == {"step": 1}


@pytest.mark.parametrize("manifest", ["", "[]", "{}", "null", '{"format": 2, "files": {}}', '{"files": {"a": 3}}'])
def test_any_manifest_that_is_none_is_passed_over(tmp_path, manifest):
    save(tmp_path, 1, 2)
    (tmp_path / "checkpoint_1" / checkpoints.MANIFEST).write_text(manifest)
    with pytest.warns(CheckpointWarning):
        assert checkpoints.newest_checkpoint(tmp_path).number == 0


def test_another_model_is_refused_by_names(tmp_path):
    save(tmp_path, 1)
    program, scope = make(("v",))
    with pytest.raises(ValueError, match="another model: only the checkpoint has w; only the program has v"):
        checkpoints.load_checkpoint(checkpoints.newest_checkpoint(tmp_path), scope, program)


def test_removing_leaves_other_files_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "checkpoint_final").mkdir()
    save(tmp_path, 1, 2)
    (tmp_path / ".checkpoint_7.0a1b.partial").mkdir()
    (tmp_path / ".checkpoint_6.removed").mkdir()
    checkpoints.remove_checkpoints(tmp_path)
    assert names_in(tmp_path) == ["checkpoint_final", "notes.txt"]
