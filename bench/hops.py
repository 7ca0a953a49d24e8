"""Counts the calls that cross from one file of refluid's into another, in one `exe.run` of a steady training loop.

A batch, a LoD batch, and a step with parameter servers: the lookup of table rows, then gradients out and parameters back.
`--list` also prints every such call. docs/journeys.svg shows the figures.
"""

import argparse
import socket
import sys
import threading

import numpy as np

import paddle.fluid as fluid


class Hops:
    """The calls between files of all threads, while `recording`."""

    def __init__(self):
        self.recording, self.calls = False, []
        threading.setprofile(self._seen)

    def _file(self, frame):
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if name.split(".")[0] in ("refluid", "paddle"):
                return name
            frame = frame.f_back
        return None

    def _seen(self, frame, event, _):
        if self.recording and event == "call":
            name = frame.f_globals.get("__name__", "")
            if name.split(".")[0] in ("refluid", "paddle") and name != self._file(frame.f_back):
                self.calls.append((name, frame.f_code.co_name))

    def of(self, run):
        """The calls of a run, after some that warm up."""
        for _ in range(4):
            run()
        self.calls, self.recording = [], True
        sys.setprofile(self._seen)
        run()
        sys.setprofile(None)
        self.recording = False
        return self.calls


def batch(exe):
    x, y = fluid.layers.data("x", [13]), fluid.layers.data("y", [1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((20, 13), "float32"), "y": np.ones((20, 1), "float32")}
    return lambda: exe.run(feed=feed, fetch_list=[loss])


def lod_batch(exe):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
        label = fluid.layers.data("label", [1], dtype="int64")
        pooled = fluid.layers.sequence_pool(fluid.layers.embedding(words, [50, 8]), "sum")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(pooled, 2, act="softmax"), label))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(startup)
    rows = fluid.create_lod_tensor(np.ones((9, 1), "int64"), [[2, 3, 4]], fluid.CPUPlace())
    feed = {"words": rows, "label": np.array([[0], [1], [0]])}
    return lambda: exe.run(main, feed=feed, fetch_list=[loss])


def job(endpoint):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, ids = fluid.layers.data("x", [4]), fluid.layers.data("ids", [1], dtype="int64")
        rows = fluid.layers.embedding(ids, [40, 3], is_sparse=True)
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(fluid.layers.concat([x, rows], axis=1), 8)))
        fluid.optimizer.Adam(0.01).minimize(loss)
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, main, endpoint, 1, startup_program=startup)
    return main, startup, loss, transpiler


def serve(endpoint):
    *_, transpiler = job(endpoint)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.core.Scope()
    main, startup = transpiler.get_pserver_programs(endpoint)
    exe.run(startup, scope=scope)
    exe.run(main, scope=scope)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true")
    show = parser.parse_args().list
    hops, exe = Hops(), fluid.Executor(fluid.CPUPlace())
    found = {"batch": hops.of(batch(exe)), "LoD batch": hops.of(lod_batch(exe))}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = "127.0.0.1:%d" % free.getsockname()[1]
    program, startup, loss, _ = job(endpoint)
    server = threading.Thread(target=serve, args=[endpoint])
    server.start()
    exe.run(startup)
    feed = {"x": np.ones((6, 4), "float32"), "ids": np.arange(6).reshape(6, 1)}
    found["step with a server"] = hops.of(lambda: exe.run(program, feed=feed, fetch_list=[loss]))
    exe.close()
    server.join()
    for what, calls in found.items():
        print("%-20s %3d calls between %2d files" % (what, len(calls), len({name for name, _ in calls})))
        for call in calls if show else ():
            print("    %s %s" % call)


if __name__ == "__main__":
    main()
