"""Calibrator, which makes models of 8-bit integers for MKL-DNN, as Fluid 1.5 has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.fluid import io
from refluid.compression.calibration import entropy_threshold, largest_threshold
from refluid.compression.weights import scale_of
from refluid.ir import Program
from refluid.scope import global_scope
from refluid.transpiler.quantization.eight_bits import ConvolveIntegers, Range, convolutions

__all__ = ["Calibrator"]

_COPY = ".sampled"
_ALGORITHMS = {"KL": entropy_threshold, "direct": largest_threshold}
_OPTIONS = ("program", "pretrained_model", "debug", "algo", "output", "feed_var_names", "fetch_list", "exe")


class Calibrator:
    """Finds out how large the inputs of convolutions are, and saves a model that rounds them to 8 bits.

    Run ``sampling_program`` on batches and call `sample_data` after each of them, then `save_int8_model`.

    Args:
      program: of inference. fetch_list, feed_var_names: its results and its inputs. exe: the executor.
      algo: ``KL`` clips values where rounding loses least, ``direct`` not at all.
      output: the folder of the new model.
      pretrained_model, debug: have no effect: the parameters are in the scope.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        unknown = sorted(set(kwargs) - set(_OPTIONS))
        if args or unknown:
            raise TypeError(f"Calibrator takes {', '.join(_OPTIONS)} by name, not {args or unknown}")
        required = ("program", "output", "feed_var_names", "fetch_list", "exe")
        missing = [name for name in required if kwargs.get(name) is None]
        if missing:
            raise TypeError(f"Calibrator needs {', '.join(missing)}")
        algo = kwargs.get("algo", "KL")
        if algo not in _ALGORITHMS:
            raise ValueError(f"algo must be {' or '.join(_ALGORITHMS)}, not {algo!r}")
        self._program: Program = kwargs["program"]
        self._output, self._feeds, self._targets = kwargs["output"], kwargs["feed_var_names"], kwargs["fetch_list"]
        self._executor, self._threshold = kwargs["exe"], _ALGORITHMS[algo]
        self.sampling_program = self._program.clone(for_test=True)
        block = self.sampling_program.global_block()
        names = sorted({op.input("Input")[0] for op in convolutions(self.sampling_program)})
        self._samples: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for name in names:  # what is fed does not stay in the scope, its copy does
            copy = block.create_var(name=name + _COPY, persistable=True)
            block.append_op(type="assign", inputs={"X": name}, outputs={"Out": copy})

    def sample_data(self) -> None:
        """Keeps what the convolutions have read in the last run of ``sampling_program``."""
        for name, samples in self._samples.items():
            held = global_scope().find_var(name + _COPY)
            if held is None or held.value is None:
                raise RuntimeError(f"run Calibrator.sampling_program before sample_data: {name} has no value yet")
            samples.append(np.array(held.get_tensor()))

    def save_int8_model(self) -> None:
        """Saves the model, whose convolutions read integers."""
        if not all(self._samples.values()):
            raise RuntimeError("call sample_data before save_int8_model: how large values are is not known yet")
        ranges = {
            name: Range(self._threshold(samples), bool(min(sample.min() for sample in samples) < 0))
            for name, samples in self._samples.items()
        }
        weights = {op.input("Filter")[0] for op in convolutions(self._program)}
        filters = {name: _scales(_value(name)) for name in weights}
        program = ConvolveIntegers(ranges, filters).apply(self._program.clone(for_test=True))
        targets = [program.global_block().var(target.name) for target in self._targets]
        io.save_inference_model(self._output, list(self._feeds), targets, self._executor, program)


def _value(name: str) -> np.ndarray:
    held = global_scope().find_var(name)
    if held is None:
        raise ValueError(f"no value of {name}; run the startup program or load the model first")
    return np.array(held.get_tensor())


def _scales(filter: np.ndarray) -> list[float]:
    """What each output channel is multiplied by before it is rounded."""
    return [float(127 / largest) if largest else 1.0 for largest in scale_of(filter, by_channel=True)]
