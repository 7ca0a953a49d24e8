"""Sync training with two servers and two trainers has the losses of real Fluid 1.8.5."""

import numpy as np

from cluster.record import CASES, COMMON, DATA


def test_losses_are_those_of_real_fluid(jobs):
    cases = [{**case, **COMMON} for case in CASES]
    with np.load(DATA) as recorded:
        for i, trainers in enumerate(jobs.train(cases)):
            losses = [trainer["losses"] for trainer in trainers]
            np.testing.assert_allclose(losses, recorded[str(i)], rtol=1e-4, err_msg=str(cases[i]))
