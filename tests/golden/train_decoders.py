"""Models that decode, trained for a few steps from fixed parameters, after which the trained parameters decode:
contrib's StateCell with its two decoders, and cells with `rnn`, `dynamic_decode` and a decoder of one's own. Losses,
gradients, words and scores are recorded.

Runs on Python 3.7 too, because the oracle imports it.
"""

import numpy as np

from golden.case import Lod
from golden.training import TrainCase, as_feed

CASES = []
WORDS, WORD, SIZE = 9, 4, 5
START, END = 0, 1
STEPS = 5
REASON = "five steps of float32 training amplify rounding"


def after(words):
    """What follows each word: the next one, or the end."""
    return np.where(words > 5, END, words + 1).astype("int64")


def attr(fluid, name):
    return fluid.ParamAttr(name=name)


def embedded(fluid, ids, name):
    return fluid.embedding(ids, [WORDS, WORD], param_attr=attr(fluid, name))


def trained(fluid, loss, finish):
    """What is fetched in every step: the loss and all gradients."""
    fluid.optimizer.Adam(learning_rate=0.1).minimize(loss)
    block = fluid.default_main_program().global_block()
    gradients = [block.var(p.name + "@GRAD") for p in sorted(block.all_parameters(), key=lambda p: p.name)]
    return {"fetch": [loss, *gradients], "finish": finish}


def found_by(fluid, exe, build, feed):
    """What a program of its own finds with the trained parameters."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        found = build()
    return exe.run(program, feed=as_feed(fluid, feed), fetch_list=list(found), return_numpy=False)


# contrib: a state cell that looks at the encoder's states; sentences are LoD tensors.


def pairs(step):
    rng = np.random.RandomState(step)
    lengths = rng.permutation([1, 6, 3, 2]).tolist()
    source = Lod(rng.randint(2, WORDS, (sum(lengths), 1)).astype("int64"), [lengths])
    lengths = rng.permutation([2, 5, 1, 3]).tolist()
    target = Lod(rng.randint(2, WORDS, (sum(lengths), 1)).astype("int64"), [lengths])
    return {"source": source, "target": target, "next": Lod(after(target.array), [lengths])}


def encoded_pairs(fluid):
    layers = fluid.layers
    source = layers.data("source", [1], dtype="int64", lod_level=1)
    words = layers.embedding(source, [WORDS, WORD], param_attr=attr(fluid, "source_words"))
    gates = layers.fc(words, 3 * SIZE, param_attr=attr(fluid, "gates"), bias_attr=False)
    states = layers.dynamic_gru(gates, SIZE, param_attr=attr(fluid, "gru"), bias_attr=attr(fluid, "gru_bias"))
    return states, layers.sequence_last_step(states)


def state_cell(fluid, first):
    contrib, layers = fluid.contrib, fluid.layers
    states = {
        "hidden": contrib.InitState(init=first, need_reorder=True),
        "memory": contrib.InitState(init_boot=first, shape=[-1, SIZE], value=0.5, need_reorder=True),
    }
    cell = contrib.StateCell(inputs={"word": None, "source": None}, states=states, out_state="hidden")

    @cell.state_updater
    def update(cell):
        hidden, memory, source = cell.get_state("hidden"), cell.get_state("memory"), cell.get_input("source")
        query = layers.sequence_expand(
            layers.fc(hidden, SIZE, param_attr=attr(fluid, "query"), bias_attr=False), source
        )
        weights = layers.reduce_sum(layers.elementwise_mul(source, query), dim=1, keep_dim=True)
        weights = layers.reshape(layers.sequence_softmax(weights), [-1])
        context = layers.sequence_pool(layers.elementwise_mul(source, weights, axis=0), "sum")
        seen = [hidden, cell.get_input("word"), context]
        attrs = [attr(fluid, name) for name in ("from_hidden", "from_word", "from_context")]
        gates = layers.fc(seen, 4 * SIZE, param_attr=attrs, bias_attr=attr(fluid, "cell_bias"))
        parts = layers.split(gates, 4, dim=1)
        memory = layers.sigmoid(parts[0]) * memory + layers.sigmoid(parts[1]) * layers.tanh(parts[2])
        cell.set_state("memory", memory)
        cell.set_state("hidden", layers.sigmoid(parts[3]) * layers.tanh(memory))

    return cell


def chances(fluid, state):
    return fluid.layers.fc(state, WORDS, act="softmax", param_attr=attr(fluid, "scores"), bias_attr=False)


def state_cell_training(fluid):
    layers = fluid.layers
    states, last = encoded_pairs(fluid)
    target = layers.data("target", [1], dtype="int64", lod_level=1)
    words = layers.embedding(target, [WORDS, WORD], param_attr=attr(fluid, "target_words"))
    decoder = fluid.contrib.TrainingDecoder(state_cell(fluid, last))
    with decoder.block():
        inputs = {"word": decoder.step_input(words), "source": decoder.static_input(states)}
        decoder.state_cell.compute_state(inputs=inputs)
        scores = chances(fluid, decoder.state_cell.get_state("hidden"))
        decoder.state_cell.update_states()
        decoder.output(scores)
    label = layers.data("next", [1], dtype="int64", lod_level=1)
    return trained(fluid, layers.mean(layers.cross_entropy(decoder(), label)), state_cell_search)


def state_cell_search(fluid, exe, scope):
    layers = fluid.layers

    def build():
        states, last = encoded_pairs(fluid)
        ids = layers.data("ids", [1], dtype="int64", lod_level=2)
        scores = layers.data("begin", [1], dtype="float32", lod_level=2)
        decoder = fluid.contrib.BeamSearchDecoder(
            state_cell(fluid, last), ids, scores, WORDS, WORD, {}, topk_size=4, max_len=5, beam_size=3, end_id=END
        )
        with decoder.block():
            word = decoder.read_array(init=ids, is_ids=True)
            total = decoder.read_array(init=scores, is_scores=True)
            source = decoder.read_array(init=states)
            here = layers.sequence_expand(source, total)
            cell = decoder.state_cell
            for name in ("hidden", "memory"):
                cell.set_state(name, layers.sequence_expand(cell.get_state(name), total))
            vectors = layers.embedding(word, [WORDS, WORD], param_attr=attr(fluid, "target_words"))
            cell.compute_state(inputs={"word": vectors, "source": here})
            state = layers.lod_reset(cell.get_state("hidden"), y=total)
            best, candidates = layers.topk(chances(fluid, state), k=4)
            sums = layers.elementwise_add(layers.log(best), layers.reshape(total, [-1]), axis=0)
            chosen, so_far = layers.beam_search(word, total, candidates, sums, 3, end_id=END, level=0)
            with layers.Switch() as switch:
                with switch.case(layers.is_empty(chosen)):
                    decoder.early_stop()
                with switch.default():
                    cell.update_states()
                    decoder.update_array(word, chosen)
                    decoder.update_array(total, so_far)
                    decoder.update_array(source, here)
        return decoder()

    feed = {"source": pairs(99)["source"]}
    lengths = [[1] * 4, [1] * 4]
    feed["ids"] = Lod(np.full((4, 1), START, "int64"), lengths)
    feed["begin"] = Lod(np.zeros((4, 1), "float32"), lengths)
    ids, scores = found_by(fluid, exe, build, feed)
    yield "ids", np.array(ids)
    yield "scores", np.array(scores)
    for level, offsets in enumerate(ids.lod()):
        yield f"lod{level}", np.array(offsets, "int64")


# Cells with rnn and dynamic_decode: padded sentences and their lengths.

COUNT, SOURCE, TARGET = 3, 5, 4


def padded(step):
    rng = np.random.RandomState(step)
    target = rng.randint(2, WORDS, (COUNT, TARGET)).astype("int64")
    return {
        "source": rng.randint(2, WORDS, (COUNT, SOURCE)).astype("int64"),
        "source_length": rng.randint(1, SOURCE + 1, (COUNT,)).astype("int64"),
        "target": target,
        "target_length": rng.randint(1, TARGET + 1, (COUNT,)).astype("int64"),
        "next": after(target)[:, :, None],
    }


def dense(fluid, name, shape, dtype="int64"):
    return fluid.layers.data(name, shape, dtype=dtype, append_batch_size=False)


def encoded_padded(fluid):
    layers = fluid.layers
    source, length = dense(fluid, "source", [-1, SOURCE]), dense(fluid, "source_length", [-1])
    words = embedded(fluid, source, "source_words")
    cell = layers.LSTMCell(SIZE, attr(fluid, "encoder"), attr(fluid, "encoder_bias"), name="encoder")
    outputs, last = layers.rnn(cell, words, sequence_length=length)
    back = layers.GRUCell(SIZE, attr(fluid, "backward"), attr(fluid, "backward_bias"), name="backward")
    others, _ = layers.rnn(back, words, sequence_length=length, is_reverse=True)
    return outputs + others, [last]


def attentive_cell(fluid):
    layers = fluid.layers

    class Attentive(layers.RNNCell):
        """An LSTM that sees, beside each word, what it looked at in the encoder's states.

        Its state is a list of one: with a plain list of variables to begin with, real 1.8.5 builds forever.
        """

        def __init__(self):
            self.inner = layers.LSTMCell(SIZE, attr(fluid, "decoder"), attr(fluid, "decoder_bias"), name="decoder")

        def call(self, inputs, states, source):
            query = layers.fc(states[0][0], SIZE, param_attr=attr(fluid, "query"), bias_attr=False)
            weights = layers.softmax(layers.matmul(layers.unsqueeze(query, [1]), source, transpose_y=True))
            context = layers.squeeze(layers.matmul(weights, source), [1])
            outputs, states = self.inner(layers.concat([inputs, context], 1), states[0])
            return outputs, [states]

    return Attentive()


def logits(fluid, states):
    return fluid.layers.fc(
        states, WORDS, num_flatten_dims=len(states.shape) - 1, param_attr=attr(fluid, "scores"), bias_attr=False
    )


def cell_training(fluid):
    layers = fluid.layers
    source, last = encoded_padded(fluid)
    target, length = dense(fluid, "target", [-1, TARGET]), dense(fluid, "target_length", [-1])
    words = embedded(fluid, target, "target_words")
    outputs, _ = layers.rnn(attentive_cell(fluid), words, last, sequence_length=length, source=source)
    costs = layers.softmax_with_cross_entropy(logits(fluid, outputs), dense(fluid, "next", [-1, TARGET, 1]))
    mask = layers.unsqueeze(layers.sequence_mask(length, TARGET, "float32"), [2])
    return trained(fluid, layers.reduce_sum(costs * mask) / layers.reduce_sum(mask), cell_search)


def cell_search(fluid, exe, scope):
    layers = fluid.layers

    def build():
        source, last = encoded_padded(fluid)
        decoder = layers.BeamSearchDecoder(
            attentive_cell(fluid),
            start_token=START,
            end_token=END,
            beam_size=3,
            embedding_fn=lambda ids: embedded(fluid, ids, "target_words"),
            output_fn=lambda states: logits(fluid, states),
        )
        tiled = layers.BeamSearchDecoder.tile_beam_merge_with_batch(source, 3)
        ids, states, lengths = layers.dynamic_decode(
            decoder, inits=last, max_step_num=6, return_length=True, source=tiled
        )
        greedy, _ = layers.dynamic_decode(greedy_decoder(fluid), inits=last, max_step_num=4, source=source)
        return [ids, lengths, states.log_probs, greedy["words"], greedy["scores"]]

    names = ("ids", "lengths", "log_probs", "greedy", "greedy_scores")
    feed = {name: value for name, value in padded(99).items() if name.startswith("source")}
    for name, value in zip(names, found_by(fluid, exe, build, feed)):  # noqa: B905 - Python 3.7
        yield name, np.array(value)


def greedy_decoder(fluid):
    layers = fluid.layers

    class Greedy(layers.Decoder):
        """Takes the best word of every step."""

        def __init__(self):
            self.cell = attentive_cell(fluid)

        def initialize(self, inits):
            start = layers.fill_constant_batch_size_like(inits[0][0], [-1], "int64", START)
            finished = layers.fill_constant_batch_size_like(inits[0][0], [-1], "bool", False)
            return embedded(fluid, start, "target_words"), inits, finished

        def step(self, time, inputs, states, **kwargs):
            outputs, states = self.cell(inputs, states, **kwargs)
            scores = logits(fluid, outputs)
            words = layers.argmax(scores, axis=-1)
            finished = layers.equal(words, layers.fill_constant_batch_size_like(words, [-1], "int64", END))
            return {"words": words, "scores": scores}, states, embedded(fluid, words, "target_words"), finished

    return Greedy()


CASES += [
    TrainCase("state-cell", state_cell_training, pairs, STEPS, keep="fetches", rtol=1e-4, reason=REASON),
    TrainCase("rnn-cells", cell_training, padded, STEPS, keep="fetches", rtol=1e-4, reason=REASON),
]
