"""Two data homes for the comparison with real Fluid: the synthetic files, and small files with every irregularity.

python tests/dataset/homes.py FOLDER     # writes FOLDER/synthetic and FOLDER/irregular
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from refluid.readers.synthetic import digits, flowers, houses, pictures, ranking, ratings, reviews, roles, sentences
from refluid.readers.synthetic.archives import gz, tar, zip_


def synthetic():
    """The files of REFLUID_SYNTHETIC_DATA=1 by their paths in a data home; pictures that are JPEGs are not compared."""
    train, test = digits.mnist(6000, seed=0), digits.mnist(1000, seed=1)
    return {
        "cifar/cifar-10-python.tar.gz": pictures.cifar10(),
        "cifar/cifar-100-python.tar.gz": pictures.cifar100(),
        "conll05st/conll05st-tests.tar.gz": roles.tests(),
        "conll05st/conll05st%2FwordDict.txt": roles.word_dictionary(),
        "conll05st/conll05st%2FverbDict.txt": roles.verb_dictionary(),
        "conll05st/conll05st%2FtargetDict.txt": roles.tag_dictionary(),
        "imdb/imdb%2FaclImdb_v1.tar.gz": reviews.imdb(),
        "corpora/movie_reviews.zip": reviews.movie_reviews(),
        "imikolov/imikolov%2Fsimple-examples.tgz": sentences.treebank(),
        "mnist/train-images-idx3-ubyte.gz": train[0],
        "mnist/train-labels-idx1-ubyte.gz": train[1],
        "mnist/t10k-images-idx3-ubyte.gz": test[0],
        "mnist/t10k-labels-idx1-ubyte.gz": test[1],
        "movielens/movielens%2Fml-1m.zip": ratings.movielens(),
        "MQ2007/MQ2007/Fold1/train.txt": ranking.letor("train"),
        "MQ2007/MQ2007/Fold1/test.txt": ranking.letor("test"),
        "uci_housing/housing.data": houses.text(),
        "wmt14/wmt14.tgz": sentences.wmt14(),
        "wmt16/wmt16.tar.gz": sentences.wmt16(),
    }


def irregular():
    """Files with what the originals have here and there: blank lines, ties, long lines, accents, unknown words."""
    return {
        "conll05st/conll05st-tests.tar.gz": _roles(),
        "conll05st/conll05st%2FwordDict.txt": b"<unk>\nbos\neos\nSee\ndogs\nbark\n.\nand\n",
        "conll05st/conll05st%2FverbDict.txt": b"see\nbark\n",
        "conll05st/conll05st%2FtargetDict.txt": b"B-V\nI-V\nB-A0\nI-A0\nB-C-A1\nO\n",
        "flowers/102flowers.tgz": tar({f"jpg/image_{n:05d}.jpg": _flower(n) for n in (3, 1, 2, 5, 4)}),
        "flowers/imagelabels.mat": flowers._mat({"labels": np.array([7, 3, 102, 1, 55])}),
        "flowers/setid.mat": flowers._mat({k: np.array(v) for k, v in _SETS.items()}),
        "imdb/imdb%2FaclImdb_v1.tar.gz": tar({f"aclImdb/{name}": text for name, text in _REVIEWS.items()}),
        "imikolov/imikolov%2Fsimple-examples.tgz": _treebank(),
        "movielens/movielens%2Fml-1m.zip": _movielens(),
        "MQ2007/MQ2007/Fold1/train.txt": _letor([(0, 5), (2, 7), (1, 5), (1, 7), (0, 7), (2, 7), (1, 7), (1, 9)]),
        "MQ2007/MQ2007/Fold1/test.txt": _letor([(0, 1), (0, 1), (1, 2), (0, 2), (2, 3)]),
        "voc2012/VOCtrainval_11-May-2012.tar": _scenes(),
        "wmt14/wmt14.tgz": _wmt14(),
        "wmt16/wmt16.tar.gz": _wmt16(),
    }


_SETS = {"trnid": [2, 5], "valid": [4], "tstid": [5, 1, 3]}
_REVIEWS = {
    "test/pos/0_10.txt": b"Good, good; GOOD film!!\n",
    "train/pos/1_7.txt": b"It's a caf\xc3\xa9 -- good. <br /><br />Good good it's a film film film film",
    "train/neg/0_1.txt": b"bad bad bad bad film\r\n",
    "train/unsup/0_0.txt": b"a a a a a a a a a a a a a a",
    "train/pos/0_9.txt": b"",
    "test/neg/0_2.txt": b"a bad film",
}


def _roles():
    words = "dogs bark\n\nSee ?\n\nNo verb .\n\nThey and cats bark now and see dogs\n\n".replace(" ", "\n")
    rows = (
        "- (A0*)|bark (V*)||see (V*)|- *||-|-|-||- (A0* *|- * *|- *) *|bark (V*) *|- * *|- * *|see * (V*)|- * (C-A1*)||"
    )
    folder = "conll05st-release/test.wsj"
    return tar(
        {
            f"{folder}/props/test.wsj.props.gz": gz(rows.replace("|", "\n").encode()),
            f"{folder}/words/test.wsj.words.gz": gz(words.encode()),
        }
    )


def _flower(number):
    rows, columns = np.mgrid[0 : 30 + 3 * number, 0 : 50 - 4 * number]
    pixels = np.stack([rows * 7 * number, columns * 5, rows * columns], axis=-1) % 256
    return _png(Image.fromarray(pixels.astype(np.uint8)))


def _png(picture):
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


def _treebank():
    train = "the cat <unk> the dog\n\n the  bird \nN years of N the the N N\n" * 2
    valid = "the N\na a a a a a a a a\n"
    return tar({f"./simple-examples/data/ptb.{k}.txt": v.encode() for k, v in {"train": train, "valid": valid}.items()})


def _movielens():
    files = {
        "movies": "3::Caf\xe9 (The) (1999)::Drama|Film-Noir\n7::a A  b (2000) (1950)::Drama\n",
        "users": "2::F::1::10::48067\n5::M::56::16::70072-1234\n",
        "ratings": "".join(f"{(2, 5)[n % 2]}::{(3, 7)[n % 3 % 2]}::{1 + n % 5}::97830{n}\n" for n in range(30)),
    }
    return zip_({f"ml-1m/{name}.dat": text.encode("latin-1") for name, text in files.items()})


def _letor(rows):
    features = [" ".join(f"{k}:{(n * 7 + k * 3) % 11 / 10}" for k in range(1, 47)) for n in range(len(rows))]
    return "".join(f"{r} qid:{q} {f} #docid = G # x\n" for (r, q), f in zip(rows, features, strict=True)).encode()


def _scenes():
    root, files = "VOCdevkit/VOC2012", {}
    for part, names in {"train": "b a", "val": "c", "trainval": "c b a"}.items():
        files[f"{root}/ImageSets/Segmentation/{part}.txt"] = ("\n".join(names.split()) + "\n").encode()
    for number, name in enumerate("abc"):
        labels = (np.arange(35).reshape(5, 7) * (number + 1) % 21).astype(np.uint8)
        indexed = Image.frombytes("P", (7, 5), labels.tobytes())
        indexed.putpalette([byte for n in range(256) for byte in (n, 255 - n, 7)])
        for spelled in (name, f"b'{name}'"):  # real Fluid on Python 3 looks for the second, by mistake
            files[f"{root}/JPEGImages/{spelled}.jpg"] = _flower(number + 1)
            files[f"{root}/SegmentationClass/{spelled}.png"] = _png(indexed)
    return tar(files, compressed=False)


def _wmt14():
    words = "<s> <e> <unk> un deux trois \u00e9t\u00e9".split()
    dictionary = "".join(f"{word}\n" for word in words).encode()
    lines = [
        "un deux\ttrois",
        "no tab",
        "a\tb\tc",
        "",
        "\u00e9t\u00e9  <s> zut\tun <unk>",
        *_long(78),
        *_long(79),
        *_long(81),
    ]
    text = "".join(f"{line}\n" for line in lines).encode()
    return tar(
        {
            "wmt14/src.dict": dictionary,
            "wmt14/trg.dict": dictionary,
            **{f"wmt14/{part}/{part}": text for part in ("train", "test", "gen")},
        }
    )


def _long(length):
    return ["un " * length + "\tdeux", "un\t" + "deux " * length]


def _wmt16():
    lines = "b a a\tx y x|no tab|c b <unk>\tz y|\u00e9t\u00e9 c  c\tw|d\t\u00fc <e> \u00fc".split("|")
    text = "".join(f"{line}\n" for line in lines).encode()
    return tar({f"wmt16/{part}": text for part in ("test", "train", "val")})


if __name__ == "__main__":
    for home, files in {"synthetic": synthetic(), "irregular": irregular()}.items():
        for name, content in files.items():
            path = Path(sys.argv[1], home, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
