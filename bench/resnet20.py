"""ResNet-20 for 32 x 32 images: 3 x 3 convolutions, batch_norm, Momentum."""

import common
from mnist_mlp import digits

NAME, BATCH, WARMUP, STEPS, REPEATS = "resnet20", 32, 2, 4, 5


def data(n, seed):
    return digits(n, seed, BATCH, (3, 32, 32), signal=0.5)


def conv_bn(L, x, filters, stride=1, act=None, size=3):
    x = L.conv2d(x, filters, size, stride, (size - 1) // 2, bias_attr=False)
    return L.batch_norm(x, act=act)


def build(fluid):
    L = fluid.layers
    x = image = L.data("img", [3, 32, 32])
    label = L.data("label", [1], dtype="int64")
    x = conv_bn(L, x, 16, act="relu")
    for filters, first in ((16, 1), (32, 2), (64, 2)):
        for block in range(3):
            stride = first if block == 0 else 1
            y = conv_bn(L, conv_bn(L, x, filters, stride, "relu"), filters)
            short = x if stride == 1 else conv_bn(L, x, filters, stride, size=1)
            x = L.elementwise_add(short, y, act="relu")
    x = L.pool2d(x, pool_type="avg", global_pooling=True)
    p = L.fc(x, 10, act="softmax")
    return dict(loss=L.mean(L.cross_entropy(p, label)), feed=[image, label])


def optimizer(fluid):
    return fluid.optimizer.Momentum(0.05, 0.9)


if __name__ == "__main__":
    common.main(globals())
