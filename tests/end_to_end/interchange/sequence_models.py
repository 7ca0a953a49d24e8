"""Models on sequences and with blocks inside blocks, as those of models.py; a fed sequence is (rows, lengths)."""

import numpy as np
from numbers_by_name import numbers

LENGTHS = [[3, 1, 4]]


def word_ids(fluid, name, rows, lengths):
    words = fluid.layers.data(name, [1], dtype="int64", lod_level=len(lengths))
    count = sum(lengths[-1])
    return words, (np.arange(count).reshape(count, 1) * 7 % rows, lengths)


def vectors(fluid, name, width, lengths):
    rows = numbers(name, sum(lengths[-1]), width).astype("float32")
    return fluid.layers.data(name, [width], lod_level=len(lengths)), (rows, lengths)


def text_convolution(fluid):
    words, fed = word_ids(fluid, "words", 30, LENGTHS)
    embedded = fluid.layers.embedding(words, [30, 6], is_sparse=True)
    sides = [fluid.nets.sequence_conv_pool(embedded, 5, n, act="tanh", pool_type="sqrt") for n in (3, 4)]
    return {"words": fed}, [fluid.layers.fc(sides, 2, act="softmax")]


def stacked_lstm(fluid):
    layers = fluid.layers
    words, fed = word_ids(fluid, "words", 20, LENGTHS)
    first = layers.fc(layers.embedding(words, [20, 5]), 16)
    hidden, cell = layers.dynamic_lstm(first, 16)
    second = layers.fc([first, hidden], 16)
    back, _ = layers.dynamic_lstm(second, 16, is_reverse=True, use_peepholes=False, cell_activation="relu")
    projected, _ = layers.dynamic_lstmp(layers.fc(hidden, 12), 12, 2)
    pooled = [layers.sequence_pool(each, kind) for each, kind in ((second, "max"), (back, "first"), (cell, "last"))]
    return {"words": fed}, [layers.fc(pooled, 2, act="softmax"), projected]


def tagger(fluid):
    layers = fluid.layers
    words, fed = word_ids(fluid, "words", 25, LENGTHS)
    embedded = layers.embedding(words, [25, 6])
    forward = layers.dynamic_gru(layers.fc(embedded, 12), 4)
    backward = layers.dynamic_gru(layers.fc(embedded, 12), 4, is_reverse=True, origin_mode=True)
    emission = layers.fc([forward, backward], 5)
    label = layers.data("label", [1], dtype="int64", lod_level=1)
    attr = fluid.ParamAttr(name="crf.w")
    loss = layers.mean(layers.linear_chain_crf(emission, label, param_attr=attr))
    path = layers.crf_decoding(emission, param_attr=attr)
    fluid.optimizer.SGD(0.1).minimize(loss)
    return {"words": fed}, [path, emission]


def transcriber(fluid):
    layers = fluid.layers
    image = layers.data("image", [1, 6, 12])
    features = layers.conv2d(image, 3, 3, padding=1, act="relu")
    steps = layers.im2sequence(features, filter_size=[6, 1], stride=[1, 1])
    hidden = layers.dynamic_gru(layers.fc(steps, 12), 4)
    scores = layers.fc(hidden, 5)
    decoded = layers.ctc_greedy_decoder(layers.softmax(scores), blank=4)
    return {"image": numbers("image", 2, 1, 6, 12).astype("float32")}, [decoded, scores]


def documents(fluid):
    layers = fluid.layers
    words, fed = word_ids(fluid, "words", 20, [[2, 1], [2, 3, 1]])
    sentences = layers.sequence_pool(layers.embedding(words, [20, 4]), "average")
    hidden, _ = layers.dynamic_lstm(layers.fc(sentences, 8), 8)
    return {"words": fed}, [hidden, layers.fc(layers.sequence_last_step(hidden), 3)]


def attention(fluid):
    layers = fluid.layers
    source, fed = vectors(fluid, "source", 4, LENGTHS)
    query = layers.data("query", [4])
    spread = layers.sequence_expand_as(layers.fc(query, 4), source)
    weights = layers.sequence_softmax(layers.fc(layers.concat([source, spread], axis=1), 1))
    context = layers.sequence_pool(layers.elementwise_mul(source, layers.reshape(weights, [-1]), axis=0), "sum")
    reverse = layers.sequence_concat([layers.sequence_reverse(source), source])
    padded, lengths = layers.sequence_pad(reverse, layers.assign(np.array([0.5], "float32")))
    feeds = {"source": fed, "query": numbers("query", 3, 4).astype("float32")}
    return feeds, [context, weights, padded, lengths]


def static_rnn(fluid):
    layers = fluid.layers
    steps = layers.data("steps", [5, 3, 4], append_batch_size=False)
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(steps)
        memory = rnn.memory(shape=[-1, 6], batch_ref=word)
        hidden = layers.fc([word, memory], 6, act="tanh")
        rnn.update_memory(memory, hidden)
        rnn.step_output(hidden)
    return {"steps": numbers("steps", 5, 3, 4).astype("float32")}, [layers.fc(rnn(), 2, num_flatten_dims=2)]


def dynamic_rnn(fluid):
    layers = fluid.layers
    words, fed = word_ids(fluid, "words", 15, LENGTHS)
    source = layers.embedding(words, [15, 4])
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(source)
        memory = rnn.memory(shape=[5], value=0.1)
        hidden = layers.fc([word, memory], 5, act="tanh")
        rnn.update_memory(memory, hidden)
        rnn.output(hidden)
    states = rnn()
    return {"words": fed}, [states, layers.fc(layers.sequence_last_step(states), 2)]


def translate(fluid):
    """A decoder that searches with beams: tensor arrays, a loop, scores and ids that grow step by step."""
    layers = fluid.layers
    start, width, words, beams, limit = 1, 4, 7, 2, 3
    context = layers.data("context", [width])
    first_ids = layers.data("first_ids", [1], dtype="int64", lod_level=2)
    first_scores = layers.data("first_scores", [1], lod_level=2)
    turn = layers.zeros([1], "int64")
    last = layers.fill_constant([1], "int64", limit)
    ids, scores, states = (layers.array_write(each, turn) for each in (first_ids, first_scores, context))
    going = layers.less_than(turn, last)
    loop = layers.While(going)
    with loop.block():
        before_ids, before_scores = layers.array_read(ids, turn), layers.array_read(scores, turn)
        state = layers.sequence_expand(layers.array_read(states, turn), before_scores)
        embedded = layers.embedding(before_ids, [words, width], param_attr=fluid.ParamAttr(name="words"))
        state = layers.fc([state, embedded], width, act="tanh")
        chance = layers.fc(layers.lod_reset(state, before_scores), words, act="softmax")
        best, places = layers.topk(chance, beams)
        total = layers.elementwise_add(layers.log(best), layers.reshape(before_scores, [-1]), axis=0)
        chosen, chosen_scores = layers.beam_search(before_ids, before_scores, places, total, beams, end_id=0, level=0)
        layers.increment(turn, 1)
        layers.array_write(state, turn, states)
        layers.array_write(chosen, turn, ids)
        layers.array_write(chosen_scores, turn, scores)
        layers.less_than(turn, last, cond=going)
    found, found_scores = layers.beam_search_decode(ids, scores, beams, end_id=0)
    lengths = [[1, 1], [1, 1]]
    feeds = {
        "context": numbers("context", 2, width).astype("float32"),
        "first_ids": (np.full((2, 1), start, "int64"), lengths),
        "first_scores": (np.zeros((2, 1), "float32"), lengths),
    }
    return feeds, [found, found_scores]


def loop(fluid):
    layers = fluid.layers
    x = layers.data("x", [4])
    turn = layers.fill_constant([1], "int64", 0)
    limit = layers.fill_constant([1], "int64", 3)
    kept = layers.array_write(layers.fc(x, 4), turn)
    going = layers.less_than(turn, limit)
    loop = layers.While(going)
    with loop.block():
        value = layers.array_read(kept, turn)
        layers.increment(turn, 1)
        layers.array_write(layers.fc(value, 4, act="tanh"), turn, kept)
        layers.less_than(turn, limit, cond=going)
    last = layers.array_read(kept, limit)
    return {"x": numbers("x", 3, 4).astype("float32")}, [last, layers.array_length(kept)]


def branches(fluid):
    layers = fluid.layers
    x = layers.data("x", [4])
    total = layers.reduce_sum(x)
    zero = layers.fill_constant([1], "float32", 0.0)
    big = layers.less_than(zero, total)
    chosen = layers.cond(big, lambda: layers.fc(x, 3), lambda: layers.scale(layers.fc(x, 3), 2.0))
    rate = layers.create_global_var([1], 0.0, "float32", persistable=True)
    with layers.Switch() as switch:
        with switch.case(big):
            layers.assign(layers.fill_constant([1], "float32", 0.1), rate)
        with switch.default():
            layers.assign(layers.fill_constant([1], "float32", 0.2), rate)
    return {"x": numbers("x", 3, 4).astype("float32")}, [chosen, total, rate]


SEQUENCE_MODELS = [
    text_convolution,
    stacked_lstm,
    tagger,
    transcriber,
    documents,
    attention,
    static_rnn,
    dynamic_rnn,
    translate,
    loop,
    branches,
]
