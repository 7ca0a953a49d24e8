"""Trains refluid on the cases that were recorded from real Fluid, and prints both:

    python tests/convergence/compare.py [--modes tasync,async] [--models tanh] [--rates 1,3] [--seeds 5]

Real processes and sockets. The cases of a model and mode share their processes, one case after the other. A loss that
diverges with some seed is marked "!". Ends with an error if refluid is worse than the rule of rule.py allows.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from cluster.jobs import Jobs, free_endpoints
from convergence.rule import MODELS, MODES, RATES, SEEDS, Losses, local, real_fluid, verdict

SCRIPT = Path(__file__).parent / "train.py"
TIMEOUT = 600.0
TITLE = "model     mode       rate   first     local  real Fluid   refluid"


def losses_of(jobs, kinds, seeds=SEEDS):
    """Trains kinds of cases (model, mode and rate) with each seed, one after the other; the losses of each kind."""
    cases = [case(jobs.folder, *kind, seed) for kind in kinds for seed in range(seeds)]
    path = jobs.folder / "cases.json"
    path.write_text(json.dumps(cases))
    in_one = kinds[0][1].startswith("local")
    roles = [("local", 0)] if in_one else [("trainer", 0), ("trainer", 1), ("server", 0), ("server", 1)]
    outs = [jobs.folder / f"{role}{number}.npz" for role, number in roles]
    finish([jobs.start(out.stem, SCRIPT, *role, path, out) for role, out in zip(roles, outs, strict=True)])
    with np.load(outs[0]) as file:
        found = np.array([[file[f"{i}/first"], file[f"{i}/last"]] for i in range(len(cases))])
    return {kind: Losses(*each.T) for kind, each in zip(kinds, found.reshape(len(kinds), seeds, 2), strict=True)}


def case(folder, model, mode, rate, seed):
    """What train.py wants to know of a case."""
    folder = folder / f"{model}-{mode}-{rate:.1f}-{seed}"
    folder.mkdir()
    endpoints = free_endpoints(2)
    return {"model": model, "mode": mode, "rate": rate, "seed": seed, "folder": str(folder), "endpoints": endpoints}


def finish(processes):
    """Waits until all have ended well, or one has not."""
    end = time.monotonic() + TIMEOUT
    while any(process.popen.poll() is None for process in processes):
        failed = [process for process in processes if process.popen.poll()]
        for process in failed:
            process.finish()
        assert time.monotonic() < end, "\n".join(process.output for process in processes)
        time.sleep(0.05)
    for process in processes:
        process.finish()


def row(model, mode, rate, ours):
    """A line of the table."""
    seeds = len(ours.last)
    real, alone = real_fluid(model, mode, rate, seeds), local(model, mode, rate, seeds)
    losses = f"{np.median(ours.first):7.3f} {shown(alone)} {shown(real)}  {shown(ours)}"
    return f"{model:9} {mode:10} {rate:4.2f} {losses} {verdict(model, mode, rate, ours) or 'ok'}"


def shown(losses):
    return f"{losses.median:9.4g}{' ' if losses.converge else '!'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rates", default="0.1,0.33,1,3", help="times the usual learning rate")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    chosen = parser.parse_args()
    rates = [min(RATES, key=lambda known: abs(known - float(rate))) for rate in chosen.rates.split(",")]
    print(TITLE)
    failed = 0
    for mode, model in itertools.product(chosen.modes.split(","), chosen.models.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            jobs = Jobs(folder)
            try:
                found = losses_of(jobs, [(model, mode, rate) for rate in rates], chosen.seeds)
            finally:
                jobs.end()
        for kind, ours in found.items():
            failed += bool(verdict(*kind, ours))
            print(row(*kind, ours), flush=True)
    sys.exit(f"{failed} worse than real Fluid" if failed else 0)


if __name__ == "__main__":
    main()
