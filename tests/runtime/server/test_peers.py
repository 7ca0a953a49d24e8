"""Servers that add up their parts of a sum before an update."""

import numpy as np

import paddle.fluid as fluid
from cluster.one_process import Role, servers

CLIPPED = {"clip": 0.05, "optimizer": lambda: fluid.optimizer.SGD(1.0)}


def losses(count):
    """The losses of a job with ``count`` servers in this process that clips by global norm."""
    with servers(count=count, **CLIPPED) as endpoints:
        trainer = Role(endpoints, **CLIPPED)
        trainer.start()
        found = [float(trainer.step(seed)[0]) for seed in range(6)]
        trainer.close()
    return found


def test_two_servers_in_one_process_each_add_their_own_part_to_a_global_norm():
    np.testing.assert_allclose(losses(count=2), losses(count=1), rtol=1e-5)
