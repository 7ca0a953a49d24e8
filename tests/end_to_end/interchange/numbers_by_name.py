"""The numbers that models are fed and parametrised with: the same for the same name, wherever this runs."""

import zlib

import numpy as np


def numbers(name, *shape):
    random = np.random.RandomState(zlib.crc32(name.encode()) % (2**31))
    return random.uniform(-0.5, 0.5, shape)
