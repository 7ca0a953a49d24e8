"""What shapes layers infer when the batch, or another dim, is not known yet."""

import numpy as np

from golden.case import layer_case

CASES = []


def _inferred(fluid, build, *shapes, **options):
    """The shapes inferred while building, as a tensor, because only tensors are compared."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        dtype = options.get("dtype", "float32")
        data = [fluid.data("x%d" % i, shape, dtype=dtype) for i, shape in enumerate(shapes)]
        found = [tuple(variable.shape) for variable in build(*data)]
    return fluid.layers.assign(np.array([dim for shape in found for dim in (len(shape),) + shape], "int32"))


@layer_case(CASES, grads=False, ops=False)
def reshaping(fluid):
    layers = fluid.layers

    def build(x, y):
        return [
            layers.reshape(x, [-1, 6]),
            layers.reshape(x, [0, -1]),
            layers.reshape(x, [0, 13]),
            layers.reshape(x, [0, 0, 0]),
            layers.reshape(x, [layers.fill_constant([1], "int32", 2), -1]),
            layers.reshape(x, layers.assign(np.array([3, 4, -1], "int32"))),
            layers.transpose(x, [2, 0, 1]),
            layers.flatten(x),
            layers.squeeze(y, [1]),
            layers.squeeze(y, []),
            layers.squeeze(y, [0]),
            layers.unsqueeze(x, [0, 4]),
            layers.unsqueeze(x, layers.assign(np.array([0], "int32"))),
        ]

    return _inferred(fluid, build, [None, 3, 4], [None, 1, None, 5])


@layer_case(CASES, grads=False, ops=False)
def joining(fluid):
    layers = fluid.layers

    def build(x, y):
        two = layers.fill_constant([1], "int32", 2)
        return [
            layers.concat([x, x], axis=0),
            layers.concat([x, y], axis=1),
            layers.concat([x, x], axis=two),
            layers.stack([x, x], axis=1),
            layers.expand(x, [2, 3]),
            layers.expand(x, [1, two]),
            layers.sums([x, x]),
        ] + (
            layers.split(x, 2, dim=1)
            + layers.split(x, 2, dim=0)
            + layers.split(x, [2, -1], dim=0)
            + layers.split(x, [two, 4], dim=1)
            + layers.unstack(x, axis=1)
        )

    return _inferred(fluid, build, [None, 6], [2, 4])


@layer_case(CASES, grads=False, ops=False)
def slicing(fluid):
    layers = fluid.layers

    def build(x):
        two = layers.fill_constant([1], "int32", 2)
        bounds = layers.assign(np.array([1, 2], "int32"))
        return [
            layers.slice(x, [0, 1], [0, 1], [3, 10]),
            layers.slice(x, [0, 1], [0, two], [3, 4]),
            layers.slice(x, [0, 1], bounds, [3, 4]),
            layers.strided_slice(x, [0, 1], [0, 5], [3, 1], [1, -2]),
            layers.strided_slice(x, [1], [two], [6], [1]),
            layers.strided_slice(x, [1, 2], bounds, [6, 4], [1, 1]),
            layers.crop(x, [-1, 3, 4], [0, 1, 0]),
            layers.crop_tensor(x, [-1, -1, 2], [0, 1, 0]),
            layers.crop_tensor(x, [-1, two, 2]),
            layers.reverse(x, 0),
            layers.pad(x, [0, 0, 1, 1, 2, 0]),
            layers.gather(x, layers.assign(np.array([1, 0], "int32"))),
            layers.argmax(x, axis=-1),
            layers.argmin(x, axis=1),
            layers.argsort(x)[0],
            layers.argsort(x)[1],
            layers.topk(x, 2)[0],
            layers.shape(x),
            layers.size(x),
            layers.zeros_like(x),
            layers.ones_like(x),
            layers.cast(x, "int64"),
            layers.where(layers.cast(x, "bool")),
            layers.fill_constant_batch_size_like(x, [-1, 7], "float32", 1.0),
            layers.fill_constant_batch_size_like(x, [7, -1], "float32", 1.0, output_dim_idx=1),
            layers.fill_constant([two, 3], "float32", 1.0),
            layers.fill_constant(bounds, "float32", 1.0),
            layers.range(0, 5, 1, "int32"),
        ]

    return _inferred(fluid, build, [None, 6, 4])


@layer_case(CASES, grads=False, ops=False)
def ids(fluid):
    layers = fluid.layers

    def build(x, y):
        depth = layers.fill_constant([1], "int32", 2)
        return [
            layers.one_hot(x, 5),
            layers.one_hot(x, depth),
            fluid.one_hot(x, 5),
            layers.unique(y)[0],
            layers.unique(y)[1],
            layers.unique_with_counts(y)[2],
            layers.shard_index(x, 10, 2, 0),
        ]

    return _inferred(fluid, build, [None, 1], [None], dtype="int64")


@layer_case(CASES, grads=False, ops=False)
def one_of_two_unknown_sizes_is_known_from_the_other_input(fluid):
    layers = fluid.layers

    def build(x, y):
        return [
            layers.elementwise_add(x, y),
            layers.elementwise_mul(x, y, axis=2),
            layers.less_than(x, y),
            layers.matmul(x, y),
        ]

    return _inferred(fluid, build, [None, 3, 4], [None])


@layer_case(CASES, grads=False, ops=False)
def images(fluid):
    layers = fluid.layers

    def build(x, y):
        return [
            layers.pad2d(x, [1, 2, 3, 4]),
            layers.pad2d(y, [1, 2, 3, 4]),
            layers.pad2d(x, [1, 2, 3, 4], data_format="NHWC"),
            layers.unfold(x, 3, paddings=1),
        ]

    return _inferred(fluid, build, [None, 3, 8, 9], [None, 3, None, 9])
