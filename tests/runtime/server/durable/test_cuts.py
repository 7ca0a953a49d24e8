"""Common snapshots: of every trainer, all servers have the same pushes, whenever they are killed."""

import re
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from cluster.jobs import wait_until
from refluid.files.folder_locks import FolderInUseError
from refluid.runtime.server.durable import snapshots
from refluid.runtime.server.durable.cuts import Coordinator, CutError, check_name
from refluid.runtime.server.durable.log import Log
from refluid.runtime.server.durable.snapshots import SnapshotError
from refluid.runtime.tables.kernels import layout
from refluid.runtime.transport.wire import pb
from small_server import ENDPOINTS, SmallServer, start, stop

TESTS = Path(__file__).parents[3]
BEGIN, END, DONE, ABANDON = (getattr(pb.CutRequest, name) for name in ("BEGIN", "END", "DONE", "ABANDON"))


def coordinator(replies):
    """One whose servers give these replies, and the phases that they were asked."""
    asked = []

    def ask(endpoint, request):
        asked.append((endpoint, request.phase))
        found = replies(endpoint, request)
        if isinstance(found, Exception):
            raise found
        return found

    return Coordinator(["one", "two"], ask), asked


def test_a_snapshot_ends_with_the_last_push_of_every_trainer_that_a_server_has():
    ends = []

    def reply(endpoint, request):
        if request.phase == END:
            ends.append(dict(request.until))
        return pb.CutReply(applied={0: 7, 1: 3} if endpoint == "one" else {0: 6, 1: 4, 2: 1})

    cut, asked = coordinator(reply)
    cut.cut(1, patience=0.0)
    assert ends == [{0: 7, 1: 4, 2: 1}] * 2
    assert asked == [(endpoint, phase) for phase in (BEGIN, END, DONE) for endpoint in ("one", "two")]


def test_a_server_that_is_not_ready_is_asked_again_and_one_that_cannot_take_part_ends_it():
    waiting = iter([pb.CutReply(pending=True, text="no parameters"), ConnectionError("gone"), *[pb.CutReply()] * 2])
    cut, asked = coordinator(lambda endpoint, request: next(waiting) if request.phase == BEGIN else pb.CutReply())
    cut.cut(1, patience=60.0)
    assert [endpoint for endpoint, phase in asked if phase == BEGIN] == ["one", "one", "one", "two"]

    cut, asked = coordinator(lambda endpoint, request: ConnectionError("gone") if endpoint == "two" else pb.CutReply())
    with pytest.raises(CutError, match="server two: gone"):
        cut.cut(1, patience=0.0)
    assert asked[-1] == ("two", ABANDON)


def test_all_servers_hear_the_end_before_one_is_waited_for():
    left = {"one": 2, "two": 0}

    def reply(endpoint, request):
        if request.phase == END:
            left[endpoint] -= 1
            return pb.CutReply(pending=left[endpoint] >= 0)
        return pb.CutReply()

    cut, asked = coordinator(reply)
    cut.cut(1, patience=0.0)
    assert [endpoint for endpoint, phase in asked if phase == END] == ["one", "two", "one", "one"]


@pytest.mark.parametrize("id", ["", "../" + "a" * 29, "A" * 32])
def test_a_snapshot_is_not_named_by_a_path(id):
    with pytest.raises(ValueError, match="named by 32 hexadecimal digits"):
        check_name(pb.CutRequest(id=id, number=1))


def await_end_of_second(servers, snapshot):
    """Waits until the last server has heard where a second snapshot ends."""
    recovery = servers[1].recovery
    while recovery._part.name.number < 2 or not recovery._part._told.is_set():
        assert snapshot.is_alive()


@pytest.mark.parametrize("ahead", [0, 1])
def test_pushes_that_are_under_way_belong_to_it_and_later_ones_do_not(tmp_path, ahead):
    servers = start(tmp_path, log=False)
    for server in servers:
        server.push(0)
        server.push(1)
    servers[ahead].push(0)  # the other server does not have it yet
    snapshot = threading.Thread(target=servers[0].recovery.snapshot)
    snapshot.start()
    await_end_of_second(servers, snapshot)
    servers[ahead].push(1)
    servers[1 - ahead].push(1)
    servers[1 - ahead].push(0)
    snapshot.join()
    stop(servers)

    again = start(tmp_path, log=False)
    assert [server.last for server in again] == [{0: 2, 1: 1}] * 2
    assert [server.total() for server in again] == [3, 3]
    assert [server.recovery.restored for server in again] == [True, True]
    stop(again)


def test_tables_can_be_saved_while_a_snapshot_waits_for_pushes(tmp_path):
    servers = start(tmp_path, log=False)
    servers[0].push(0)
    snapshot = threading.Thread(target=servers[0].recovery.snapshot)
    snapshot.start()
    await_end_of_second(servers, snapshot)  # which waits for a push
    assert servers[1].writing.acquire(timeout=30) and snapshot.is_alive()
    servers[1].writing.release()
    servers[1].push(0)
    snapshot.join()
    stop(servers)


def test_a_trainer_that_has_left_is_not_awaited(tmp_path):
    servers = start(tmp_path, log=False)
    servers[1].push(0)
    snapshot = threading.Thread(target=servers[0].recovery.snapshot)
    snapshot.start()
    with servers[0].lock:
        servers[0].left.add(0)
        servers[0].lock.notify_all()
    snapshot.join()
    stop(servers)


def test_pushes_at_any_time_are_in_it_on_all_servers_or_on_none(tmp_path):
    servers, pushed = start(tmp_path, log=False), [0, 0]
    running = True

    def train(trainer):
        while running:
            for server in servers:
                server.push(trainer)
            pushed[trainer] += 1

    trainers = [threading.Thread(target=train, args=[trainer]) for trainer in range(2)]
    for each in trainers:
        each.start()
    before = [0, 0]
    for _ in range(5):
        wait_until(lambda last=before: sum(pushed) > sum(last))
        before = list(pushed)
        servers[0].recovery.snapshot()
        for server in servers:  # as a server would find it
            recovery = server.recovery
            found = recovery._snapshots.read(recovery._snapshots.names()[0])
            until = {int(trainer): last for trainer, last in found.manifest["until"].items()}
            assert all(until.get(trainer, 0) >= count for trainer, count in enumerate(before))
    running = False
    for each in trainers:
        each.join()
    stop(servers)
    again = start(tmp_path, log=False)
    assert again[0].last == again[1].last
    assert again[0].total() == again[1].total() > 5
    stop(again)


@pytest.mark.parametrize("way", ["none", "log"])
def test_a_kill_at_any_write_leaves_a_snapshot_that_all_servers_have(tmp_path, way):
    script = Path(__file__).with_name("servers_to_kill.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), way],
        env={"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    points = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(points) > 20
    if way == "none":
        assert {one for one, _, _ in points} == {1, 3}
        assert all(one == two <= acknowledged for one, two, acknowledged in points)
    else:
        assert all(acknowledged <= min(one, two) and abs(one - two) <= 1 for one, two, acknowledged in points)
    assert points[-1] == (3, 3, 3)


class KilledError(BaseException):
    pass


def test_a_kill_while_a_finished_server_removes_its_files_leaves_all_of_its_end_or_nothing(tmp_path, monkeypatch):
    left = []
    for kill_at in range(1, 100):
        folder = tmp_path / str(kill_at)
        (server,) = start(folder, endpoints=ENDPOINTS[:1])
        for _ in range(3):
            server.push()
            server.recovery.snapshot()
        passed = count(1)

        def die(_, passed=passed, kill_at=kill_at):
            if next(passed) == kill_at:
                raise KilledError

        with monkeypatch.context() as patched, suppress(KilledError):
            patched.setattr(snapshots, "fault_point", die)
            server.recovery.close(finished=True)
        server.recovery._release()
        (again,) = start(folder, endpoints=ENDPOINTS[:1])
        left.append(again.total())
        stop([again])
        if next(passed) <= kill_at:
            break
    assert left[0] == 3 and left[-1] == 0 and set(left) == {0, 3} and len(left) > 4


def test_a_server_without_a_sibling_goes_on_and_servers_with_nothing_in_common_do_not(tmp_path):
    servers = start(tmp_path, log=False)
    for server in servers:
        server.push()
    servers[0].recovery.snapshot()
    stop(servers)
    for folder in [*(tmp_path / "snapshots" / "two_2").glob("snapshot.*")]:
        folder.rename(folder.with_name(re.sub(r"\.[0-9a-f]{32}", "." + "0" * 32, folder.name)))
    with pytest.raises(SnapshotError, match="no snapshot in common .* to begin anew, remove that folder"):
        SmallServer(tmp_path, ENDPOINTS[0], {}, log=False)
    (tmp_path / "snapshots" / "two_2").rename(tmp_path / "elsewhere")
    alone = SmallServer(tmp_path, ENDPOINTS[0], {}, log=False)
    assert alone.total() == 1
    stop([alone])


def test_no_snapshot_builds_on_one_that_was_given_up_after_its_tables_were_written(tmp_path):
    options = {"log": False, "endpoints": ENDPOINTS[:1]}
    (server,) = start(tmp_path, **options)
    given_up = pb.CutRequest(id="0" * 32, number=2)
    for _ in range(2):
        server.push()
        server.recovery.snapshot()
    server.push()
    given_up.phase = BEGIN
    server.recovery.handle(given_up)
    while server.table.since[layout.UNSAVED] is None:
        assert server.recovery._part._thread.is_alive()
    given_up.phase = ABANDON  # as when another server is being restarted
    server.recovery.handle(given_up)
    server.push()
    server.recovery.snapshot()
    stop([server])
    (server,) = start(tmp_path, **options)
    assert server.total() == 4
    stop([server])


def test_a_restart_with_a_log_leaves_the_snapshot_that_a_server_without_one_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "_LONGEST_CHAIN", 1)  # none builds on another one
    servers = start(tmp_path)
    for server in servers:
        server.push()
    servers[0].recovery.snapshot()
    for server in servers:
        server.push()
    alone = pb.CutRequest(id="0" * 32, number=9, until={0: 2})
    for phase in (BEGIN, END):  # the other server is killed before it hears of it
        alone.phase = phase
        while servers[0].recovery.handle(alone).pending:
            pass
    stop(servers)
    peers = {}
    one = SmallServer(tmp_path, ENDPOINTS[0], peers)
    assert one.total() == 2
    shutil.rmtree(tmp_path / "log" / "two_2")  # replaced on another host
    two = SmallServer(tmp_path, ENDPOINTS[1], peers)
    assert two.total() == 1
    stop([one, two])


def test_two_processes_do_not_share_a_folder(tmp_path):
    servers = start(tmp_path)
    with pytest.raises(FolderInUseError, match="another process uses .*is a server of the same endpoint still running"):
        SmallServer(tmp_path, ENDPOINTS[0], {})
    stop(servers)
    stop(start(tmp_path))


def test_remote_snapshots_of_another_age_than_the_log(tmp_path):
    """A log is used if it goes on where the snapshot ends; an older one, or one of an earlier life, is not."""
    options = {"endpoints": ENDPOINTS[:1]}
    (server,) = start(tmp_path, **options)
    for _ in range(3):
        server.push()
    server.recovery.snapshot()
    server.push()
    stop([server])
    (server,) = start(tmp_path, log=False, **options)  # without its log
    assert server.total() == 3
    server.push()
    server.recovery.snapshot()
    stop([server])
    (server,) = start(tmp_path, **options)  # the log is that of the first life
    assert server.total() == 4
    server.push()
    stop([server])
    (server,) = start(tmp_path, **options)
    assert server.total() == 5
    stop([server])


def test_a_log_whose_snapshots_are_gone_is_not_read(tmp_path):
    options = {"endpoints": ENDPOINTS[:1]}
    (server,) = start(tmp_path, **options)
    for _ in range(3):
        server.push()
        server.recovery.snapshot()
    stop([server])
    (tmp_path / "snapshots").rename(tmp_path / "elsewhere")
    (server,) = start(tmp_path, **options)
    for _ in range(4):
        server.push()  # not followed by what is left of the log before
    stop([server])
    assert len([*(tmp_path / "log" / "one_1").glob("log.*")]) == 1


def test_snapshots_on_a_remote_file_system(monkeypatch):
    from refluid.files.storage import at

    folder = at("memory://job-of-test-cuts")
    servers = start(folder, log=False)
    for _ in range(3):
        for server in servers:
            server.push()
        servers[0].recovery.snapshot()
    stop(servers)
    again = start(folder, log=False)
    assert [server.total() for server in again] == [3, 3]
    for server in again:
        server.recovery.close(finished=True)
    folder.remove()


def test_files_of_the_log_that_cannot_be_removed_are_in_nobodys_way(tmp_path, monkeypatch, caplog):
    (server,) = start(tmp_path, endpoints=ENDPOINTS[:1])
    server.push()

    def refuse(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Log, "drop_before", refuse)
        server.recovery.snapshot()
    assert "cannot remove files of the log" in caplog.text and "Input/output error" in caplog.text
    server.push()
    server.recovery.snapshot()
    assert len([*(tmp_path / "log" / "one_1").glob("log.*")]) == 1
    stop([server])


def test_a_full_disk_costs_a_snapshot_and_training_goes_on(tmp_path, monkeypatch):
    servers = start(tmp_path, log=False)
    for server in servers:
        server.push()
    servers[0].recovery.snapshot()
    for server in servers:
        server.push()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("refluid.files.streams.os.fsync", full)
    with pytest.raises(CutError, match="No space left"):
        servers[0].recovery.snapshot()
    for server in servers:
        assert server.recovery.has_first, "does not raise: there is one to go back to"
        server.push()
    assert "No space left" in servers[0].recovery.status()["problem"]
    monkeypatch.undo()
    servers[0].recovery.snapshot()
    assert not servers[0].recovery.status()["problem"]
    stop(servers)
    again = start(tmp_path, log=False)
    assert [server.total() for server in again] == [3, 3]
    stop(again)
