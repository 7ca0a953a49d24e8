"""A server as small as it can be: a vector and a table of which every push adds 1 to all elements."""

import threading
from types import SimpleNamespace

import numpy as np

from refluid.log import Log as Lines
from refluid.runtime.server.durable.records import UPDATE, read_update
from refluid.runtime.server.durable.recovery import Recovery
from refluid.runtime.server.durable.settings import Settings
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import pb
from tables_to_save import make

IDS = np.arange(20)
ENDPOINTS = ("one:1", "two:2")


class SmallServer:
    """What `Recovery` needs of a server.

    ``peers`` is where the servers of a job find each other; a missing one cannot be reached.
    """

    has_parameters = True

    def __init__(self, folder, endpoint, peers, *, log=True, endpoints=ENDPOINTS, trainers=2, syncs=False):
        self.value, self.last, self.left, self.round = np.zeros(1000), dict.fromkeys(range(trainers), 0), set(), 0
        (self.table,) = make("sgd")
        self.tables = {"emb": SimpleNamespace(table=self.table, update=SimpleNamespace(param="emb"))}
        self.lock, self.writing, self.peers = threading.Condition(), threading.Lock(), peers
        where = (folder, "snapshots"), (folder, "log") if log else None
        settings = Settings(where[0][0] / where[0][1], 60.0, where[1] and where[1][0] / where[1][1], 1 << 20, syncs)
        self.recovery = Recovery(
            settings, self, self.lock, self.writing, {"endpoint": endpoint}, endpoints, self._ask, Lines("server")
        )
        peers[endpoint] = self
        self.recovery.begin()

    def _ask(self, endpoint, request):
        copy = pb.CutRequest.FromString(request.SerializeToString())
        return self.peers[endpoint].recovery.handle(copy)

    def push(self, trainer=0):
        """Applies a push and returns when it is in the log, if there is one."""
        with self.lock:
            message = pb.ExchangeRequest(caller=pb.Caller(trainer=trainer), sequence=self.last[trainer] + 1)
            self._apply(trainer)
            self.recovery.record_update(0.0, [b"".join(wire.encode(message))])
            self.lock.notify_all()
            last = self.recovery.last
        self.recovery.wait(last)

    def _apply(self, trainer):
        self.value = self.value + 1
        self.table.update(IDS, -np.ones((len(IDS), 3), np.float32), self.table.begin_step(1.0))
        self.last[trainer] += 1
        self.round += 1

    def applied(self):
        return dict(self.last)

    def lacking(self, until):
        return {
            trainer: last for trainer, last in until.items() if self.last[trainer] < last and trainer not in self.left
        }

    def state(self):
        return {"value": self.value, "last": {str(trainer): last for trainer, last in self.last.items()}}

    def settle(self):
        pass

    def restore(self, state):
        self.value, self.last = np.array(state["value"]), {int(key): last for key, last in state["last"].items()}
        self.round = sum(self.last.values())

    def replay(self, kind, content):
        assert kind == UPDATE
        for message in read_update(content)[1]:
            self._apply(wire.decode(pb.ExchangeRequest, message).caller.trainer)

    def total(self):
        """How many pushes every element has; they must agree, and with what is known of trainers."""
        (found,) = {float(each) for each in self.value} | {float(each) for each in self.table.read(IDS).ravel()}
        assert found == sum(self.last.values()), (found, self.last)
        return int(found)


def start(folder, **options):
    """The servers of a job, as far as there are endpoints."""
    peers = {}
    endpoints = options.get("endpoints", ENDPOINTS)
    for endpoint in endpoints:
        SmallServer(folder, endpoint, peers, **options)
    for server in peers.values():
        with server.lock:
            server.lock.wait_for(lambda recovery=server.recovery: recovery.has_first)
        if server.recovery._thread is not None:
            server.recovery._thread.join()
    return [peers[endpoint] for endpoint in endpoints]


def stop(servers):
    for server in servers:
        server.recovery.close(finished=False)
