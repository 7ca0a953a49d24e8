"""Small models, written in what Fluid 1.5 to 1.8 and refluid have in common; both build, save, load and run them.

Each builder takes `fluid` and returns (feeds: name -> array, targets). Runs under Python 3.7 too.
"""

import numpy as np
from numbers_by_name import numbers
from sequence_models import SEQUENCE_MODELS


def images(fluid, *shape):
    image = fluid.layers.data("image", list(shape))
    return image, {"image": numbers("image", 2, *shape).astype("float32")}


def fit_a_line(fluid):
    x = fluid.layers.data("x", [13])
    return {"x": numbers("x", 4, 13).astype("float32")}, [fluid.layers.fc(x, 1)]


def mlp(fluid):
    x = fluid.layers.data("x", [12])
    hidden = fluid.layers.fc(fluid.layers.fc(x, 8, act="relu"), 8, act="tanh")
    return {"x": numbers("x", 3, 12).astype("float32")}, [fluid.layers.fc(hidden, 5, act="softmax")]


def lenet(fluid):
    image, feeds = images(fluid, 1, 28, 28)
    hidden = fluid.nets.simple_img_conv_pool(image, 3, 5, 2, 2, act="relu")
    hidden = fluid.nets.simple_img_conv_pool(hidden, 4, 5, 2, 2, act="relu")
    return feeds, [fluid.layers.fc(hidden, 10, act="softmax")]


def conv_bn(fluid):
    image, feeds = images(fluid, 3, 10, 10)
    first = fluid.layers.conv2d(image, 4, 3, padding=1, bias_attr=False)
    first = fluid.layers.batch_norm(first, act="relu", is_test=True)
    second = fluid.layers.batch_norm(fluid.layers.conv2d(first, 4, 3, padding=1, groups=2), is_test=True)
    joined = fluid.layers.elementwise_add(first, second, act="relu")
    pooled = fluid.layers.pool2d(joined, pool_type="avg", global_pooling=True)
    return feeds, [fluid.layers.fc(pooled, 3)]


def recommender(fluid):
    user = fluid.layers.data("user", [1], dtype="int64")
    film = fluid.layers.data("film", [1], dtype="int64")
    sides = []
    for ids, rows in ((user, 20), (film, 30)):
        embedded = fluid.layers.embedding(ids, [rows, 6], is_sparse=True)
        sides.append(fluid.layers.fc(embedded, 8, act="tanh"))
    score = fluid.layers.scale(fluid.layers.cos_sim(sides[0], sides[1]), scale=5.0)
    feeds = {"user": np.array([[0], [7], [19]], "int64"), "film": np.array([[29], [3], [0]], "int64")}
    return feeds, [score]


def encoder_block(fluid):
    layers = fluid.layers
    x = layers.data("x", [5, 8])
    query, key, value = (layers.fc(x, 8, num_flatten_dims=2, bias_attr=False) for _ in range(3))
    heads = [layers.transpose(layers.reshape(each, [0, 0, 2, 4]), [0, 2, 1, 3]) for each in (query, key, value)]
    weights = layers.softmax(layers.matmul(heads[0], heads[1], transpose_y=True, alpha=0.5))
    weights = layers.dropout(weights, 0.1, dropout_implementation="upscale_in_train")
    mixed = layers.reshape(layers.transpose(layers.matmul(weights, heads[2]), [0, 2, 1, 3]), [0, 0, 8])
    x = layers.layer_norm(x + layers.fc(mixed, 8, num_flatten_dims=2), begin_norm_axis=2)
    wide = layers.fc(x, 16, num_flatten_dims=2, act="relu")
    out = layers.layer_norm(x + layers.fc(wide, 8, num_flatten_dims=2), begin_norm_axis=2)
    return {"x": numbers("x", 2, 5, 8).astype("float32")}, [out]


def dropout_downgrade(fluid):
    x = fluid.layers.data("x", [6])
    hidden = fluid.layers.dropout(fluid.layers.fc(x, 8, act="relu"), 0.4)
    return {"x": numbers("x", 3, 6).astype("float32")}, [fluid.layers.fc(hidden, 2), hidden]


def dropout_upscale(fluid):
    x = fluid.layers.data("x", [6])
    hidden = fluid.layers.fc(x, 8, act="sigmoid")
    hidden = fluid.layers.dropout(hidden, 0.4, dropout_implementation="upscale_in_train")
    return {"x": numbers("x", 3, 6).astype("float32")}, [fluid.layers.fc(hidden, 2), hidden]


def resize_and_pad(fluid):
    image, feeds = images(fluid, 2, 6, 5)
    larger = fluid.layers.resize_bilinear(image, out_shape=[9, 8])
    nearest = fluid.layers.resize_nearest(image, out_shape=[4, 10], align_corners=False)
    padded = fluid.layers.pad2d(image, paddings=[1, 2, 0, 1], mode="reflect")
    return feeds, [larger, nearest, fluid.layers.conv2d(padded, 2, 3)]


def several_inputs_and_outputs(fluid):
    a = fluid.layers.data("a", [4])
    b = fluid.layers.data("b", [4])
    unused = fluid.layers.fc(b, 3)
    total = fluid.layers.concat([fluid.layers.fc([a, b], 6), a], axis=1)
    best, places = fluid.layers.topk(total, k=3)
    loss = fluid.layers.mean(fluid.layers.square(unused))
    fluid.optimizer.Adam(0.1).minimize(loss)  # training must not be part of what is saved
    feeds = {"a": numbers("a", 3, 4).astype("float32"), "b": numbers("b", 3, 4).astype("float32")}
    return feeds, [places, best, total]


def float64(fluid):
    x = fluid.layers.data("x", [5], dtype="float64")
    hidden = fluid.layers.fc(x, 7, act="tanh")
    return {"x": numbers("x", 3, 5)}, [fluid.layers.fc(hidden, 2), fluid.layers.reduce_sum(hidden, dim=1)]


def quantized(fluid):
    from paddle.fluid.contrib.quantize import QuantizeTranspiler

    image, feeds = images(fluid, 2, 6, 6)
    hidden = fluid.layers.conv2d(image, 3, 3, act="relu")
    prediction = fluid.layers.fc(hidden, 4, act="softmax")
    QuantizeTranspiler().training_transpile(fluid.default_main_program(), fluid.default_startup_program())
    return feeds, [prediction]


def freeze(fluid, program):
    from paddle.fluid.contrib.quantize import QuantizeTranspiler

    QuantizeTranspiler().freeze_program(program, fluid.CPUPlace())


quantized.finish = freeze

MODELS = [
    fit_a_line,
    mlp,
    lenet,
    conv_bn,
    recommender,
    encoder_block,
    dropout_downgrade,
    dropout_upscale,
    resize_and_pad,
    several_inputs_and_outputs,
    float64,
    quantized,
    *SEQUENCE_MODELS,
]


def set_parameters(fluid, program):
    """Gives the parameters numbers that depend on their names only."""
    for parameter in program.all_parameters():
        value = numbers(parameter.name, *parameter.shape)
        if parameter.name.startswith("batch_norm") and parameter.name.endswith("w_2"):  # a variance
            value = value + 1
        tensor = fluid.global_scope().find_var(parameter.name).get_tensor()
        tensor.set(value.astype(np.array(tensor).dtype), fluid.CPUPlace())
