"""Metrics accumulated over batches in NumPy, outside of any program; DetectionMAP accumulates inside one."""

import numpy as np

from paddle.fluid import layers
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from refluid.fetching import also_a_number
from refluid.ir import unique_name
from refluid.ir.program import Program, program_guard

__all__ = [
    "Accuracy",
    "Auc",
    "ChunkEvaluator",
    "CompositeMetric",
    "DetectionMAP",
    "EditDistance",
    "MetricBase",
    "Precision",
    "Recall",
]


class MetricBase:
    """A metric: `update` adds a batch, `eval` returns the value so far, `reset` starts over.

    A subclass keeps its state in public attributes, which `reset` clears.
    """

    def __init__(self, name):
        self._name = str(name) if name is not None else type(self).__name__

    def __str__(self):
        return self._name

    def reset(self):
        """Resets every state: numbers and arrays to zero, anything else to None."""
        for name, value in self._states().items():
            setattr(self, name, _zeroed(value))

    def get_config(self):
        """Returns the metric's name and states."""
        return {"name": self._name, "states": dict(self._states())}

    def update(self, preds, labels):
        """Adds the results of a batch."""
        raise NotImplementedError(f"{type(self).__name__} must implement update")

    def eval(self):
        """Returns the value over all batches since the last reset."""
        raise NotImplementedError(f"{type(self).__name__} must implement eval")

    def _states(self):
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class CompositeMetric(MetricBase):
    """Several metrics over the same predictions and labels."""

    def __init__(self, name=None):
        super().__init__(name)
        self._metrics = []

    def add_metric(self, metric):
        """Adds a metric to update with the others."""
        if not isinstance(metric, MetricBase):
            raise ValueError(f"CompositeMetric.add_metric expects a MetricBase, not {type(metric).__name__}")
        self._metrics.append(metric)

    def reset(self):
        for metric in self._metrics:
            metric.reset()

    def update(self, preds, labels):
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self):
        return [metric.eval() for metric in self._metrics]


class Precision(MetricBase):
    """The fraction of predicted positives that are positive; predictions are probabilities of one class."""

    def __init__(self, name=None):
        super().__init__(name)
        self.tp = 0
        self.fp = 0

    def update(self, preds, labels):
        positive, true = _binary(preds, labels)
        self.tp += int(np.sum(positive & true))
        self.fp += int(np.sum(positive & ~true))

    def eval(self):
        return _ratio(self.tp, self.tp + self.fp)


class Recall(MetricBase):
    """The fraction of positives that are predicted positive; predictions are probabilities of one class."""

    def __init__(self, name=None):
        super().__init__(name)
        self.tp = 0
        self.fn = 0

    def update(self, preds, labels):
        positive, true = _binary(preds, labels)
        self.tp += int(np.sum(positive & true))
        self.fn += int(np.sum(~positive & true))

    def eval(self):
        return _ratio(self.tp, self.tp + self.fn)


class Accuracy(MetricBase):
    """The weighted average of batch accuracies, usually weighted by batch size."""

    def __init__(self, name=None):
        super().__init__(name)
        self.value = 0.0
        self.weight = 0.0

    def update(self, value, weight):  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        """Adds the result of layers.accuracy for a batch, with the batch's weight."""
        _require_numbers(value=value, weight=weight)
        if np.any(np.asarray(weight) < 0):
            raise ValueError(f"the weight of an accuracy cannot be negative, got {weight}")
        self.value += value * weight
        self.weight += weight

    def eval(self):
        if np.all(self.weight == 0):
            raise ValueError("Accuracy has no data: update it with the result of layers.accuracy")
        return also_a_number(self.value / self.weight)


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks, from the counts of layers.chunk_eval."""

    def __init__(self, name=None):
        super().__init__(name)
        self.num_infer_chunks = 0
        self.num_label_chunks = 0
        self.num_correct_chunks = 0

    def update(  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        self, num_infer_chunks, num_label_chunks, num_correct_chunks
    ):
        """Adds the counts of a batch."""
        _require_numbers(
            num_infer_chunks=num_infer_chunks, num_label_chunks=num_label_chunks, num_correct_chunks=num_correct_chunks
        )
        self.num_infer_chunks += num_infer_chunks
        self.num_label_chunks += num_label_chunks
        self.num_correct_chunks += num_correct_chunks

    def eval(self):
        """Returns precision, recall and F1."""
        precision = self.num_correct_chunks / self.num_infer_chunks if np.any(self.num_infer_chunks) else 0
        recall = self.num_correct_chunks / self.num_label_chunks if np.any(self.num_label_chunks) else 0
        f1 = 2 * precision * recall / (precision + recall) if np.any(self.num_correct_chunks) else 0
        return also_a_number(precision), also_a_number(recall), also_a_number(f1)


class EditDistance(MetricBase):
    """The average edit distance of sequences, and the fraction of sequences with errors."""

    def __init__(self, name):
        super().__init__(name)
        self.total_distance = 0.0
        self.seq_num = 0
        self.instance_error = 0

    def update(self, distances, seq_num):  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        """Adds the result of layers.edit_distance for a batch: a distance per sequence, and the number of sequences."""
        _require_arrays(distances=distances)
        _require_numbers(seq_num=seq_num)
        self.total_distance += float(np.sum(distances))
        self.seq_num += seq_num
        self.instance_error += seq_num - int(np.sum(distances == 0))

    def eval(self):
        """Returns the average distance and the fraction of sequences with errors."""
        if np.all(self.seq_num == 0):
            raise ValueError("EditDistance has no data: update it with the result of layers.edit_distance")
        return also_a_number(self.total_distance / self.seq_num), also_a_number(self.instance_error / self.seq_num)


class Auc(MetricBase):
    """The area under the ROC curve of binary predictions, over ``num_thresholds`` buckets."""

    def __init__(self, name, curve="ROC", num_thresholds=4095):
        super().__init__(name)
        self._curve = curve
        self._num_thresholds = num_thresholds
        self.reset()

    def reset(self):
        self._stat_pos = np.zeros(self._num_thresholds + 1)
        self._stat_neg = np.zeros(self._num_thresholds + 1)

    def update(self, preds, labels):
        """Adds probabilities of shape [n, 2], whose second column is used, and labels 0 and 1."""
        _require_arrays(preds=preds, labels=labels)
        buckets = (preds[:, 1] * self._num_thresholds).astype(np.int64)
        if buckets.size and not 0 <= buckets.min() <= buckets.max() <= self._num_thresholds:
            raise ValueError("Auc expects probabilities, but some predictions are not between 0 and 1")
        positive = labels.reshape(-1) != 0
        self._stat_pos += np.bincount(buckets[positive], minlength=self._num_thresholds + 1)
        self._stat_neg += np.bincount(buckets[~positive], minlength=self._num_thresholds + 1)

    def eval(self):
        # From the highest threshold down: true positives over false positives, by the trapezoidal rule.
        true = np.concatenate([[0.0], np.cumsum(self._stat_pos[::-1])])
        false = np.concatenate([[0.0], np.cumsum(self._stat_neg[::-1])])
        if true[-1] == 0 or false[-1] == 0:
            return 0.0
        return float(np.trapezoid(true, false) / (true[-1] * false[-1]))


class DetectionMAP:
    """Mean average precision of detected boxes, for each batch and over all batches since the last reset.

    Unlike the other metrics, this one is part of the program: fetch the variables of `get_map_var`.

    Args:
      input: detections, rows of (label, confidence, xmin, ymin, xmax, ymax), one sequence per image.
      gt_label, gt_box, gt_difficult: the true boxes of each image; difficult ones count if ``evaluate_difficult``.
      class_num: the number of classes, including the background.
      overlap_threshold: the minimum overlap of a detection with a true box.
      ap_version: "integral" or "11point".
    """

    def __init__(
        self,
        input,
        gt_label,
        gt_box,
        gt_difficult=None,
        class_num=None,
        background_label=0,
        overlap_threshold=0.5,
        evaluate_difficult=True,
        ap_version="integral",
    ):
        self.helper = LayerHelper("map_eval")
        columns = [layers.cast(x=gt_label, dtype=gt_box.dtype)]
        if gt_difficult is not None:
            columns.append(layers.cast(x=gt_difficult, dtype=gt_box.dtype))
        label = layers.concat([*columns, gt_box], axis=1)
        options = {
            "background_label": background_label,
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_version": ap_version,
        }
        self.cur_map = layers.detection_map(input, label, class_num, **options)
        dtypes = {"accum_pos_count": "int32", "accum_true_pos": "float32", "accum_false_pos": "float32"}
        states = [self._create_state(name, dtype, None) for name, dtype in dtypes.items()]
        self.has_state = self._create_state("has_state", "int32", [1])
        self.helper.set_variable_initializer(self.has_state, initializer=Constant(value=0))
        self.accum_map = layers.detection_map(
            input, label, class_num, has_state=self.has_state, input_states=states, out_states=states, **options
        )
        layers.fill_constant(shape=self.has_state.shape, value=1, dtype=self.has_state.dtype, out=self.has_state)

    def _create_state(self, suffix, dtype, shape):
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        return self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape)

    def get_map_var(self):
        """Returns two variables to fetch: the value of the batch and the value so far."""
        return self.cur_map, self.accum_map

    def reset(self, executor, reset_program=None):
        """Starts over by running a small program."""
        reset_program = Program() if reset_program is None else reset_program
        with program_guard(main_program=reset_program):
            has_state = reset_program.current_block()._clone_variable(self.has_state)
            layers.fill_constant(shape=has_state.shape, value=0, dtype=has_state.dtype, out=has_state)
        executor.run(reset_program)


def _zeroed(value):
    if isinstance(value, bool | int):
        return 0
    if isinstance(value, float):
        return 0.0
    return np.zeros_like(value) if isinstance(value, np.ndarray | np.generic) else None


def _ratio(part, whole):
    return part / whole if whole else 0.0


def _binary(preds, labels):
    _require_arrays(preds=preds, labels=labels)
    return np.rint(preds).astype(np.int64).reshape(-1) == 1, labels.reshape(-1) == 1


def _require_arrays(**values):
    for name, value in values.items():
        if not isinstance(value, np.ndarray):
            raise ValueError(f"{name} must be a NumPy array, not {type(value).__name__}")


def _require_numbers(**values):
    for name, value in values.items():
        if not isinstance(value, int | float | np.ndarray | np.number):
            raise ValueError(f"{name} must be a number or a NumPy array, not {type(value).__name__}")
