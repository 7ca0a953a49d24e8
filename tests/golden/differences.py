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


def run_op(fluid, type, inputs, slots, grads=(), **attrs):
    """The first output of one operator, and the gradients of its sum by input slot."""
    block = fluid.default_main_program().global_block()
    variables, feed = {}, {}
    for slot, value in inputs.items():
        is_sequence = not isinstance(value, np.ndarray)
        shape = [-1, *np.array(value).shape[1:]] if is_sequence else list(value.shape)
        levels = len(value.lod()) if is_sequence else 0
        dtype = str(np.array(value).dtype)
        variables[slot] = fluid.layers.data(slot, shape, dtype=dtype, lod_level=levels, append_batch_size=False)
        variables[slot].stop_gradient = slot not in grads
        feed[slot] = value
    made = {slot: block.create_var(name="made_" + slot, dtype="float32") for slot in slots.split()}
    block.append_op(type=type, inputs=variables, outputs=made, attrs=attrs)
    first = slots.split()[0]
    fetches = {first: made[first]}
    if grads:
        total = fluid.layers.reduce_sum(made[first])
        found = fluid.gradients([total], [variables[slot] for slot in grads])
        fetches.update({slot + "@GRAD": variable for slot, variable in zip(grads, found)})  # noqa: B905 - Python 3.7
    values = started(fluid).run(feed=feed, fetch_list=list(fetches.values()), return_numpy=False)
    return {name: np.array(value) for name, value in zip(fetches, values)}  # noqa: B905 - Python 3.7


def waves(*shape):
    return np.cos(np.arange(np.prod(shape)) * 1.7).reshape(shape).astype("float32")


def in_another_program(fluid, run):
    programs, scope = fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope())
    with programs, scope, fluid.unique_name.guard():
        return run()


@difference("rounded-halves", holds=lambda found: np.ptp(found["rounded"][:9]) == 0)
def round_halves_anywhere_in_a_tensor(fluid):
    x = np.array([[0.5] * 9 + [127.0]], "float32")
    return {"rounded": run_op(fluid, "fake_quantize_abs_max", {"X": x}, "Out OutScale", bit_length=8)["Out"].ravel()}


LSTM = "Hidden Cell BatchGate BatchCellPreAct"
FUSED = "Hidden XX BatchedInput BatchedOut ReorderedH0"


@difference("fused-gru-origin", holds=lambda found: same(found["fused"], found["plain"]))
def origin_mode_of_a_fused_gru(fluid):
    rows, weights, recurrent = waves(3, 2), waves(2, 9), waves(3, 9)
    x = sequences(fluid, rows, 3)
    fused = run_op(fluid, "fusion_gru", {"X": x, "WeightX": weights, "WeightH": recurrent}, FUSED, origin_mode=True)
    gates = {"Input": sequences(fluid, rows.dot(weights), 3), "Weight": recurrent}
    slots = "Hidden BatchGate BatchResetHiddenPrev BatchHidden"
    plain = in_another_program(fluid, lambda: run_op(fluid, "gru", gates, slots, origin_mode=True))
    return {"fused": fused["Hidden"], "plain": plain["Hidden"]}


EDGES = np.array([[[1, 2], [1, 3], [3, 4], [3, 5]], [[1, 2], [2, 3], [0, 0], [0, 0]]], "int32")


def convolve_trees(fluid, trees, nodes, grads=()):
    inputs = {"NodesVector": nodes[trees], "EdgeSet": EDGES[trees], "Filter": waves(3, 3, 2, 2)}
    return in_another_program(fluid, lambda: run_op(fluid, "tree_conv", inputs, "Out", grads, max_depth=3))


@difference("trees-of-a-batch", holds=lambda found: same(found["together"], found["alone"]))
def trees_are_convolved_one_by_one(fluid):
    nodes = waves(2, 5, 3)
    alone = [convolve_trees(fluid, [i], nodes)["Out"] for i in range(2)]
    return {"together": convolve_trees(fluid, [0, 1], nodes)["Out"], "alone": np.concatenate(alone)}


@difference("tree-gradient", holds=agrees)
def gradient_of_the_nodes_of_a_tree(fluid):
    nodes = waves(2, 5, 3)
    gradient = convolve_trees(fluid, [0], nodes, ["NodesVector", "Filter"])["NodesVector@GRAD"][0, 4]
    differences = []
    for i in range(3):  # the result is linear
        moved = nodes.copy()
        moved[0, 4, i] += 1
        change = convolve_trees(fluid, [0], moved)["Out"] - convolve_trees(fluid, [0], nodes)["Out"]
        differences.append(change.sum())
    return {"gradient": gradient, "differences": np.array(differences)}


@difference("sequence-conv-start", holds=agrees)
def gradient_of_a_filter_that_starts_later(fluid):
    def convolved(weight, grads=()):
        inputs = {"X": sequences(fluid, waves(8, 1), 1, 3, 4), "Filter": weight}
        attrs = {"contextStart": 1, "contextLength": 3, "contextStride": 1, "paddingTrainable": False}
        return in_another_program(fluid, lambda: run_op(fluid, "sequence_conv", inputs, "Out", grads, **attrs))

    weight = waves(3, 1)
    gradient = convolved(weight, ["Filter"])["Filter@GRAD"]
    return {"gradient": gradient, "differences": slopes(lambda w: convolved(w.astype("float32"))["Out"].sum(), weight)}


@difference("region-without-width", holds=lambda found: np.isfinite(found["gradient"]).all())
def gradient_of_a_region_without_width(fluid):
    inputs = {"X": waves(1, 2, 8, 8), "ROIs": sequences(fluid, np.array([[5.3, 5.1, 5.3, 8.2]], "float32"), 1)}
    attrs = {"pooled_height": 2, "pooled_width": 2, "spatial_scale": 1.0}
    return {"gradient": run_op(fluid, "prroi_pool", inputs, "Out", ["X", "ROIs"], **attrs)["ROIs@GRAD"]}


@difference("moved-parts", holds=agrees)
def gradient_of_offsets_of_parts(fluid):
    def build(fluid, offsets, pixels, regions):
        regions = fluid.layers.lod_reset(regions, target_lod=[0, 1])
        block = fluid.default_main_program().global_block()
        inputs = {"Input": pixels, "ROIs": regions, "Trans": offsets}
        attrs = {"group_size": [2, 3], "pooled_height": 2, "pooled_width": 3, "part_size": [2, 3], "output_dim": 2}
        attrs.update(spatial_scale=1.0, sample_per_part=2, trans_std=0.1, no_trans=False)
        made = {slot: block.create_var(name=slot, dtype="float32") for slot in ("Output", "TopCount")}
        block.append_op(type="deformable_psroi_pooling", inputs=inputs, outputs=made, attrs=attrs)
        return made["Output"]

    feeds = {"offsets": 0.4 * waves(1, 2, 2, 3), "pixels": waves(1, 12, 8, 8)}
    return gradient_and_differences(fluid, build, regions=np.array([[1, 1, 5, 6]], "float32"), **feeds)


@difference("images-at-once", holds=lambda found: same(found["together"], found["alone"]))
def sample_two_images_at_once(fluid):
    attrs = {"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": 1, "deformable_groups": 1}

    def convolved(images, step):
        inputs = {"Input": waves(2, 2, 3, 3)[images], "Offset": waves(2, 18, 3, 3)[images], "Filter": waves(2, 2, 3, 3)}
        run = lambda: run_op(fluid, "deformable_conv_v1", inputs, "Output", im2col_step=step, **attrs)  # noqa: E731
        return in_another_program(fluid, run)["Output"]

    return {"together": convolved([0, 1], 2), "alone": np.concatenate([convolved([i], 1) for i in range(2)])}


@difference("state-of-nothing", holds=agrees)
def gradient_of_the_state_before_an_empty_sequence(fluid):
    def recurrence(states, grads=()):
        inputs = {"Input": sequences(fluid, waves(5, 8), 2, 0, 3), "H0": states, "C0": waves(3, 2)}
        inputs.update(Weight=waves(2, 8), Bias=waves(1, 8))
        run = lambda: run_op(fluid, "lstm", inputs, LSTM, grads, use_peepholes=False)  # noqa: E731
        return in_another_program(fluid, run)

    states = waves(3, 2) * 0.5
    gradient = recurrence(states, ["H0", "Input"])["H0@GRAD"]
    found = slopes(lambda h: float(recurrence(h.astype("float32"))["Hidden"].sum()), states)
    return {"gradient": gradient, "differences": found}


@difference("scales-for-tests", holds=lambda found: same(found["scale"], [5.0]))
def scales_that_a_test_graph_finds(fluid):
    from paddle.fluid.contrib.slim.quantization import QuantizationTransformPass

    x = fluid.layers.data("x", [4])
    fluid.layers.fc(x, 2)
    scope, place = fluid.global_scope(), fluid.CPUPlace()
    scope.var("x.scale").get_tensor().set(np.array([5.0], "float32"), place)
    graph = fluid.framework.IrGraph(fluid.core.Graph(fluid.default_main_program().desc), for_test=True)
    QuantizationTransformPass(scope, place, activation_quantize_type="moving_average_abs_max").apply(graph)
    return {"scale": value(fluid, "x.scale")}


@difference("lower-rank-first", holds=lambda found: same(found["powers"], [[2, 9], [8, 81]]))
def powers_of_the_operand_with_fewer_dims(fluid):
    base, power = fluid.layers.data("base", [2], append_batch_size=False), fluid.layers.data("power", [2])
    found = fluid.layers.elementwise_pow(base, power)
    feed = {"base": np.array([2, 3], "float32"), "power": np.array([[1, 2], [3, 4]], "float32")}
    return {"powers": started(fluid).run(feed=feed, fetch_list=[found])[0]}


@difference("narrow-comparison", holds=lambda found: found["less"].shape == (2, 3))
def comparison_of_a_column_with_a_matrix(fluid):
    column, matrix = fluid.layers.data("column", [1]), fluid.layers.data("matrix", [3])
    less = fluid.layers.less_than(column, matrix)
    feed = {"column": np.ones((2, 1), "float32"), "matrix": np.ones((2, 3), "float32")}
    return {"less": started(fluid).run(feed=feed, fetch_list=[less])[0]}


@difference("diagonal-divergence", holds=lambda found: same(found["divergence"], found["formula"]))
def divergence_of_independent_normals(fluid):
    from paddle.fluid.layers.distributions import MultivariateNormalDiag

    means, variances = np.array([[0.3, 0.5], [0.2, 0.8]], "float32"), np.array([[0.4, 0.5], [0.3, 0.9]], "float32")
    first, second = (MultivariateNormalDiag(mean, np.diag(row)) for mean, row in zip(means, variances))  # noqa: B905
    found = started(fluid).run(fetch_list=[first.kl_divergence(second)])[0]
    terms = (variances[0] + np.square(means[0] - means[1])) / variances[1] - 1 + np.log(variances[1] / variances[0])
    return {"divergence": found, "formula": 0.5 * terms.sum()}


@difference("bilinear-filter", holds=lambda found: same(found["filter"], found["filter"].T))
def filter_that_interpolates(fluid):
    filters = fluid.ParamAttr(name="filters", initializer=fluid.initializer.Bilinear())
    fluid.layers.create_parameter([1, 1, 4, 4], "float32", attr=filters)
    started(fluid)
    return {"filter": value(fluid, "filters")[0, 0]}


def record():
    import paddle.fluid as fluid

    found = {}
    for name in sorted(DIFFERENCES):
        answers = run_in_fresh_world(fluid, name)
        assert not DIFFERENCES[name].holds(answers), f"real Fluid is right about {name}: {answers}"
        found.update({f"{name}/{key}": answer for key, answer in answers.items()})
    np.savez_compressed(DATA, **found)


if __name__ == "__main__":
    record()
