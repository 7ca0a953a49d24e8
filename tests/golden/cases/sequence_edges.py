"""Every sequence layer on every way of cutting rows: empty sequences at any place, single rows, a long one, two levels.

One case holds many layers, because each case is compiled: what x's gradient adds up from is still compared exactly.
Layers that real Fluid refuses for a way of cutting are left out there. So is sequence_conv with padding_start=1.
differs: sequence-conv-start
"""

import numpy as np

from golden.case import LayerCase, Lod, distinct, f32, ints

FLAT = {
    "holes": [[3, 0, 4, 1, 0]],
    "first empty": [[0, 0, 2, 3]],
    "all but one empty": [[0, 4, 0]],
    "ones": [[1, 1, 1]],
    "long": [[50, 1, 2]],
}
NESTED = {
    "nested": [[2, 1], [3, 1, 4]],
    "nested, with empty ones": [[2, 0, 1], [3, 0, 4]],
    "nested, an empty one first": [[0, 2], [3, 2]],
}
CASES = []


def case(name, build, lengths, make=distinct, width=2, grads=True, **options):
    x = Lod(make(sum(lengths[-1]), width, **options), lengths)
    CASES.append(LayerCase(name, build, {"x": x}, grads=grads))


def pooled(fluid, x):
    kinds = ("sum", "average", "sqrt", "max", "first", "last")
    return [fluid.layers.sequence_pool(x, kind, pad_value=0.25) for kind in kinds]


def cut_anew(fluid, x):
    layers = fluid.layers
    value = layers.assign(np.float32([0.5]))
    padded, length = layers.sequence_pad(x, value, maxlen=61)
    to_longest, _ = layers.sequence_pad(x, value)
    return [
        layers.sequence_unpad(layers.scale(padded, 2.0), length),
        to_longest,
        layers.sequence_reshape(x, 1),
        layers.sequence_concat([x, layers.scale(x, 2.0), x]),
        layers.sequence_reverse(x),
        layers.lod_reset(layers.scale(x, 2.0), x),
    ]


def expanded(fluid, x):
    layers = fluid.layers
    rows = layers.scale(layers.sequence_pool(x, "sum"), 0.5)
    return [
        layers.sequence_expand(rows, x, ref_level=0),
        layers.sequence_expand_as(rows, x),
        layers.sequence_expand(layers.fc(x, 1), rows_like(fluid, x), ref_level=0),
        layers.sequence_conv(x, 4, 3),
        layers.sequence_softmax(layers.fc(x, 1, bias_attr=False)),
        layers.mean(x),
    ]


def rows_like(fluid, x):
    """As many rows as x, cut as x is, without a gradient."""
    y = fluid.layers.scale(x, 1.0)
    y.stop_gradient = True
    return y


def recurrent(fluid, x):
    layers = fluid.layers
    wide = layers.fc(x, 12, bias_attr=False)
    hidden, _ = layers.dynamic_lstm(wide, 12)
    backwards, _ = layers.dynamic_lstm(wide, 12, is_reverse=True, use_peepholes=False)
    projected, _ = layers.dynamic_lstmp(wide, 12, 2)
    gates = layers.fc(x, 6, bias_attr=False)
    return [
        hidden,
        backwards,
        projected,
        layers.dynamic_gru(gates, 2),
        layers.dynamic_gru(gates, 2, is_reverse=True, origin_mode=True),
    ]


def tagged(fluid, x):
    layers = fluid.layers
    best = layers.reshape(layers.argmax(x, axis=1), [-1, 1])
    best.stop_gradient = True
    best = layers.lod_reset(best, x)
    best.stop_gradient = True
    attr = fluid.ParamAttr(name="crf")
    cost = layers.linear_chain_crf(x, best, param_attr=attr)
    path = layers.crf_decoding(x, attr)
    counted = layers.chunk_eval(path, best, "plain", 3)
    return [cost, path, layers.crf_decoding(x, attr, label=best)] + list(counted)


def of_ids(fluid, x):
    layers = fluid.layers
    windows = layers.sequence_enumerate(x, 3, pad_value=9)
    distance, count = layers.edit_distance(x, layers.sequence_reverse(x), normalized=False, ignored_tokens=[1])
    return [windows, distance, count]


def decoded(fluid, x):
    return fluid.layers.ctc_greedy_decoder(x, blank=0)


def outer_rows(fluid, x):
    layers = fluid.layers
    inner = layers.sequence_pool(x, "average", pad_value=0.25)
    outer = layers.sequence_pool(layers.fc(inner, 3, act="tanh"), "last", pad_value=0.25)
    return pooled(fluid, x) + [
        outer,
        layers.sequence_expand(layers.scale(outer, 2.0), x, ref_level=0),
        layers.sequence_expand(inner, x, ref_level=0),
        layers.sequence_softmax(layers.fc(x, 1, bias_attr=False)),
        layers.lod_reset(layers.scale(x, 2.0), x),
        layers.concat([x, layers.square(x)], axis=1),
    ]


def in_bodies(fluid, x):
    """Single steps on rows, a StaticRNN and branches that see the sequences around them."""
    layers = fluid.layers
    hidden, new_cell = layers.lstm_unit(x, layers.fc(x, 2, act="tanh"), layers.fc(x, 2))
    stepped, _, _ = layers.gru_unit(layers.fc(x, 6), layers.fc(x, 2, act="tanh"), 6)
    steps = layers.fc(layers.assign(np.float32([[1, 2], [3, 4], [-1, 0.5]])), 1)

    def pooled_to_rows(rows):
        for _ in range(x.lod_level):
            rows = layers.sequence_pool(rows, "average", pad_value=0.25)
        return rows

    first = pooled_to_rows(x)
    rnn = layers.StaticRNN()
    with rnn.step():
        step, before = rnn.step_input(steps), rnn.memory(init=first)
        after = layers.tanh(pooled_to_rows(x * step) + before)
        rnn.update_memory(before, after)
        rnn.step_output(after)
    zero = layers.fill_constant([1], "float32", 0.0)
    taken, other = layers.less_than(zero, zero + 1.0), layers.less_than(zero + 1.0, zero)
    chosen = [
        layers.cond(test, lambda: layers.sequence_pool(x, "max"), lambda: layers.sequence_pool(x, "average"))
        for test in (taken, other)
    ]
    rows = [layers.cond(test, lambda: layers.scale(x, 2.0), lambda: layers.tanh(x)) for test in (taken, other)]
    return [hidden, new_cell, stepped, rnn()] + chosen + rows


for name, lengths in sorted(FLAT.items()):
    case("pool " + name, pooled, lengths)
    case("cut " + name, cut_anew, lengths)
    case("expand " + name, expanded, lengths)
    case("tag " + name, tagged, lengths, f32, 3)
    if name not in ("all but one empty", "ones"):  # cases of their own cut so, and this one compiles long
        case("recurrent " + name, recurrent, lengths, f32, 3)
    if name in ("holes", "long"):
        case("bodies " + name, in_bodies, lengths)
    case("ids " + name, of_ids, lengths, ints, 1, grads=False, high=3)
    case("frames " + name, decoded, lengths, f32, 4, grads=False)
for name, lengths in sorted(NESTED.items()):
    case("pool " + name, outer_rows, lengths)
    if name == "nested, with empty ones":
        case("bodies " + name, in_bodies, lengths)
    case("frames " + name, decoded, lengths, f32, 4, grads=False)
