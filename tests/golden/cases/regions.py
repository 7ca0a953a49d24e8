"""roi_pool, roi_align, psroi_pool, prroi_pool, deformable_psroi_pooling, roi_perspective_transform."""

import numpy as np

from golden.case import Case, Lod, distinct, f32, f64, layer_case

CASES = []
# Among them: beyond the image, a point, corners in the wrong order, far outside, larger than the image.
ROIS = np.array(
    [
        [0, 0, 10, 8],
        [3, 2, 5.5, 11],
        [-4, -3, 30, 40],
        [5, 5, 5, 5],
        [9, 9, 3, 3],
        [2, 1, 20, 3],
        [-60, 1, -40, 9],
        [1.3, 0.2, 12.9, 9.7],
        [-100, -90, 120, 80],
    ],
    "float32",
)
CUT, NESTED = [[3, 0, 6]], [[1, 2], [3, 0, 6]]
X = f32(3, 2, 6, 7)
BINS = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5}
OFFSETS = np.array([0, 3, 3, 9], "int64")


def align(name, x=X, rois=None, grads="X", **attrs):
    inputs = {"X": x, "ROIs": Lod(ROIS, CUT) if rois is None else rois}
    return Case("roi_align", inputs, "Out", dict(BINS, **attrs), grads, name=name)


CASES += [
    align("", sampling_ratio=-1),
    align("two_points", sampling_ratio=2),
    align("large_bins", sampling_ratio=-1, pooled_height=1, pooled_width=1, spatial_scale=1.0),
    align("small_bins", sampling_ratio=3, pooled_height=7, pooled_width=5, spatial_scale=0.25),
    align("close_bins", sampling_ratio=-1, pooled_height=7, pooled_width=5, spatial_scale=0.25),
    align("nested", rois=Lod(ROIS, NESTED), sampling_ratio=1),
    align("float64", f64(3, 2, 6, 7), Lod(ROIS.astype("float64"), CUT), grads="", sampling_ratio=-1),
    Case(
        "roi_align", {"X": X, "ROIs": ROIS, "RoisLod": OFFSETS}, "Out", dict(BINS, sampling_ratio=-1), "X", name="lod"
    ),
]

DISTINCT = distinct(3, 2, 6, 7)
POOL = {"X": DISTINCT, "ROIs": Lod(ROIS, CUT)}
CASES += [
    Case("roi_pool", POOL, "Out Argmax", BINS, "X"),
    Case(
        "roi_pool", POOL, "Out Argmax", {"pooled_height": 7, "pooled_width": 5, "spatial_scale": 0.6}, "X", name="many"
    ),
    Case("roi_pool", {"X": np.round(X), "ROIs": Lod(ROIS, NESTED)}, "Out Argmax", BINS, "X", name="equal_nested"),
    Case("roi_pool", {"X": DISTINCT, "ROIs": ROIS, "RoisLod": OFFSETS}, "Out Argmax", BINS, "X", name="lod"),
    Case(
        "roi_pool", {"X": f64(3, 2, 6, 7), "ROIs": Lod(ROIS.astype("float64"), CUT)}, "Out Argmax", BINS, name="float64"
    ),
]

SENSITIVE = dict(BINS, output_channels=2)
CASES += [
    Case("psroi_pool", {"X": f32(3, 12, 6, 7), "ROIs": Lod(ROIS, CUT)}, "Out", SENSITIVE, "X"),
    Case(
        "psroi_pool",
        {"X": f32(3, 18, 6, 7), "ROIs": Lod(ROIS, CUT)},
        "Out",
        {"pooled_height": 3, "pooled_width": 3, "spatial_scale": 0.3, "output_channels": 2},
        "X",
        name="square",
    ),
    Case(
        "psroi_pool",
        {"X": f64(3, 12, 6, 7), "ROIs": Lod(ROIS.astype("float64"), CUT)},
        "Out",
        SENSITIVE,
        name="float64",
    ),
]

# Not at pixels, where the interpolated image has no slope. The last one has no width.
# differs: region-without-width
PRECISE = np.array(
    [[0.3, 0.1, 9.5, 8.3], [3.1, 2.7, 5.5, 10.9], [-4.3, -3.1, 20.7, 15.3], [5.3, 5.1, 5.3, 8.2]], "float32"
)
CASES += [
    Case("prroi_pool", {"X": X, "ROIs": Lod(PRECISE[:3], [[1, 0, 2]])}, "Out", BINS, "X ROIs"),
    Case("prroi_pool", {"X": X, "ROIs": Lod(PRECISE, [[1, 0, 3]])}, "Out", BINS, name="no_width"),
    Case(
        "prroi_pool",
        {"X": X, "ROIs": PRECISE[:3], "BatchRoINums": np.array([2, 0, 1], "int64")},
        "Out",
        dict(BINS, pooled_height=4, spatial_scale=0.7),
        "X ROIs",
        name="counts",
    ),
]

DEFORMABLE = {
    "no_trans": False,
    "spatial_scale": 0.5,
    "output_dim": 2,
    "group_size": [2, 3],
    "pooled_height": 2,
    "pooled_width": 3,
    "part_size": [2, 3],
    "sample_per_part": 2,
    "trans_std": 0.1,
}
# Many points lie on pixels, but for rounding.
CORNERS = np.array([[i, 2 * i, i + 3 + 2 * j, 2 * i + 1 + j] for i in range(2, 12) for j in range(4)], "float64")


def deformable(name, trans, grads="Input Trans", channels=12, **attrs):
    inputs = {"Input": f32(3, channels, 6, 7), "ROIs": Lod(ROIS, CUT), "Trans": trans}
    return Case("deformable_psroi_pooling", inputs, "Output TopCount", dict(DEFORMABLE, **attrs), grads, name=name)


CASES += [
    # Real Fluid's gradients are wrong unless there are as many parts across as down.
    deformable("", f32(9, 2, 2, 3), ""),
    deformable("square", f32(9, 2, 3, 3), part_size=[3, 3]),
    deformable("classes", f32(9, 4, 2, 2), part_size=[2, 2], sample_per_part=3, trans_std=0.3),
    deformable("not_moved", f32(9, 2, 2, 3), "Input", no_trans=True),
    deformable("on_pixels", f32(9, 2, 2, 3), "Input", no_trans=True, spatial_scale=0.9, sample_per_part=4),
    Case(
        "deformable_psroi_pooling",
        {
            "Input": f64(1, 2, 40, 40),
            "ROIs": Lod(CORNERS, [[len(CORNERS)]]),
            "Trans": f64(len(CORNERS), 2, 1, 1),
        },
        "Output TopCount",
        dict(DEFORMABLE, no_trans=True, spatial_scale=0.7, sample_per_part=2, part_size=[1, 1], group_size=[1, 1]),
        name="on_pixels_float64",
    ),
    deformable("one_group", f32(9, 2, 7, 7), group_size=[1, 1], channels=2, pooled_height=7, part_size=[7, 7]),
]


@layer_case(CASES, x=f32(3, 4, 6, 7), rois=Lod(ROIS, CUT))
def head_of_faster_rcnn(fluid, x, rois):
    layers = fluid.layers
    rois.stop_gradient = True
    x = layers.conv2d(x, 4, 3, padding=1)
    aligned = layers.roi_align(x, rois, 2, 2, 0.5, 2, name="aligned")
    pooled = layers.roi_pool(x, rois, 2, 2, 0.5)
    # What mixes regions must leave padding out.
    inner = layers.pool2d(
        layers.batch_norm(layers.conv2d(aligned, 3, 2, bias_attr=False), act="relu"), global_pooling=True
    )
    scores = layers.fc(inner, 3, act="softmax")
    return [scores, layers.reduce_sum(pooled, dim=0), layers.reduce_mean(scores, dim=0)]


@layer_case(CASES, x=f32(3, 8, 6, 7), rois=Lod(PRECISE[:3], [[1, 1, 1]]), trans=Lod(f32(3, 2, 2, 2), [[3]]))
def other_ways_to_pool(fluid, x, rois, trans):
    layers = fluid.layers
    moved = layers.deformable_roi_pooling(x, rois, trans, pooled_height=2, pooled_width=2, sample_per_part=2)
    precise = layers.prroi_pool(x, rois, 0.5, 2, 2, name="precise")
    return [precise, layers.psroi_pool(x, rois, 2, 0.5, 2, 2), moved]


QUADS = np.array(
    [
        [1.3, 1.1, 9.2, 2.3, 8.1, 9.4, 2.2, 7.3],
        [0, 0, 4, 0, 4, 4, 0, 4],
        [2.1, 2.2, 14.3, 4.1, 12.2, 10.4, -3.3, 8.2],
        [3, 3, 3, 3, 3, 3, 3, 3],
        [8, 1, 1, 1, 1, 6, 8, 6],
        [1, 5.2, 5.3, 0.7, 11, 4.4, 6.1, 9],
    ],
    "float32",
)


@layer_case(CASES, x=f32(2, 3, 8, 9), rois=Lod(QUADS, [[2, 4]]))
def straightened(fluid, x, rois):
    rois.stop_gradient = True
    small = fluid.layers.roi_perspective_transform(x, rois, 3, 4, 0.5)
    large = fluid.layers.roi_perspective_transform(fluid.layers.tanh(x), rois, 7, 9, 1.0)
    return list(small) + list(large)
