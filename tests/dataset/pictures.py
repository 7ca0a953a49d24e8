"""Pictures for the comparison with real Fluid, whose interpreter (Python 3.7) makes the same ones."""

import io

import numpy as np
from PIL import Image

COLOURS = ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"]
SIZES = [11, 20, 36, 37, 57]


def picture(height, width):
    return np.random.RandomState(height).randint(0, 256, (height, width, 3)).astype(np.uint8)


def encoded(pixels, form, **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form, **options)
    return stream.getvalue()
