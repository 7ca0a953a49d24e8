"""The log of a server: what was confirmed is read again, whatever became of the rest."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refluid.runtime.server.durable.log import Log, LogError, read_log


def records(folder, first=1):
    return list(read_log(folder, first))


def written(folder, contents, first=1):
    log = Log(folder, first, syncs=False)
    for content in contents:
        log.append([content[:1], content[1:]])
    log.close()


def test_records_come_back_in_order(tmp_path):
    written(tmp_path, [b"one", b"", b"three" * 10_000])
    assert records(tmp_path) == [(1, b"one"), (2, b""), (3, b"three" * 10_000)]
    assert records(tmp_path, first=3) == [(3, b"three" * 10_000)]


@settings(deadline=None, max_examples=50)
@given(cut=st.integers(0, 200), flip=st.integers(0, 200))
def test_a_damaged_end_costs_only_what_is_damaged(tmp_path_factory, cut, flip):
    folder = tmp_path_factory.mktemp("log")
    contents = [bytes([number]) * number for number in range(1, 8)]
    written(folder, contents)
    (path,) = folder.glob("log.*")
    data = bytearray(path.read_bytes())
    whole = len(data)
    if flip < whole:
        data[flip] ^= 1
    del data[max(0, whole - cut) :]
    path.write_bytes(data)

    sizes = [20 + len(content) for content in contents]
    sound = min(flip if flip < whole else whole, whole - cut if cut else whole)
    expected = [(n, c) for n, c in enumerate(contents, 1) if sum(sizes[:n]) <= sound]
    assert records(folder) == expected


def test_a_restarted_server_goes_on_after_the_last_sound_record(tmp_path):
    written(tmp_path, [b"one", b"two", b"three"])
    (path,) = tmp_path.glob("log.*")
    path.write_bytes(path.read_bytes()[:-1])
    written(tmp_path, [b"3", b"4"], first=3)
    assert records(tmp_path) == [(1, b"one"), (2, b"two"), (3, b"3"), (4, b"4")]


def test_what_a_snapshot_replaces_is_dropped(tmp_path):
    log = Log(tmp_path, 1, syncs=False)
    for number in range(10):
        log.append([b"%d" % number])
        if number in (3, 6):
            first = log.rotate()
    log.wait(log.last)
    before = log.bytes
    log.drop_before(first)
    assert log.bytes < before == 10 * 21
    log.close()
    assert records(tmp_path, first) == [(8, b"7"), (9, b"8"), (10, b"9")]


def test_threads_that_wait_share_a_write(tmp_path):
    log = Log(tmp_path, 1)
    numbers = []

    def push():
        for _ in range(20):
            number = log.append([b"x" * 100])
            log.wait(number)
            numbers.append(number)

    threads = [threading.Thread(target=push) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert sorted(numbers) == [number for number, _ in records(tmp_path)] == list(range(1, 161))


def test_a_full_disk_is_an_error_for_whoever_waits(tmp_path, monkeypatch):
    log = Log(tmp_path, 1)
    monkeypatch.setattr("os.writev", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    number = log.append([b"one"])
    with pytest.raises(LogError, match="No space left"):
        log.wait(number)
    with pytest.raises(LogError, match="No space left"):
        log.append([b"two"])
    monkeypatch.undo()
    log.close()
