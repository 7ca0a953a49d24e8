"""Training on two CPU devices, by CompiledProgram and ParallelExecutor, with feeds as a dict and as a list of dicts.

What real Fluid returns is recorded with its interpreter, as data/data_parallel.npz:

    CPU_NUM=2 PYTHONPATH=tests ORACLE/bin/python tests/golden/data_parallel.py
"""

import os
import zlib

import numpy as np

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "data_parallel.npz")
SIZES = (8, 8, 5, 8, 8, 5, 8, 8)  # samples in each batch; some cannot be divided evenly


def mlp(fluid):
    """A regression with momentum and weight decay; returns the loss and other fetches."""
    x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 5, act="tanh")
    guess = fluid.layers.fc(hidden, 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
    decay = fluid.regularizer.L2Decay(1e-3)
    fluid.optimizer.Momentum(0.05, 0.9, regularization=decay).minimize(loss)
    return loss, [guess.name, "fc_0.w_0", "fc_0.w_0@GRAD"]


def batch_norm(fluid):
    """Each device has its own statistics."""
    x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
    hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 4), act="relu")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.SGD(0.05).minimize(loss)
    return loss, ["batch_norm_0.w_1", "batch_norm_0.w_2"]


def sparse(fluid):
    """An embedding with sparse gradients, of sequences."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    y = fluid.layers.data("y", [1])
    vectors = fluid.layers.embedding(words, [20, 4], is_sparse=True)
    pooled = fluid.layers.sequence_pool(vectors, "average")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(pooled, 1), y))
    fluid.optimizer.Adagrad(0.1).minimize(loss)
    return loss, ["embedding_0.w_0"]


def lstm(fluid):
    """A recurrence over sequences, clipped by the global norm."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    y = fluid.layers.data("y", [1])
    vectors = fluid.layers.embedding(words, [20, 4])
    hidden, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(vectors, 12), 12, use_peepholes=False)
    last = fluid.layers.sequence_last_step(hidden)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(last, 1), y))
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.5))
    fluid.optimizer.Adam(0.02).minimize(loss)
    return loss, [last.name]


CASES = {"mlp": mlp, "batch_norm": batch_norm, "sparse": sparse, "lstm": lstm}


def feed_of(fluid, case, step, samples):
    """The batch of a step."""
    random = np.random.RandomState(100 * step + zlib.crc32(case.encode()) % 97)
    y = random.rand(samples, 1).astype("float32")
    if case in ("mlp", "batch_norm"):
        return {"x": random.rand(samples, 6).astype("float32"), "y": y}
    lengths = random.randint(1, 6, samples).tolist()
    words = random.randint(0, 20, (sum(lengths), 1)).astype("int64")
    return {"words": fluid.create_lod_tensor(words, [lengths], fluid.CPUPlace()), "y": y}


def start(fluid, scope, program):
    """Sets the parameters to values that depend on their names only."""
    for parameter in program.global_block().all_parameters():
        random = np.random.RandomState(zlib.crc32(parameter.name.encode()) % 2**31)
        value = random.uniform(-0.5, 0.5, parameter.shape).astype("float32")
        scope.find_var(parameter.name).get_tensor().set(value, fluid.CPUPlace())


def train(fluid, case, with_list, runner):
    """What each step returns; ``runner`` is "compiled" or "parallel"."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, more = CASES[case](fluid)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    results = []
    with fluid.scope_guard(scope):
        exe.run(startup)
        start(fluid, scope, main)
        if runner == "parallel":
            parallel = fluid.ParallelExecutor(False, loss_name=loss.name, main_program=main)
        else:
            compiled = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name)
        fetches = [loss.name, *more]
        for step, samples in enumerate(SIZES):
            if with_list:
                feed = [feed_of(fluid, case, step, samples), feed_of(fluid, case, step + 50, samples - samples % 2)]
            else:
                feed = feed_of(fluid, case, step, samples)
            if runner == "parallel":
                results.append(parallel.run(fetches, feed=feed))
            else:
                results.append(exe.run(compiled, feed=feed, fetch_list=fetches))
    return results


RUNS = [(case, False, "compiled") for case in CASES] + [
    ("mlp", True, "compiled"),
    ("lstm", True, "compiled"),
    ("mlp", False, "parallel"),
    ("sparse", True, "parallel"),
]


def name_of(run):
    case, with_list, runner = run
    return f"{case}/{'list' if with_list else 'dict'}/{runner}"


def main():
    import paddle.fluid as fluid

    data = {}
    for run in RUNS:
        for step, fetched in enumerate(train(fluid, *run)):
            for i, value in enumerate(fetched):
                data[f"{name_of(run)}/{step}/{i}"] = np.asarray(value)
    np.savez_compressed(PATH, **data)
    print(len(RUNS), "runs,", os.path.getsize(PATH), "bytes")


if __name__ == "__main__":
    main()
