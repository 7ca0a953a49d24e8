"""Trains a translation model with attention, and translates with beam search.

The language is synthetic: a translation is the sentence in reverse, with each word in its other form. The decoder is
a DynamicRNN that attends to all states of the encoder in every step. Training and search are two programs that share
their parameters by name.

    python examples/translation.py
"""

import numpy as np

import paddle
import paddle.fluid as fluid

START, END = 0, 1
WORDS, WIDTH, SIZE = 14, 24, 32
BEAM, LONGEST = 3, 6


def pairs(count, seed):
    """A reader of (sentence, translation so far, next words)."""

    def reader():
        random = np.random.RandomState(seed)
        for _ in range(count):
            source = random.randint(2, WORDS, random.randint(2, LONGEST + 1)).tolist()
            target = translated(source)
            yield source, [START, *target], [*target, END]

    return reader


def translated(source):
    return [WORDS + 1 - word for word in reversed(source)]


def named(name):
    return fluid.ParamAttr(name=name)


def words(name):
    return fluid.layers.data(name=name, shape=[1], dtype="int64", lod_level=1)


def embedding(ids, name):
    return fluid.layers.embedding(input=ids, size=[WORDS, WIDTH], param_attr=named(name))


def encoder():
    """The states of a GRU in both directions, what attention compares with, and the decoder's first state."""
    found = embedding(words("source"), "source_words")
    states = []
    for name in ("forward", "backward"):
        gates = fluid.layers.fc(input=found, size=SIZE * 3, bias_attr=False, param_attr=named(name + "_gates"))
        states.append(
            fluid.layers.dynamic_gru(
                input=gates,
                size=SIZE,
                is_reverse=name == "backward",
                param_attr=named(name + "_gru"),
                bias_attr=named(name + "_gru_bias"),
            )
        )
    encoded = fluid.layers.concat(input=states, axis=1)
    keys = fluid.layers.fc(input=encoded, size=SIZE, bias_attr=False, param_attr=named("keys"))
    last = fluid.layers.sequence_first_step(input=states[1])
    first = fluid.layers.fc(input=last, size=SIZE, act="tanh", param_attr=named("first"), bias_attr=named("first_bias"))
    return encoded, keys, first


def attention(state, encoded, keys):
    """An average of the encoder's states; the decoder's state decides which ones count."""
    query = fluid.layers.fc(input=state, size=SIZE, bias_attr=False, param_attr=named("query"))
    match = fluid.layers.tanh(keys + fluid.layers.sequence_expand(x=query, y=keys))
    scores = fluid.layers.fc(input=match, size=1, bias_attr=False, param_attr=named("match"))
    weights = fluid.layers.reshape(fluid.layers.sequence_softmax(input=scores), shape=[-1])
    return fluid.layers.sequence_pool(fluid.layers.elementwise_mul(encoded, weights, axis=0), pool_type="sum")


def decoder_step(word, before, encoded, keys):
    """The next state, and the chances of all words to be the next one."""
    gates = fluid.layers.fc(
        input=[attention(before, encoded, keys), word],
        size=SIZE * 3,
        bias_attr=False,
        param_attr=[named("context_gates"), named("word_gates")],
    )
    after, _, _ = fluid.layers.gru_unit(
        input=gates, hidden=before, size=SIZE * 3, param_attr=named("gru"), bias_attr=named("gru_bias")
    )
    chances = fluid.layers.fc(
        input=after, size=WORDS, act="softmax", param_attr=named("chances"), bias_attr=named("chances_bias")
    )
    return after, chances


def training():
    encoded, keys, first = encoder()
    found = embedding(words("target"), "target_words")
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(found)
        states, places = rnn.static_input(encoded), rnn.static_input(keys)
        before = rnn.memory(init=first, need_reorder=True)
        after, chances = decoder_step(word, before, states, places)
        rnn.update_memory(before, after)
        rnn.output(chances)
    return fluid.layers.mean(fluid.layers.cross_entropy(input=rnn(), label=words("next")))


def search():
    """Keeps the best few beginnings of each translation, and makes them longer by one word in every turn."""
    layers = fluid.layers
    encoded, keys, first = encoder()
    ids = layers.data(name="first_ids", shape=[1], dtype="int64", lod_level=2)
    scores = layers.data(name="first_scores", shape=[1], dtype="float32", lod_level=2)
    limit = layers.fill_constant(shape=[1], dtype="int64", value=LONGEST + 2)
    turn = layers.zeros(shape=[1], dtype="int64", force_cpu=True)
    arrays = [layers.array_write(value, i=turn) for value in (ids, scores, first, encoded, keys)]
    going = layers.less_than(x=turn, y=limit)
    with layers.While(cond=going).block():
        word, score, *states = [layers.array_read(array, i=turn) for array in arrays]
        before, states, places = [layers.sequence_expand(x=state, y=score) for state in states]
        after, chances = decoder_step(embedding(word, "target_words"), before, states, places)
        top, candidates = layers.topk(layers.lod_reset(chances, y=score), k=2 * BEAM)
        total = layers.elementwise_add(layers.log(top), layers.reshape(score, shape=[-1]), axis=0)
        chosen, best = layers.beam_search(word, score, candidates, total, beam_size=BEAM, end_id=END)
        layers.increment(turn, value=1, in_place=True)
        for value, array in zip((chosen, best, after, states, places), arrays):
            layers.array_write(value, i=turn, array=array)
        some = layers.logical_not(layers.is_empty(chosen))
        layers.logical_and(layers.less_than(x=turn, y=limit), some, out=going)
    return layers.beam_search_decode(arrays[0], arrays[1], beam_size=BEAM, end_id=END)


def translate(exe, program, found, sentences):
    """The best translation of each sentence."""
    place, count = fluid.CPUPlace(), len(sentences)
    rows = np.concatenate(sentences).reshape(-1, 1).astype("int64")
    ones = [[1] * count, [1] * count]
    feed = {
        "source": fluid.create_lod_tensor(rows, [[len(sentence) for sentence in sentences]], place),
        "first_ids": fluid.create_lod_tensor(np.full((count, 1), START, "int64"), ones, place),
        "first_scores": fluid.create_lod_tensor(np.zeros((count, 1), "float32"), ones, place),
    }
    ids, scores = exe.run(program, feed=feed, fetch_list=list(found), return_numpy=False)
    groups, ends = ids.lod()
    ids, scores = np.array(ids), np.array(scores)
    results = []
    for begin, end in zip(groups, groups[1:]):
        best = max(range(begin, end), key=lambda i: scores[ends[i + 1] - 1])
        results.append([int(word) for word in ids[ends[best] : ends[best + 1]] if word not in (START, END)])
    return results


def main():
    fluid.default_startup_program().random_seed = 1
    cost = training()
    fluid.optimizer.Adam(learning_rate=0.01).minimize(cost)
    search_program = fluid.Program()
    with fluid.program_guard(search_program, fluid.Program()):
        found = search()

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=["source", "target", "next"], place=place)
    for epoch in range(4):
        reader = paddle.batch(pairs(2400, seed=epoch), batch_size=32)
        costs = [exe.run(feed=feeder.feed(batch), fetch_list=[cost])[0][0] for batch in reader()]
        print("epoch %d  train cost %.3f" % (epoch, np.mean(costs)))

    sentences = [source for source, _, _ in pairs(20, seed=100)()]
    results = translate(exe, search_program, found, sentences)
    for sentence, result in list(zip(sentences, results))[:5]:
        print(" ".join(map(str, sentence)), " -> ", " ".join(map(str, result)))
    right = np.mean([result == translated(sentence) for sentence, result in zip(sentences, results)])
    print("translated as they should be %.2f" % right)


if __name__ == "__main__":
    main()
