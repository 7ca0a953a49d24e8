"""Two servers that push and save, in a child that is killed at one fault point after another; run by test_cuts.py.

Prints of each point what servers that are started again have, and what was acknowledged before.

python servers_to_kill.py FOLDER log|none
"""

import json
import os
import sys
import threading
from pathlib import Path

from refluid.runtime.server.durable import snapshots
from small_server import ENDPOINTS, start, stop


def run(folder, *, log, kill_at):
    """A snapshot of 1 push, then, until it is killed, pushes that are acknowledged, and a snapshot more."""
    if not log:
        snapshots._LONGEST_CHAIN = 2  # so it is whole, and replaces those before; with a log it is a delta
    one, two = start(folder, log=log)
    acknowledged = os.open(folder / "acknowledged", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def push(*servers):
        for server in servers:
            server.push()
        if len(servers) == 2:
            os.write(acknowledged, b".")

    push(one, two)
    one.recovery.snapshot()
    os.environ["REFLUID_KILL_AT"] = str(kill_at)
    push(one, two)
    push(one)
    snapshot = threading.Thread(target=one.recovery.snapshot)
    snapshot.start()  # it needs the push that is under way
    two.push()
    os.write(acknowledged, b".")
    snapshot.join()
    stop([one, two])
    os._exit(0)


def beside_the_newest(folder):
    """The snapshots that the newest complete one does not build on."""
    newest = max(path.parent for path in folder.glob("snapshot.*/manifest.json"))
    chain = [newest]
    while base := json.loads((chain[-1] / "table.0").read_text()).get("base"):
        chain.append((chain[-1] / base["path"]).resolve().parent)
    return sorted({path.name for path in folder.glob("snapshot.*")} - {path.name for path in chain})


def main(root, way):
    os.fsync = os.fdatasync = lambda handle: None  # processes are killed, not machines
    log = way == "log"
    stop(start(Path(root) / "warm", log=log))  # loads the kernels, once for all children
    point = 0
    while True:
        point += 1
        folder = Path(root) / str(point)
        folder.mkdir()
        child = os.fork()
        if child == 0:
            run(folder, log=log, kill_at=point)
        _, status = os.waitpid(child, 0)
        servers = start(folder, log=log)
        found = [server.total() for server in servers]
        for server in servers:  # as a trainer repeats what a server does not have
            for _ in range(max(found) - server.total()):
                server.push()
        print(*found, (folder / "acknowledged").stat().st_size)
        if point % 8 == 1:
            servers[0].recovery.snapshot()  # what was left behind is not in the way
        stop(servers)
        for each in ENDPOINTS:
            beside = beside_the_newest(folder / "snapshots" / each.replace(":", "_"))
            assert len(beside) <= 1, (point, beside)  # one that was being made when the servers stopped
        if not os.WIFSIGNALED(status):
            assert status == 0, status
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
