"""What a table of any size needs, from what a row and a message cost on this machine.

    python bench/scale/run.py measure     # the costs of this machine, into costs.json
    python bench/scale/run.py check       # jobs of 1, 2, 3 servers and 1, 2 trainers: predicted, then measured
    python bench/scale/run.py tables      # jobs beyond this machine, up to 10^11 rows, simulated
    python bench/scale/run.py plot docs/scale.svg

Without a costs.json of your own, the last two use the one that is here. Processor time is what counts: on a busy machine,
steps per second of `check` say little, and it says so.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))

import costs as measuring
import drawing
import real_jobs
from model import (
    Costs,
    Host,
    Job,
    limits,
    obstacles,
    server_memory,
    server_seconds,
    snapshot_seconds,
    trainer_seconds,
)
from simulation import Simulation

COSTS = os.path.join(HERE, "costs.json")
CORES = os.cpu_count()
QUIET = 0.25  # cores that others may use
SERVER = Host(cores=16, memory=128e9, network=3.1e9)  # 25 Gbit/s
TRAINER = Host(cores=16, memory=64e9, network=1.25e9)
CTR = {"width": 8, "batch_rows": 14000, "compute": 0.02, "server_host": SERVER, "trainer_host": TRAINER}


def measure(options):
    found = measuring.measure(options.steps, options.folder)
    with open(options.costs, "w") as file:
        file.write(found.to_json() + "\n")
    print(found.to_json())


def check(options):
    """Predicts jobs that were not used to find the costs, measures them, and prints both."""
    costs = Costs.read(options.costs)
    print("servers trainers    trainer, ms of CPU      server, ms of CPU       steps/s of all trainers")
    for servers in options.servers:
        for trainers in (1, 2):
            shape = real_jobs.Shape(servers, trainers, rows=options.rows, width=16, steps=options.steps)
            expected, found = predict(shape, costs), real_jobs.run(shape)
            disturbed = "  (others used %.1f cores)" % found.others if found.others > QUIET else ""
            pairs = [
                (1e3 * expected["trainer"], 1e3 * found.trainer),
                (1e3 * expected["server"], 1e3 * found.server),
                (expected["steps"], found.steps_per_second),
            ]
            cells = ["%7.2f %7.2f %+4.0f %%" % (said, was, 100 * (said / was - 1)) for said, was in pairs]
            print("%7d %8d    %s%s" % (servers, trainers, "   ".join(cells), disturbed), flush=True)


def predict(shape, costs):
    """Processor seconds of a step of a trainer and of a server, and steps per second on one machine."""
    job = Job(
        real_jobs.TABLE, shape.servers, shape.trainers, shape.width, batch_rows=shape.rows, compute=0.0, sync=shape.sync
    )
    outcome = Simulation(job, costs, steps=40, shared=CORES).run()
    return {
        "trainer": trainer_seconds(job, costs),
        "server": server_seconds(job, costs, 1 / job.servers),
        "steps": outcome.steps_per_second,
    }


GRID = (
    Job(1e9, 1, 8, **CTR),
    Job(1e9, 2, 8, **CTR),
    Job(1e9, 4, 32, **CTR),
    Job(1e10, 8, 32, **CTR),
    Job(1e10, 16, 64, **CTR),
    Job(1e10, 16, 64, **dict(CTR, optimizer="adam", width=16)),
    Job(1e11, 64, 64, **CTR),
    Job(1e11, 64, 128, **CTR),
)


def tables(options):
    """The table of docs/scale.md."""
    costs = Costs.read(options.costs)
    print("| rows | servers | trainers | GB per server | snapshot, delta (s) | steps/s, M rows/s | slowest | limits |")
    print("|---|---|---|---|---|---|---|---|")
    for job in GRID:
        print("| %s |" % " | ".join(row_of(job, costs, options.turns)), flush=True)


def row_of(job, costs, turns):
    outcome, most = Simulation(job, costs, turns).run(), limits(job, costs)
    first = min(most, key=most.get)
    wide = "" if (job.width, job.optimizer) == (8, "sgd") else ", width %d, %s" % (job.width, job.optimizer)
    rows = outcome.steps_per_second * job.batch_rows / 1e6
    return [
        "10^%d%s" % (len("%d" % job.rows) - 1, wide),
        str(job.servers),
        str(job.trainers),
        "%.0f" % (server_memory(job) / 1e9),
        "%.0f, %.0f" % (snapshot_seconds(job, costs), snapshot_seconds(job, costs, 0.05)),
        "%.0f, %.1f" % (outcome.steps_per_second, rows),
        "%s (%.0f %% busy)" % (outcome.bottleneck, 100 * outcome.busy[outcome.bottleneck]),
        "; ".join(["%s at %.0f steps/s" % (first, most[first]), *obstacles(job)]),
    ]


def plot(options):
    """Steps per second over trainers, and memory over rows, for some numbers of servers."""
    costs, numbers = Costs.read(options.costs), (1, 4, 16, 64)
    speed, memory = [], []
    for servers in numbers:
        of_trainers = [Job(1e9, servers, trainers, **CTR) for trainers in (1, 2, 4, 8, 16, 32, 64)]
        simulated = [Simulation(job, costs, options.turns).run().steps_per_second for job in of_trainers]
        speed.append([(job.trainers, steps) for job, steps in zip(of_trainers, simulated)])
        of_rows = [Job(10.0 ** (8 + step / 4), servers, 1, **CTR) for step in range(13)]
        memory.append([(job.rows, server_memory(job) / 1e9) for job in of_rows])
    panels = [
        ("steps per second of all trainers", "trainers", speed, None),
        ("GB of memory per server (dashed: 128)", "rows of width 8", memory, SERVER.memory / 1e9),
    ]
    with open(options.output, "w") as file:
        file.write(drawing.svg(panels, ["%d server%s" % (n, "s" * (n > 1)) for n in numbers]))


PARTS = {part.__name__: part for part in (measure, check, tables, plot)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("output", nargs="?", default="scale.svg")
    parser.add_argument("--costs", default=COSTS)
    parser.add_argument("--steps", type=int, default=300, help="of a trainer in a real job")
    parser.add_argument("--rows", type=int, default=2000, help="of a batch of `check`")
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2, 3], help="of the jobs of `check`")
    parser.add_argument("--turns", type=int, default=5, help="steps of a trainer in a simulation")
    parser.add_argument("--folder", default=".", help="where snapshots would be written")
    options = parser.parse_args()
    PARTS[options.part](options)
