"""Files elsewhere: what fsspec reaches is read like folders of this machine, and written whole or not at all."""

import os
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from refluid.files import checkpoints
from refluid.files.storage import RemotePath, at, files_below
from refluid.files.writing import atomic_write, write_together
from refluid.ir import Program
from refluid.scope import Scope
from refluid.tensors import LoDTensor


class LikeHdfs(MemoryFileSystem):
    """Renames folders in one step, renames nothing to a name that is taken, and shows files while they grow."""

    protocol = ("likehdfs", "hdfs")
    store, pseudo_dirs, broken = {}, [""], None

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("likehdfs://"))

    def mv(self, path1, path2, recursive=False, **options):
        if not self.exists(path2):
            super().mv(path1, path2, recursive=recursive)

    def put_file(self, lpath, rpath, **options):
        if self.broken:
            self.pipe_file(rpath, Path(lpath).read_bytes()[:3])
            raise OSError("the connection is gone")
        super().put_file(lpath, rpath, **options)


fsspec.register_implementation("likehdfs", LikeHdfs, clobber=True)


@pytest.fixture(params=["memory", "likehdfs"])
def root(request):
    """The URL of an empty folder."""
    system = fsspec.filesystem(request.param)
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    LikeHdfs.broken = None
    return f"{request.param}://data/models"


def writers(**contents):
    return {name: lambda stream, data=data: stream.write(data) for name, data in contents.items()}


def everything(root):
    folder = at(root)
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


def test_paths_of_this_machine_are_paths(tmp_path):
    assert at("a/b") == Path("a/b") and at(tmp_path) == tmp_path
    assert at(f"file://{tmp_path}/x") == tmp_path / "x"
    assert at("C:\\models") == Path("C:\\models")


def test_a_url_no_file_system_has_is_told():
    with pytest.raises(ValueError, match="nosuch://x: .*nosuch"):
        at("nosuch://x")


def test_a_remote_path_is_never_taken_for_a_local_one(root):
    with pytest.raises(TypeError):
        os.fspath(at(root))


def test_a_path_elsewhere_has_names_and_contents(root):
    path = at(root) / "folder" / "file"
    assert not path.exists() and not path.parent.is_dir() and list(path.parent.iterdir()) == []
    with atomic_write(path) as stream:
        stream.write(b"content")
    assert (path.name, path.parent.name) == ("file", "folder")
    assert path.is_file() and path.parent.is_dir() and path.size() == 7
    assert path.read_text() == "content"
    with path.open("rb") as stream:
        assert stream.read() == b"content"
    assert [found.path for found in path.parent.iterdir()] == [path.path]
    assert str(at(str(path))) == str(path)
    path.parent.remove()
    assert not path.exists()
    path.remove()  # nothing is there any more


def test_files_appear_together_and_replace_old_ones(root):
    write_together(root, writers(a=b"1", b=b"1"))
    with atomic_write(f"{root}/notes") as stream:
        stream.write(b"mine")
    write_together(root, {**writers(a=b"2", b=b"2"), "sub/c": lambda stream: stream.write(b"2")})
    assert everything(root) == {"a": b"2", "b": b"2", "notes": b"mine", "sub/c": b"2"}


def test_a_writer_that_fails_leaves_what_was_there(root):
    def fail(stream):
        stream.write(b"half")
        raise OSError("the disk is full")

    for before in ({}, {"a": b"1", "b": b"1"}):
        if before:
            write_together(root, writers(**before))
        with pytest.raises(OSError, match="full"):
            write_together(root, {**writers(a=b"2"), "b": fail})
        with pytest.raises(OSError, match="full"), atomic_write(f"{root}/a") as stream:
            fail(stream)
        assert everything(root) == before


def test_an_upload_that_fails_leaves_what_was_there():
    root = "likehdfs://data/broken"
    write_together(root, writers(a=b"1", b=b"1"))
    LikeHdfs.broken = True
    with pytest.raises(OSError, match="gone"):
        write_together(root, writers(a=b"22222"))
    with pytest.raises(OSError, match="gone"):
        write_together(f"{root}/new", writers(a=b"22222"))
    LikeHdfs.broken = None
    assert everything(root) == {"a": b"1", "b": b"1"}


def test_names_that_lead_elsewhere_are_refused(root):
    with pytest.raises(ValueError, match="is not a name for a file"):
        write_together(root, writers(**{"../x": b""}))


def make(fill):
    program, scope = Program(), Scope()
    program.global_block().create_var(name="w", shape=[2], dtype="float32", persistable=True)
    scope.var("w").holder = LoDTensor(np.full(2, fill, "float32"))
    return program, scope


def test_checkpoints_rotate_elsewhere(root):
    for fill in (1, 2, 3):
        program, scope = make(fill)
        checkpoints.save_checkpoint(root, scope, program, {"step": fill}, keep=2)
    assert sorted(path.name for path in at(root).iterdir()) == ["checkpoint_1", "checkpoint_2"]
    found = checkpoints.newest_checkpoint(root)
    assert isinstance(found.folder, RemotePath) and found.progress == {"step": 3}
    program, scope = make(0)
    checkpoints.load_checkpoint(found, scope, program)
    assert scope.var("w").value.tolist() == [3, 3]

    with atomic_write(f"{root}/checkpoint_2/{checkpoints.VARIABLES}") as stream:
        stream.write(b"damaged")
    with pytest.warns(checkpoints.CheckpointWarning, match="checkpoint_2 is not used"):
        assert checkpoints.newest_checkpoint(root).progress == {"step": 2}
    with atomic_write(f"{root}/notes") as stream:
        stream.write(b"mine")
    checkpoints.remove_checkpoints(root)
    assert everything(root) == {"notes": b"mine"}
