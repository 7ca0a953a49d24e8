"""Saves tables and a dense variable over what was saved before, in a child that is killed at one fault point after
another; run by test_table_saving.py. Prints what loading finds at each: 1 of the first save, 2 of the second.

python tables_to_kill.py FOLDER whole    the same folder again
python tables_to_kill.py FOLDER delta    a delta in a folder of its own, which may be missing
"""

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from refluid.files.writing import write_together, writer_of
from refluid.runtime.server.table_saving import TableSaving
from refluid.runtime.tables.batches import owners, shared_out
from refluid.runtime.tables.files.parts import TableFileError
from refluid.runtime.trainer.session import bound
from refluid.runtime.trainer.table_saving import saving_tables
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import pb
from tables_to_save import load, make, ranges

SERVERS, IDS = 2, np.arange(40)


class InProcess:
    """A session of a job whose servers are in this process."""

    caller = pb.Caller()

    def __init__(self, tables):
        self.job = SimpleNamespace(endpoints=[f"server {place}" for place in range(SERVERS)])
        self._saving = {}
        for endpoint, table, (start, end) in zip(self.job.endpoints, tables, ranges(SERVERS), strict=True):
            held = SimpleNamespace(table=table, states={}, part=SimpleNamespace(whole="emb", start=start, end=end))
            self._saving[endpoint] = TableSaving({"emb": held}, threading.Condition())

    def call_all(self, method, headers):
        assert method == "Snapshot"
        replies = {endpoint: self._saving[endpoint].save(header) for endpoint, header in headers.items()}
        return {name: b"".join(wire.encode(pb.SnapshotReply(text=text))) for name, text in replies.items()}


def save(session, folder, number, base=None):
    """Saves the table, and beside it a file that says which time it is."""
    with bound(session), saving_tables(["emb"], str(folder), base) as manifests:
        files = {"w": bytes([number]) * 1000, **manifests}
        write_together(folder, {name: writer_of(content) for name, content in files.items()})


def add_one(tables):
    parts = shared_out(IDS, owners([end - start for start, end in ranges(SERVERS)]), SERVERS)
    for table, places in zip(tables, parts, strict=True):
        table.update(IDS[places], -np.ones((len(places), 3), np.float32), table.begin_step(1.0))


def look(folder, like):
    """The number that all files agree on, "none" if there is no table yet, or what they differ in."""
    try:
        (table,) = load(folder, like)
    except TableFileError as error:
        return "none" if "there is no table" in str(error) else f"broken: {error}"
    found = {float(value) for value in table.read(IDS).ravel()} | {
        float(value) for value in (folder / "w").read_bytes()
    }
    return " ".join(str(int(value)) for value in sorted(found))


def main(root, way):
    points, tables = 0, make("sgd", count=SERVERS)
    add_one(tables)
    save(InProcess(tables), Path(root) / "warm", 1)  # loads the kernels, once for all children
    while True:
        points += 1
        folder = Path(root) / str(points)
        child = os.fork()
        if child == 0:
            tables = make("sgd", count=SERVERS)
            session = InProcess(tables)
            add_one(tables)
            save(session, folder / "0", 1)
            add_one(tables)
            os.environ["REFLUID_KILL_AT"] = str(points)
            if way == "whole":
                save(session, folder / "0", 2)
            else:
                save(session, folder / "1", 2, base=str(folder / "0"))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert status == 0, status
            break
    like = make("sgd")[0]
    for point in range(1, points + 1):
        folder = Path(root) / str(point)
        print(look(folder / "0", like), *([look(folder / "1", like)] if way == "delta" else []))
    print("files", len(list((Path(root) / str(points) / ("0" if way == "whole" else "1")).iterdir())))


if __name__ == "__main__":
    main(*sys.argv[1:])
