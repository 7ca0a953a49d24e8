"""Deliberate differences from real Fluid 1.8.5, each with a proof: something that must hold, and does not hold there.

docs/guides/differences.md explains them. What real Fluid answers is recorded, with its interpreter:

    PYTHONPATH=tests ORACLE/bin/python tests/golden/differences.py

Runs on Python 3.7 too. Where a golden case or a rule avoids such a place, a comment says ``differs: <name>``.
"""

import os

import numpy as np

DIFFERENCES = {}
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "differences.npz")


class Difference:
    """``run(fluid)`` returns arrays by name; ``holds`` says whether they are right."""

    def __init__(self, name, run, holds):
        self.name, self.run, self.holds = name, run, holds


def difference(name, holds):
    """Decorator: adds the function as what proves the difference of that name."""

    def add(run):
        DIFFERENCES[name] = Difference(name, run, holds)
        return run

    return add


def same(a, b, rtol=1e-3):
    return np.allclose(a, b, rtol=rtol, atol=1e-6)


def run_in_fresh_world(fluid, name):
    programs, scope = fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope())
    with programs, scope, fluid.unique_name.guard():
        return {key: np.asarray(value) for key, value in DIFFERENCES[name].run(fluid).items()}


def started(fluid):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


def value(fluid, name):
    return np.array(fluid.global_scope().find_var(name).get_tensor())


def constant(fluid, name, number=1.0):
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.Constant(number))


def train_line(fluid):
    x = fluid.layers.data("x", [2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr=constant(fluid, "w"), bias_attr=False))
    fluid.optimizer.SGD(0.1).minimize(loss)


ONES = np.ones((1, 2), "float32")


@difference("ema-apply", holds=lambda found: same(found["second"], found["first"]))
def apply_an_average_twice(fluid):
    train_line(fluid)
    average = fluid.optimizer.ExponentialMovingAverage(0.9)
    average.update()
    exe = started(fluid)
    for _ in range(3):
        exe.run(feed={"x": ONES})
    seen = []
    for _ in range(2):
        with average.apply(exe):
            seen.append(value(fluid, "w"))
    return {"first": seen[0], "second": seen[1]}


@difference("ema-thres-steps", holds=lambda found: same(found["applied"], found["formula"]))
def limit_the_decay_by_steps(fluid):
    train_line(fluid)
    steps = fluid.layers.autoincreased_step_counter()
    average = fluid.optimizer.ExponentialMovingAverage(0.9, thres_steps=steps)
    average.update()
    exe = started(fluid)
    formula, decay = 0.0, 0.0
    for step in (1, 2, 3):
        exe.run(feed={"x": ONES})
        decay = min(0.9, (1.0 + step) / (10.0 + step))
        formula = decay * formula + (1 - decay) * value(fluid, "w")
    with average.apply(exe):
        return {"applied": value(fluid, "w"), "formula": formula / (1 - decay**3)}


def train_table(fluid, optimizer, ids, is_sparse=True, steps=2):
    """The table after some steps on the same ids, each of which has its own gradient."""
    programs, scope = fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope())
    with programs, scope, fluid.unique_name.guard():
        given = fluid.layers.data("ids", [1], dtype="int64")
        weights = fluid.layers.data("weights", [2])
        rows = fluid.layers.embedding(given, [6, 2], is_sparse=is_sparse, param_attr=constant(fluid, "table"))
        optimizer().minimize(fluid.layers.reduce_sum(rows * weights))
        exe = started(fluid)
        column = np.array(ids, "int64").reshape(-1, 1)
        feed = {"ids": column, "weights": (column + np.array([[1, 2]])).astype("float32")}
        for _ in range(steps):
            exe.run(feed=feed)
        return value(fluid, "table")


def orders(fluid, optimizer):
    return {
        "sorted": train_table(fluid, optimizer, [0, 2, 5]),
        "unsorted": train_table(fluid, optimizer, [5, 0, 2]),
    }


@difference("sparse-momentum", holds=lambda found: same(found["unsorted"], found["sorted"]))
def momentum_of_rows(fluid):
    return orders(fluid, lambda: fluid.optimizer.Momentum(0.1, 0.9))


@difference("sparse-rmsprop", holds=lambda found: same(found["unsorted"], found["sorted"]))
def rmsprop_of_rows(fluid):
    return orders(fluid, lambda: fluid.optimizer.RMSProp(0.1))


@difference("sparse-adam", holds=lambda found: same(found["sparse"], found["dense"]))
def adam_of_rows(fluid):
    ids = [0, 1, 2, 3, 4, 5]
    return {
        "sparse": train_table(fluid, lambda: fluid.optimizer.Adam(0.1), ids, True, 1),
        "dense": train_table(fluid, lambda: fluid.optimizer.Adam(0.1), ids, False, 1),
    }


@difference("ftrl-l2", holds=lambda found: same(found["attributes"], [0.1, 0.7]))
def penalties_of_ftrl(fluid):
    x = fluid.layers.data("x", [2])
    fluid.optimizer.Ftrl(0.1, l1=0.1, l2=0.7).minimize(fluid.layers.mean(fluid.layers.fc(x, 1)))
    ops = fluid.default_main_program().global_block().ops
    (op,) = [op for op in ops if op.type == "ftrl"][:1]
    return {"attributes": [op.attr("l1"), op.attr("l2")]}


@difference("ignore-index", holds=lambda found: not found["gradient"][1].any() and found["gradient"][0].any())
def gradient_of_an_ignored_label(fluid):
    logits = fluid.layers.data("logits", [3])
    logits.stop_gradient = False
    label = fluid.layers.data("label", [1], dtype="int64")
    loss = fluid.layers.softmax_with_cross_entropy(logits, label, ignore_index=2)
    (gradient,) = fluid.gradients([fluid.layers.reduce_sum(loss)], [logits])
    feed = {"logits": np.float32([[1, 2, 3], [3, 2, 1]]), "label": np.int64([[0], [2]])}
    return {"gradient": fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[gradient])[0]}


@difference("seeded-dropout", holds=lambda found: (found["first"] != found["second"]).any())
def masks_of_a_seeded_program(fluid):
    fluid.default_main_program().random_seed = 7
    x = fluid.layers.data("x", [64])
    out = fluid.layers.dropout(x, 0.5)
    exe = fluid.Executor(fluid.CPUPlace())
    first, second = (exe.run(feed={"x": np.ones((1, 64), "float32")}, fetch_list=[out])[0] for _ in range(2))
    return {"first": first, "second": second}


@difference("seeded-parameters", holds=lambda found: (found["first"] != found["second"]).any())
def parameters_of_a_seeded_program(fluid):
    fluid.default_startup_program().random_seed = 7
    for name in ("first", "second"):
        fluid.layers.create_parameter([4, 4], "float32", name=name)
    started(fluid)
    return {name: value(fluid, name) for name in ("first", "second")}


def slopes(run, x, step=2e-3):
    """The derivative of ``run``, a number, at x, by differences."""
    found = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        found[i] = (run(up) - run(down)) / (2 * step)
    return found


@difference("lstm-of-8", holds=lambda found: np.abs(found["gradient"] - found["differences"]).max() < 1e-2)
def gradient_of_an_lstm_of_width_8(fluid):
    x = fluid.layers.data("x", [32], lod_level=1)
    x.stop_gradient = False
    weight = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.3))
    hidden, _ = fluid.layers.dynamic_lstm(x, 32, param_attr=weight, bias_attr=constant(fluid, "b", 0.1))
    total = fluid.layers.reduce_sum(fluid.layers.sequence_last_step(hidden))
    (gradient,) = fluid.gradients([total], [x])
    exe = started(fluid)
    rows = np.cos(np.arange(96)).reshape(3, 32).astype("float32")

    def run(rows, fetch):
        feed = {"x": fluid.create_lod_tensor(rows.astype("float32"), [[3]], fluid.CPUPlace())}
        return np.array(exe.run(feed=feed, fetch_list=[fetch], return_numpy=False)[0])

    first = slopes(lambda part: float(run(np.concatenate([part, rows[1:]]), total)[0]), rows[:1])
    return {"gradient": run(rows, gradient)[:1], "differences": first}


@difference("pad-gradient", holds=lambda found: same(found["gradient"], found["weights"]))
def gradient_of_padding(fluid):
    x = fluid.layers.data("x", [2, 5], append_batch_size=False)
    x.stop_gradient = False
    padded = fluid.layers.pad(x, [0, 0, 0, 4])
    weights = np.arange(18, dtype="float32").reshape(2, 9)
    (gradient,) = fluid.gradients([fluid.layers.reduce_sum(padded * fluid.layers.assign(weights))], [x])
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.ones((2, 5), "float32")}, fetch_list=[gradient])[0]
    return {"gradient": found, "weights": weights[:, :5]}


def gradient_and_differences(fluid, build, **feed):
    """The gradient of the sum of what ``build`` makes of its first feed, and the same by differences."""
    variables = []
    for name in sorted(feed):
        shape = list(feed[name].shape)
        variables.append(fluid.layers.data(name, shape, append_batch_size=False))
        variables[-1].stop_gradient = False
    total = fluid.layers.reduce_sum(build(fluid, *variables))
    (gradient,) = fluid.gradients([total], [variables[0]])
    exe = started(fluid)
    first = sorted(feed)[0]

    def run(array, fetch):
        return np.array(exe.run(feed=dict(feed, **{first: array.astype("float32")}), fetch_list=[fetch])[0])

    found = slopes(lambda array: float(run(array, total).reshape(-1)[0]), feed[first])
    return {"gradient": run(feed[first], gradient), "differences": found}


def agrees(found):
    return np.abs(found["gradient"] - found["differences"]).max() < 1e-2


@difference("while-gradient", holds=agrees)
def gradient_of_a_while_loop(fluid):
    def build(fluid, x):
        layers = fluid.layers
        i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
        body = lambda i, y: [i + 1, layers.tanh(y * 2.0) + x]  # noqa: E731
        return layers.while_loop(lambda i, y: layers.less_than(i, n), body, [i, layers.scale(x, 1.0)])[1]

    return gradient_and_differences(fluid, build, x=np.float32([[0.1, -0.2]]))


@difference("dpsgd-noise", holds=lambda found: np.ptp(found["step"]) > 1e-6)
def noise_of_private_training(fluid):
    x = fluid.layers.data("x", [4])
    loss = fluid.layers.reduce_sum(fluid.layers.fc(x, 1, param_attr=constant(fluid, "w"), bias_attr=False))
    fluid.optimizer.Dpsgd(0.1, clip=100.0, batch_size=1.0, sigma=1.0).minimize(loss)
    started(fluid).run(feed={"x": np.ones((1, 4), "float32")})
    return {"step": value(fluid, "w") - 1}


@difference("all-pairs", holds=lambda found: not found["trains"])
def squared_errors_of_all_pairs(fluid):
    x, y = fluid.layers.data("x", [1]), fluid.layers.data("y", [-1], append_batch_size=False)
    try:
        return {"trains": tuple(fluid.layers.square_error_cost(x, y).shape) == (-1, -1)}
    except ValueError:
        return {"trains": False}


def sequences(fluid, array, *lengths):
    return fluid.create_lod_tensor(np.array(array), [list(lengths)], fluid.CPUPlace())


@difference("negative-targets", holds=lambda found: same(found["weight"], [0, 1, 0, 0, 0, 0, 0, 0]))
def count_negatives_of_boxes(fluid):
    layers = fluid.layers
    box = layers.data("box", [1, 4], lod_level=1)
    matches = layers.data("matches", [1, 8], dtype="int32", append_batch_size=False)
    negatives = layers.data("negatives", [1], dtype="int32", lod_level=1)
    _, weight = layers.target_assign(box, matches, negatives)
    feed = {
        "box": sequences(fluid, np.ones((1, 1, 4), "float32"), 1),
        "matches": -np.ones((1, 8), "int32"),
        "negatives": sequences(fluid, np.array([[1]], "int32"), 1),
    }
    return {"weight": started(fluid).run(feed=feed, fetch_list=[weight])[0].ravel()}


@difference("collected-images", holds=lambda found: found["images"] == 2)
def collect_regions_of_images(fluid):
    rois = fluid.layers.data("rois", [4], lod_level=1)
    scores = fluid.layers.data("scores", [1], lod_level=1)
    best = fluid.layers.collect_fpn_proposals([rois], [scores], 2, 2, 1)
    feed = {
        "rois": sequences(fluid, np.ones((2, 4), "float32"), 1, 1),
        "scores": sequences(fluid, np.array([[0.9], [0.1]], "float32"), 1, 1),
    }
    (found,) = started(fluid).run(feed=feed, fetch_list=[best], return_numpy=False)
    return {"images": len(found.recursive_sequence_lengths()[0])}


def record():
    import paddle.fluid as fluid

    found = {}
    for name in sorted(DIFFERENCES):
        answers = run_in_fresh_world(fluid, name)
        assert not DIFFERENCES[name].holds(answers), f"real Fluid is right about {name}"
        found.update({f"{name}/{key}": answer for key, answer in answers.items()})
    np.savez_compressed(DATA, **found)


if __name__ == "__main__":
    record()
