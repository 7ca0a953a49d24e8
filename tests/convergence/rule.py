"""When refluid converges as well as real Fluid, and what real Fluid was seen to do (data/real_fluid.npz)."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

RATES = [0.1, 1 / 3, 1.0, 3.0]
SEEDS = 5
MODELS = ["linear", "tanh", "relu", "softmax", "embedding", "word2vec"]
MODES = ["local", "local_each", "tsync", "tasync", "async", "half_async", "geo", "geo100"]
# A round of sync and of GEO training averages both trainers; other modes apply what each of them sends.
LOCAL = {"local": "local", "tsync": "local", "geo": "local", "geo100": "local"}


@dataclass(frozen=True)
class Losses:
    """Losses of the held-back set, by seed, before and after training."""

    first: np.ndarray
    last: np.ndarray

    @property
    def converge(self):
        """Whether training has improved on the initial values with every seed."""
        return bool(np.all(self.last < self.first))  # false for NaN

    @property
    def median(self):
        return float(np.median(np.where(np.isfinite(self.last), self.last, np.inf)))

    def near(self, other):
        """Whether the median is at most 1.1 times the other's, or 1 % of the first loss."""
        return self.median <= max(1.1 * other.median, 0.01 * float(np.median(self.first)))


@cache
def _recorded():
    with np.load(Path(__file__).parent / "data" / "real_fluid.npz") as file:
        return {name: file[name] for name in file.files}


def real_fluid(model, mode, rate, seeds=SEEDS):
    """What real Fluid reaches in a mode, with the first ``seeds`` seeds."""
    found = _recorded()[f"{model}/{mode}"][RATES.index(rate), :seeds]
    return Losses(found[:, 0], found[:, 1])


def local(model, mode, rate, seeds=SEEDS):
    """What training in one process reaches, with the batches that the mode updates parameters by."""
    return real_fluid(model, LOCAL.get(mode, "local_each"), rate, seeds)


def verdict(model, mode, rate, ours):
    """What is wrong with refluid's losses; nothing if they are as good as they must be."""
    seeds = len(ours.last)
    return judge(ours, real_fluid(model, mode, rate, seeds), local(model, mode, rate, seeds))


def judge(ours, real, alone):
    """What is wrong with ``ours``, given the losses of real Fluid in the same mode and of training in one process."""
    if not real.converge:
        return ""
    if not ours.converge:
        return "does not converge"
    if not ours.near(real):
        return f"{ours.median / real.median:.2f} times real Fluid's loss"
    if real.near(alone) and not ours.near(alone):
        return f"{ours.median / alone.median:.2f} times the loss of local training, to which real Fluid is close"
    return ""
