"""Several files are read at once, in an order that does not depend on timing, and threads end with their consumer."""

import itertools
import os
import threading
from functools import partial

import numpy as np
import pytest

from refluid.datasets.commands import CommandStream
from refluid.datasets.feeds import feeds_of
from refluid.datasets.meter import Meter
from refluid.datasets.schema import Schema, Slot
from refluid.datasets.streams import RecordStream
from refluid.datasets.text_files import TextFiles
from refluid.errors import MalformedLineError, PipeCommandError

SCHEMA = Schema((Slot("ids", np.dtype("int64"), dense=False),))
LARGE = 150_000  # lines: several chunks


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def write(folder, *files):
    """Files of these ids."""
    paths = []
    for number, ids in enumerate(files):
        paths.append(folder / f"part-{number}")
        paths[-1].write_text("".join(f"1 {i}\n" for i in ids))
    return paths


def ids_of(files, threads=1, pipe_command="cat", batch_size=1000, **options):
    meter = Meter()
    stream = RecordStream(files, threads, partial(TextFiles(SCHEMA, pipe_command).read, meter=meter))
    feeds = feeds_of(stream, batch_size, 1, meter, close=stream.close, **options)
    return feeds, (np.array(feed["ids"])[:, 0].tolist() for feed in feeds)


def test_one_thread_reads_the_lines_in_order(tmp_path):
    files = write(tmp_path, range(LARGE), [], range(LARGE, LARGE + 5), range(LARGE + 5, LARGE + 10))
    _, batches = ids_of(files)
    assert list(itertools.chain.from_iterable(batches)) == list(range(LARGE + 10))


def test_several_threads_always_give_the_same_order(tmp_path):
    files = write(tmp_path, *(range(n * LARGE, n * LARGE + size) for n, size in enumerate((LARGE, 7, LARGE, 3, 100))))
    orders = [list(itertools.chain.from_iterable(ids_of(files, threads=3)[1])) for _ in range(3)]
    assert orders[0] == orders[1] == orders[2]
    assert orders[0] != sorted(orders[0])
    assert sorted(orders[0]) == list(itertools.chain(*(range(n * LARGE, n * LARGE + size)
        for n, size in enumerate((LARGE, 7, LARGE, 3, 100)))))  # fmt: skip


def test_batches_can_be_skipped_and_the_last_dropped(tmp_path):
    files = write(tmp_path, range(10))
    assert list(ids_of(files, batch_size=4, skip=1)[1]) == [[4, 5, 6, 7], [8, 9]]
    assert list(ids_of(files, batch_size=4, drop_last=True)[1]) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert list(ids_of(files, batch_size=4, skip=3)[1]) == []
    with pytest.raises(ValueError, match="9 batches are to be left out, but a pass over this dataset has only 3"):
        list(ids_of(files, batch_size=4, skip=9)[1])


def test_a_consumer_that_leaves_ends_threads_and_commands(tmp_path):
    files = write(tmp_path, range(LARGE), range(LARGE), range(LARGE))
    feeds, batches = ids_of(files, threads=2)
    assert next(batches)[:3] == [0, 1, 2]
    feeds.close()


def test_a_consumer_may_leave_while_a_command_is_silent(tmp_path):
    files = write(tmp_path, [1], [2])
    command = "read line; echo $line; if [ \"$line\" = '1 2' ]; then sleep 1000; fi"
    feeds, batches = ids_of(files, pipe_command=command, batch_size=1)
    assert next(batches) == [1]
    feeds.close()


def test_a_command_that_was_waited_for_is_not_signalled(tmp_path, monkeypatch):
    """Its number may be that of another process by then."""
    (file,) = write(tmp_path, [1])
    with open(file, "rb", buffering=0) as data:
        stream = CommandStream("cat", data, "a file")
        assert stream.readall() == b"1 1\n"
        monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("signalled"))
        stream.cancel()
        stream.close()


def test_errors_arrive_after_the_batches_before_them(tmp_path):
    files = write(tmp_path, range(4), [5], ["oops"], [6])
    found = []
    with pytest.raises(MalformedLineError, match="part-2, line 1(.|\n)*found 'oops'"):
        found.extend(itertools.chain.from_iterable(ids_of(files, batch_size=2)[1]))
    assert found == [0, 1, 2, 3]


def test_a_missing_file_ends_the_stream(tmp_path):
    files = [*write(tmp_path, range(4)), tmp_path / "no_such_file"]
    with pytest.raises(FileNotFoundError, match="no_such_file"):
        list(ids_of(files, threads=2)[1])


def test_a_dying_command_ends_the_stream(tmp_path):
    files = write(tmp_path, range(4), range(4))
    with pytest.raises(PipeCommandError, match="exited with code 5"):
        list(ids_of(files, threads=2, pipe_command="cat; exit 5")[1])


def test_a_meter_adds_up_the_stages(tmp_path):
    meter = Meter()
    stream = RecordStream(write(tmp_path, range(4)), 1, partial(TextFiles(SCHEMA).read, meter=meter))
    list(feeds_of(stream, 2, 1, meter, close=stream.close))
    assert set(meter.seconds()) == {"read", "parse", "batch"}
    meter.add("read", 100.0)
    assert meter.seconds()["read"] > 100.0
