"""refluid converges as well as real Fluid: the rule of rule.py on a part of the cases; compare.py runs all of them."""

import numpy as np
import pytest

from cluster.jobs import Jobs
from convergence.compare import MODELS, losses_of, row
from convergence.rule import Losses, real_fluid, verdict

SEEDS = 3


@pytest.fixture
def jobs(tmp_path):
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.end()


@pytest.mark.parametrize("mode", ["tasync", "async", "half_async", "geo"])
def test_training_converges_wherever_real_fluid_does(jobs, mode):
    found = losses_of(jobs, mode, MODELS, rates=[1.0, 3.0], seeds=SEEDS)
    wrong = {kind: verdict(kind[0], mode, kind[1], ours) for kind, ours in found.items()}
    rows = [f"{row(*kind[:1], mode, kind[1], found[kind], SEEDS)} {each}" for kind, each in wrong.items() if each]
    assert not rows, "\n".join(["model     mode       rate  |  first     local real Fluid   refluid", *rows])


def test_the_rule_tells_what_is_worse_than_real_fluid():
    real = real_fluid("tanh", "tasync", 1.0)
    assert real.converge
    assert not verdict("tanh", "tasync", 1.0, real)
    assert "1.20 times real Fluid's" in verdict("tanh", "tasync", 1.0, Losses(real.first, 1.2 * real.last))
    diverged = np.where(np.arange(len(real.last)) == 2, np.nan, real.last)
    assert verdict("tanh", "tasync", 1.0, Losses(real.first, diverged)) == "does not converge"
