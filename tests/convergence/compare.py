"""Trains refluid on the cases that were recorded from real Fluid, and prints both:

    python tests/convergence/compare.py [--modes tasync,async] [--models tanh] [--rates 1,3] [--seeds 5]

Real processes and sockets. The cases of a model and mode share their processes, one case after the other. Ends with an
error if refluid is worse than the rule of rule.py allows.
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
from convergence.rule import MODES, RATES, SEEDS, Losses, local, real_fluid, verdict

SCRIPT = Path(__file__).parent / "train.py"
MODELS = ["linear", "tanh", "relu", "softmax", "embedding", "word2vec"]


def train(jobs, mode, cases):
    """Trains cases, given as model, rate and seed, one after the other; returns first and last losses of each."""
    described = []
    for i, (model, rate, seed) in enumerate(cases):
        folder = jobs.folder / f"{mode}{i}"
        folder.mkdir()
        case = {"model": model, "mode": mode, "rate": rate, "seed": seed, "folder": str(folder)}
        described.append({**case, "endpoints": free_endpoints(2)})
    path = jobs.folder / f"{mode}.json"
    path.write_text(json.dumps(described))
    roles = [("local", 0)] if mode.startswith("local") else [(r, n) for r in ("server", "trainer") for n in range(2)]
    jobs.finish(
        [jobs.start(f"{mode}-{r}{n}", SCRIPT, r, n, path, jobs.folder / f"{mode}-{r}{n}.npz") for r, n in roles]
    )
    with np.load(jobs.folder / f"{mode}-{roles[-2:][0][0]}0.npz") as file:
        return [(float(file[f"{i}/first"]), float(file[f"{i}/last"])) for i in range(len(cases))]


def losses_of(jobs, mode, models, rates, seeds=SEEDS):
    """The losses of each model and rate."""
    kinds = list(itertools.product(models, rates))
    found = np.array(train(jobs, mode, [(*kind, seed) for kind in kinds for seed in range(seeds)]))
    return {kind: Losses(*each.T) for kind, each in zip(kinds, found.reshape(len(kinds), seeds, 2), strict=True)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rates", default="0.1,0.33,1,3", help="times the usual learning rate")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    chosen = parser.parse_args()
    rates = [min(RATES, key=lambda known: abs(known - float(rate))) for rate in chosen.rates.split(",")]
    print("model     mode       rate  |  first     local  real Fluid   refluid")
    failed = 0
    for mode, model in itertools.product(chosen.modes.split(","), chosen.models.split(",")):
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            jobs = Jobs(folder)
            try:
                found = losses_of(jobs, mode, [model], rates, chosen.seeds)
            finally:
                jobs.end()
        for (_, rate), ours in found.items():
            wrong = verdict(model, mode, rate, ours)
            failed += bool(wrong)
            print(row(model, mode, rate, ours, chosen.seeds), wrong or "ok", flush=True)
        print(f"    {(time.monotonic() - begin) / len(found) / chosen.seeds:.2f} s per case")
    sys.exit(f"{failed} worse than real Fluid" if failed else 0)


def row(model, mode, rate, ours, seeds):
    real, alone = real_fluid(model, mode, rate, seeds), local(model, mode, rate, seeds)
    shown = f"{model:9} {mode:10} {rate:4.2f}  | {np.median(ours.first):6.3f} {alone.median:9.4f} "
    shown += f"{real.median:9.4f}{' ' if real.converge else '!'}  {ours.median:9.4f}{' ' if ours.converge else '!'} "
    return shown


if __name__ == "__main__":
    main()
