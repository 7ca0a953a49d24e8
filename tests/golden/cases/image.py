"""Ops that move pixels between channels and places."""

import numpy as np

from golden.case import Case, distinct, f32, f64, ints, layer_case

CASES = [
    Case("space_to_depth", {"X": f32(2, 4, 4, 6)}, attrs={"blocksize": 2}, grads="X"),
    Case("space_to_depth", {"X": f32(1, 9, 3, 6)}, attrs={"blocksize": 3}, grads="X", name="by_three"),
    Case("space_to_depth", {"X": f32(1, 8, 4, 4)}, attrs={"blocksize": 2}, name="more_channels"),
    Case("space_to_depth", {"X": f64(1, 4, 2, 2)}, attrs={"blocksize": 2}, name="float64"),
    Case("pixel_shuffle", {"X": f32(2, 8, 3, 2)}, attrs={"upscale_factor": 2}, grads="X"),
    Case("pixel_shuffle", {"X": f32(1, 9, 2, 2)}, attrs={"upscale_factor": 3}, grads="X", name="by_three"),
    Case("pixel_shuffle", {"X": f64(1, 4, 1, 1)}, attrs={"upscale_factor": 2}, name="float64"),
    Case("shuffle_channel", {"X": f32(2, 6, 2, 2)}, attrs={"group": 2}, grads="X"),
    Case("shuffle_channel", {"X": f32(2, 6, 2, 2)}, attrs={"group": 3}, grads="X", name="by_three"),
    Case("shuffle_channel", {"X": f32(1, 4, 1, 3)}, attrs={"group": 1}, grads="X", name="one_group"),
    Case("temporal_shift", {"X": f32(6, 4, 2, 2)}, attrs={"seg_num": 3, "shift_ratio": 0.25}, grads="X"),
    Case("temporal_shift", {"X": f32(4, 7, 1, 2)}, attrs={"seg_num": 2, "shift_ratio": 0.4}, grads="X", name="uneven"),
    Case("temporal_shift", {"X": f32(2, 3, 2, 1)}, attrs={"seg_num": 1, "shift_ratio": 0.4}, grads="X", name="single"),
    Case(
        "unpool",
        {"X": f32(2, 3, 2, 2), "Indices": np.tile(np.array([[0, 3], [9, 10]], "int32"), (2, 3, 1, 1))},
        attrs={"unpooling_type": "max", "ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0]},
        grads="X",
    ),
    Case(
        "unpool",
        {"X": f32(1, 2, 2, 3), "Indices": np.tile(np.array([[0, 3, 5], [14, 20, 17]], "int32"), (1, 2, 1, 1))},
        attrs={"unpooling_type": "max", "ksize": [2, 3], "strides": [2, 2], "paddings": [0, 0]},
        grads="X",
        name="uneven",
    ),
    Case("spp", {"X": distinct(2, 3, 6, 4)}, attrs={"pooling_type": "max", "pyramid_height": 2}, grads="X"),
    Case("spp", {"X": f32(2, 3, 6, 4)}, attrs={"pooling_type": "avg", "pyramid_height": 2}, grads="X", name="average"),
    Case("spp", {"X": distinct(1, 2, 7, 6)}, attrs={"pooling_type": "max", "pyramid_height": 3}, grads="X", name="odd"),
    Case(
        "spp", {"X": f32(1, 2, 7, 6)}, attrs={"pooling_type": "avg", "pyramid_height": 3}, grads="X", name="odd_average"
    ),
    Case("spp", {"X": f32(1, 2, 3, 3)}, attrs={"pooling_type": "avg", "pyramid_height": 1}, grads="X", name="whole"),
]


@layer_case(CASES, x=f32(2, 4, 4, 6))
def image_layers(fluid, x):
    layers = fluid.layers
    return [
        layers.space_to_depth(x, 2),
        layers.pixel_shuffle(x, 2),
        layers.shuffle_channel(x, 2),
        layers.shuffle_channel(x, group=4, name="shuffled"),
        layers.temporal_shift(x, 2),
        layers.temporal_shift(x, 2, 0.3, "shifted"),
    ]


@layer_case(CASES, grads=False, x=ints(1, 4, 2, 2, high=9))
def space_to_depth_of_integers(fluid, x):
    return fluid.layers.space_to_depth(x, 2)
