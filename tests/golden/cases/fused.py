"""Ops that inference passes make of several others. Their scratch outputs are memory of real Fluid's kernels."""

from golden.case import Case, Lod, f32, ints

CASES = []

# --- fc and other products
X, W, BIAS = f32(3, 4), f32(4, 5), f32(5)
SEQUENCES = Lod(f32(7, 4), [[2, 4, 1]])
CASES += [
    Case("fc", {"Input": X, "W": W}),
    Case("fc", {"Input": X, "W": W, "Bias": BIAS}, attrs={"activation_type": "relu"}, name="bias-relu"),
    Case("fc", {"Input": X, "W": W, "Bias": f32(1, 5)}, attrs={"activation_type": "relu"}, name="row-of-bias"),
    Case("fc", {"Input": f32(2, 3, 4), "W": W, "Bias": BIAS}, attrs={"in_num_col_dims": 2}, name="3d"),
    Case("fc", {"Input": f32(2, 2, 2), "W": W, "Bias": BIAS}, name="folded"),
    Case("fc", {"Input": X, "W": f32(8, 9), "Bias": BIAS}, attrs={"padding_weights": True}, name="padded-weights"),
    Case("fc", {"Input": SEQUENCES, "W": W, "Bias": BIAS}, name="sequences"),
    Case("fc", {"Input": X.astype("float64"), "W": W.astype("float64")}, name="float64"),
    Case(
        "fusion_repeated_fc_relu",
        {"X": X, "W": [W, f32(5, 6), f32(6, 3)], "Bias": [BIAS, f32(6), f32(1, 3)]},
        outputs="ReluOut*2 Out",
        skip="ReluOut",
        reason="real Fluid does not infer their shapes",
    ),
    Case(
        "fusion_repeated_fc_relu",
        {"X": f32(1, 4), "W": [W, f32(5, 1)], "Bias": [BIAS, f32(1)]},
        outputs="ReluOut*1 Out",
        skip="ReluOut",
        reason="real Fluid does not infer their shapes",
        name="one-row",
    ),
]
for name, x, y, attrs in (
    ("", X, W, {"scalar": 0.3}),
    ("one", f32(1, 6), f32(6, 1), {}),
    ("negative", f32(5, 2), f32(2, 7), {"scalar": -2.0}),
):
    squares = {"X": x, "Y": y}
    CASES.append(Case("fusion_squared_mat_sub", squares, "SquaredX SquaredY SquaredXY Out", attrs, name=name))

# --- fused_elemwise_activation: real Fluid has these eight of the sixteen pairs
PAIRS = [("elementwise_add", "relu"), ("elementwise_add", "scale"), ("relu", "elementwise_add")]
PAIRS += [("scale", "elementwise_add"), ("tanh", "elementwise_add"), ("elementwise_mul", "scale")]
PAIRS += [("elementwise_mul", "tanh"), ("elementwise_mul", "sigmoid")]


def pair(functors, x, y, name, **attrs):
    attrs = dict(attrs, functor_list=list(functors), save_intermediate_out=True)
    skip = {"skip": "IntermediateOut", "reason": "no gradient flows through it"} if "keep" not in name else {}
    return Case(
        "fused_elemwise_activation",
        {"X": x, "Y": y},
        "Out IntermediateOut",
        attrs,
        grads="" if "keep" in name else "X Y",
        name=name,
        **skip,
    )


for outer, inner in PAIRS:
    CASES.append(pair((outer, inner), X, f32(3, 4, salt=3), outer + "-" + inner, scale=0.5))
    CASES.append(pair((outer, inner), X, f32(3, 4, salt=3), outer + "-" + inner + "-keep", scale=0.5))
CASES += [
    pair(("relu", "elementwise_add"), f32(2, 3, 4), f32(3), "axis", axis=1),
    pair(("elementwise_mul", "scale"), f32(2, 3, 4), f32(4), "last", scale=-1.5),
    pair(("elementwise_add", "relu"), f32(4), X, "short-x"),
    pair(("relu", "elementwise_add"), SEQUENCES, f32(4), "sequences"),
]

# --- activations inside of convolutions, by the passes for MKL-DNN
IMAGES = {"Input": f32(2, 3, 5, 5), "Filter": f32(4, 3, 3, 3), "Bias": f32(4)}
for act, alpha in (("relu", 0.0), ("relu6", 0.5), ("leaky_relu", 0.2), ("swish", 1.5)):
    attrs = {"fuse_activation": act, "fuse_alpha": alpha, "use_mkldnn": True, "is_test": True}
    attrs.update({"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": 1})
    CASES.append(Case("conv2d", IMAGES, "Output", attrs, name=act))
    image = dict(IMAGES, ResidualData=f32(2, 4, 5, 5))
    del image["Bias"]
    with_residual = dict(attrs, fuse_residual_connection=True)
    CASES.append(Case("conv2d", image, "Output", with_residual, name=act + "-residual"))

# --- recurrences
LSTM = "Hidden Cell XX BatchedInput BatchedHidden BatchedCell ReorderedH0 ReorderedC0"
MEMORY = "XX BatchedInput BatchedHidden BatchedCell ReorderedH0 ReorderedC0"
SCRATCH = "memory of real Fluid's kernels"


def fusion_lstm(name, lengths=(2, 4, 1), size=3, states=False, peepholes=False, **attrs):
    inputs = {"X": Lod(f32(sum(lengths), 4), [list(lengths)]), "WeightX": f32(4, 4 * size)}
    inputs.update({"WeightH": f32(size, 4 * size, salt=2), "Bias": f32(1, (7 if peepholes else 4) * size)})
    if states:
        inputs.update({"H0": f32(len(lengths), size), "C0": f32(len(lengths), size, salt=1)})
    attrs = dict(attrs, use_peepholes=peepholes)
    skip = MEMORY + " CheckedCell"
    return Case("fusion_lstm", inputs, LSTM + " CheckedCell", attrs, name=name, skip=skip, reason=SCRATCH)


def embedding_lstm(name, lengths=(2, 4, 1), size=3, states=False, peepholes=False, **attrs):
    inputs = {"Ids": Lod(ints(sum(lengths), 1, high=10), [list(lengths)]), "Embeddings": f32(10, 4 * size)}
    inputs.update({"WeightH": f32(size, 4 * size, salt=2), "Bias": f32(1, (7 if peepholes else 4) * size)})
    if states:
        inputs.update({"H0": f32(len(lengths), size), "C0": f32(len(lengths), size, salt=1)})
    attrs = dict(attrs, use_peepholes=peepholes)
    return Case("fused_embedding_fc_lstm", inputs, LSTM, attrs, name=name, skip=MEMORY, reason=SCRATCH)


def fusion_gru(name, lengths=(2, 4, 1), size=3, state=False, bias=True, **attrs):
    inputs = {"X": Lod(f32(sum(lengths), 4), [list(lengths)]), "WeightX": f32(4, 3 * size)}
    inputs["WeightH"] = f32(size, 3 * size, salt=2)
    if bias:
        inputs["Bias"] = f32(1, 3 * size)
    if state:
        inputs["H0"] = f32(len(lengths), size)
    memory = "XX BatchedInput BatchedOut ReorderedH0"
    return Case("fusion_gru", inputs, "Hidden " + memory, attrs, name=name, skip=memory, reason=SCRATCH)


for make in (fusion_lstm, embedding_lstm):
    CASES += [
        make("usual"),
        make("reverse", is_reverse=True),
        make("peepholes", peepholes=True),
        make("peepholes-reverse", peepholes=True, is_reverse=True, size=5),
        make("states", states=True),
        make("states-in-batches", states=True, use_seq=False),
        make("in-batches", use_seq=False, lengths=(1, 1, 20)),
        make("width-8", size=8, lengths=(5, 1)),
        make("activations", gate_activation="relu", cell_activation="sigmoid", candidate_activation="identity"),
    ]
CASES += [
    fusion_gru("usual"),
    fusion_gru("reverse", is_reverse=True),
    fusion_gru("without-bias", bias=False),
    fusion_gru("state", state=True),
    fusion_gru("state-in-batches", state=True, use_seq=False),
    fusion_gru("in-batches", use_seq=False, lengths=(1, 1, 20), is_reverse=True),
    fusion_gru("width-8", size=8, lengths=(5, 1)),
    fusion_gru("activations", activation="relu", gate_activation="tanh"),
]

ATTENTION = {"AttentionWeight": f32(7, 1), "LSTMWeight": f32(7, 12), "LSTMBias": f32(1, 12)}


def attention_lstm(name, lengths=(2, 4, 1), more=(), **attrs):
    inputs = dict(ATTENTION, X=Lod(f32(sum(lengths), 4), [list(lengths)]), C0=f32(len(lengths), 3))
    if "H0" in more:
        inputs["H0"] = f32(len(lengths), 3, salt=1)
    for slot in more:
        inputs.setdefault(slot, f32(1, 1, salt=slot))
    memory = "AttentionedX AttentionFCOut LSTMX LSTMOUT"
    return Case("attention_lstm", inputs, "Hidden Cell " + memory, attrs, name=name, skip=memory, reason=SCRATCH)


CASES += [
    attention_lstm("usual"),
    attention_lstm("bias", more=("AttentionBias",)),
    attention_lstm("all", more=("AttentionBias", "AttentionScalar", "AttentionScalarBias", "H0")),
    attention_lstm("scalar", more=("AttentionScalar", "H0"), lengths=(1, 20)),
    attention_lstm("activations", gate_activation="relu", cell_activation="sigmoid", candidate_activation="identity"),
]

# --- sequences
SECOND, NUMBERS = Lod(f32(6, 4, salt=1), [[1, 2, 3]]), Lod(f32(7, 4, low=0.0), [[2, 4, 1]])
LONG = Lod(f32(26, 2), [[4, 1, 21]])
for pool in ("SUM", "AVERAGE", "SQRT"):
    CASES += [
        Case(
            "fusion_seqpool_concat",
            {"X": [SEQUENCES, SECOND, Lod(f32(26, 4), [[4, 1, 21]])]},
            attrs={"pooltype": pool},
            name=pool,
        ),
        Case("fusion_seqpool_concat", {"X": [SEQUENCES]}, attrs={"pooltype": pool}, name=pool + "-of-one"),
        Case(
            "fusion_seqpool_cvm_concat",
            {"X": [NUMBERS, Lod(f32(9, 4, low=0.0), [[3, 5, 1]])], "CVM": f32(3, 2)},
            attrs={"pooltype": pool, "use_cvm": True},
            name=pool,
        ),
    ]
for length, start in ((3, -1), (3, 0), (5, -2), (1, 0)):
    CASES.append(
        Case(
            "fusion_seqconv_eltadd_relu",
            {"X": SEQUENCES, "Filter": f32(4 * length, 5), "Bias": f32(1, 5)},
            outputs="Out ColMat",
            attrs={"contextLength": length, "contextStart": start},
            name="from%d-%d" % (start, length),
            skip="ColMat",
            reason=SCRATCH,
        )
    )
ROWS = [Lod(f32(3, 2), [[1, 1, 1]]), Lod(f32(3, 3, salt=4), [[1, 1, 1]])]
for act in ("identity", "relu", "tanh", "sigmoid"):
    CASES.append(
        Case(
            "fusion_seqexpand_concat_fc",
            {"X": [SEQUENCES] + ROWS, "FCWeight": f32(9, 5), "FCBias": f32(5)},
            outputs="Out FCOut",
            attrs={"fc_activation": act},
            name=act,
            skip="FCOut",
            reason=SCRATCH,
        )
    )
CASES.append(
    Case(
        "fusion_seqexpand_concat_fc",
        {"X": [LONG, ROWS[0]], "FCWeight": f32(4, 2)},
        outputs="Out FCOut",
        skip="FCOut",
        reason=SCRATCH,
        name="without-bias",
    )
)
IDS = Lod(ints(7, 1, high=10), [[2, 4, 1]])
for name, ids, attrs in (
    ("", IDS, {}),
    ("padding", IDS, {"padding_idx": int(IDS.array[3, 0])}),
    ("sparse", IDS, {"is_sparse": True}),
    ("sparse-padding", IDS, {"is_sparse": True, "padding_idx": int(IDS.array[3, 0])}),
    ("empty", Lod(ints(7, 1, high=10), [[3, 0, 4]]), {}),
    ("long", Lod(ints(24, 1, high=10), [[1, 22, 1]]), {}),
):
    lookup = {"Ids": ids, "W": f32(10, 3)}
    CASES.append(Case("fused_embedding_seq_pool", lookup, attrs=dict(attrs, combiner="sum"), grads="W", name=name))

# --- empty sequences, and one longer than any
for lengths, name in (((3, 0, 4), "empty"), ((1, 22, 2), "long")):
    rows = Lod(f32(sum(lengths), 4), [list(lengths)])
    if name == "long":  # for an empty sequence real Fluid computes a step that begins the next one
        CASES += [
            fusion_lstm(name, lengths),
            embedding_lstm(name, lengths, peepholes=True),
            fusion_gru(name, lengths),
        ]
    CASES += [
        attention_lstm(name, lengths, more=("AttentionBias",)),
        Case(
            "fusion_seqconv_eltadd_relu",
            {"X": rows, "Filter": f32(12, 5), "Bias": f32(1, 5)},
            outputs="Out ColMat",
            attrs={"contextLength": 3, "contextStart": -1},
            name=name,
            skip="ColMat",
            reason=SCRATCH,
        ),
        Case(
            "fusion_seqexpand_concat_fc",
            {"X": [rows] + ROWS, "FCWeight": f32(9, 5), "FCBias": f32(5)},
            outputs="Out FCOut",
            name=name,
            skip="FCOut",
            reason=SCRATCH,
        ),
    ]
