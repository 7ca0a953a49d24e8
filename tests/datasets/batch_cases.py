"""Files, slots and batch sizes, whose batches real Fluid has recorded in batches.json (`record_batches.py`)."""

import random

IDS, FLOATS = ("int64", 1, [-1, 1]), ("float32", 1, [-1, 1])  # dtype, lod_level, shape


def case(kind, batch_size, slots, *files):
    return {"kind": kind, "batch_size": batch_size, "slots": slots, "files": files}


def some_lines(count, seed):
    """Lines of ids, a dense slot of three floats, a label and floats."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        ids = [rng.choice([0, 1, 7, rng.randrange(10**6), rng.randrange(2**64)]) for _ in range(rng.randint(1, 5))]
        dense = ["%.6f" % rng.uniform(-2, 2) for _ in range(3)]
        floats = [repr(rng.uniform(-1, 1) * 10 ** rng.randint(-9, 9)) for _ in range(rng.randint(1, 3))]
        slots = [ids, dense, [rng.randint(0, 1)], floats]
        lines.append(" ".join("%d %s" % (len(slot), " ".join(map(str, slot))) for slot in slots))
    return "\n".join(lines) + "\n"


MANY = {"ids": IDS, "dense": ("float32", 0, [-1, 3]), "label": ("int64", 0, [-1, 1]), "floats": FLOATS}
LONG = "200 %s\n1 3\n" % " ".join(map(str, range(1, 201)))
ZEROS = "2 0 3 2 0 0.5\n3 0 0 0 1 0.000001\n1 6 3 1e-7 -1e-7 1e-3\n"
SPACES = "1\t5\r\n 2  +6 -7  \n1 18446744073709551615"

CASES = {
    "batches cross files": case("QueueDataset", 4, MANY, some_lines(7, 1), some_lines(6, 2), some_lines(1, 3)),
    "one batch": case("QueueDataset", 32, MANY, some_lines(5, 4)),
    "batches of one": case("QueueDataset", 1, MANY, some_lines(3, 5)),
    "an empty file": case("QueueDataset", 2, MANY, some_lines(3, 6), "", some_lines(2, 7)),
    "in memory": case("InMemoryDataset", 4, MANY, some_lines(7, 8), some_lines(6, 9)),
    "zeros in a stream": case("QueueDataset", 2, {"ids": IDS, "floats": FLOATS}, ZEROS),
    "zeros in memory": case("InMemoryDataset", 2, {"ids": IDS, "floats": FLOATS}, ZEROS),
    "blanks and signs": case("QueueDataset", 2, {"ids": IDS}, SPACES),
    "long sequences": case("QueueDataset", 2, {"ids": IDS}, LONG),
    "infinite": case("QueueDataset", 4, {"floats": FLOATS}, "4 inf -INF 1e60 1e-60\n2 Infinity 3.4028235e38\n"),
    "a matrix": case("QueueDataset", 2, {"m": ("int64", 0, [-1, 2, 2])}, "4 1 2 3 4\n4 5 6 7 8\n4 9 0 1 2\n"),
    "batch last": case("QueueDataset", 2, {"m": ("float32", 0, [2, -1])}, "2 1 2\n2 5 6\n"),
    "rows without a LoD": case("QueueDataset", 2, {"m": ("int64", 0, [-1, 1])}, "3 1 2 3\n2 5 6\n1 7\n"),
    "two levels": case("QueueDataset", 2, {"ids": ("int64", 2, [-1, 1])}, "3 1 2 3\n2 4 5\n"),
    "wide sequences": case("QueueDataset", 2, {"ids": ("int64", 1, [-1, 2])}, "4 1 2 3 4\n2 4 5\n"),
}
