"""Click logs in Criteo's format: a reader of the original files, and a generator whose best possible AUC is known.

A line is a label, 13 numbers and 26 categories of 8 hexadecimal digits, separated by tabs; any of them but the label
may be missing. As a command, turns such lines from standard input into those of a Dataset:

    python criteo.py < part-000.txt
"""

import math
import sys
import zlib

import numpy as np

DENSE, SLOTS = 13, 26
IDS = 1000001  # categories are hashed to so many ids; with is_distributed=True any int64 would do
VALUES = 300  # of each category, in generated data
NAMES = ["dense"] + ["C%d" % i for i in range(1, SLOTS + 1)] + ["click"]


def sample(line):
    """(13 numbers, 26 ids, label) of a line."""
    fields = line.rstrip("\n").split("\t")
    if len(fields) != 1 + DENSE + SLOTS:
        raise ValueError("a line of Criteo's click log has 40 fields, not %d: %.60r" % (len(fields), line))
    dense = [math.log1p(max(float(field), 0.0)) if field else 0.0 for field in fields[1 : 1 + DENSE]]
    ids = [zlib.crc32(("%d %s" % (i, field)).encode()) % IDS for i, field in enumerate(fields[1 + DENSE :])]
    return dense, ids, int(fields[0])


def samples(path):
    with open(path) as file:
        for line in file:
            yield sample(line)


def batches(paths, size, part=0, parts=1):
    """Batches as lists of arrays, in the order of NAMES; a trainer reads every ``parts``-th sample."""
    taken = []
    for path in paths:
        for number, found in enumerate(samples(path)):
            if number % parts != part:
                continue
            taken.append(found)
            if len(taken) == size:
                yield columns(taken)
                taken = []


def columns(taken):
    dense, ids, clicks = zip(*taken)
    ids = np.array(ids, "int64")
    slots = [ids[:, i : i + 1] for i in range(SLOTS)]
    return [np.array(dense, "float32"), *slots, np.array(clicks, "int64").reshape(-1, 1)]


def line_of_slots(line):
    """A line of a Dataset: for every variable, how many values it has, and the values."""
    dense, ids, click = sample(line)
    return " ".join(["%d %s" % (DENSE, " ".join("%.6g" % x for x in dense))] + ["1 %d" % i for i in [*ids, click]])


def generate(path, lines, seed):
    """Writes a click log. Every value of every category has a hidden weight; their sum decides how likely a click is.

    Returns the AUC of those likelihoods: nothing can rank these clicks better, but by chance.
    """
    weights = np.random.RandomState(5).randn(SLOTS, VALUES) / 3.0
    random = np.random.RandomState(seed)
    numbers = np.floor(np.exp(random.randn(lines, DENSE))).astype("int64")
    values = (VALUES * random.rand(lines, SLOTS) ** 4).astype("int64")  # a few values make up most of a click log
    score = weights[np.arange(SLOTS), values].sum(axis=1) + np.log1p(numbers[:, 0]) - np.log1p(numbers[:, 1]) - 1.0
    clicks = (random.rand(lines) < 1.0 / (1.0 + np.exp(-score))).astype("int64")
    missing = random.rand(lines) < 0.05
    with open(path, "w") as file:
        for i in range(lines):
            fields = ["%d" % x for x in numbers[i]]
            if missing[i]:
                fields[-1] = ""  # it decides nothing
            file.write(
                "\t".join(["%d" % clicks[i]] + fields + ["%08x" % (v * 2654435761 % 2**32) for v in values[i]]) + "\n"
            )
    return auc(score, clicks)


def auc(scores, clicks):
    """The share of pairs of a click and another sample that are in the right order; ties count half."""
    scores, clicks = np.asarray(scores), np.asarray(clicks).astype(bool)
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    hits, others = clicks.sum(), (~clicks).sum()
    return float((ranks[clicks].sum() - hits * (hits + 1) / 2.0) / max(hits * others, 1))


if __name__ == "__main__":
    for text in sys.stdin:
        print(line_of_slots(text))
