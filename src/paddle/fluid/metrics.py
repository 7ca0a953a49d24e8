"""Metrics that add up over batches, in NumPy, outside of any program; DetectionMAP adds up inside one."""

import numpy as np

from paddle.fluid import layers
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
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
    """A metric: `update` takes what a batch gave, `eval` tells the figure so far, `reset` starts again.

    A subclass keeps its state in attributes whose names do not begin with an underscore; `reset` clears those.
    """

    def __init__(self, name):
        self._name = str(name) if name is not None else type(self).__name__

    def __str__(self):
        return self._name

    def reset(self):
        """Sets every state back: numbers and arrays to zero, anything else to None."""
        for name, value in self._states().items():
            setattr(self, name, _cleared(value))

    def get_config(self):
        """The metric's name and states."""
        return {"name": self._name, "states": dict(self._states())}

    def update(self, preds, labels):
        """Takes the results of a batch."""
        raise NotImplementedError(f"{type(self).__name__} does not define update")

    def eval(self):
        """The figure over everything taken since the last reset."""
        raise NotImplementedError(f"{type(self).__name__} does not define eval")

    def _states(self):
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class CompositeMetric(MetricBase):
    """Several metrics of the same predictions and labels."""

    def __init__(self, name=None):
        super().__init__(name)
        self._metrics = []

    def add_metric(self, metric):
        """Adds a metric, which from now on is updated with the others."""
        if not isinstance(metric, MetricBase):
            raise ValueError(f"a CompositeMetric is made of metrics, not of {type(metric).__name__}")
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
    """Of the samples predicted to be positive, the share that is; predictions are probabilities of one class."""

    def __init__(self, name=None):
        super().__init__(name)
        self.tp = 0
        self.fp = 0

    def update(self, preds, labels):
        positive, true = _binary(preds, labels)
        self.tp += int(np.sum(positive & true))
        self.fp += int(np.sum(positive & ~true))

    def eval(self):
        return _share(self.tp, self.tp + self.fp)


class Recall(MetricBase):
    """Of the positive samples, the share predicted to be; predictions are probabilities of one class."""

    def __init__(self, name=None):
        super().__init__(name)
        self.tp = 0
        self.fn = 0

    def update(self, preds, labels):
        positive, true = _binary(preds, labels)
        self.tp += int(np.sum(positive & true))
        self.fn += int(np.sum(~positive & true))

    def eval(self):
        return _share(self.tp, self.tp + self.fn)


class Accuracy(MetricBase):
    """The average of the accuracies of batches, weighted, usually by their sizes."""

    def __init__(self, name=None):
        super().__init__(name)
        self.value = 0.0
        self.weight = 0.0

    def update(self, value, weight):  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        """Takes what layers.accuracy gave for a batch, and the batch's weight."""
        _require_numbers(value=value, weight=weight)
        if np.any(np.asarray(weight) < 0):
            raise ValueError(f"the weight of an accuracy cannot be negative, it is {weight}")
        self.value += value * weight
        self.weight += weight

    def eval(self):
        if np.all(self.weight == 0):
            raise ValueError("there is no data in Accuracy: update it with what layers.accuracy gives")
        return self.value / self.weight


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks, from the counts that layers.chunk_eval gives."""

    def __init__(self, name=None):
        super().__init__(name)
        self.num_infer_chunks = 0
        self.num_label_chunks = 0
        self.num_correct_chunks = 0

    def update(  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        self, num_infer_chunks, num_label_chunks, num_correct_chunks
    ):
        """Takes the counts of a batch."""
        _require_numbers(
            num_infer_chunks=num_infer_chunks,
            num_label_chunks=num_label_chunks,
            num_correct_chunks=num_correct_chunks,
        )
        self.num_infer_chunks += num_infer_chunks
        self.num_label_chunks += num_label_chunks
        self.num_correct_chunks += num_correct_chunks

    def eval(self):
        """Precision, recall, F1."""
        precision = self.num_correct_chunks / self.num_infer_chunks if np.any(self.num_infer_chunks) else 0
        recall = self.num_correct_chunks / self.num_label_chunks if np.any(self.num_label_chunks) else 0
        f1 = 2 * precision * recall / (precision + recall) if np.any(self.num_correct_chunks) else 0
        return precision, recall, f1


class EditDistance(MetricBase):
    """The average edit distance of sequences, and the share of sequences that are not quite right."""

    def __init__(self, name):
        super().__init__(name)
        self.total_distance = 0.0
        self.seq_num = 0
        self.instance_error = 0

    def update(self, distances, seq_num):  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        """Takes what layers.edit_distance gave for a batch: a distance for each sequence, and their number."""
        _require_arrays(distances=distances)
        _require_numbers(seq_num=seq_num)
        self.total_distance += float(np.sum(distances))
        self.seq_num += seq_num
        self.instance_error += seq_num - int(np.sum(distances == 0))

    def eval(self):
        """Average distance, share of sequences with an error."""
        if np.all(self.seq_num == 0):
            raise ValueError("there is no data in EditDistance: update it with what layers.edit_distance gives")
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


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
        """Takes probabilities of shape [n, 2], of which the second column counts, and labels 0 and 1."""
        _require_arrays(preds=preds, labels=labels)
        buckets = (preds[:, 1] * self._num_thresholds).astype(np.int64)
        if buckets.size and not 0 <= buckets.min() <= buckets.max() <= self._num_thresholds:
            raise ValueError("Auc takes probabilities, but the predictions are not all between 0 and 1")
        positive = labels.reshape(-1) != 0
        self._stat_pos += np.bincount(buckets[positive], minlength=self._num_thresholds + 1)
        self._stat_neg += np.bincount(buckets[~positive], minlength=self._num_thresholds + 1)

    def eval(self):
        # From the highest threshold down: true positives over false positives, joined by straight lines.
        true = np.concatenate([[0.0], np.cumsum(self._stat_pos[::-1])])
        false = np.concatenate([[0.0], np.cumsum(self._stat_neg[::-1])])
        if true[-1] == 0 or false[-1] == 0:
            return 0.0
        return float(np.trapezoid(true, false) / (true[-1] * false[-1]))


class DetectionMAP:
    """Mean average precision of detected boxes, of each batch and over all batches since the last reset.

    Unlike the other metrics this one is part of the program: fetch what `get_map_var` gives.

    Args:
      input: detections, rows of (label, confidence, xmin, ymin, xmax, ymax), one sequence for each picture.
      gt_label, gt_box, gt_difficult: the true boxes of each picture; difficult ones count if ``evaluate_difficult``.
      class_num: how many classes there are, the background included.
      overlap_threshold: how much a detection must overlap a true box to count.
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
        if not hasattr(layers, "detection_map"):
            raise NotImplementedError("DetectionMAP needs layers.detection_map, which refluid does not have yet")
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
        states = [
            self._create_state("accum_pos_count", "int32", None),
            self._create_state("accum_true_pos", "float32", None),
            self._create_state("accum_false_pos", "float32", None),
        ]
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
        """Two variables to fetch: the figure of the batch, the figure so far."""
        return self.cur_map, self.accum_map

    def reset(self, executor, reset_program=None):
        """Starts again, by running a small program."""
        reset_program = Program() if reset_program is None else reset_program
        with program_guard(main_program=reset_program):
            has_state = reset_program.current_block()._clone_variable(self.has_state)
            layers.fill_constant(shape=has_state.shape, value=0, dtype=has_state.dtype, out=has_state)
        executor.run(reset_program)


def _cleared(value):
    if isinstance(value, bool | int):
        return 0
    if isinstance(value, float):
        return 0.0
    return np.zeros_like(value) if isinstance(value, np.ndarray | np.generic) else None


def _share(part, whole):
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
