"""Training with collective Fleet in several modes, one after the other; prints parameters, before and after each step.

Called by a launcher as ``collective_fleet_job.py CHECKPOINTS``; the environment says which process this is.
"""

import json
import sys

import numpy as np

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
from paddle.fluid.incubate.fleet.base.trainer_group import sum_over_workers
from paddle.fluid.incubate.fleet.collective import Collective, DistributedStrategy, TrainStatus

RATE, STEPS = 0.1, 4
MODES = {
    "nccl2": {},
    "grad_allreduce": {"mode": "collective", "collective_mode": "grad_allreduce"},
    "local_sgd": {"use_local_sgd": True, "local_sgd_frequency": 2},
}


def batch(step):
    """The samples of both processes: [process, sample, ...]."""
    rng = np.random.default_rng(step)
    return rng.normal(size=(2, 4, 3)).astype("float32"), rng.normal(size=(2, 4, 1)).astype("float32")


def parameter():
    return np.array(fluid.global_scope().find_var("w").get_tensor()).tolist()


def train(mode, checkpoints):
    fleet = Collective()
    fleet.init(PaddleCloudRoleMaker(is_collective=True))
    rank = fleet.worker_index()
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1])
    fluid.default_startup_program().random_seed = 5 + rank  # the parameters of the first process win
    out = fluid.layers.fc(x, 1, bias_attr=False, param_attr=fluid.ParamAttr("w"))
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    strategy = DistributedStrategy()
    for name, value in MODES[mode].items():
        setattr(strategy, name, value)
    fleet.distributed_optimizer(fluid.optimizer.SGD(RATE), strategy).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fleet.startup_program)
    found = [parameter()]
    for step in range(STEPS):
        own = [part[rank] for part in batch(step)]
        exe.run(fleet.main_program, feed={"x": own[0], "y": own[1]}, fetch_list=[loss.name])
        found.append(parameter())
    total = np.zeros(2, np.int64)
    fleet.all_reduce_worker(np.array([rank + 1, 2**40]), total)
    assert total.tolist() == [3, 2**41]
    assert sum_over_workers(fleet, f"records of {mode}", 10 + rank) == 21
    fleet.save_check_point(exe, f"{checkpoints}/{mode}", TrainStatus(0))
    fleet.barrier_worker()
    assert fleet.load_check_point(exe, f"{checkpoints}/{mode}", rank) == TrainStatus(0)  # all see what the first wrote
    return found


if __name__ == "__main__":
    results = {}
    for mode in MODES:
        fresh = fluid.program_guard(fluid.Program(), fluid.Program())
        with fresh, fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            results[mode] = train(mode, sys.argv[1])
    print("result", json.dumps(results), flush=True)
