"""`paddle.dataset.image` has the numbers of real Fluid with OpenCV 4.2, recorded by record_image.py."""

import io
import pickle
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from dataset.pictures import COLOURS, SIZES, encoded, picture
from paddle.dataset import image

pytest.importorskip("PIL")
GOLDEN = np.load(Path(__file__).parent / "image.npz")


def put(path, content):
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("colour", COLOURS)
def test_png_pictures_are_decoded_as_by_opencv(colour):
    content = GOLDEN[f"{colour}.png"].tobytes()
    np.testing.assert_array_equal(image.load_image_bytes(content), GOLDEN[f"{colour}.color"])
    np.testing.assert_array_equal(image.load_image_bytes(content, is_color=False), GOLDEN[f"{colour}.gray"])


@pytest.mark.parametrize("name", ["plain", "turned"])
def test_jpeg_pictures_are_decoded_as_by_opencv(name, tmp_path):
    path = put(tmp_path / "x.jpg", GOLDEN[f"{name}.jpg"].tobytes())
    for got, kind in ((image.load_image(path), "color"), (image.load_image(path, False), "gray")):
        wanted = GOLDEN[f"{name}.{kind}"]
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        assert np.abs(got.astype(int) - wanted).max() <= 2  # decoders of JPEGs may round differently


@pytest.mark.parametrize("size", SIZES)
def test_resizing_equals_opencv_in_all_bits(size):
    np.testing.assert_array_equal(image.resize_short(picture(37, 53), size), GOLDEN[f"wide.{size}"])
    np.testing.assert_array_equal(image.resize_short(picture(53, 37)[:, :, 0], size), GOLDEN[f"tall gray.{size}"])


def test_resizing_floats_keeps_them_floats():
    floats = image.resize_short(picture(37, 53).astype("float32"), 20)
    assert floats.dtype == np.float32
    np.testing.assert_allclose(floats, GOLDEN["floats"], atol=1e-3)


@pytest.mark.parametrize("is_train", [True, False])
def test_a_transformed_picture_is_that_of_fluid_with_the_same_seed(is_train):
    np.random.seed(11)
    got = [image.simple_transform(picture(37, 53), 30, 20, is_train, mean=[1.0, 2.0, 3.0]) for _ in range(4)]
    got.append(np.stack([image.simple_transform(picture(37, 53)[:, :, 0], 30, 20, is_train, is_color=False)] * 3))
    np.testing.assert_array_equal(np.stack(got), GOLDEN[f"transformed.{is_train}"])


def test_a_file_is_loaded_and_transformed(tmp_path):
    path = put(tmp_path / "x.png", encoded(picture(37, 53), "PNG"))
    expected = image.simple_transform(picture(37, 53)[:, :, ::-1], 30, 20, is_train=False)
    np.testing.assert_array_equal(image.load_and_transform(path, 30, 20, False), expected)


def test_crops_and_flips_take_the_pixels_they_should():
    pixels = picture(12, 15)
    np.testing.assert_array_equal(image.center_crop(pixels, 7), pixels[2:9, 4:11])
    np.testing.assert_array_equal(image.left_right_flip(pixels), pixels[:, ::-1])
    np.testing.assert_array_equal(image.to_chw(pixels)[2], pixels[:, :, 2])
    np.random.seed(0)
    crops = {image.random_crop(pixels, 11).tobytes() for _ in range(60)}
    assert crops == {pixels[y : y + 11, x : x + 11].tobytes() for y in range(2) for x in range(5)}


def test_a_crop_larger_than_the_picture_is_an_error():
    for crop in (image.center_crop, image.random_crop):
        with pytest.raises(ValueError, match="a picture of 12 x 15 pixels has no square of 13 pixels"):
            crop(picture(12, 15), 13)


def test_shapes_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match=r"to_chw: a picture of shape \(12, 15\) does not have 3 dimensions"):
        image.to_chw(picture(12, 15)[:, :, 0])
    with pytest.raises(ValueError, match=r"mean has shape \(2, 2, 2\), the picture \(3, 5, 5\)"):
        image.simple_transform(picture(12, 15), 8, 5, False, mean=np.ones((2, 2, 2)))


def test_what_is_no_picture_is_named(tmp_path):
    path = put(tmp_path / "broken.png", b"\x89PNG and then nothing")
    with pytest.raises(ValueError, match=r"broken\.png cannot be decoded"):
        image.load_image(path)
    with pytest.raises(ValueError, match="the picture cannot be decoded"):
        image.load_image_bytes(encoded(picture(30, 30), "PNG")[:200])


def test_without_pillow_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"extra \[image\]"):
        image.load_image_bytes(b"")


def test_pictures_of_a_tar_become_batches(tmp_path):
    path = str(tmp_path / "all.tar")
    with tarfile.open(path, "w") as archive:
        for name in ("c", "a", "x", "b"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(name.encode()))

    listed = image.batch_images_from_tar(path, "train", {"a": 0, "b": 1, "c": 2}, num_per_batch=2)

    assert listed == f"{path}_batch/train.txt"
    batches = [pickle.loads(Path(line).read_bytes()) for line in Path(listed).read_text().split()]
    assert batches == [{"label": [2, 0], "data": [b"c", b"a"]}, {"label": [1], "data": [b"b"]}]
    Path(path).unlink()
    assert image.batch_images_from_tar(path, "train", {}) == listed  # written once
