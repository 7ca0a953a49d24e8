"""Casts and loss scaling of mixed precision. What real Fluid does is recorded by:

PYTHONPATH=tests ORACLE/bin/python tests/golden/mixed_precision.py

Real Fluid has no 16-bit products on a CPU: casts are recorded from programs, the scale from a program without casts.
"""

import json
import os

import numpy as np

LISTS = {"custom white": {"custom_white_list": {"exp"}}, "custom black": {"custom_black_list": {"mul"}}}
LISTS["black variable"] = {"custom_black_varnames": {"fc_0.w_0"}}
GOOD, BAD = 1.0, float("inf")
# Feeds, incr_every_n_steps, decr_every_n_nan_or_inf, first scale.
HISTORIES = {
    "good": ([GOOD] * 7, 2, 2, 8.0),
    "bad": ([BAD] * 6, 2, 1, 8.0),
    "bad, patient": ([BAD] * 7, 2, 2, 8.0),
    "mixed": ([GOOD, BAD, GOOD, BAD, BAD, BAD, GOOD, GOOD, GOOD, GOOD, GOOD], 2, 1, 8.0),
    "at least 1": ([BAD] * 6, 2, 1, 2.0),
}


def models(layers):
    """Expressions by name, each a function that builds a loss."""

    def x(name="x"):
        return layers.data(name, [4])

    def fc(value, size=4, **options):
        return layers.fc(value, size, **options)

    def image():
        return layers.batch_norm(layers.conv2d(layers.data("i", [3, 8, 8]), 2, 3), act="relu")

    def twice(value):
        return layers.elementwise_add(fc(value, bias_attr=False), fc(value, bias_attr=False))

    def exp_and_log(value):
        return layers.elementwise_add(layers.exp(value), layers.log(value))

    return {
        "gray of data": lambda: layers.relu(x()),
        "gray of data, then white": lambda: fc(layers.relu(x()), 2),
        "gray of white and black": lambda: layers.elementwise_add(fc(x()), layers.exp(x("z"))),
        "gray of black and white": lambda: layers.elementwise_add(layers.exp(x("z")), fc(x())),
        "gray of white and data": lambda: layers.elementwise_add(fc(x()), x("z")),
        "gray of gray and white": lambda: layers.elementwise_mul(layers.relu(x("z")), fc(x())),
        "in no list": lambda: layers.relu(layers.softsign(fc(x()))),
        "image": lambda: fc(layers.pool2d(image(), 2), 2),
        "twice": lambda: twice(x()),
        "embedding": lambda: fc(layers.embedding(layers.data("ids", [1], dtype="int64"), [10, 4]), 2),
        "dropout": lambda: layers.concat([layers.dropout(fc(x()), 0.5), x("z")], axis=1),
        "integers": lambda: fc(layers.cast(layers.data("ids", [4], dtype="int64"), "float32"), 2),
        "reshape": lambda: layers.softmax(layers.tanh(layers.reshape(fc(x()), [-1, 2, 2]))),
        "custom white": lambda: exp_and_log(fc(x())),
        "custom black": lambda: layers.elementwise_add(fc(x()), x("z")),
        "black variable": lambda: layers.elementwise_add(fc(x()), x("z")),
    }


def casts(fluid, name):
    """The forward operators of a model in mixed precision."""
    from paddle.fluid.contrib import mixed_precision

    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = fluid.layers.mean(models(fluid.layers)[name]())
        lists = mixed_precision.AutoMixedPrecisionLists(**LISTS.get(name, {}))
        mixed_precision.decorate(fluid.optimizer.SGD(0.1), lists, use_dynamic_loss_scaling=False).minimize(loss)
    found = []
    for op in main.global_block().ops:
        if op.attr("op_role") & 3:
            return found
        moved = [op.input("X")[0], op.output("Out")[0]] if op.type == "cast" else []
        found.append([op.type, *moved])


def history(fluid, name):
    """The scale and the parameter after each step."""
    from paddle.fluid.contrib import mixed_precision

    feeds, incr, decr, first = HISTORIES[name]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        weights = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(1.0))
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [2]), 1, bias_attr=False, param_attr=weights))
        optimizer = mixed_precision.decorate(
            fluid.optimizer.SGD(0.1),
            mixed_precision.AutoMixedPrecisionLists(custom_black_list={"mul"}),
            init_loss_scaling=first,
            incr_every_n_steps=incr,
            decr_every_n_nan_or_inf=decr,
            incr_ratio=2.0,
            decr_ratio=0.5,
            use_dynamic_loss_scaling=True,
        )
        optimizer.minimize(loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        fetched = [optimizer.get_loss_scaling().name, "w"]
        batches = [{"x": np.full((1, 2), value, "float32")} for value in feeds]
        results = [executor.run(main, feed=batch, fetch_list=fetched) for batch in batches]
    return [[float(scale[0]), round(float(w[0, 0]), 5)] for scale, w in results]


if __name__ == "__main__":
    import paddle.fluid

    recorded = {
        "casts": {name: casts(paddle.fluid, name) for name in models(paddle.fluid.layers)},
        "histories": {name: history(paddle.fluid, name) for name in HISTORIES},
    }
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "mixed_precision.json")
    with open(path, "w") as file:
        json.dump(recorded, file, sort_keys=True)
        file.write("\n")
