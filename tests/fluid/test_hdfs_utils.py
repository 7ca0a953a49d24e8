"""Fluid's client of files elsewhere, on a folder of this machine and on one in memory."""

import os
import zipfile

import fsspec
import pytest

from paddle.fluid.contrib import HDFSClient, multi_download, multi_upload


@pytest.fixture(params=["file", "memory"])
def client(request, tmp_path):
    if request.param == "memory":
        memory = fsspec.filesystem("memory")
        memory.store.clear()
        memory.pseudo_dirs[:] = [""]
        return HDFSClient("/no/hadoop", {"fs.default.name": "memory://cluster", "hadoop.job.ugi": "me,secret"})
    (tmp_path / "cluster").mkdir()
    return HDFSClient(None, {"fs.default.name": f"file://{tmp_path}/cluster"})


@pytest.fixture
def local(tmp_path):
    folder = tmp_path / "local"
    (folder / "deep").mkdir(parents=True)
    for name in ("a", "b", "c", "deep/d"):
        (folder / name).write_text(name)
    return folder


def fails(match):
    return pytest.warns(UserWarning, match=match)


def test_files_go_there_and_come_back(client, local, tmp_path):
    assert client.makedirs("/data") and client.is_dir("/data") and not client.is_exist("/data/a")
    assert client.upload("/data", str(local / "a"))  # into the folder, under its name
    assert client.upload("/data/second", str(local / "b"))
    assert client.ls("/data") == ["/data/a", "/data/second"]
    assert client.download("/data/a", str(tmp_path / "got"))
    assert (tmp_path / "got" / "a").read_text() == "a"
    assert client.download("/data", str(tmp_path / "got"))
    assert (tmp_path / "got" / "data" / "second").read_text() == "b"


def test_nothing_is_overwritten_unasked(client, local, tmp_path):
    client.upload("/x", str(local / "a"))
    with fails("x exists, and overwrite is False"):
        assert client.upload("/x", str(local / "b")) is False
    assert client.upload("/x", str(local / "b"), overwrite=True)
    assert client.download("/x", str(tmp_path / "got")) and (tmp_path / "got" / "x").read_text() == "b"
    client.upload("/x", str(local / "c"), overwrite=True)
    with fails("got/x exists"):
        assert client.download("/x", str(tmp_path / "got")) is False
    assert client.download("/x", str(tmp_path / "got"), overwrite=True)
    assert (tmp_path / "got" / "x").read_text() == "c"


def test_names_change(client, local):
    client.upload("/x", str(local / "a"))
    client.upload("/y", str(local / "b"))
    with fails("y exists"):
        assert client.rename("/x", "/y") is False
    assert client.rename("/x", "/y", overwrite=True) and not client.is_exist("/x")
    with fails("none does not exist"):
        assert client.rename("/none", "/z") is False
    assert client.delete("/y") and client.delete("/y") and not client.is_exist("/y")


def test_failures_are_told(client, local, tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing does not exist"):
        client.upload("/x", str(tmp_path / "nothing"))
    with fails("is a directory"):
        assert client.upload("/x", str(local)) is False
    with fails("none does not exist"):
        assert client.download("/none", str(tmp_path)) is False
    assert client.ls("/none") == [] and client.lsr("/none") == []
    with pytest.raises(ValueError, match="must be a path"):
        client.is_exist()
    with pytest.raises(ValueError, match="fs.default.name"):
        HDFSClient(None, {})


def test_an_upload_is_tried_again(client, local, monkeypatch):
    tries = []

    def put_file(lpath, rpath, **_):
        tries.append(rpath)
        raise OSError("the network is down")

    monkeypatch.setattr(client._system, "put_file", put_file)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with fails("the network is down"):
        assert client.upload("/x", str(local / "a"), retry_times=3) is False
    assert len(tries) == 3 and client.ls("/") == []


def test_folders_travel_whole_or_in_shares(client, local, tmp_path):
    multi_upload(client, "/all", str(local), multi_processes=2)
    assert sorted(client.lsr("/all")) == ["/all/a", "/all/b", "/all/c", "/all/deep/d"]
    assert "/all/deep" in client.lsr("/all", only_file=False)
    shares = [multi_download(client, "/all", str(tmp_path / "got"), i, 2, multi_processes=2) for i in range(2)]
    assert [len(share) for share in shares] == [2, 2]
    found = {os.path.relpath(path, tmp_path / "got") for share in shares for path in share}
    assert found == {"a", "b", "c", "deep/d"}
    assert (tmp_path / "got" / "deep" / "d").read_text() == "deep/d"


def test_a_zip_file_is_unpacked(client, tmp_path):
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        packed.writestr("inside/file", "content")
    client.upload("/packed.zip", str(tmp_path / "packed.zip"))
    assert client.download("/packed.zip", str(tmp_path / "got"), unzip=True)
    assert (tmp_path / "got" / "inside" / "file").read_text() == "content"
    HDFSClient.make_local_dirs(str(tmp_path / "one" / "two"))
    assert (tmp_path / "one" / "two").is_dir()
