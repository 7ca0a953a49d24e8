"""Files become chunks of whole lines, wherever the bytes come from; commands are supervised."""

import gzip
import io
import os
import signal
import threading
from pathlib import Path

import fsspec
import numpy as np
import pytest

from refluid.datasets.sources import Download, open_stream, read_chunks
from refluid.errors import PipeCommandError
from refluid.files.storage import at


def text_of(stream):
    with stream:
        return b"".join(bytes(chunk) for chunk in read_chunks(stream))


def open_descriptors():
    return sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdigit() and
                  os.path.exists(f"/proc/self/fd/{fd}"))  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_left_behind():
    threads = threading.active_count()
    descriptors = open_descriptors()
    yield
    assert threading.active_count() == threads
    assert open_descriptors() == descriptors


@pytest.mark.parametrize("size", [4, 5, 8, 64])
@pytest.mark.parametrize("text", ["", "\n", "1 2\n", "1 2", "1 2\n\n33 4\n5", "a long line 123456789\n1\n", "1\n" * 40])
def test_chunks_are_whole_lines(text, size):
    chunks = [bytes(chunk).decode() for chunk in read_chunks(io.BytesIO(text.encode()), size)]
    assert "".join(chunks) == (text if text.endswith("\n") or not text else text + "\n")
    assert all(chunk.endswith("\n") for chunk in chunks)
    longest = max(map(len, text.split("\n")))
    assert all(len(chunk) <= max(size, 2 * longest + 2) for chunk in chunks)


def test_a_chunk_may_arrive_in_pieces():
    class Slow(io.RawIOBase):
        left = b"1 2\n33 4\n" * 10

        def readinto(self, buffer):
            piece, self.left = self.left[:3], self.left[3:]
            np.frombuffer(buffer, np.uint8)[: len(piece)] = np.frombuffer(piece, np.uint8)
            return len(piece)

    chunks = [bytes(chunk) for chunk in read_chunks(Slow(), 64)]
    assert b"".join(chunks) == b"1 2\n33 4\n" * 10
    assert len(chunks) == 2


def test_files_are_local_remote_or_compressed(tmp_path):
    (tmp_path / "plain").write_bytes(b"1 2\n")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"1 3\n"))
    fsspec.filesystem("memory").pipe("/slots/part", b"1 4\n")
    fsspec.filesystem("memory").pipe("/slots/part.gz", gzip.compress(b"1 5\n"))
    files = [tmp_path / "plain", tmp_path / "packed.gz", at("memory://slots/part"), at("memory://slots/part.gz")]
    assert [text_of(open_stream(file)) for file in files] == [b"1 2\n", b"1 3\n", b"1 4\n", b"1 5\n"]
    assert [text_of(open_stream(file, "sed s/1/9/ | cat")) for file in files] == [
        b"9 2\n",
        b"9 3\n",
        b"9 4\n",
        b"9 5\n",
    ]


def test_a_file_can_be_downloaded_by_a_command():
    assert text_of(open_stream(Download("printf '1 %s\\n'", "hdfs:/a b"))) == b"1 hdfs:/a b\n"
    assert text_of(open_stream(Download("echo 1", "hdfs:/a"), "sed s/hdfs/2/")) == b"1 2:/a\n"
    with pytest.raises(PipeCommandError, match="exited with code 7(.|\n)*hdfs:/a"):
        text_of(open_stream(Download("exit 7;", "hdfs:/a"), "sed s/1/2/"))


def test_a_failing_command_shows_its_code_file_and_errors(tmp_path, capfd):
    (tmp_path / "part").write_text("1 2\n")
    with pytest.raises(PipeCommandError) as raised:
        text_of(open_stream(tmp_path / "part", "for i in $(seq 30); do echo problem $i >&2; done; exit 3"))
    error = raised.value
    assert (error.code, error.file) == (3, str(tmp_path / "part"))
    assert "exited with code 3" in str(error) and "problem 30" in str(error) and "problem 9\n" not in str(error)
    assert "problem 1\n" in capfd.readouterr().err


def test_a_killed_command_names_the_signal(tmp_path):
    (tmp_path / "part").write_text("1 2\n")
    with pytest.raises(PipeCommandError, match=f"killed by signal {signal.SIGTERM}(.|\n)*stderr      is empty"):
        text_of(open_stream(tmp_path / "part", "kill $$"))


def test_an_unknown_command_is_an_error(tmp_path):
    (tmp_path / "part").write_text("1 2\n")
    with pytest.raises(PipeCommandError, match="exited with code 127(.|\n)*no_such_command"):
        text_of(open_stream(tmp_path / "part", "no_such_command"))


def test_a_command_need_not_read_its_input():
    fsspec.filesystem("memory").pipe("/slots/large", b"1 4\n" * 200_000)
    assert text_of(open_stream(at("memory://slots/large"), "head -n 1")) == b"1 4\n"


def test_an_error_of_the_input_is_raised_where_its_text_is_read():
    fsspec.filesystem("memory").pipe("/slots/damaged.gz", gzip.compress(b"1 4\n" * 1000)[:-10])
    with pytest.raises(EOFError):
        text_of(open_stream(at("memory://slots/damaged.gz"), "sed s/1/2/"))


def test_closing_a_stream_ends_all_processes_of_its_command(tmp_path):
    (tmp_path / "part").write_text("1 2\n")
    stream = open_stream(tmp_path / "part", f"sleep 1000 & echo $! > {tmp_path}/pid; cat; wait")
    assert bytes(stream.read(4)) == b"1 2\n"
    sleeping = int(Path(tmp_path, "pid").read_text())
    stream.close()
    state = Path(f"/proc/{sleeping}/stat")
    while state.exists() and state.read_text().rsplit(")")[1].split()[0] != "Z":
        pass  # killed already; its parent must notice


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match="no_such_file"):
        open_stream(Path("no_such_file"), "sed s/1/2/")
