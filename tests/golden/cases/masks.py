"""generate_mask_labels."""

import numpy as np

from golden.case import Case, Lod, f32, layer_case

CASES = []

SQUARE = [[1, 1], [6, 1], [6, 6], [1, 6]]
STAR = [[10, 2], [12.5, 7.3], [18, 8], [13.2, 11], [15, 17.5], [10, 13], [4, 16], [6.6, 10.4], [2, 7], [8, 6.5]]
TRIANGLE = [[3.3, 12.1], [14.7, 9.9], [8.2, 2.4]]
LOOP = [[2, 2], [16, 14], [16, 3], [3, 15]]  # crosses itself
THIN = [[5, 5], [15, 5.2], [15, 5.4], [5, 5.3]]
OUTSIDE = [[-6, -4], [9, -3], [30, 12], [9, 28]]


def segments(*images):
    """Polygons of each object of each image, as a LoDTensor of 3 levels."""
    objects = [each for image in images for each in image]
    polygons = [each for one in objects for each in one]
    lengths = [[len(image) for image in images], [len(one) for one in objects], [len(each) for each in polygons]]
    return Lod(np.concatenate([np.array(each, "float32") for each in polygons]), lengths)


def column(lengths, *values):
    return Lod(np.array(values, "int32").reshape(-1, 1), [lengths])


def regions(lengths, salt=0):
    corner = f32(sum(lengths), 2, low=0, high=8, salt=salt)
    return Lod(np.concatenate([corner, corner + f32(sum(lengths), 2, low=4, high=14, salt=salt + 1)], 1), [lengths])


def case(name, inputs, num_classes=3, resolution=8):
    attrs = {"num_classes": num_classes, "resolution": resolution}
    return Case("generate_mask_labels", inputs, "MaskRois RoiHasMaskInt32 MaskInt32", attrs, name=name)


SEVERAL = {
    "ImInfo": np.array([[20, 20, 1], [30, 30, 1.5]], "float32"),
    "GtClasses": column([3, 2], 1, 2, 2, 1, 2),
    "IsCrowd": column([3, 2], 0, 1, 0, 0, 0),
    "GtSegms": segments([[SQUARE], [STAR], [STAR, SQUARE]], [[TRIANGLE], [OUTSIDE]]),
    "Rois": regions([5, 4]),
    "LabelsInt32": column([5, 4], 1, 0, 2, 1, 2, 0, 1, 2, 1),
}
ONE = {
    "ImInfo": np.array([[20, 20, 1]], "float32"),
    "GtClasses": column([1], 1),
    "IsCrowd": column([1], 0),
    "Rois": Lod(np.array([[0, 0, 20, 20], [2.5, 3.1, 16.2, 14.9], [8, 8, 8.5, 8.5], [-3, 1, 6, 30]], "float32"), [[4]]),
    "LabelsInt32": column([4], 1, 1, 1, 1),
}

CASES += [
    case("", SEVERAL),
    case("fine", SEVERAL, resolution=14),
    case("one_image_of_background", dict(SEVERAL, LabelsInt32=column([5, 4], 0, 0, 0, 0, 0, 0, 1, 2, 1))),
]
CASES += [
    case(name, dict(ONE, GtSegms=segments([[each]])), 2)
    for name, each in (("star", STAR), ("loop", LOOP), ("thin", THIN), ("outside", OUTSIDE), ("square", SQUARE))
]


@layer_case(
    CASES,
    grads=False,
    info=SEVERAL["ImInfo"],
    kind=SEVERAL["GtClasses"],
    crowd=SEVERAL["IsCrowd"],
    shape=SEVERAL["GtSegms"],
    rois=SEVERAL["Rois"],
    label=SEVERAL["LabelsInt32"],
)
def masks_of_regions(fluid, info, kind, crowd, shape, rois, label):
    return list(fluid.layers.generate_mask_labels(info, kind, crowd, shape, fluid.layers.scale(rois, 1.5), label, 3, 5))
