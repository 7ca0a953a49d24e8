"""Records what real Fluid's `paddle.dataset.image` makes of some pictures. Run it with the oracle's interpreter:

PYTHONPATH=tests ORACLE/bin/python tests/dataset/record_image.py
"""

import io
import os

import numpy as np
from PIL import Image

from dataset.pictures import COLOURS, SIZES, encoded, picture
from paddle.dataset import image

HERE = os.path.dirname(os.path.abspath(__file__))


def decoded(name, content, form):
    return {
        name + "." + form: np.frombuffer(content, np.uint8),
        name + ".color": image.load_image_bytes(content),
        name + ".gray": image.load_image_bytes(content, is_color=False),
    }


def png(colour):
    if colour == "I;16":
        return encoded(picture(9, 13)[:, :, 0].astype(np.uint16) * 257 + 3, "PNG")
    if colour == "RGBA":
        return encoded(np.dstack([picture(9, 13), picture(9, 13)[:, :, :1]]), "PNG")
    stream = io.BytesIO()
    Image.fromarray(picture(9, 13)).convert(colour).save(stream, "PNG")
    return stream.getvalue()


def jpegs():
    rows, columns = np.mgrid[0:20, 0:32]
    smooth = np.stack([rows * 9, columns * 7, rows + columns], axis=-1).astype(np.uint8)
    turned = Image.Exif()
    turned[274] = 6  # the camera was held on its side
    return {"plain": encoded(smooth, "JPEG", quality=90), "turned": encoded(smooth, "JPEG", exif=turned)}


def transformed(is_train):
    np.random.seed(11)
    made = [image.simple_transform(picture(37, 53), 30, 20, is_train, mean=[1.0, 2.0, 3.0]) for _ in range(4)]
    gray = image.simple_transform(np.ascontiguousarray(picture(37, 53)[:, :, 0]), 30, 20, is_train, is_color=False)
    return np.stack([*made, np.stack([gray] * 3)])


if __name__ == "__main__":
    data = {"transformed.%s" % is_train: transformed(is_train) for is_train in (True, False)}
    for colour in COLOURS:
        data.update(decoded(colour, png(colour), "png"))
    for name, content in jpegs().items():
        data.update(decoded(name, content, "jpg"))
    for size in SIZES:
        data["wide.%d" % size] = image.resize_short(picture(37, 53), size)
        data["tall gray.%d" % size] = image.resize_short(np.ascontiguousarray(picture(53, 37)[:, :, 0]), size)
    data["floats"] = image.resize_short(picture(37, 53).astype(np.float32), 20)
    np.savez_compressed(os.path.join(HERE, "image.npz"), **data)
