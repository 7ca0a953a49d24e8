"""Beam search: single steps, with ties and ended sentences, and whole searches in a loop."""

import numpy as np

from golden.case import Case, LayerCase, Lod, f32, ints, layer_case

CASES = []


def one_step(name, sources, last, points, beam_size, candidates=3, accumulated=True, with_ids=True, coarse=False):
    """A step of ``beam_search``; ``last`` and ``points`` are the last words and scores of sentences; 0 ends one."""
    count = sum(sources)
    lengths = [sources, [1] * count]
    scores = f32(count, candidates, low=0.1, high=1.0, salt=name)
    if coarse:  # few values, so that many are equal
        scores = np.round(scores * 3) / np.float32(4) + np.float32(0.125)
    inputs = {
        "pre_ids": Lod(np.array(last, "int64").reshape(-1, 1), lengths),
        "pre_scores": Lod(np.array(points, "float32").reshape(-1, 1), lengths),
        "scores": Lod(scores.astype("float32"), lengths),
    }
    if with_ids:
        inputs["ids"] = Lod(ints(count, candidates, high=9, salt=name), lengths)
    attrs = {"beam_size": beam_size, "end_id": 0, "level": 0, "is_accumulated": accumulated}
    CASES.append(Case("beam_search", inputs, "selected_ids selected_scores parent_idx", attrs, name=name))


one_step("first-step", [1, 1, 1], [2, 2, 2], [0, 0, 0], 2)
one_step("later-step", [2, 2, 1], [3, 4, 5, 2, 7], [0.5, 0.4, 0.3, 0.2, 0.7], 2)
one_step("ended-sentences-and-sources", [2, 2, 1], [3, 0, 5, 0, 0], [0.5, 0.9, 0.3, 0.1, 0.7], 2)
one_step("probabilities", [2, 2], [3, 0, 5, 2], [-0.5, -0.9, -0.3, -0.1], 3, accumulated=False)
one_step("a-score-for-every-word", [2, 2], [3, 0, 5, 2], [-0.5, -0.9, -0.3, -0.1], 3, 5, False, with_ids=False)
one_step("equal-scores", [3, 2, 3], [3, 0, 5, 2, 4, 4, 0, 1], [0.5] * 8, 3, 4, coarse=True)
one_step("equal-scores-one-kept", [3, 2], [3, 0, 5, 2, 4], [0.375] * 5, 1, 4, coarse=True)
one_step("more-room-than-candidates", [1, 2], [3, 4, 5], [0.5, 0.4, 0.3], 5, 2)


def search(fluid, state, ids, scores, beam_size, length, end, probabilities=False):
    """Grows sentences word by word, each word depending on the last one and on a state that the words change."""
    layers = fluid.layers
    limit, counter = layers.fill_constant([1], "int64", length), layers.fill_constant([1], "int64", 0)
    states, words, points = (layers.create_array(dtype) for dtype in ("float32", "int64", "float32"))
    for value, array in ((state, states), (ids, words), (scores, points)):
        layers.array_write(value, counter, array=array)
    going = layers.less_than(counter, limit)
    with layers.While(going).block():
        word, score = layers.array_read(words, counter), layers.array_read(points, counter)
        before = layers.sequence_expand(layers.array_read(states, counter), score)
        embedded = layers.embedding(word, [7, 4])
        after = layers.fc([before, embedded], 5, act="tanh")
        chances = layers.fc(layers.lod_reset(after, y=score), 7, act="softmax")
        if probabilities:
            chosen, best = layers.beam_search(word, score, None, chances, beam_size, end, is_accumulated=False)
        else:
            top, candidates = layers.topk(chances, k=4)
            total = layers.elementwise_add(layers.log(top), layers.reshape(score, shape=[-1]), axis=0)
            chosen, best = layers.beam_search(word, score, candidates, total, beam_size, end, level=0)
        layers.increment(counter, value=1, in_place=True)
        for value, array in ((after, states), (chosen, words), (best, points)):
            layers.array_write(value, counter, array=array)
        some = layers.logical_not(layers.is_empty(chosen))
        layers.logical_and(layers.less_than(counter, limit), some, out=going)
    return layers.beam_search_decode(words, points, beam_size, end)


def starts(count):
    """The first word of each of ``count`` sources."""
    lengths = [[1] * count, [1] * count]
    ids, scores = np.full((count, 1), 2, "int64"), np.zeros((count, 1), "float32")
    return {"ids": Lod(ids, lengths), "scores": Lod(scores, lengths)}


def add_search(name, count, **options):
    def build(fluid, state, ids, scores):
        return search(fluid, layered(fluid, state), ids, scores, **options)

    CASES.append(LayerCase(name, build, dict(starts(count), state=f32(count, 5, salt=name)), grads=False))


def layered(fluid, state):
    return fluid.layers.fc(state, 5, act="tanh")


add_search("search_of_one_source", 1, beam_size=3, length=5, end=4)
add_search("search_of_three_sources", 3, beam_size=2, length=7, end=5)
add_search("search_with_one_sentence", 3, beam_size=1, length=6, end=4)
add_search("search_by_probabilities", 4, beam_size=3, length=8, end=4, probabilities=True)
add_search("search_that_is_cut_off", 2, beam_size=4, length=3, end=0)
add_search("search_without_an_end", 2, beam_size=4, length=4, end=1)


@layer_case(CASES, grads=False, x=f32(3, 2))
def empty_or_not(fluid, x):
    return fluid.layers.is_empty(x)
