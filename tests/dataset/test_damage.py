"""Files that are damaged, forged or of another kind give errors that name the file and the line."""

import os
import pickle
import re
import struct
import sys
import zlib

import numpy as np
import pytest

from paddle.dataset import (
    cifar,
    common,
    conll05,
    flowers,
    imdb,
    imikolov,
    movielens,
    mq2007,
    sentiment,
    voc2012,
    wmt14,
    wmt16,
)
from refluid.readers.matlab import read_matrices
from refluid.readers.synthetic import flowers as synthetic_flowers
from refluid.readers.synthetic.archives import gz, tar, zip_


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty data home, without downloads and without checks of md5 sums."""
    monkeypatch.delenv("REFLUID_SYNTHETIC_DATA", raising=False)
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
    monkeypatch.setattr(common, "md5file", lambda path: Anything())
    monkeypatch.setattr(common.urllib.request, "urlopen", no_network)
    return tmp_path


class Anything:
    def __eq__(self, other):
        return True


def no_network(*args, **options):
    raise OSError("no network")


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


ARCHIVES = {
    "cifar/cifar-10-python.tar.gz": lambda: list(cifar.train10()()),
    "imdb/imdb%2FaclImdb_v1.tar.gz": imdb.word_dict,
    "imikolov/imikolov%2Fsimple-examples.tgz": imikolov.build_dict,
    "movielens/movielens%2Fml-1m.zip": movielens.max_user_id,
    "corpora/movie_reviews.zip": lambda: next(sentiment.train()),
    "wmt14/wmt14.tgz": lambda: wmt14.get_dict(5),
    "wmt16/wmt16.tar.gz": lambda: wmt16.get_dict("en", 5),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_missing_file_is_named_with_its_place(name, home):
    with pytest.raises(RuntimeError) as failure:
        ARCHIVES[name]()
    assert "no network" in str(failure.value)
    assert f"expected file  {home / name}\n" in str(failure.value)


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_of_another_kind_is_named(name, home):
    put(home / name, b"<html>Not found</html>" * 100)
    kind = "zip" if name.endswith("zip") else "tar"
    with pytest.raises(ValueError, match=re.escape(f"{home / name} is not a {kind} archive that can be read")):
        ARCHIVES[name]()


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_with_other_files_is_named(name, home):
    put(home / name, (zip_ if name.endswith("zip") else tar)({"readme": b"hello"}))
    with pytest.raises(ValueError, match=re.escape(str(home / name))):
        ARCHIVES[name]()


def test_an_archive_that_is_cut_off_is_named(home):
    content = tar({f"aclImdb/train/pos/{n}_9.txt": os.urandom(2000) for n in range(20)})
    put(home / "imdb/imdb%2FaclImdb_v1.tar.gz", content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"aclImdb_v1\.tar\.gz is not a tar archive that can be read"):
        imdb.word_dict()


class Harmful:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize(
    "content", [pickle.dumps({"data": Harmful(), "labels": []}), b"junk", pickle.dumps({"data": 1})], ids=str
)
def test_a_forged_cifar_batch_runs_nothing(content, home):
    put(home / "cifar/cifar-10-python.tar.gz", tar({"cifar-10-batches-py/data_batch_1": content}))
    with pytest.raises(ValueError, match=r"data_batch_1 in .*cifar-10-python\.tar\.gz is not a batch of CIFAR"):
        list(cifar.train10()())


def put_movielens(home, **changed):
    files = {"movies": "1::Cat (1999)::Drama\n", "users": "1::F::1::10::4\n", "ratings": "1::1::5::9\n", **changed}
    put(home / "movielens/movielens%2Fml-1m.zip", zip_({f"ml-1m/{n}.dat": t.encode() for n, t in files.items()}))


def test_a_line_of_movielens_with_other_fields_is_named(home):
    put_movielens(home, ratings="1::1::5::9\n1::1::5\n")
    with pytest.raises(ValueError, match=r"ratings\.dat in .*ml-1m\.zip, line 2: expected 4 fields, found 3"):
        list(movielens.train()())


def test_a_title_without_a_year_is_named(home):
    put_movielens(home, movies="1::Cat::Drama\n")
    with pytest.raises(ValueError, match=r"movies\.dat in .*: the title 'Cat' does not end with a year"):
        movielens.max_movie_id()


def put_roles(home, words, rows, tags="B-V\nI-V\nO\n"):
    folder = "conll05st-release/test.wsj"
    files = {"words/test.wsj.words.gz": words, "props/test.wsj.props.gz": rows}
    put(home / "conll05st/conll05st-tests.tar.gz", tar({f"{folder}/{n}": gz(t.encode()) for n, t in files.items()}))
    put(home / "conll05st/conll05st%2FwordDict.txt", b"<unk>\n")
    put(home / "conll05st/conll05st%2FverbDict.txt", b"go\n")
    put(home / "conll05st/conll05st%2FtargetDict.txt", tags.encode())


@pytest.mark.parametrize(
    "rows, message",
    [
        ("go (V*)\n- *)x\n", r"line 2: expected a bracket such as \(A0\*, \* or \*\), found '\*\)x'"),
        ("go (V*)\n-\n", "line 2: expected 2 columns, found 1"),
        ("go\n-\n", "line 1: a sentence with 1 verbs has 0 columns"),
        ("go (V*)\n", r"words\.gz has 3 lines, but .*props\.gz has 2"),
        ("go (V*)\n- (A5*)\n", "the role B-A5 is not in the dictionary of roles"),
        ("go (A5*)\n- *\n", "a sentence has no word with the role V of its verb go: Go home"),
    ],
)
def test_damaged_roles_are_named(rows, message, home):
    put_roles(home, "Go\nhome\n", rows)
    with pytest.raises(ValueError, match=message):
        list(conll05.test()())


FEATURES = " ".join(f"{n}:0.5" for n in range(1, 47))


@pytest.mark.parametrize("line", ["", "1 qid:7 1:x", "1 7 1:0.5", "x qid:7 1:0.5", "1 qid:7 47:0.5", "1 qid:7 1:2:3"])
def test_a_damaged_line_of_a_ranking_is_named(line, home):
    put(home / "MQ2007/MQ2007/Fold1/train.txt", f"1 qid:7 {FEATURES} #x\n{line}\n".encode())
    with pytest.raises(ValueError, match=r"train\.txt, line 2: expected a relevance, qid:number and features 1:value"):
        list(mq2007.train())


def test_missing_features_of_a_ranking_are_filled_in(home):
    put(home / "MQ2007/MQ2007/Fold1/test.txt", b"2 qid:7 2:0.5 46:NULL # rest\n")
    ((score, features),) = mq2007.test(format="pointwise", fill_missing=-3)
    assert score == 2 and features.tolist() == [-3.0, 0.5] + [-3.0] * 44


def test_shuffled_queries_are_the_same_queries(home):
    put(home / "x.txt", "".join(f"1 qid:{n} {FEATURES}\n" for n in range(20)).encode())
    plain, shuffled = (mq2007.load_from_text("x.txt", shuffle=shuffle) for shuffle in (False, True))
    assert [q.query_id for q in plain] == list(range(20))
    assert sorted(q.query_id for q in shuffled) == list(range(20)) != [q.query_id for q in shuffled]


def test_documents_of_two_queries_are_no_list():
    with pytest.raises(ValueError, match="a document of query 2 does not belong to query 1"):
        mq2007.QueryList([mq2007.Query(1), mq2007.Query(2)])


def test_an_unknown_format_of_a_ranking_is_an_error():
    with pytest.raises(ValueError, match="format must be one of listwise, pairwise, plain_txt, pointwise, not 'pair'"):
        mq2007.train(format="pair")


def test_a_ranking_that_cannot_be_unpacked_says_what_to_do(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "rarfile", None)
    put(home / "MQ2007" / os.path.basename(mq2007.URL), b"Rar!")
    with pytest.raises(RuntimeError) as failure:
        mq2007.train()
    assert f"expected file  {home}/MQ2007/MQ2007/Fold1/train.txt" in str(failure.value)
    assert "unrar x" in str(failure.value)


def test_bad_arguments_of_imikolov_are_errors():
    with pytest.raises(ValueError, match=r"data_type must be DataType\.NGRAM \(1\) or DataType\.SEQ \(2\), not 7"):
        imikolov.train({}, 5, 7)
    with pytest.raises(ValueError, match="n-grams have at least one word, but n is -1"):
        imikolov.train({}, -1)


def test_a_dictionary_of_wmt14_needs_its_marks(home):
    put(home / "wmt14/wmt14.tgz", tar({"src.dict": b"a\nb\n", "trg.dict": b"<s>\n<e>\n"}))
    with pytest.raises(ValueError, match=r"the first 5 words of src\.dict in .*wmt14\.tgz lack <s> or <e>"):
        wmt14.get_dict(5)


def test_wmt16_has_two_languages():
    with pytest.raises(ValueError, match=r'has the languages "en" \(English\) and "de" \(German\), not \'fr\''):
        wmt16.get_dict("fr", 5)


def test_a_scene_that_is_missing_is_named(home):
    pytest.importorskip("PIL")
    files = {voc2012.SET_FILE.format("val"): b"2012_000001\n"}
    put(home / "voc2012/VOCtrainval_11-May-2012.tar", tar(files, compressed=False))
    with pytest.raises(ValueError, match=r"VOCtrainval_11-May-2012\.tar holds no .*/2012_000001\.jpg"):
        next(voc2012.val()())


def put_flowers(home, labels, sets):
    put(home / "flowers/102flowers.tgz", tar({"jpg/image_00001.jpg": b""}))
    put(home / "flowers/imagelabels.mat", labels)
    put(home / "flowers/setid.mat", sets)


def matrices(**rows):
    return synthetic_flowers._mat({name: np.array(row) for name, row in rows.items()})


def test_flowers_without_a_label_are_named(home):
    put_flowers(home, matrices(labels=[1, 2]), matrices(tstid=[1, 3]))
    with pytest.raises(ValueError, match=r"setid\.mat names picture 3, which has no label in .*imagelabels\.mat"):
        flowers.train()
    with pytest.raises(ValueError, match=r"setid\.mat has no matrix 'valid'; it has tstid"):
        flowers.valid()


def test_matrices_may_be_compressed_and_of_either_byte_order():
    content = matrices(a=[1, 2, 300])
    data = zlib.compress(content[128:])
    packed = content[:128] + struct.pack("<II", 15, len(data)) + data
    small = struct.pack(">II", 0x00010001, ord("b") << 24)  # a name of one letter, in its tag
    element = struct.pack(">IIII", 6, 8, 9 | 0, 0) + struct.pack(">IIii", 5, 8, 2, 2) + small
    element += struct.pack(">HHBBBB", 4, 2, 1, 2, 3, 4)
    big = content[:124] + b"\x01\x00MI" + struct.pack(">II", 14, len(element)) + element
    assert read_matrices(packed)["a"].tolist() == [[1.0, 2.0, 300.0]]
    assert read_matrices(big)["b"].tolist() == [[1, 3], [2, 4]]


def test_damaged_matrices_are_errors_and_nothing_else():
    content, random = matrices(labels=range(40)), np.random.RandomState(0)
    with pytest.raises(ValueError, match="the synthetic data is not a MATLAB 5 file that can be read: its header"):
        read_matrices(b"PK" * 100)
    with pytest.raises(ValueError, match="8 bytes are missing at its end"):
        read_matrices(content[:-8])
    for _ in range(500):
        damaged = bytearray(content)
        for place in random.randint(124, len(content), 3):
            damaged[place] = random.randint(256)
        try:
            read_matrices(bytes(damaged))
        except ValueError as error:
            assert "not a MATLAB 5 file" in str(error)
