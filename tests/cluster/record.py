"""Records the losses of real Fluid's sync training with two servers and two trainers:

    python tests/cluster/record.py ORACLE/bin/python

The cases are those of tests/runtime/test_like_real_fluid.py; the result is data/sync_losses.npz. The servers of real
Fluid do not end by themselves, so each case is a job of its own, and its servers are killed.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from cluster.jobs import SCRIPT, Jobs, free_endpoints

DATA = Path(__file__).parent / "data" / "sync_losses.npz"
CASES = [
    {"optimizer": "SGD", "embedding": True},
    {"optimizer": "Momentum", "l2": True},
    {"optimizer": "Adam", "decay": True},
]
COMMON = {"fixed": True, "block": 8192, "steps": 50, "keep": False}


def record(python, case):
    with tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(folder)
        path = Path(folder) / "case.json"
        path.write_text(json.dumps([{**case, **COMMON, "endpoints": free_endpoints(2)}]))
        for number in range(2):
            jobs.start(f"server{number}", SCRIPT, "server", number, path, path, python=python)
        outs = [Path(folder) / f"{number}.npz" for number in range(2)]
        trainers = [
            jobs.start(f"trainer{number}", SCRIPT, "trainer", number, path, out, python=python)
            for number, out in enumerate(outs)
        ]
        try:
            jobs.finish(trainers)
            return [np.load(out)["0/losses"] for out in outs]
        finally:
            jobs.end()


if __name__ == "__main__":
    DATA.parent.mkdir(exist_ok=True)
    np.savez_compressed(DATA, **{str(i): record(sys.argv[1], case) for i, case in enumerate(CASES)})
    print({name: value[:, [0, -1]].tolist() for name, value in np.load(DATA).items()})
