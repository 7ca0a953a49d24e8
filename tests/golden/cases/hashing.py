"""The hash op, whose numbers must agree to the last bit. The layer of real Fluid 1.8.5 does not run."""

import numpy as np

from golden.case import Case, ints


def _rows(*shape, **options):
    return ints(*shape, low=-(2**31), high=2**31 - 1, **options)


# Rows of 1 to 9 numbers take every path through the algorithm: short, whole stripes of 32 bytes, and what is left.
CASES = [
    Case("hash", {"X": _rows(4, width)}, attrs={"num_hash": 3, "mod_by": 1000003}, name="int64-%d" % width)
    for width in (1, 2, 3, 4, 5, 8, 9)
]
CASES += [
    Case(
        "hash", {"X": _rows(4, width, dtype="int32")}, attrs={"num_hash": 2, "mod_by": 1000003}, name="int32-%d" % width
    )
    for width in (1, 2, 3, 7, 8, 9, 11)
]
CASES += [
    Case("hash", {"X": _rows(3, 2)}),
    Case("hash", {"X": np.array([[2**63 - 1], [-(2**63)], [0]])}, attrs={"num_hash": 4, "mod_by": 2**40}),
]
