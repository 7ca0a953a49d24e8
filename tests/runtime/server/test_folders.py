"""A server writes below the folders that it was given, whatever a caller names."""

import os
from types import SimpleNamespace

import pytest

from refluid.files.storage import RemotePath
from refluid.runtime.server.folders import check_snapshot, folder_for


@pytest.fixture(autouse=True)
def allowed(tmp_path, monkeypatch):
    folder = tmp_path / "allowed"
    folder.mkdir()
    monkeypatch.setenv("FLAGS_rpc_save_folders", f"{folder}, memory://models")
    return folder


def test_what_is_below_is_allowed(allowed):
    assert folder_for(str(allowed)) == allowed
    assert folder_for(f"{allowed}/a/b") == allowed / "a" / "b"
    assert folder_for(f"file://{allowed}/a") == allowed / "a"
    assert isinstance(folder_for("memory://models/a"), RemotePath)


OUTSIDE = "|.|/etc|{}/../other|{}-not|{}/link/a|{}/a/../../other|file:///etc|memory://other|memory://models/../other"
URLS = "memory://models-not|simplecache::memory://models|memory://models::file:///etc|memory://models/%2e%2e/x"
CHAINS = "zip://x::memory://models|github://of:somebody@main/x|no-such-system://x|reference://x|memory://models/..\\\\x"


@pytest.mark.parametrize("path", f"{OUTSIDE}|{URLS}|{CHAINS}".split("|"))
def test_nothing_else_is(allowed, path, monkeypatch):
    """Nor is it looked at: a URL may name a host of the caller's."""
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url: pytest.fail(f"{url} is opened"))
    os.symlink("/etc", allowed / "link")
    with pytest.raises(ValueError, match=r"refusing to write to .*memory://models only.*FLAGS_rpc_save"):
        folder_for(path.format(allowed))


def test_a_link_within_the_folder_is_followed(allowed):
    (allowed / "real").mkdir()
    os.symlink(allowed / "real", allowed / "link")
    assert folder_for(f"{allowed}/link/a") == allowed / "real" / "a"


def test_by_default_the_working_folder_and_the_temporary_one(tmp_path, monkeypatch):
    monkeypatch.delenv("FLAGS_rpc_save_folders")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "allowed")
    assert folder_for("model") == tmp_path / "allowed" / "model"
    assert folder_for(str(tmp_path / "temporary" / "model")) == tmp_path / "temporary" / "model"
    with pytest.raises(ValueError, match="refusing to write"):
        folder_for(str(tmp_path / "model"))


@pytest.mark.parametrize("name", ["", "../" + "a" * 29, "A" * 32, "a" * 31, "a" * 33, "a" * 32 + "\n"])
def test_names_of_snapshots_are_no_paths(name):
    good = "0123456789abcdef" * 2
    check_snapshot(SimpleNamespace(snapshot=good, tables=[SimpleNamespace(base=""), SimpleNamespace(base=good)]))
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        check_snapshot(SimpleNamespace(snapshot=name, tables=[]))
    if name:
        with pytest.raises(ValueError, match="32 hexadecimal digits"):
            check_snapshot(SimpleNamespace(snapshot=good, tables=[SimpleNamespace(base=name)]))
