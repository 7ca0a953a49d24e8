"""Pictures as arrays: decoding, resizing, cropping, mirroring.

Arrays are [height, width, 3] in the order blue, green, red, as OpenCV has them, or [height, width] for brightness only.
Decoding needs the package Pillow, refluid's extra ``image``.
"""

import os
import pickle

import numpy as np

from refluid.files.writing import atomic_write
from refluid.readers import images
from refluid.readers.dataset_files import tar_members

__all__ = [
    "batch_images_from_tar",
    "center_crop",
    "left_right_flip",
    "load_and_transform",
    "load_image",
    "load_image_bytes",
    "random_crop",
    "resize_short",
    "simple_transform",
    "to_chw",
]


def load_image_bytes(bytes, is_color=True):
    """Decodes a picture, in colour or as brightness."""
    return images.decode(bytes, is_color=is_color)


def load_image(file, is_color=True):
    """Reads and decodes a picture, in colour or as brightness."""
    with open(file, "rb") as stream:
        return images.decode(stream.read(), is_color=is_color, name=str(file))


def resize_short(im, size):
    """Resizes a picture so that its shorter edge has ``size`` pixels."""
    height, width = im.shape[:2]
    if height > width:
        return images.resize(im, size * height // width, size)
    return images.resize(im, size, size * width // height)


def to_chw(im, order=(2, 0, 1)):
    """Moves the colours of a picture to the front."""
    if im.ndim != len(order):
        raise ValueError(f"to_chw: a picture of shape {im.shape} does not have {len(order)} dimensions")
    return im.transpose(order)


def center_crop(im, size, is_color=True):
    """Cuts a square of ``size`` pixels out of the middle."""
    height, width = im.shape[:2]
    return _cut(im, (height - size) // 2, (width - size) // 2, size)


def random_crop(im, size, is_color=True):
    """Cuts a square of ``size`` pixels out of a place that NumPy's random numbers choose."""
    height, width = im.shape[:2]
    _check_fits(im, size)
    top = np.random.randint(0, height - size + 1)
    return _cut(im, top, np.random.randint(0, width - size + 1), size)


def left_right_flip(im, is_color=True):
    """Mirrors a picture."""
    return im[:, ::-1]


def simple_transform(im, resize_size, crop_size, is_train, is_color=True, mean=None):
    """Resizes the shorter edge and cuts out a square; returns float32[3, size, size], or without the 3.

    Args:
      is_train: cut in a random place, and mirror half of the pictures; otherwise cut the middle.
      mean: subtracted: a number per colour, or an array of the result's shape.
    """
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size, is_color=is_color)
        im = left_right_flip(im, is_color) if np.random.randint(2) == 0 else im
    else:
        im = center_crop(im, crop_size, is_color=is_color)
    im = (to_chw(im) if im.ndim == 3 else im).astype("float32")
    return im if mean is None else im - _mean(mean, im)


def load_and_transform(filename, resize_size, crop_size, is_train, is_color=True, mean=None):
    """Reads a picture and transforms it as `simple_transform` does."""
    return simple_transform(load_image(filename, is_color), resize_size, crop_size, is_train, is_color, mean)


def batch_images_from_tar(data_file, dataset_name, img2label, num_per_batch=1024):
    """Writes the encoded pictures of a tar and their labels to pickled batches, unless they are there already.

    Args:
      data_file: the tar; the batches go into a folder beside it.
      dataset_name: the name of their folder in it.
      img2label: the label of each picture, by its name in the tar; others are left out.

    Returns:
      The path of a text file that lists the batches.
    """
    folder = f"{data_file}_batch"
    listed = os.path.join(folder, f"{dataset_name}.txt")
    if os.path.exists(listed):
        return listed
    paths, batch = [], {"label": [], "data": []}
    for name, stream in tar_members(data_file, lambda name: name in img2label):
        batch["label"].append(img2label[name])
        batch["data"].append(stream.read())
        if len(batch["data"]) == num_per_batch:
            paths.append(_write_batch(batch, folder, dataset_name, len(paths)))
            batch = {"label": [], "data": []}
    if batch["data"]:
        paths.append(_write_batch(batch, folder, dataset_name, len(paths)))
    with atomic_write(listed) as file:
        file.write("".join(f"{os.path.abspath(path)}\n" for path in paths).encode("utf-8"))
    return listed


def _write_batch(batch, folder, dataset_name, number):
    path = os.path.join(folder, dataset_name, f"batch_{number}")
    with atomic_write(path) as file:
        pickle.dump(batch, file, protocol=2)
    return path


def _check_fits(im, size):
    if size > min(im.shape[:2]):
        raise ValueError(f"a picture of {im.shape[0]} x {im.shape[1]} pixels has no square of {size} pixels")


def _cut(im, top, left, size):
    _check_fits(im, size)
    return im[top : top + size, left : left + size]


def _mean(mean, im):
    mean = np.array(mean, dtype=np.float32)
    if mean.ndim == 1 and im.ndim == 3:
        return mean[:, None, None]
    if mean.ndim != 1 and mean.shape != im.shape:
        raise ValueError(f"simple_transform: mean has shape {mean.shape}, the picture {im.shape}")
    return mean
