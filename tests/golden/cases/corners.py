"""Corners of ops that public Fluid code reaches: larger windows than images, empty indices, padding that is learned,
images of several sizes, bytes."""

import numpy as np

from golden.case import Case, Lod, distinct, f32, ints, layer_case

CASES = []

# Windows that are larger than the image, by less than a stride. The number of positions is rounded towards zero.
for kind in ("max", "avg"):
    for name, size, attrs in (
        ("by one", [2, 1, 3, 3], {"ksize": [4, 4], "strides": [2, 2]}),
        ("in one dim", [1, 2, 3, 8], {"ksize": [5, 3], "strides": [3, 2]}),
        ("with padding", [1, 1, 2, 2], {"ksize": [7, 7], "strides": [7, 7], "paddings": [1, 1]}),
        ("counting padding", [1, 1, 3, 3], {"ksize": [7, 7], "strides": [7, 7], "exclusive": False}),
        ("rounded up", [1, 1, 3, 3], {"ksize": [7, 7], "strides": [7, 7], "ceil_mode": True}),
    ):
        attrs = dict(attrs, pooling_type=kind)
        CASES.append(Case("pool2d", {"X": distinct(*size)}, attrs=attrs, grads="X", name="%s larger %s" % (kind, name)))
    volume = {"pooling_type": kind, "ksize": [4, 3, 3], "strides": [3, 2, 2]}
    CASES.append(Case("pool3d", {"X": distinct(1, 2, 2, 2, 4)}, attrs=volume, grads="X", name=kind + " larger"))
CASES += [
    Case(
        "max_pool2d_with_index",
        {"X": distinct(1, 2, 3, 3)},
        "Out Mask",
        {"ksize": [4, 4], "strides": [2, 2]},
        grads="X",
        name="larger",
    ),
    Case(
        "max_pool2d_with_index",
        {"X": distinct(2, 2, 5, 7)},
        "Out Mask",
        {"ksize": [2, 3], "adaptive": True},
        grads="X",
        name="adaptive",
    ),
    Case(
        "max_pool3d_with_index",
        {"X": distinct(1, 1, 3, 5, 4)},
        "Out Mask",
        {"ksize": [2, 3, 2], "adaptive": True},
        grads="X",
        name="adaptive",
    ),
    # A place of no numbers is all of X.
    Case(
        "scatter_nd_add",
        {"X": f32(3, 2), "Index": np.zeros((2, 0), "int64"), "Updates": f32(2, 3, 2, salt=1)},
        grads="X Updates",
        name="all of X",
    ),
    Case("gather_nd", {"X": f32(3, 2), "Index": np.zeros((2, 0), "int64")}, grads="X", name="all of X"),
    # Histograms of all batches in the state that the layer makes for slide_steps=0.
    Case(
        "auc",
        {
            "Predict": f32(6, 2, low=0),
            "Label": ints(6, 1, high=2),
            "StatPos": ints(5, high=3),
            "StatNeg": ints(5, high=3, salt=1),
        },
        "AUC StatPosOut StatNegOut",
        {"num_thresholds": 3, "slide_steps": 0},
        inplace={"StatPosOut": "StatPos", "StatNegOut": "StatNeg"},
        name="layer without steps",
    ),
    Case(
        "ctc_align",
        {"Input": Lod(np.int32([[0], [0], [0], [0]]), [[2, 2]])},
        "Output",
        {"blank": 0, "merge_repeated": True},
        name="nothing but blanks",
    ),
    # Alphas for all rows, which Fluid 1.5 makes for batches of a fixed size; those of the first row are used.
    Case("prelu", {"X": f32(2, 3, 4), "Alpha": f32(2, 3, 4, salt=1)}, attrs={"mode": "element"}, grads="X Alpha"),
    Case("sum", {"X": [f32(2, 3), f32(0, 3), f32(2, 3, salt=1), f32(0)]}, name="nothing to add"),
    Case(
        "cross_entropy2",
        {"X": f32(2, 3, 4, low=0.1), "Label": ints(2, 3, high=4)},
        "Y MatchX XShape",
        grads="X",
        name="flat labels",
        skip="XShape",
        reason="real Fluid only describes it",
    ),
]

# Numbers that integers do not have: their lowest bits, or the least integer.
BEYOND = np.array([300, -300, 256.7, -1.5, 70000, 3e9, -3e9, 2.0**31, -(2.0**31), 1e20, np.inf, -np.inf, np.nan])
for kind, dtype in (("uint8", 20), ("int8", 21), ("int16", 1), ("int32", 2), ("int64", 3)):
    CASES += [
        Case("cast", {"X": BEYOND.astype("float32")}, attrs={"in_dtype": 5, "out_dtype": dtype}, name=kind),
        Case("cast", {"X": BEYOND}, attrs={"in_dtype": 6, "out_dtype": dtype}, name=kind + " from float64"),
    ]

for kind in ("hard_shrink", "softshrink", "thresholded_relu"):
    CASES.append(Case(kind, {"X": np.float32([np.nan, 2, 0.1, -2])}, name="of NaN"))

# Less than nothing is cut off.
for mode in ("constant", "reflect", "edge"):
    for data_format in ("NCHW", "NHWC"):
        border = {"mode": mode, "paddings": [-1, 2, 1, -2], "pad_value": 0.5, "data_format": data_format}
        CASES.append(Case("pad2d", {"X": f32(2, 4, 5, 4)}, attrs=border, grads="X", name="cut " + data_format))

# Padding that is learned: rows before the beginning of a sequence, then rows after its end.
for start in (-1, 0, -2):
    CASES.append(
        Case(
            "sequence_conv",
            {"X": Lod(f32(6, 2), [[3, 1, 2]]), "Filter": f32(6, 4), "PaddingData": f32(2, 2, salt=1)},
            attrs={"contextLength": 3, "contextStart": start, "contextStride": 1, "paddingTrainable": True},
            grads="X Filter PaddingData",
            name="padding from %d" % start,
        )
    )

for name, sizes, attrs in (
    ("as large", [[4, 4], [3, 2]], {"kernels": [2, 2]}),
    ("shrunk", [[8, 7], [5, 4]], {"kernels": [2, 2], "out_stride": [2, 2]}),
    ("padded", [[4, 3], [2, 4]], {"kernels": [3, 2], "strides": [2, 1], "paddings": [1, 0, 1, 2]}),
):
    attrs = dict({"strides": [1, 1], "paddings": [0, 0, 0, 0], "out_stride": [1, 1]}, **attrs)
    inputs = {"X": f32(2, 2, 4, 4), "Y": np.float32(sizes)}
    CASES.append(Case("im2sequence", inputs, attrs=attrs, name="sizes " + name))

for lengths in ([[3, 2]], [[1, 0, 4]]):
    encode = {"X": Lod(f32(5, 4), lengths)}
    CASES.append(Case("add_position_encoding", encode, attrs={"alpha": 0.5, "beta": 2.0}, grads="X", name="sequences"))

for method, shape in (("nearest", (2, 3, 4, 5)), ("bilinear", (2, 3, 4, 5)), ("trilinear", (1, 2, 3, 4, 5))):
    for corners in (True, False):
        attrs = {"interp_method": method, "align_corners": corners, "out_d": 5, "out_h": 7, "out_w": 3}
        inputs = {"X": ints(*shape, high=256, dtype="uint8")}
        CASES.append(Case(method + "_interp", inputs, attrs=attrs, name="bytes" + ("" if corners else " of edges")))

LABELS, LEFT, RIGHT = f32(5, low=0), f32(5, salt=1), f32(5, salt=2)
for name, (label, left, right) in {
    "vectors": (LABELS, LEFT, RIGHT),
    "label as a column": (LABELS.reshape(5, 1), LEFT, RIGHT),
    "left as a column": (LABELS, LEFT.reshape(5, 1), RIGHT),
}.items():
    CASES.append(
        Case("rank_loss", {"Label": label, "Left": left, "Right": right}, grads="Left Right", name="rows, " + name)
    )


@layer_case(CASES, x=f32(2, 3), w=f32(3), grads=False)
def matmul_of_vectors(fluid, x, w):
    matmul = fluid.layers.matmul
    column = fluid.layers.reshape(w, [3, 1])
    return [
        matmul(w, w),
        matmul(w, w, transpose_x=True, transpose_y=True),
        matmul(x, w),
        matmul(w, x, transpose_y=True),
        matmul(column, w, transpose_y=True),
        matmul(w, w, alpha=2.0),
    ]


@layer_case(CASES, x=f32(2, 2, 3), w=f32(3), grads=True)
def matmul_of_batches_and_a_vector(fluid, x, w):
    return [fluid.layers.matmul(x, w), fluid.layers.matmul(w, x, transpose_y=True)]


@layer_case(CASES, x=f32(4, 2, low=0), y=ints(4, 1, high=2), grads=False)
def auc_over_all_batches(fluid, x, y):
    return list(fluid.layers.auc(x, y, num_thresholds=7, slide_steps=0)[:2])


@layer_case(CASES, x=f32(2, 3), grads=False)
def sign_of_numbers(fluid, x):
    return fluid.layers.elementwise_mul(x, fluid.layers.sign(np.float32([3, 0, -2])))


@layer_case(CASES, x=Lod(np.float32([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]]), [[2, 1]]), grads=False)
def decoding_nothing(fluid, x):
    return fluid.layers.ctc_greedy_decoder(x, blank=0)


def several_results(fluid, x, y, used):
    """py_func with two inputs and two outputs, of which the first ``used`` have a gradient."""
    block = fluid.default_main_program().current_block()
    product = block.create_var(name="product", shape=[2, 2], dtype="float32")
    total = block.create_var(name="total", shape=[2, 2], dtype="float32")

    def forward(x, y):
        return np.array(x) * np.array(y), np.array(x) + 2 * np.array(y)

    def backward(x, y, product, total, product_grad, total_grad):
        product_grad, total_grad = np.array(product_grad), 0 if total_grad is None else np.array(total_grad)
        return product_grad * np.array(y) + total_grad, product_grad * np.array(x) + 2 * total_grad

    fluid.layers.py_func(forward, [x, y], [product, total], backward)
    return [product, total][:used]


@layer_case(CASES, x=f32(2, 2), y=f32(2, 2, salt=1))
def py_func_with_two_results(fluid, x, y):
    return several_results(fluid, x, y, 2)


@layer_case(CASES, x=f32(2, 2), y=f32(2, 2, salt=1))
def py_func_with_one_of_two_results_used(fluid, x, y):
    return several_results(fluid, x, y, 1)
