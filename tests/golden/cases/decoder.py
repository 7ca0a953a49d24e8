"""contrib's decoders: one StateCell, trained along given words and then used in a beam search."""

from golden.case import LayerCase, Lod, f32, ints, layer_case
from golden.cases.beam import starts

CASES = []
WORDS, WORD, SIZE = 7, 4, 5


def state_cell(fluid, first, beside=False, cells=1):
    contrib, layers = fluid.contrib, fluid.layers
    inputs = {"word": None, "context": None} if beside else {"word": None}
    states = {"hidden": contrib.InitState(init=first, need_reorder=True)}
    if cells == 2:
        states["cell"] = contrib.InitState(shape=[-1, SIZE], value=0.25, init_boot=first)
    cell = contrib.StateCell(inputs=inputs, states=states, out_state="hidden")

    @cell.state_updater
    def update(cell):
        seen = [cell.get_state("hidden")] + [cell.get_input(name) for name in sorted(inputs)]
        hidden = layers.fc(seen, SIZE, act="tanh")
        if cells == 2:
            new_cell = layers.elementwise_add(cell.get_state("cell"), hidden)
            cell.set_state("cell", new_cell)
            hidden = layers.sigmoid(new_cell)
        cell.set_state("hidden", hidden)

    return cell


def training(fluid, words, first, beside=None, cells=1):
    layers = fluid.layers
    embedded = layers.embedding(words, [WORDS, WORD])
    decoder = fluid.contrib.TrainingDecoder(state_cell(fluid, first, beside is not None, cells))
    with decoder.block():
        inputs = {"word": decoder.step_input(embedded)}
        if beside is not None:
            inputs["context"] = decoder.static_input(beside)
        decoder.state_cell.compute_state(inputs=inputs)
        scores = layers.fc(decoder.state_cell.get_state("hidden"), WORDS, act="softmax")
        decoder.state_cell.update_states()
        decoder.output(scores)
    return decoder()


@layer_case(CASES, words=Lod(ints(9, 1, high=WORDS), [[2, 4, 3]]), first=Lod(f32(4, SIZE), [[1, 2, 1]]))
def training_decoder(fluid, words, first):
    return training(fluid, words, fluid.layers.sequence_last_step(first))


@layer_case(CASES, words=Lod(ints(9, 1, high=WORDS), [[2, 4, 3]]), source=Lod(f32(6, SIZE), [[1, 2, 3]]))
def training_decoder_with_two_states_and_a_context(fluid, words, source):
    first, beside = fluid.layers.sequence_last_step(source), fluid.layers.sequence_first_step(source)
    return training(fluid, words, first, beside, cells=2)


def search(fluid, state, ids, scores, beam_size, length, beside=None, cells=1):
    first = fluid.layers.fc(state, SIZE, act="tanh")
    others = {} if beside is None else {"context": fluid.layers.scale(state, beside)}
    decoder = fluid.contrib.BeamSearchDecoder(
        state_cell(fluid, first, beside is not None, cells),
        ids,
        scores,
        target_dict_dim=WORDS,
        word_dim=WORD,
        input_var_dict=others,
        topk_size=7,
        sparse_emb=False,
        max_len=length,
        beam_size=beam_size,
        end_id=1,
    )
    decoder.decode()
    return decoder()


def add_search(name, count, **options):
    def build(fluid, state, ids, scores):
        return search(fluid, state, ids, scores, **options)

    CASES.append(LayerCase(name, build, dict(starts(count), state=f32(count, SIZE, salt=name)), grads=False))


# Real Fluid's decode takes 1 for the end whatever end_id says, but reads sentences back with end_id.
add_search("beam_search_decoder", 3, beam_size=6, length=4)
add_search("beam_search_decoder_with_a_context_and_two_states", 2, beam_size=6, length=4, beside=0.5, cells=2)
