"""The benchmark models of examples/benchmarks: their data, and a comparison of modes as a user would start it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def test_a_line_of_criteo_is_read_with_missing_fields():
    import criteo

    line = (
        "1\t" + "\t".join(["5", "", "-1"] + ["0"] * 10) + "\t" + "\t".join(["05db9164", ""] + ["68fd1e64"] * 24) + "\n"
    )
    dense, ids, click = criteo.sample(line)
    np.testing.assert_allclose(dense[:3], [np.log(6.0), 0.0, 0.0])
    assert click == 1 and len(ids) == 26 and all(0 <= each < criteo.IDS for each in ids)
    assert ids[2] != ids[3], "the same value in another column is another feature"
    words = criteo.line_of_slots(line).split()
    assert words[0] == "13" and words[14:16] == ["1", str(ids[0])] and words[-2:] == ["1", "1"]
    with pytest.raises(ValueError, match="has 40 fields, not 2"):
        criteo.sample("1\t2")


def test_the_best_auc_of_generated_clicks_is_that_of_their_likelihoods(tmp_path):
    import criteo

    best = criteo.generate(tmp_path / "clicks", 4000, seed=1)
    assert 0.8 < best < 0.9
    assert criteo.auc([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1]) == pytest.approx(3.5 / 4)
    batches = list(criteo.batches([tmp_path / "clicks"], 100, part=1, parts=2))
    assert len(batches) == 20 and [len(column) for column in batches[0]] == [100] * 28


def test_planted_similarities_are_counted(tmp_path):
    import corpus

    corpus.generate(tmp_path / "part", 200, seed=1)
    counted = corpus.count_words([tmp_path / "part"], least=2)
    assert [count for _, count in counted] == sorted((count for _, count in counted), reverse=True)
    corpus.Vocabulary.write(tmp_path / "vocabulary", counted)
    vocabulary = corpus.Vocabulary.read(tmp_path / "vocabulary")
    topics = np.array([int(word[1:].split("w")[0]) for word in vocabulary.words])
    assert corpus.recovered(vocabulary, np.eye(corpus.TOPICS)[topics] + 0.01) > 0.95
    assert corpus.recovered(vocabulary, np.random.RandomState(0).randn(len(topics), 8)) < 0.3
    center, words, near = next(vocabulary.pairs(" ".join(vocabulary.words[:2])))
    assert (center, words[0], near) == (0, 1, [1, 0, 0, 0, 0, 0])


def test_a_report_shows_that_a_sync_job_learns_what_local_training_does(tmp_path):
    options = ["--samples", "2560", "--rounds", "1", "--models", "ctr_dnn", "--modes", "local", "sync"]
    command = [sys.executable, FOLDER / "report.py", "--folder", tmp_path, "--inputs", "dataset", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    local, sync = (json.loads((tmp_path / f"ctr_dnn-{mode}-dataset-11.json").read_text()) for mode in ("local", "sync"))
    for one, other in zip(local["curve"], sync["curve"], strict=True):
        assert other["loss"] == pytest.approx(one["loss"], abs=1e-5) and other["samples"] == one["samples"]
    assert set(sync["staleness"]) == {"0"}
    page = (tmp_path / "report.md").read_text()
    assert "| ctr_dnn | sync | 128 | dataset |" in page and "attainable auc" in page


def test_modes_without_rounds_are_compared_with_local_training_on_smaller_batches():
    import argparse

    import report

    args = argparse.Namespace(batch=128, trainers=2, modes=["local", "sync", "geo"])
    assert report.variants(args) == [("local", 128), ("local", 64), ("sync", 128), ("geo", 64)]
    ends = {("local", 128): 0.8, ("local", 64): 0.83, ("sync", 128): 0.8, ("geo", 64): 0.82}
    found = {("ctr_dnn", *key, "loader"): {1: {"curve": [{"auc": end}]}} for key, end in ends.items()}
    assert report.from_local(found, "ctr_dnn", "geo", 64, "loader") == "-0.0100 (-0.0100)"
    assert report.from_local(found, "ctr_dnn", "sync", 128, "loader") == "+0.0000 (+0.0000)"


def test_word2vec_finds_planted_similarities(tmp_path):
    script = [sys.executable, FOLDER / "word2vec.py", "--data", tmp_path]
    subprocess.check_call([*script, "--generate", "2000"])
    found = subprocess.check_output([*script, "--rounds", "2", "--rate", "8"], text=True, stderr=subprocess.DEVNULL)
    assert float(found.split("recovered")[-1].split()[0]) > 0.9
