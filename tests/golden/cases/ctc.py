"""The CTC loss."""

import numpy as np

from golden.case import Case, Lod, f32, ints, layer_case

NOTE = "WarpCTCGrad is scratch of real Fluid's own gradient kernel"


def _ctc(steps, sizes, classes=5, name="", low=1, high=None, **attrs):
    inputs = {
        "Logits": Lod(f32(sum(steps), classes, low=-2.0, high=2.0), [steps]),
        "Label": Lod(ints(sum(sizes), 1, low=low, high=high or classes, dtype="int32"), [sizes]),
    }
    attrs = dict({"blank": 0, "norm_by_times": False}, **attrs)
    return Case(
        "warpctc",
        inputs,
        outputs="Loss WarpCTCGrad",
        attrs=attrs,
        grads="Logits",
        name=name,
        skip="WarpCTCGrad",
        reason=NOTE,
    )


def _padded(name="", **attrs):
    inputs = {
        "Logits": f32(7, 3, 4, low=-2.0, high=2.0),
        "Label": ints(3, 3, low=1, high=4, dtype="int32"),
        "LogitsLength": np.array([7, 4, 6], "int64"),
        "LabelLength": np.array([3, 1, 2], "int64"),
    }
    attrs = dict({"blank": 0, "norm_by_times": False}, **attrs)
    return Case(
        "warpctc",
        inputs,
        outputs="Loss WarpCTCGrad",
        attrs=attrs,
        grads="Logits",
        name=name,
        skip="WarpCTCGrad",
        reason=NOTE,
    )


CASES = [
    _ctc([5, 3, 8], [2, 1, 3], name="mixed"),
    _ctc([4, 1, 5], [1, 1, 2], name="one-step"),
    _ctc([6], [6], name="tight", classes=12),
    _ctc([30], [9], name="long"),
    _ctc([9, 9], [3, 4], high=2, name="repeats"),
    _ctc([5, 1, 3, 4], [2, 2, 3, 4], high=2, name="impossible"),
    _ctc([5, 3, 8], [2, 1, 3], low=0, high=4, name="last-blank", blank=4),
    _ctc([5, 3, 8], [2, 1, 3], norm_by_times=True, name="by-times"),
    _padded(name="padded"),
    _padded(name="padded-by-times", norm_by_times=True),
]

FEEDS = {
    "x": Lod(f32(12, 4), [[7, 1, 4]]),
    "y": Lod(ints(6, 1, high=4, dtype="int32"), [[3, 1, 2]]),
}


@layer_case(CASES, **FEEDS)
def warpctc(fluid, x, y):
    return fluid.layers.warpctc(fluid.layers.fc(x, 5), y, blank=4)


@layer_case(CASES, **FEEDS)
def warpctc_by_times(fluid, x, y):
    return fluid.layers.warpctc(fluid.layers.fc(x, 5), y, blank=4, norm_by_times=True)
