"""Small models saved by paddle.fluid, for the tests of what reads saved models."""

import numpy as np

import paddle.fluid as fluid


def dense():
    x = fluid.layers.data("x", [13])
    return [x], [fluid.layers.fc(fluid.layers.fc(x, 8, act="relu"), 3, act="softmax")]


def image():
    x = fluid.layers.data("img", [1, 12, 12])
    features = fluid.layers.batch_norm(fluid.layers.conv2d(x, 4, 5, act="relu"))
    return [x], [fluid.layers.fc(fluid.layers.pool2d(features, 2, "max", 2), 10, act="softmax")]


def recommender():
    user, item = (fluid.layers.data(name, [1], dtype="int64") for name in ("user", "item"))
    rows = [fluid.layers.embedding(user, [50, 4], is_sparse=True), fluid.layers.embedding(item, [20, 4])]
    hidden = fluid.layers.dropout(fluid.layers.fc(fluid.layers.concat(rows, axis=1), 6, act="tanh"), 0.3)
    return [user, item], [fluid.layers.fc(hidden, 1, act="sigmoid"), hidden]


def text():
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    pooled = fluid.layers.sequence_pool(fluid.layers.embedding(words, [30, 4]), "sum")
    return [words], [fluid.layers.fc(pooled, 2, act="softmax")]


MODELS = {"dense": dense, "image": image, "recommender": recommender, "text": text}


def save(folder, name, params_filename=None):
    """Saves a model with new parameters; returns what the executor gives for `feed_of`."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        fluid.default_startup_program().random_seed = 1
        with fluid.scope_guard(fluid.Scope()):
            feeds, targets = MODELS[name]()
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(fluid.default_startup_program())
            names = [variable.name for variable in feeds]
            fluid.io.save_inference_model(str(folder), names, targets, exe, params_filename=params_filename)
            program = fluid.default_main_program().clone(for_test=True)
            return exe.run(program, feed=feed_of(name), fetch_list=targets)


def feed_of(name, count=5):
    """A batch for a model."""
    numbers = np.random.RandomState(0)
    if name == "dense":
        return {"x": numbers.rand(count, 13).astype("float32")}
    if name == "image":
        return {"img": numbers.rand(count, 1, 12, 12).astype("float32")}
    if name == "recommender":
        return {"user": numbers.randint(0, 50, [count, 1]), "item": numbers.randint(0, 20, [count, 1])}
    return {"words": fluid.create_lod_tensor(numbers.randint(0, 30, [6, 1]), [[2, 1, 3]], fluid.CPUPlace())}
