"""Training without servers, as Fluid scripts write it; prints the losses of this process, and its parameters.

Called by a launcher as ``collective_job.py MODE MODEL,MODEL,... STEPS [SAVE_DIR]``, for one model after the other.
"""

import json
import os
import signal
import sys

import numpy as np

import paddle.fluid as fluid

SAMPLES = 8  # in a batch of the whole job


def regression(optimizer, clip=None):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 6, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    if clip is not None:
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(clip))
    optimizer.minimize(loss)
    return loss


def sequences(is_sparse):
    words, y = fluid.layers.data("words", [1], dtype="int64", lod_level=1), fluid.layers.data("y", [1])
    vectors = fluid.layers.embedding(words, [20, 4], is_sparse=is_sparse)
    if not is_sparse:
        vectors = fluid.layers.sequence_conv(vectors, 4, act="tanh")
    pooled = fluid.layers.sequence_pool(vectors, "average")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(pooled, 1), y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


MODELS = {
    "sgd": lambda: regression(fluid.optimizer.SGD(0.1)),
    "momentum": lambda: regression(fluid.optimizer.Momentum(0.1, 0.9)),
    "adam": lambda: regression(fluid.optimizer.Adam(0.05, regularization=fluid.regularizer.L2Decay(0.01)), clip=0.5),
    "sequences": lambda: sequences(is_sparse=False),
    "sparse": lambda: sequences(is_sparse=True),
}


def feed(model, step, begin=0, end=SAMPLES):
    """Some samples of the batch of a step."""
    rng = np.random.default_rng(step)
    x = rng.normal(size=(SAMPLES, 4)).astype("float32")
    y = np.sin(x.sum(1, keepdims=True))[begin:end]
    if model not in ("sequences", "sparse"):
        return {"x": x[begin:end], "y": y}
    words = [rng.integers(0, 20, (length, 1)) for length in rng.integers(1, 6, SAMPLES)][begin:end]
    lengths = [[len(each) for each in words]]
    return {"words": fluid.create_lod_tensor(np.concatenate(words), lengths, fluid.CPUPlace()), "y": y}


def parameters(program):
    tensors = {p.name: fluid.global_scope().find_var(p.name).get_tensor() for p in program.all_parameters()}
    return {name: np.array(tensor).tolist() for name, tensor in tensors.items()}


def train(mode, model, steps, save_dir):
    """Losses of this process, and its parameters afterwards."""
    rank, endpoints = int(os.environ["PADDLE_TRAINER_ID"]), os.environ["PADDLE_TRAINER_ENDPOINTS"]
    fluid.default_startup_program().random_seed = 5 + rank  # the parameters of the first process win
    loss = MODELS[model]()
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
    losses, share = [], SAMPLES // len(endpoints.split(","))
    for step in range(steps):
        if os.environ.get("KILL") == f"{rank}:{step}":
            os.kill(os.getpid(), signal.SIGKILL)
        fed = feed(model, step, rank * share, (rank + 1) * share)
        (value,) = exe.run(compiled, feed=fed, fetch_list=[loss.name])
        losses.append(float(value.mean()))
    if save_dir and rank == 0:
        fluid.io.save_persistables(exe, f"{save_dir}/{model}", program)
    return losses, parameters(program)


def main(mode, models, steps, save_dir=""):
    results = []
    for model in models.split(","):
        fresh = fluid.program_guard(fluid.Program(), fluid.Program())
        with fresh, fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            results.append(train(mode, model, int(steps), save_dir))
    print("result", json.dumps(results), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
