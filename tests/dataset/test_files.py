"""The datasets read files in their original formats, and say clearly what is wrong with others."""

import gzip
import hashlib
import io
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import paddle.dataset as datasets
from paddle.dataset import common, mnist, uci_housing
from paddle.reader.creator import recordio


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch):
    monkeypatch.delenv("REFLUID_SYNTHETIC_DATA", raising=False)
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return hashlib.md5(content).hexdigest()


def images(pixels):
    return gzip.compress(struct.pack(">4i", 2051, *pixels.shape) + pixels.tobytes())


def labels(digits):
    return gzip.compress(struct.pack(">2i", 2049, len(digits)) + bytes(digits))


def put_mnist(data_home, monkeypatch, image_content, label_content):
    monkeypatch.setattr(mnist, "TEST_IMAGE_MD5", put(data_home / "mnist/t10k-images-idx3-ubyte.gz", image_content))
    monkeypatch.setattr(mnist, "TEST_LABEL_MD5", put(data_home / "mnist/t10k-labels-idx1-ubyte.gz", label_content))


def test_mnist_gives_pixels_between_minus_one_and_one_and_the_digit(data_home, monkeypatch):
    pixels = np.random.RandomState(0).randint(0, 256, (250, 28, 28)).astype(np.uint8)
    digits = [i % 10 for i in range(250)]
    put_mnist(data_home, monkeypatch, images(pixels), labels(digits))

    samples = list(mnist.test()())

    assert [digit for _, digit in samples] == digits
    assert {(row.shape, row.dtype.name) for row, _ in samples} == {((784,), "float32")}
    expected = pixels.reshape(250, 784).astype("float32") / 255.0 * 2.0 - 1.0
    np.testing.assert_array_equal(np.stack([row for row, _ in samples]), expected)


def test_mnist_notices_a_file_that_is_cut_off(data_home, monkeypatch):
    pixels = np.zeros((3, 28, 28), np.uint8)
    short = gzip.compress(gzip.decompress(images(pixels))[:-10])
    put_mnist(data_home, monkeypatch, short, labels([1, 2, 3]))
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte\.gz is truncated"):
        list(mnist.test()())


def test_mnist_notices_files_that_do_not_belong_together(data_home, monkeypatch):
    put_mnist(data_home, monkeypatch, images(np.zeros((3, 28, 28), np.uint8)), labels([1, 2]))
    with pytest.raises(ValueError, match=r"has 3 images, but .* has 2 labels"):
        list(mnist.test()())


def test_mnist_notices_a_file_of_another_kind(data_home, monkeypatch):
    put_mnist(data_home, monkeypatch, labels([1] * 20), labels([1] * 20))
    with pytest.raises(ValueError, match="is not an idx file of pictures: it starts with 2049, not 2051"):
        list(mnist.test()())


def test_uci_housing_normalises_features_and_cuts_off_four_fifths(data_home, monkeypatch):
    rows = np.random.RandomState(1).uniform(0, 50, (20, 14)).round(3)
    text = "\n".join(" " + "  ".join(str(value) for value in row) for row in rows)
    monkeypatch.setattr(uci_housing, "MD5", put(data_home / "uci_housing/housing.data", text.encode()))

    train, test = list(uci_housing.train()()), list(uci_housing.test()())

    assert (len(train), len(test)) == (16, 4)
    expected = (rows - rows.mean(0)) / (rows.max(0) - rows.min(0))
    np.testing.assert_allclose([features for features, _ in train + test], expected[:, :-1], atol=1e-12)
    np.testing.assert_array_equal([price for _, price in train + test], rows[:, -1:])
    assert next(uci_housing.predict_reader()())[0].tolist() == test[0][0].tolist()
    assert len(uci_housing.feature_names) == 13


def test_uci_housing_notices_a_missing_number(data_home, monkeypatch):
    monkeypatch.setattr(uci_housing, "MD5", put(data_home / "uci_housing/housing.data", b"1 2 3\n"))
    with pytest.raises(ValueError, match=r"housing\.data must hold lines of 14 numbers, but it has 3 numbers"):
        list(uci_housing.train()())


def test_download_keeps_a_file_with_the_right_checksum(data_home):
    md5 = put(data_home / "toys/ball.bin", b"round")
    assert common.download("http://nowhere.invalid/ball.bin", "toys", md5) == str(data_home / "toys/ball.bin")
    assert common.md5file(data_home / "toys/ball.bin") == md5


def test_download_fetches_a_file_and_leaves_no_part_behind(data_home, tmp_path):
    content = b"x" * 5000
    md5 = put(tmp_path / "source.bin", content)
    path = common.download((tmp_path / "source.bin").as_uri(), "toys", md5, save_name="renamed.bin")
    assert path == str(data_home / "toys/renamed.bin")
    assert [file.name for file in (data_home / "toys").iterdir()] == ["renamed.bin"]
    assert common.download((tmp_path / "source.bin").as_uri(), "toys", None).endswith("toys/source.bin")


def test_download_replaces_a_file_with_another_checksum(data_home, tmp_path):
    put(data_home / "toys/source.bin", b"old")
    md5 = put(tmp_path / "source.bin", b"new")
    with open(common.download((tmp_path / "source.bin").as_uri(), "toys", md5), "rb") as file:
        assert file.read() == b"new"


def test_download_that_fails_names_address_path_and_the_way_out(data_home, tmp_path):
    missing = (tmp_path / "missing.bin").as_uri()
    with pytest.raises(RuntimeError) as failure:
        common.download(missing, "toys", "0" * 32)
    for words in (missing, "in 3 attempts", str(data_home / "toys/missing.bin"), "REFLUID_SYNTHETIC_DATA=1"):
        assert words in str(failure.value)


def test_download_refuses_content_with_another_checksum(data_home, tmp_path):
    md5 = put(tmp_path / "source.bin", b"tampered")
    with pytest.raises(RuntimeError, match=f"the downloaded file has md5 {md5}"):
        common.download((tmp_path / "source.bin").as_uri(), "toys", "0" * 32)
    assert list((data_home / "toys").iterdir()) == []


class Answer(io.BytesIO):
    """What a server sends."""

    def __init__(self, content):
        super().__init__(content)
        self.headers = {"Content-Length": str(len(content))}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_download_shows_its_progress(is_terminal, data_home, monkeypatch):
    seen = io.StringIO()
    console = Console(file=seen, force_terminal=is_terminal, width=120)
    logged = []
    monkeypatch.setattr(common, "Console", lambda stderr: console)
    monkeypatch.setattr(common, "Log", lambda role: SimpleNamespace(info=lambda text, **fields: logged.append(fields)))
    monkeypatch.setattr(common.urllib.request, "urlopen", lambda url, timeout: Answer(b"x" * 3_000_000))

    common.download("http://nowhere.invalid/toys.bin", "toys", None)

    assert ("toys.bin" in seen.getvalue() and "3.0/3.0 MB" in seen.getvalue()) == is_terminal
    assert [fields["bytes"] for fields in logged] == ([] if is_terminal else ["3000000"])


def test_split_and_cluster_files_reader_share_a_dataset_among_trainers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common.split(lambda: iter(range(10)), 4)
    assert sorted(path.name for path in tmp_path.glob("*.pickle")) == [f"{i:05d}.pickle" for i in range(3)]
    shares = [list(common.cluster_files_reader("*.pickle", 2, trainer)()) for trainer in range(2)]
    assert shares == [[0, 1, 2, 3, 8, 9], [4, 5, 6, 7]]


def test_split_and_cluster_files_reader_need_functions():
    with pytest.raises(TypeError, match="dumper must be callable"):
        common.split(lambda: iter([]), 4, dumper="pickle")
    with pytest.raises(TypeError, match="loader must be callable"):
        common.cluster_files_reader("*", 1, 0, loader="pickle")


def test_convert_writes_files_that_a_reader_reads(tmp_path):
    samples = [(np.arange(number, dtype=np.float32), [number, "words"], number) for number in range(5)]
    common.convert(str(tmp_path), lambda: iter(samples), 2, "toys")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toys-00000", "toys-00001", "toys-00002"]
    read = list(recordio(str(tmp_path / "toys-*"))())
    assert [sample[1:] for sample in read] == [sample[1:] for sample in samples]
    np.testing.assert_array_equal(read[3][0], samples[3][0])


def test_files_hold_at_least_one_sample(tmp_path):
    with pytest.raises(ValueError, match="line_count must be at least 1, not 0"):
        common.convert(str(tmp_path), lambda: iter([1]), 0, "toys")


MODULES = "cifar conll05 imdb imikolov mnist movielens sentiment uci_housing wmt14 wmt16".split()


@pytest.mark.parametrize("name", MODULES)
def test_every_dataset_can_be_converted(name, tmp_path, monkeypatch):
    monkeypatch.setenv("REFLUID_SYNTHETIC_DATA", "1")
    written = []
    monkeypatch.setattr(common, "convert", lambda *args: written.append((next(iter(args[1]())), *args)))
    module = getattr(datasets, name)
    module.convert(*[str(tmp_path), 30, 30, "en"][: 4 if name == "wmt16" else 1])
    assert len({prefix for *_, prefix in written}) == len(written) >= 2
    assert {(path, count) for _, path, _, count, _ in written} == {(str(tmp_path), 1000)}
