"""Ops of search and recommendation."""

import numpy as np

from golden.case import Case, Lod, distinct, f32, ints, layer_case

CASES = []
SCRATCH = "memory of real Fluid's kernels"


def rows_of(lengths):
    return Lod(f32(sum(lengths), 1), [list(lengths)])


# --- matrices of scores, and images of different sizes
for name, high, wide, width, channels in (
    ("", (2, 3), (3, 1), 3, 2),
    ("one-channel", (1, 4, 2), (2, 2, 5), 4, 1),
    ("one-pair", (3,), (2,), 2, 3),
    ("long", (1, 21), (20, 1), 2, 2),
):
    pair = {"X": Lod(f32(sum(high), width), [list(high)]), "Y": Lod(f32(sum(wide), width, salt=1), [list(wide)])}
    pair["W"] = f32(width, channels, width)
    attrs = {"dim_t": channels}
    CASES.append(Case("match_matrix_tensor", pair, "Out Tmp", attrs, "X Y W", name=name, skip="Tmp", reason=SCRATCH))
    sizes = [channels * h * w for h, w in zip(high, wide)]
    image = {"X": Lod(distinct(sum(sizes), 1), [sizes]), "ROW": rows_of(high), "COLUMN": rows_of(wide)}
    for topks in ([1], [1, 3], [2, 5]):
        attrs = {"topks": topks, "channel_num": channels}
        CASES.append(
            Case(
                "sequence_topk_avg_pooling",
                image,
                "Out pos",
                attrs,
                "X",
                name="-".join([name] + [str(k) for k in topks]),
                skip="pos",
                reason=SCRATCH,
            )
        )
    for kernel, strides in (((1, 1), (1, 1)), ((3, 3), (1, 1)), ((2, 3), (1, 1)), ((3, 2), (2, 2)), ((2, 2), (2, 1))):
        weights = f32(2, channels * kernel[0] * kernel[1])
        attrs = dict(zip(("KernelH", "KernelW", "StrideH", "StrideW"), kernel + strides))
        attrs.update({"InputChannel": channels, "OutputChannel": 2})
        CASES.append(
            Case(
                "var_conv_2d",
                dict(image, W=weights),
                "Out Col",
                attrs,
                "X W",
                name="%s%dx%d-%dx%d" % ((name,) + kernel + strides),
                skip="Col",
                reason=SCRATCH,
            )
        )

# --- pieces of sequences
HASHED = {"num_emb": 4, "space_len": 10, "rand_len": 2, "pyramid_layer": 3, "use_filter": False, "seed": 1}
for name, lengths, attrs in (
    ("", (4, 2), {}),
    ("inference", (4, 2), {"is_training": 0, "drop_out_percent": 0.3}),
    ("short", (1, 4, 1), {}),
    ("empty", (3, 0, 3), {}),
    ("long", (1, 22), {"pyramid_layer": 6}),
    ("wide", (5,), {"num_emb": 12, "rand_len": 3, "space_len": 50}),
):
    attrs = dict(dict(HASHED, is_training=1), **attrs)
    pieces = {"X": Lod(ints(sum(lengths), 1, high=99, dtype="int32"), [list(lengths)])}
    pieces["W"] = f32(attrs["space_len"] + attrs["rand_len"], 1)
    pieces.update({"WhiteList": f32(1, 1), "BlackList": f32(1, 1)})
    outputs = "Out DropPos X_Temp_Out"
    CASES.append(Case("pyramid_hash", pieces, outputs, attrs, name=name, skip="DropPos X_Temp_Out", reason=SCRATCH))

# --- trees of items
TREE = np.array(
    [[0, 0, 0, 1, 2], [0, 1, 0, 3, 4], [0, 1, 0, 5, 6], [0, 2, 1, 7, 8], [11, 2, 1, 0, 0], [12, 2, 2, 0, 0]]
    + [[0, 2, 2, 9, 0], [0, 3, 3, 0, 0], [13, 3, 3, 0, 0], [14, 3, 6, 0, 0]],
    "int64",
)
for name, x, kind, dtype in (
    ("", np.array([[1], [3], [6], [4], [0]]), "int64", 3),
    ("int32", np.array([[1], [3], [6], [4], [0]]), "int32", 2),
    ("narrowed", np.array([[1, 2], [6, 3]]), "int64", 2),
    ("vector", np.array([1, 6]), "int64", 3),
):
    family = {"X": x.astype(kind), "TreeInfo": TREE.astype(kind)}
    CASES.append(Case("tdm_child", family, "Child LeafMask", {"child_nums": 2, "dtype": dtype}, name=name))
CASES.append(
    Case(
        "tdm_child",
        {"X": Lod(np.array([[1], [6], [2]]), [[1, 2]]), "TreeInfo": TREE},
        "Child LeafMask",
        {"child_nums": 2, "dtype": 3},
        name="sequences",
    )
)
PATHS = {"Travel": np.array([[1, 3, 7], [1, 3, 8], [1, 4, 0], [2, 6, 9]]), "Layer": np.arange(1, 10).reshape(-1, 1)}
for name, attrs in (
    ("", {"neg_samples_num_list": [1, 2, 1]}),
    ("negatives", {"neg_samples_num_list": [0, 3, 2], "output_positive": False}),
    ("int32", {"neg_samples_num_list": [1, 1, 1], "dtype": 2}),
):
    attrs = dict(dict({"layer_offset_lod": [0, 2, 6, 9], "dtype": 3, "seed": 5}), **attrs)
    items = dict(PATHS, X=np.array([[0], [2], [3]]))
    CASES.append(Case("tdm_sampler", items, "Out Labels Mask", attrs, name=name, check="shapes"))

# --- trees of words
for name, edges, depth in (
    ("", [[1, 2], [1, 3], [2, 4], [2, 5], [0, 0]], 2),
    ("deep", [[1, 2], [1, 3], [2, 4], [4, 5], [4, 6]], 4),
    ("root-inside", [[2, 1], [2, 3], [3, 4], [3, 5], [3, 6]], 3),
    ("ends-early", [[1, 2], [1, 3], [0, 0], [3, 4], [0, 0]], 2),
    ("two", [[1, 2], [0, 0], [0, 0], [0, 0], [0, 0]], 2),
):
    # All trees of a batch are alike: differs: trees-of-a-batch
    trees = {"Filter": f32(3, 3, 2, 4)}
    for count in (1, 2):
        trees.update({"NodesVector": f32(count, 6, 3), "EdgeSet": np.array([edges] * count, "int32")})
        CASES.append(
            Case(
                "tree_conv",
                trees.copy(),
                attrs={"max_depth": depth},
                grads="NodesVector Filter",
                name="%s-%d" % (name, count),
                skip="NodesVector_0@GRAD",
                reason="it is not the gradient of real Fluid's own result; tests/ops/retrieval has differences",
            )
        )

# --- samples with tags
SAMPLES, TAGS = Lod(f32(6, 2), [[1, 2, 1, 2]]), Lod(np.array([[1], [2], [1], [3], [4]]), [[1, 2, 1, 1]])
for name, wanted in (("first", [1]), ("last", [3, 4]), ("all", [1, 3, 4]), ("none", [9])):
    for ins, is_lod in ((SAMPLES, True), (f32(4, 3), False)):
        tagged = {"Ins": ins, "Ins_tag": TAGS, "Filter_tag": np.array(wanted)}
        attrs = {"is_lod": is_lod, "out_val_if_empty": 7}
        name = name if is_lod else name + "-rows"
        CASES.append(Case("filter_by_instag", tagged, "Out LossWeight IndexMap", attrs, "Ins", name=name))


# --- layers
@layer_case(CASES, x=f32(3, 4), y=f32(3, 4, salt=1))
def columns_and_pairs(fluid, x, y):
    contrib = fluid.contrib.layers
    return [
        contrib.fused_elemwise_activation(x, y, ["elementwise_add", "relu"]),
        contrib.fused_elemwise_activation(x, y, "scale,elementwise_add", scale=0.5),
        contrib.partial_concat([x, y], 1, 2),
        contrib.partial_sum([x, y], start_index=2),
    ]


@layer_case(CASES, x=Lod(f32(5, 3), [[2, 3]]), y=Lod(f32(4, 3, salt=1), [[3, 1]]))
def matching(fluid, x, y):
    contrib = fluid.contrib.layers
    scores, _ = contrib.match_matrix_tensor(x, y, 2, act="tanh")
    image = contrib.var_conv_2d(scores, x, y, 2, 3, [3, 2], act="relu")
    return contrib.sequence_topk_avg_pooling(image, x, y, [1, 2], 3)


@layer_case(CASES, grads=False, ids=Lod(ints(7, 1, high=9, dtype="int32"), [[2, 4, 1]]))
def hashed_pieces(fluid, ids):
    # Real Fluid asks for both lists even if it does not use them.
    names = [fluid.ParamAttr(name=name) for name in ("table", "wanted", "unwanted")]
    return fluid.contrib.layers.search_pyramid_hash(ids, 4, 10, 3, 2, 0.0, True, False, 1, 1, 1, 0.5, *names)


@layer_case(CASES, ids=Lod(ints(7, 1, high=9), [[2, 4, 1]]))
def pooled_embeddings(fluid, ids):
    contrib = fluid.contrib.layers
    return [
        contrib.fused_embedding_seq_pool(ids, [9, 3]),
        contrib.fused_embedding_seq_pool(ids, [9, 3], is_sparse=True, padding_idx=-2),
    ]


EDGES = np.array([[[1, 2], [1, 3], [2, 4], [0, 0]]] * 2, "int32")


@layer_case(
    CASES, nodes=f32(2, 5, 3), edges=EDGES, skip="nodes@GRAD", reason="see tree_conv above: it is wrong in real Fluid"
)
def convolved_trees(fluid, nodes, edges):
    nodes = fluid.layers.scale(nodes, 1.0)
    return [
        fluid.contrib.layers.tree_conv(nodes, edges, 4, num_filters=2, max_depth=3),
        fluid.contrib.layers.tree_conv(nodes, edges, 2, act=None, bias_attr=False),
    ]


@layer_case(CASES, grads=False, x=SAMPLES, tags=TAGS, wanted=np.array([1]))
def tagged_samples(fluid, x, tags, wanted):
    return fluid.layers.filter_by_instag(x, tags, wanted, True, 3)


@layer_case(CASES, grads=False, x=f32(4, 1), y=np.float32([[1], [0], [1], [0]]))
def metrics_of_clicks(fluid, x, y):
    return list(fluid.contrib.layers.ctr_metric_bundle(x, y))


@layer_case(CASES, grads=False, check="shapes", x=f32(3, 4))
def shuffled_rows(fluid, x):
    return [fluid.contrib.layers.shuffle_batch(x, seed=5), fluid.contrib.layers.shuffle_batch(x)]
