"""Which dense layers hand sequences on: LoD, rows and LoD levels of their results, on sequences and plain rows mixed.

Left out: accuracy and gather_nd, which in real Fluid keep a LoD that no longer fits their rows.
"""

from golden.case import Lod, f32, ints, layer_case

CASES = []
CUT = [[3, 0, 4, 1, 2]]
NESTED = [[2, 1], [3, 1, 4]]
ROWS = dict(
    x=Lod(f32(10, 4, low=0.1), CUT),
    y=Lod(f32(10, 4, salt=1, low=0.1), CUT),
    plain=f32(10, 4, salt=2, low=0.1),
)


@layer_case(CASES, grads=False, **ROWS)
def elementwise(fluid, x, y, plain):
    layers = fluid.layers
    return [
        layers.elementwise_add(x, y),
        layers.elementwise_mul(x, plain),
        layers.elementwise_sub(plain, x),
        layers.elementwise_div(plain, x, act="tanh"),
        1.0 - x * 2.0,
        layers.sums([x, y]),
        layers.sums([plain, x]),
        layers.less_than(x, y),
        layers.logical_not(layers.cast(x, "bool")),
        layers.square_error_cost(x, y),
        layers.smooth_l1(x, y),
        layers.huber_loss(x, y, 1.0),
        layers.sigmoid_cross_entropy_with_logits(x, y),
        layers.cos_sim(x, y),
        layers.cos_sim(plain, x),
        layers.kldiv_loss(x, y, "none"),
    ]


@layer_case(CASES, grads=False, **ROWS)
def one_input(fluid, x, y, plain):
    layers = fluid.layers
    return [
        layers.relu(x),
        layers.scale(x, 2.0),
        layers.cast(x, "float64"),
        layers.clip(x, 0.2, 0.5),
        layers.softmax(x),
        layers.dropout(x, 0.5, is_test=True),
        layers.l2_normalize(x, 1),
        layers.layer_norm(x),
        layers.batch_norm(x),
        layers.label_smooth(x),
        layers.cumsum(x, 1),
        layers.assign(x),
        layers.zeros_like(x),
        layers.fill_constant_batch_size_like(x, [-1, 3], "float32", 1.0),
        layers.fc(x, 3),
        layers.fc([plain, x], 3),
        layers.matmul(x, layers.fill_constant([4, 2], "float32", 0.5)),
        layers.maxout(layers.reshape(x, [-1, 4, 1, 1]), 2),
        layers.pool2d(layers.reshape(x, [-1, 1, 2, 2]), 2),
        layers.conv2d(layers.reshape(x, [-1, 1, 2, 2]), 2, 2),
    ]


@layer_case(CASES, grads=False, **ROWS)
def shapes(fluid, x, y, plain):
    layers = fluid.layers
    split = layers.split(x, 2, 1)
    top, places = layers.topk(x, 2)
    ordered, order = layers.argsort(x, 1)
    return [
        layers.concat([x, y], axis=1),
        layers.concat([plain, x], axis=1),
        layers.concat([x, y], axis=0),
        layers.stack([x, y], axis=1),
        layers.reshape(x, [-1, 2, 2]),
        layers.reshape(x, [0, 4, 1]),
        layers.unsqueeze(x, [1]),
        layers.squeeze(layers.reshape(x, [-1, 4, 1]), [2]),
        layers.flatten(x, 1),
        layers.slice(x, [1], [0], [2]),
        layers.expand(x, [1, 2]),
        layers.pad(x, [0, 0, 1, 1]),
        layers.reverse(x, 1),
        layers.argmax(x, 1),
        layers.reduce_sum(x, 1),
        layers.reduce_sum(x, 1, keep_dim=True),
        layers.reduce_sum(x, 0),
        layers.reduce_max(x, 0),
        layers.reduce_mean(x),
        top,
        places,
        ordered,
        order,
    ] + list(split)


@layer_case(CASES, grads=False, x=Lod(f32(10, 4), CUT), ids=Lod(ints(10, 1, high=4), CUT))
def with_ids(fluid, x, ids):
    layers = fluid.layers
    odd = layers.cast(layers.cast(ids, "bool"), "int64")
    return [
        layers.embedding(ids, [9, 3]),
        fluid.embedding(layers.squeeze(ids, [1]), [9, 3]),
        fluid.one_hot(layers.squeeze(ids, [1]), 4),
        layers.one_hot(ids, 4),
        layers.cross_entropy(layers.softmax(x), ids),
        layers.softmax_with_cross_entropy(x, ids),
        layers.bpr_loss(x, ids),
        layers.multiplex([x, layers.scale(x, 2.0)], layers.cast(odd, "int32")),
    ]


@layer_case(CASES, x=Lod(f32(8, 4), NESTED), y=Lod(f32(5, 4, salt=1), [[1, 1], [2, 3]]))
def nested(fluid, x, y):
    layers = fluid.layers
    both = layers.concat([layers.fc(x, 3), layers.fc(y, 3)], axis=0)
    return [both, layers.sequence_pool(both, "sum"), layers.concat([x, layers.tanh(x)], axis=1)]


@layer_case(CASES, x=Lod(f32(10, 2), CUT), y=Lod(f32(7, 2, salt=1), [[0, 7]]))
def one_after_the_other(fluid, x, y):
    joined = fluid.layers.concat([fluid.layers.tanh(x), y, x], axis=0)
    return [joined, fluid.layers.sequence_pool(joined, "average"), fluid.layers.reduce_mean(joined, dim=0)]


@layer_case(CASES, x=Lod(f32(10, 2), CUT), plain=f32(3, 2, salt=1), grads=False)
def rows_below_sequences(fluid, x, plain):
    joined = fluid.layers.concat([fluid.layers.scale(x, 2.0), plain], axis=0)
    return fluid.layers.reduce_sum(joined, dim=0)
