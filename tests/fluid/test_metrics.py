"""Metrics over batches. Expected figures are those of real Fluid on the same numbers."""

import numpy as np
import pytest

from paddle.fluid import average, metrics

PREDICTIONS = np.array([[0.2], [0.7], [0.5], [0.9]])
LABELS = np.array([[0], [1], [1], [0]])


def test_precision_and_recall_of_one_class():
    precision, recall = metrics.Precision(), metrics.Recall()
    assert (precision.eval(), recall.eval()) == (0.0, 0.0)
    for metric in (precision, recall):
        metric.update(PREDICTIONS, LABELS)
    assert (precision.tp, precision.fp, recall.tp, recall.fn) == (1, 1, 1, 1)
    assert (precision.eval(), recall.eval()) == (0.5, 0.5)


def test_precision_needs_arrays():
    with pytest.raises(ValueError, match="preds must be a NumPy array, not int"):
        metrics.Precision().update(1, LABELS)


def test_accuracy_is_weighted():
    accuracy = metrics.Accuracy()
    with pytest.raises(ValueError, match="Accuracy has no data"):
        accuracy.eval()
    accuracy.update(0.5, 2)
    accuracy.update(np.array([1.0]), np.array([3]))
    assert accuracy.eval() == [0.8]
    assert accuracy.get_config()["states"]["weight"] == [5.0]
    with pytest.raises(ValueError, match="cannot be negative"):
        accuracy.update(0.5, -1)
    with pytest.raises(ValueError, match="value must be a number or a NumPy array, not str"):
        accuracy.update("x", 1)


def test_composite_metric_updates_and_resets_its_parts():
    composite, precision = metrics.CompositeMetric(), metrics.Precision()
    composite.add_metric(precision)
    composite.add_metric(metrics.Recall())
    composite.update(PREDICTIONS, LABELS)
    assert composite.eval() == [0.5, 0.5]
    composite.reset()
    assert precision.tp == 0
    with pytest.raises(ValueError, match="expects a MetricBase, not int"):
        composite.add_metric(1)


def test_chunk_evaluator_gives_precision_recall_and_f1():
    chunks = metrics.ChunkEvaluator()
    assert chunks.eval() == (0, 0, 0)
    chunks.update(np.array([10]), np.array([8]), np.array([5]))
    np.testing.assert_allclose(chunks.eval(), [[0.5], [0.625], [0.55555556]])
    assert [float(value) for value in chunks.eval()[:2]] == [0.5, 0.625]
    with pytest.raises(ValueError, match="num_infer_chunks must be a number"):
        chunks.update("a", 1, 1)


def test_edit_distance_gives_the_average_and_the_share_of_wrong_sequences():
    distance = metrics.EditDistance("distance")
    with pytest.raises(ValueError, match="EditDistance has no data"):
        distance.eval()
    distance.update(np.array([[0.0], [2.0], [1.0]]), 3)
    distance.update(np.array([[0.0], [4.0]]), np.array([2]))
    np.testing.assert_allclose(distance.eval(), [[1.4], [0.6]])


def test_auc_matches_real_fluid():
    random = np.random.RandomState(0)
    score = random.rand(50, 1)
    predictions, labels = np.concatenate([1 - score, score], 1), (random.rand(50, 1) < score).astype("int64")
    fine, coarse = metrics.Auc("fine"), metrics.Auc("coarse", num_thresholds=10)
    assert coarse.eval() == 0.0
    for metric in (fine, coarse):
        metric.update(predictions[:20], labels[:20])
        metric.update(predictions[20:], labels[20:])
    np.testing.assert_allclose([fine.eval(), coarse.eval()], [0.830220713073005, 0.8370118845500848], rtol=1e-12)
    fine.reset()
    assert fine.eval() == 0.0
    with pytest.raises(ValueError, match="not between 0 and 1"):
        fine.update(np.array([[0.0, 1.5]]), np.array([1]))


def test_a_metric_of_ones_own_keeps_its_state_in_public_attributes():
    class Mine(metrics.MetricBase):
        def __init__(self):
            super().__init__("mine")
            self.count, self.total, self.array, self.word, self._kept = 3, 2.5, np.ones(3), "s", 4

    mine = Mine()
    assert sorted(mine.get_config()["states"]) == ["array", "count", "total", "word"]
    mine.reset()
    assert (mine.count, mine.total, mine.array.tolist(), mine.word, mine._kept) == (0, 0.0, [0, 0, 0], None, 4)
    assert str(mine) == "mine"
    with pytest.raises(NotImplementedError, match="Mine must implement eval"):
        mine.eval()


def test_weighted_average():
    mean = average.WeightedAverage()
    with pytest.raises(ValueError, match="nothing to average"):
        mean.eval()
    mean.add(3.0, 2)
    assert mean.eval() == 3.0
    mean.add(np.array([1.0, 2.0]), 1)
    np.testing.assert_allclose(mean.eval(), [7 / 3, 8 / 3])
    with pytest.raises(ValueError, match="value must be a number"):
        mean.add([1], 1)
    with pytest.raises(ValueError, match="weight must be a number"):
        mean.add(1, [1])
