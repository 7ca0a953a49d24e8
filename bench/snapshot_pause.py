"""How long pushes wait for a snapshot: one server in this process, 200 MB of dense parameters, a table of many rows.

    python bench/snapshot_pause.py --rows 4e6

A thread pushes without a break, in async mode, while snapshots are written, whole and as deltas. Prints what the server
counts as a pause, and the time that pushes take with and without a snapshot being written. A push of all parameters takes
long by itself; ``--every 0.5`` leaves that many seconds between two of them, as trainers do.
"""

import argparse
import statistics
import tempfile
import threading
import time

import numpy as np

WIDTH, SIDE = 8, 1024


def build(layers):
    import paddle.fluid as fluid

    x = fluid.layers.data("x", [SIDE])
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [2**31, WIDTH], is_sparse=True, is_distributed=True, param_attr="emb")
    for _ in range(layers):
        x = fluid.layers.fc(x, SIDE, bias_attr=False)
    fluid.optimizer.SGD(0.01).minimize(fluid.layers.mean(x) + fluid.layers.mean(rows))


class Pusher:
    """The only trainer of a job."""

    def __init__(self, server):
        from refluid.runtime.transport import wire
        from refluid.runtime.transport.wire import pb

        self._server, self._wire, self._pb, self._sequence = server, wire, pb, 0
        self.caller = pb.Caller(trainer=0, incarnation=1)
        shard = server._exchange.shard
        (table,) = shard.tables.values()
        self._table = table.update.pushed
        self._dense = {
            name: np.full(shard.describe(name)[1], 1e-3, np.float32) for name in shard.pushable if name != self._table
        }
        join = pb.JoinRequest(
            caller=self.caller, protocol=wire.PROTOCOL, endpoint=server.endpoint, trainers=1, mode="async", host="bench"
        )
        server.handle("Join", b"".join(wire.encode(join)))
        self._exchange(pb.ExchangeRequest.OFFER, {})

    def _exchange(self, purpose, tensors):
        header = self._pb.ExchangeRequest(caller=self.caller, purpose=purpose, sequence=self._sequence, steps=1)
        message = b"".join(self._wire.encode(header, tensors))
        began = time.perf_counter()
        self._server.handle("Exchange", message)
        return time.perf_counter() - began

    def push(self, ids):
        """Pushes a gradient for these rows and all parameters; returns how long the server took."""
        rows = self._wire.Rows(ids, np.ones((len(ids), WIDTH), np.float32))
        self._sequence += 1
        return self._exchange(self._pb.ExchangeRequest.STEP, {self._table: rows, **self._dense})


def start(layers, folder):
    import paddle.fluid as fluid
    from refluid import flags
    from refluid.runtime.server.server import Server

    flags.write_flag("FLAGS_rpc_server_snapshots", folder)
    build(layers)
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, pservers="127.0.0.1:6174", trainers=1, sync_mode=False)
    main, startup = transpiler.get_pserver_programs("127.0.0.1:6174")
    fluid.Executor(fluid.CPUPlace()).run(startup)
    return Server(main.global_block().ops[-1], fluid.global_scope(), fluid.CPUPlace(), None)


def ms(seconds):
    return f"{1000 * seconds:.1f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=4e6)
    parser.add_argument("--megabytes", type=int, default=200, help="of dense parameters")
    parser.add_argument("--snapshots", type=int, default=6)
    parser.add_argument("--every", type=float, default=0.0, help="seconds between two pushes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = start(max(1, args.megabytes * (1 << 20) // (4 * SIDE * SIDE)), folder)
        pauses, pusher = [], Pusher(server)
        recovery = server._recovery
        recovery.pause_seconds = server._exchange.shard.pause_seconds = pauses.append
        (table,) = server.tables.values()
        for begin in range(0, int(args.rows), 500_000):
            ids = np.arange(begin, min(begin + 500_000, int(args.rows)))
            table.table.update(ids, np.ones((len(ids), WIDTH), np.float32), table.table.begin_step(0.1))
        recovery.snapshot()  # of what has grown by now: later ones are deltas
        pauses.clear()
        random, times, during, running = np.random.RandomState(0), [], [], True
        saving = threading.Event()

        def train():
            while running:
                before = saving.is_set()
                taken = pusher.push(np.unique(random.randint(0, int(args.rows), 4096)))
                (during if before or saving.is_set() else times).append(taken)
                time.sleep(args.every)

        trainer = threading.Thread(target=train)
        trainer.start()
        for _ in range(args.snapshots):
            time.sleep(3 + 4 * args.every)
            saving.set()
            began, cpu = time.perf_counter(), time.process_time()
            recovery.snapshot()
            print(
                "snapshot", f"{time.perf_counter() - began:.1f} s, {time.process_time() - cpu:.1f} s of CPU", flush=True
            )
            saving.clear()
        running = False
        trainer.join()
        print("pauses", ", ".join(map(ms, sorted(pauses, reverse=True)[:8])), f"of {len(pauses)}")
        for name, found in (("without", times), ("with", during)):
            print(
                "pushes",
                name,
                f"a snapshot: {len(found)}, median {ms(statistics.median(found))}, most {ms(max(found))}",
            )
        server.all_left.set()
        recovery.close(finished=True)


if __name__ == "__main__":
    main()
