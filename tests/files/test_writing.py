"""Files appear whole or not at all, one by one and together."""

import errno
import multiprocessing
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from refluid.files import writing
from refluid.files.storage import PARTIAL
from refluid.files.writing import atomic_write, path_inside, write_together


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def writers(**contents):
    return {name: lambda stream, data=data: stream.write(data) for name, data in contents.items()}


def fail(stream):
    stream.write(b"half of it")
    raise OSError("the disk is full")


def test_a_file_appears_when_it_is_complete(tmp_path):
    with atomic_write(tmp_path / "new" / "file") as stream:
        stream.write(b"content")
        assert not (tmp_path / "new" / "file").exists()
    assert (tmp_path / "new" / "file").read_bytes() == b"content"
    assert names_in(tmp_path / "new") == ["file"]


def test_a_failure_leaves_the_file_that_was_there(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(OSError, match="full"), atomic_write(tmp_path / "file") as stream:
        fail(stream)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names_in(tmp_path) == ["file"]


@pytest.fixture
def small_disk():
    """The system refuses to let any file grow beyond a kilobyte."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def named_by(error):
    return error.value.errno, error.value.filename, error.value.filename2


@pytest.mark.parametrize("size", [2000, 1 << 20])
def test_a_write_that_fails_names_the_file(tmp_path, small_disk, size):
    with pytest.raises(OSError) as error, atomic_write(tmp_path / "file") as stream:
        stream.write(bytes(size))
    assert named_by(error) == (errno.EFBIG, str(tmp_path / "file"), None)
    with pytest.raises(OSError) as error:
        write_together(tmp_path / "folder", writers(a=b"small", b=bytes(size)))
    assert named_by(error) == (errno.EFBIG, str(tmp_path / "folder/b"), None)
    assert names_in(tmp_path) == []


def test_a_write_in_place_that_fails_names_the_file(tmp_path, small_disk):
    (tmp_path / "folder/sub").mkdir(parents=True)
    with pytest.raises(OSError) as error:
        write_together(tmp_path / "folder", writers(a=bytes(2000)))
    assert named_by(error) == (errno.EFBIG, str(tmp_path / "folder/a"), None)


def test_an_upload_that_fails_names_the_staged_file_and_its_target(tmp_path, small_disk, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(OSError) as together:
        write_together("memory://refused", writers(a=bytes(2000)))
    with pytest.raises(OSError) as single, atomic_write("memory://refused/a") as stream:
        stream.write(bytes(2000))
    for error in (together, single):
        code, staged, target = named_by(error)
        assert code == errno.EFBIG and staged.startswith(str(tmp_path)) and target == "memory:///refused/a"


def test_a_disk_that_is_full_only_when_synced_names_the_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device: .*file'"), atomic_write(tmp_path / "file") as stream:
        stream.write(b"content")


def test_errors_raised_by_the_caller_are_not_changed(tmp_path):
    with pytest.raises(ConnectionResetError) as error, atomic_write(tmp_path / "file"):
        raise ConnectionResetError(errno.ECONNRESET, "reset")
    assert error.value.filename is None


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_write(tmp_path / "link") as stream:
        stream.write(b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


def test_a_large_file_is_written_in_full(tmp_path):
    data = os.urandom(1 << 20) * 80  # more than two chunks
    with atomic_write(tmp_path / "large") as stream:
        stream.write(b"before")
        stream.write(memoryview(data))
        stream.write(b"after")
    assert (tmp_path / "large").read_bytes() == b"before" + data + b"after"


@pytest.mark.parametrize("exists", [False, True])
def test_a_failure_leaves_the_folder_as_it_was(tmp_path, exists):
    folder = tmp_path / "folder"
    if exists:
        write_together(folder, writers(a=b"old", b=b"old"))
    with pytest.raises(OSError, match="full"):
        write_together(folder, {**writers(a=b"new"), "b": fail})
    assert names_in(tmp_path) == (["folder"] if exists else [])
    if exists:
        assert [(folder / name).read_bytes() for name in names_in(folder)] == [b"old", b"old"]


def test_other_files_of_a_folder_stay(tmp_path):
    folder = tmp_path / "folder"
    write_together(folder, writers(a=b"1", b=b"1"))
    (folder / "notes").write_bytes(b"mine")
    folder.chmod(0o750)
    write_together(folder, writers(a=b"2", c=b"2"))
    assert {name: (folder / name).read_bytes() for name in names_in(folder)} == {
        "a": b"2",
        "b": b"1",
        "c": b"2",
        "notes": b"mine",
    }
    assert folder.stat().st_mode & 0o777 == 0o750
    assert names_in(tmp_path) == ["folder"]


def test_files_that_another_process_writes_meanwhile_stay(tmp_path):
    folder = tmp_path / "folder"
    write_together(folder, writers(a=b"1", notes=b"old"))

    def meanwhile(stream):
        stream.write(b"2")
        (folder / "late").write_bytes(b"late")
        with atomic_write(folder / "notes") as other:
            other.write(b"new")

    write_together(folder, {"a": meanwhile})
    assert {name: (folder / name).read_bytes() for name in names_in(folder)} == {
        "a": b"2",
        "late": b"late",
        "notes": b"new",
    }


@pytest.mark.parametrize("how", ["subfolder", "link to a file", "working folder", "no exchange"])
def test_folders_that_cannot_be_exchanged_are_written_file_by_file(tmp_path, monkeypatch, how):
    folder = tmp_path / "folder"
    write_together(folder, writers(a=b"1"))
    if how == "subfolder":
        (folder / "sub").mkdir()
    elif how == "link to a file":
        (folder / "link").symlink_to("a")
    elif how == "working folder":
        monkeypatch.chdir(folder)
    else:
        monkeypatch.setattr(writing, "_renameat2", lambda: None)
    before = folder.stat().st_ino
    write_together("." if how == "working folder" else folder, writers(a=b"2", b=b"2"))
    assert folder.stat().st_ino == before
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes() == b"2"
    assert not [name for name in names_in(folder) if name.endswith(PARTIAL)]


def test_names_may_hold_folders(tmp_path):
    for value in (b"1", b"2"):
        write_together(tmp_path / "folder", {"block/w": lambda stream, value=value: stream.write(value)})
        assert (tmp_path / "folder" / "block" / "w").read_bytes() == value


@pytest.mark.parametrize("name", ["../w", "/etc/w", "a/../../w", "", "a//b", ".", "a\0b", "..\\w"])
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="is not a name for a file"):
        write_together(tmp_path / "folder", {name: lambda stream: stream.write(b"x")})
    with pytest.raises(ValueError, match="is not a name for a file"):
        path_inside(tmp_path, name)
    assert names_in(tmp_path) == []


def write_often(folder, names, times=8):
    for _ in range(times):
        write_together(folder, {name: lambda stream, name=name: stream.write(name.encode() * 1000) for name in names})


def in_threads(work, arguments):
    """Runs ``work`` in a thread for each argument, and raises what any of them raises."""
    with ThreadPoolExecutor(len(arguments)) as pool:
        for future in [pool.submit(work, argument) for argument in arguments]:
            future.result()


@pytest.mark.parametrize("before", ["absent", "files", "subfolder"])
def test_several_threads_may_write_to_one_folder(tmp_path, before):
    folder = tmp_path / "folder"
    if before != "absent":
        write_together(folder, writers(z=b"z"))
    if before == "subfolder":
        (folder / "sub").mkdir()
    in_threads(lambda name: write_often(folder, name), "abcd")
    assert {name: (folder / name).read_bytes() for name in "abcd"} == {name: name.encode() * 1000 for name in "abcd"}
    assert (folder / "z").exists() == (before != "absent")
    assert names_in(tmp_path) == ["folder"]
    assert not [name for name in names_in(folder) if name.endswith(PARTIAL)]


def test_several_threads_may_write_the_same_files(tmp_path):
    folder = tmp_path / "folder"

    def work(letter):
        for _ in range(8):
            write_together(folder, {name: lambda stream: stream.write(letter.encode() * 1000) for name in "ab"})

    in_threads(work, "xyz")
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()  # both of the same writer
    assert names_in(folder) == ["a", "b"] and names_in(tmp_path) == ["folder"]


def test_single_files_and_whole_folders_may_be_written_at_the_same_time(tmp_path):
    folder = tmp_path / "folder"
    write_together(folder, writers(a=b"1"))

    def work(name):
        for turn in range(8):
            if name == "a":
                write_together(folder, {"a": lambda stream: stream.write(b"a" * 1000)})
                continue
            with atomic_write(folder / name) as stream:
                stream.write(f"{name}{turn}".encode())

    in_threads(work, "abc")
    found = {name: (folder / name).read_bytes() for name in names_in(folder)}
    assert found == {"a": b"a" * 1000, "b": b"b7", "c": b"c7"}


def test_processes_take_turns_too(tmp_path):
    folder, context = tmp_path / "folder", multiprocessing.get_context("spawn")
    others = [context.Process(target=write_often, args=(folder, name, 6)) for name in "ab"]
    for other in others:
        other.start()
    write_often(folder, "c", 6)
    for other in others:
        other.join()
    assert [other.exitcode for other in others] == [0, 0]
    assert names_in(folder) == ["a", "b", "c"] and names_in(tmp_path) == ["folder"]


@pytest.mark.parametrize("other", ["d", "a/d", "a/d/file"])
def test_unrelated_folders_stay(tmp_path, other):
    write_together(tmp_path, {"a/b": lambda stream: stream.write(b"1")})
    (tmp_path / other).parent.mkdir(exist_ok=True)
    (tmp_path / other).mkdir() if not other.endswith("file") else (tmp_path / other).write_bytes(b"")
    write_together(tmp_path, {"a/b": lambda stream: stream.write(b"2")})
    assert (tmp_path / other).exists() and (tmp_path / "a/b").read_bytes() == b"2"


def deaths(tmp_path, *arguments):
    script = Path(__file__).parent / "folders_to_kill.py"
    command = [sys.executable, script, tmp_path / "root", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return [line.split() for line in run.stdout.splitlines()]


@pytest.mark.parametrize("names", ["plain", "inner"])
def test_a_kill_at_any_write_leaves_the_old_folder_or_the_new_one(tmp_path, names):
    found = deaths(tmp_path, names)
    first = {state for stage, state, _ in found if stage == "first"}
    second = [state for stage, state, _ in found if stage == "second"]
    assert first == {"absent", "222"}
    assert set(second) == {"111+", "222+"}
    assert second == sorted(second)
    assert len(found) > 12  # deaths were tried


def test_a_kill_where_folders_cannot_be_exchanged_leaves_whole_files(tmp_path):
    second = [state for stage, state, _ in deaths(tmp_path, "deep") if stage == "second"]
    assert set(second) == {"111+", "211+", "221+", "222+"}
