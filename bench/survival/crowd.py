"""Many trainers push large gradients to one server behind a slow network, which has room for a few of them at once.

    python bench/survival/crowd.py [--trainers 64] [--pushes 5] [--mb 2] [--budget_mb 64] [--mb_per_second 20]

Prints the memory that the server took beyond what it had when all had joined, next to its budget
(FLAGS_rpc_max_inflight_mb), and whether all pushes arrived, once. Heartbeats of a trainer that pushes nothing are timed
meanwhile. The exit code is 0 if nothing is lost and memory stayed within the budget, six times the parameter, which is
what its update and a reply take, and a message and its reply for each arena of malloc, of which glibc makes up to eight
for each core and which keep what was largest in them.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, os.pardir, "tests"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from cluster import counting, pushing
from cluster.forked import Processes, free_ports, usage, written
from cluster.proxy import Proxy
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import pb

KEPT = 6  # times the parameter
ARENAS = 8 * (os.cpu_count() or 1)
WARM = 3  # pushes of the first trainer, after which the server has compiled its update


def watch(case, args):
    """The first trainer offers parameters, and then times heartbeats until all others are done."""
    pusher = pushing.Pusher(case, 0)
    for _ in range(WARM):
        pusher.push()
    written(case["found"] + ".ready", {})
    connection, slowest = pusher.session._connections[pusher.endpoint], 0.0
    message = wire.encode(pb.CallerRequest(caller=pusher.session.caller))
    while not all(os.path.exists("%s.%d" % (case["found"], each)) for each in range(1, args.trainers)):
        began = time.time()
        connection.call("Heartbeat", message, 30.0)
        slowest = max(slowest, time.time() - began)
        time.sleep(0.1)
    written(case["found"], dict(total=pusher.total(), heartbeat=slowest))
    pusher.session.leave()


def train(case, number, args):
    """One of the others."""
    pusher = pushing.Pusher(case, number)
    written("%s.%d.joined" % (case["found"], number), {})
    while not os.path.exists(case["found"] + ".go"):
        time.sleep(0.02)
    for _ in range(args.pushes):
        pusher.push()
    written("%s.%d" % (case["found"], number), {})
    pusher.session.leave()


def slow(endpoint, port, rate):
    """The network before the server."""
    proxy = Proxy(endpoint, rate=rate)
    proxy.port = port
    with proxy:
        while True:
            time.sleep(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainers", type=int, default=64)
    parser.add_argument("--pushes", type=int, default=5)
    parser.add_argument("--mb", type=float, default=2.0, help="of a gradient, and of the reply")
    parser.add_argument("--budget_mb", type=int, default=64)
    parser.add_argument("--mb_per_second", type=float, default=20.0, help="of each connection and direction")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="crowd")
    ports = free_ports(2)
    endpoint, way = ("127.0.0.1:%d" % port for port in ports)
    size = int(args.mb * (1 << 18))
    case = dict(
        endpoints=[endpoint], trainers=args.trainers, size=size, mode="async", table="dense", steps=0,
        found=os.path.join(folder, "found"),
    )  # fmt: skip
    with open(os.path.join(folder, "ways"), "w") as file:
        file.write("%s %s\n" % (endpoint, way))
    through = {"FLAGS_rpc_endpoints_file": file.name}
    processes = Processes(folder, {"FLAGS_rpc_max_inflight_mb": args.budget_mb, "FLAGS_rpc_deadline": 600000})
    try:
        server = processes.start(("server", 0), partial(counting.serve, case, 0, lambda what: None))
        processes.start(("proxy", 0), partial(slow, endpoint, ports[1], args.mb_per_second * (1 << 20)))
        processes.start(("trainer", 0), partial(watch, case, args), **through)
        while not os.path.exists(case["found"] + ".ready"):
            processes.reap()
            assert not processes.ended, processes.output(next(iter(processes.ended)))
            time.sleep(0.05)
        alone = usage(server)["memory"]
        for number in range(1, args.trainers):
            processes.start(("trainer", number), partial(train, case, number, args), **through)
        while not all(os.path.exists("%s.%d.joined" % (case["found"], each)) for each in range(1, args.trainers)):
            processes.reap()
            assert not processes.ended, processes.output(next(iter(processes.ended)))
            time.sleep(0.05)
        before, began = usage(server)["memory"], time.time()
        written(case["found"] + ".go", {})
        peak = before
        while ("trainer", 0) in processes.running:
            processes.reap()
            if ("server", 0) in processes.running:
                peak = max(peak, usage(server).get("peak", 0))
            failed = [name for name, code in processes.ended.items() if code]
            assert not failed, processes.output(failed[0])
            time.sleep(0.02)
        with open(case["found"]) as file:
            found = json.load(file)
        found["total"] -= WARM
    finally:
        processes.end()
        shutil.rmtree(folder)
    expected, allowed = (args.trainers - 1) * args.pushes, args.budget_mb + (KEPT + 2 * ARENAS) * args.mb
    good = found["total"] == expected and peak - before <= allowed
    print(
        "%d trainers, %d pushes of %g MB: sum %d of %d; server memory +%.0f MB for joining, +%.0f MB for messages, "
        "allowed %g; slowest heartbeat %.2f s; %.0f s: %s"
        % (args.trainers, expected, args.mb, found["total"], expected, before - alone, peak - before, allowed,
           found["heartbeat"], time.time() - began, "good" if good else "WRONG"),
    )  # fmt: skip
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
