"""One process of a parameter-server job for the tests: a server, a trainer, or the local run they are compared with.

    train.py ROLE ID CASES.json OUT.npz

Runs the cases of the file one after the other, each with its own endpoints, and writes what a trainer has seen. Real
Fluid (Python 3.7) runs this file as well: tests/cluster/record.py.
"""

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np

import paddle.fluid as fluid

WIDTH, ROWS = 6, 40


def network(case):
    x = fluid.layers.data("x", [WIDTH])
    label = fluid.layers.data("label", [1])
    hidden = x
    if case.get("embedding"):
        ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
        kind = dict.fromkeys(case.get("table", ["is_sparse"]), True)
        table = fluid.layers.embedding(ids, [ROWS, 4], param_attr=weights(case, "table", [ROWS, 4]), **kind)
        hidden = fluid.layers.concat([x, fluid.layers.sequence_pool(table, "sum")], axis=1)
    size = case.get("hidden", 16)
    if case.get("frozen"):
        hidden = fluid.layers.fc(hidden, 8, param_attr=fluid.ParamAttr(name="frozen", trainable=False))
    width = int(hidden.shape[1])
    hidden = fluid.layers.fc(hidden, size, act="tanh", param_attr=weights(case, "hidden", [width, size]))
    predicted = fluid.layers.fc(hidden, 1, param_attr=weights(case, "out", [size, 1]))
    return fluid.layers.mean(fluid.layers.square_error_cost(predicted, label))


def weights(case, name, shape):
    """A parameter; with fixed values where those of two systems must be the same."""
    if not case.get("fixed"):
        return fluid.ParamAttr(name=name)
    values = np.random.RandomState(len(name)).uniform(-0.5, 0.5, shape).astype("float32")
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(values))


def optimizer(case):
    rate = fluid.layers.exponential_decay(0.1, 5, 0.8) if case.get("decay") else case.get("rate", 0.1)
    regularization = fluid.regularizer.L2Decay(0.01) if case.get("l2") else None
    clip = case.get("clip")
    if clip:
        fluid.clip.set_gradient_clip(getattr(fluid.clip, clip)(0.05))
    kind = case.get("optimizer", "SGD")
    if kind == "Momentum":
        return fluid.optimizer.Momentum(0.02, 0.9, regularization=regularization)
    if kind == "Adam":
        return fluid.optimizer.Adam(rate if case.get("decay") else 0.05, regularization=regularization)
    return fluid.optimizer.SGD(rate, regularization=regularization)


def batches(case, steps):
    """Whole batches; trainer t of n takes every n-th sample from t on."""
    rng = np.random.RandomState(case.get("seed", 3))
    weight = rng.randn(WIDTH, 1)
    for _ in range(steps):
        x = rng.randn(12, WIDTH).astype("float32")
        lengths = rng.randint(1, 4, 12)
        ids = [rng.randint(0, ROWS, n) for n in lengths]
        label = (np.tanh(x @ weight) + np.array([[i.sum() / 60.0] for i in ids])).astype("float32")
        yield x, ids, label


def hold_back(case, found, done=0):
    """The batches of a case; from the sixth on, not before the file ``hold`` exists, if the case names one.

    With KILL_BEFORE_STEP the process kills itself instead of a step; with ``done`` steps are done already.
    """
    end = time.time() + 120
    for i, batch in islice(enumerate(found), done, None):
        if i == int(os.environ.get("KILL_BEFORE_STEP", "-1")):
            os.kill(os.getpid(), signal.SIGKILL)
        while i == 5 and "hold" in case and not Path(case["hold"]).exists():
            assert time.time() < end, f"{case['hold']} does not appear"
            time.sleep(0.02)
        yield batch


def feed(case, batch, part, parts):
    x, ids, label = (each[part::parts] for each in batch)
    values = {"x": x, "label": label}
    if case.get("embedding"):
        flat = np.concatenate(ids).reshape(-1, 1).astype("int64")
        values["ids"] = fluid.create_lod_tensor(flat, [[len(i) for i in ids]], fluid.CPUPlace())
    return values


def config(case):
    config = fluid.DistributeTranspilerConfig()
    mode = case.get("mode", "sync")
    config.sync_mode = mode == "sync"
    config.half_async = mode == "half_async"
    config.geo_sgd_mode = mode == "geo"
    config.geo_sgd_need_push_nums = case.get("push", 4)
    config.enable_dc_asgd = bool(case.get("dc_asgd"))
    config.runtime_split_send_recv = bool(case.get("runtime_split"))
    config.slice_var_up = case.get("sliced", True)
    config.min_block_size = case.get("block", 8)
    return config


def run(case, role, number):
    main, startup = fluid.Program(), fluid.Program()
    # Trainers that are seeded in their own ways begin like the first one all the same.
    main.random_seed = startup.random_seed = 7 + (number if role == "trainer" and case.get("frozen") else 0)
    scope = fluid.core.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        loss = network(case)
        optimizer(case).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        trainers = case.get("trainers", 2)
        if role != "local":
            t = fluid.DistributeTranspiler(config(case))
            endpoints = case["endpoints"]
            t.transpile(
                trainer_id=number if role == "trainer" else 0,
                program=main,
                startup_program=startup,
                pservers=",".join(endpoints),
                trainers=trainers,
                sync_mode=case.get("mode", "sync") == "sync",
                current_endpoint=endpoints[number] if role == "server" else "",
            )
            if role == "server":
                program = t.get_pserver_program(endpoints[number])
                exe.run(t.get_startup_program(endpoints[number], program))
                exe.run(program)
                return {}
            main = t.get_trainer_program()
        exe.run(startup)
        part, parts = (number, trainers) if role == "trainer" else (0, 1)
        steps = case.get("steps", 20) - case.get("fewer", 0) * part
        if role == "trainer" and case.get("mode") == "half_async":
            fluid.set_flags({"FLAGS_communicator_max_merge_var_num": case.get("merge", 1)})
        done = 0
        if case.get("resume") and role == "trainer":
            from refluid import applied_steps

            done = applied_steps()
        feeds = (feed(case, batch, part, parts) for batch in hold_back(case, batches(case, steps), done))

        def step(values):
            return float(exe.run(main, feed=values, fetch_list=[loss], scope=scope)[0][0])

        if "dataset" in case:
            losses = []
            exe.train_from_dataset(main, dataset(main, feeds, Path(sys.argv[4]).with_suffix(".txt")))
        elif "threads" in case:
            with ThreadPoolExecutor(case["threads"]) as threads:
                losses = list(threads.map(step, feeds))
        else:
            losses = [step(values) for values in feeds]
        found = {"losses": np.array(losses)}
        if case.get("keep", True):
            held = (scope.find_var(p.name) for p in main.all_parameters())
            found.update({v.name: np.array(v.get_tensor()) for v in held if v is not None and v.value is not None})
        found.update(staleness())
        exe.close()
        return found


def dataset(program, feeds, path):
    """A dataset of a text file with these feeds in it."""
    found = fluid.DatasetFactory().create_dataset("QueueDataset")
    with path.open("w") as file:
        for values in feeds:
            offsets = values["ids"].lod()[0]
            ids = np.array(values["ids"]).ravel()
            for i in range(len(values["x"])):
                slots = [values["x"][i], values["label"][i], ids[offsets[i] : offsets[i + 1]]]
                file.write(" ".join(f"{len(slot)} " + " ".join(f"{v:.9g}" for v in slot) for slot in slots) + "\n")
    found.set_use_var([program.global_block().var(name) for name in ("x", "label", "ids")])
    found.set_batch_size(len(values["x"]))
    found.set_filelist([str(path)])
    return found


def staleness():
    """How far an async trainer was ahead of its parameters at worst, and how far it might have been."""
    try:
        from refluid.runtime.trainer import session as sessions
    except ImportError:  # real Fluid runs this file too, when its losses are recorded
        return {}
    session = sessions.current()
    found = session.communicators if session is not None else []
    if not found:
        return {}
    pushes = max(session.sequence.values())
    return {"staleness": found[-1].worst_staleness, "max_staleness": found[-1].max_staleness, "pushes": pushes}


def main():
    role, number, out = sys.argv[1], int(sys.argv[2]), sys.argv[4]
    cases = json.loads(Path(sys.argv[3]).read_text())
    found = {}
    for i, case in enumerate(cases):
        takes_part = role == "local" or number < (
            len(case["endpoints"]) if role == "server" else case.get("trainers", 2)
        )
        if takes_part:
            found.update({f"{i}/{name}": value for name, value in run(case, role, number).items()})
    np.savez(out, **found)


if __name__ == "__main__":
    main()
