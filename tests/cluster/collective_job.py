"""Training without servers, as Fluid scripts write it; prints the losses of this process, and its parameters.

Called by a launcher as ``collective_job.py MODE OPTIMIZER STEPS [SAVE_DIR]``.
"""

import json
import os
import signal
import sys

import numpy as np

import paddle.fluid as fluid

SAMPLES = 8  # in a batch of the whole job
OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: fluid.optimizer.Adam(0.05, regularization=fluid.regularizer.L2Decay(0.01)),
}


def build(optimizer):
    x = fluid.layers.data("x", [4])
    y = fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 6, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.5))
    OPTIMIZERS[optimizer]().minimize(loss)
    return loss


def batch(step):
    rng = np.random.default_rng(step)
    x = rng.normal(size=(SAMPLES, 4)).astype("float32")
    return x, np.sin(x.sum(1, keepdims=True))


def main(mode, optimizer, steps, save_dir=""):
    rank, endpoints = int(os.environ["PADDLE_TRAINER_ID"]), os.environ["PADDLE_TRAINER_ENDPOINTS"]
    count = len(endpoints.split(","))
    fluid.default_startup_program().random_seed = 5 + rank  # the parameters of the first process win
    loss = build(optimizer)
    exe = fluid.Executor(fluid.CPUPlace())
    program = fluid.default_main_program()
    config = fluid.DistributeTranspilerConfig()
    config.mode = mode
    if mode == "collective":
        config.collective_mode = "grad_allreduce"
    t = fluid.DistributeTranspiler(config=config)
    t.transpile(rank, trainers=endpoints, current_endpoint=os.environ["PADDLE_CURRENT_ENDPOINT"])
    exe.run(fluid.default_startup_program())
    compiled = program
    if mode == "nccl2":
        compiled = fluid.CompiledProgram(program).with_data_parallel(loss_name=loss.name)
    losses, share = [], SAMPLES // count
    for step in range(int(steps)):
        if os.environ.get("KILL") == f"{rank}:{step}":
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = (part[rank * share : (rank + 1) * share] for part in batch(step))
        (value,) = exe.run(compiled, feed={"x": x, "y": y}, fetch_list=[loss.name])
        losses.append(float(value.mean()))
    if save_dir and rank == 0:
        fluid.io.save_persistables(exe, save_dir, program)
    values = {
        p.name: np.array(fluid.global_scope().find_var(p.name).get_tensor()).tolist() for p in program.all_parameters()
    }
    print("result", json.dumps([losses, values]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
