"""bipartite_match, target_assign, mine_hard_examples and the loss of an SSD."""

import numpy as np

from golden.case import Case, Lod, distinct, f32, f64, ints, layer_case

CASES = []


def match(name, distance, **attrs):
    return Case("bipartite_match", {"DistMat": distance}, "ColToRowMatchIndices ColToRowMatchDist", attrs, name=name)


NEAR = f32(6, 5, low=0)
TIES = ints(7, 5, high=4).astype("float32") / 4
TINY = np.array([[1e-7, 5e-7, 2e-6, 0.2], [-1, -0.5, np.nan, 0.5]], "float32")
CASES += [
    match("", Lod(NEAR, [[2, 1, 3]])),
    match("per_prediction", Lod(NEAR, [[2, 1, 3]]), match_type="per_prediction", dist_threshold=0.6),
    match("more_rows_than_columns", Lod(f32(9, 3, low=0), [[8, 1]]), match_type="per_prediction", dist_threshold=0.2),
    match("ties", Lod(TIES, [[4, 3]]), match_type="per_prediction", dist_threshold=0.25),
    match("tiny", Lod(TINY, [[2]]), match_type="per_prediction", dist_threshold=0.0),
    match("one_image", NEAR),
    match("float64", Lod(f64(4, 3, low=0), [[3, 1]])),
    match("many_rows", Lod(distinct(132, 3, step=0.001) + 1, [[132]])),  # real Fluid sorts if there are more than 130
]


def assign(name, inputs, **attrs):
    return Case("target_assign", inputs, "Out OutWeight", attrs, name=name)


MATCHES = np.array([[0, -1, 0, -1, 1], [1, 0, -1, 2, -1], [-1] * 5], "int32")
NEGATIVES = Lod(np.array([[1], [4], [0], [2], [4]], "int32"), [[2, 1, 2]])
CODES = Lod(f32(5, 2, 4), [[2, 3, 0]])
CASES += [
    assign("", {"X": CODES, "MatchIndices": MATCHES}),
    # One column. differs: negative-targets
    assign(
        "negatives",
        {"X": Lod(f32(5, 2, 1), [[2, 3, 0]]), "MatchIndices": MATCHES, "NegIndices": NEGATIVES},
        mismatch_value=7,
    ),
    assign(
        "labels",
        {"X": Lod(ints(5, 1, 1, high=9, dtype="int32"), [[2, 3, 0]]), "MatchIndices": MATCHES, "NegIndices": NEGATIVES},
        mismatch_value=-3,
    ),
]


def mine(name, place_loss=False, loss=f32(3, 7, low=0), **attrs):
    matches = np.array([[0, -1, -1, -1, 2, -1, -1], [-1] * 7, [1, 0, -1, -1, 0, 0, -1]], "int32")
    inputs = {"ClsLoss": loss, "MatchIndices": matches, "MatchDist": f32(3, 7, low=0, salt=1)}
    if place_loss:
        inputs["LocLoss"] = f32(3, 7, low=0, salt=2)
    return Case("mine_hard_examples", inputs, "NegIndices UpdatedMatchIndices", attrs, name=name)


EQUAL = ints(3, 7, high=3).astype("float32")
CASES += [
    mine("", neg_pos_ratio=1.6, neg_dist_threshold=0.7),
    mine("all_negatives", neg_pos_ratio=9.0, neg_dist_threshold=0.5, mining_type="max_negative"),
    mine("equal_losses", loss=EQUAL, neg_pos_ratio=1.0, neg_dist_threshold=0.9),
    mine("hard_example", True, mining_type="hard_example", sample_size=3),
    mine("hard_example_of_class", mining_type="hard_example", sample_size=2, loss=EQUAL),
    mine("hard_example_of_all", True, mining_type="hard_example", sample_size=20),
]

TRUTH = np.array([[0.1, 0.1, 0.5, 0.6], [0.4, 0.5, 0.9, 0.8], [0.2, 0.3, 0.4, 0.5], [0, 0, 1, 1]], "float32")
CORNER = f32(8, 2, low=0, high=0.6)
PRIORS = np.concatenate([CORNER, CORNER + f32(8, 2, low=0.2, high=0.5, salt=1)], 1)
SSD = {
    "place": f32(2, 8, 4),
    "score": f32(2, 8, 3),
    "box": Lod(TRUTH, [[3, 1]]),
    "label": Lod(np.array([[1], [2], [2], [1]], "int32"), [[3, 1]]),
    "prior": PRIORS,
}
FOUR = [0.1, 0.1, 0.2, 0.2]


def fixed(*variables):
    for each in variables:
        each.stop_gradient = True


@layer_case(CASES, **SSD)
def loss_of_ssd(fluid, place, score, box, label, prior):
    fixed(box, prior)
    return fluid.layers.ssd_loss(place, score, box, label, prior, FOUR)


@layer_case(CASES, **SSD)
def loss_of_ssd_by_pairs(fluid, place, score, box, label, prior):
    fixed(box, prior)
    return fluid.layers.ssd_loss(
        place,
        score,
        box,
        label,
        prior,
        FOUR,
        background_label=2,
        match_type="bipartite",
        overlap_threshold=0.3,
        neg_pos_ratio=1.0,
        neg_overlap=0.4,
        loc_loss_weight=0.5,
        conf_loss_weight=2.0,
        normalize=False,
    )


@layer_case(CASES, grads=False, box=SSD["box"], prior=PRIORS, codes=Lod(f32(4, 1, 4), [[3, 1]]))
def matches_of_boxes(fluid, box, prior, codes):
    matches, distance = fluid.layers.bipartite_match(fluid.layers.iou_similarity(box, prior), name="matched")
    return [matches, distance] + list(fluid.layers.target_assign(codes, matches, mismatch_value=1))
