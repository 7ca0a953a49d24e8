"""Quantisation without training: scales come from running a saved model on samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from paddle.fluid import io
from paddle.fluid.contrib.slim.quantization.quantization_pass import (
    WATCHED,
    AddQuantDequantPass,
    QuantizationFreezePass,
    QuantizationTransformPass,
)
from paddle.fluid.contrib.slim.quantization.weight_quantization import WeightQuantization
from refluid.compression.calibration import entropy_threshold, largest_threshold
from refluid.ir import Program, VarType
from refluid.ir.graph import Graph, IrGraph
from refluid.scope import Scope, global_scope, scope_guard
from refluid.transpiler.quantization.fake_ops import BOTH, DEQUANTISED, SCALE, inputs_of, outputs_of
from refluid.transpiler.quantization.freezing import WriteOutputScales

__all__ = ["PostTrainingQuantization", "WeightQuantization"]

_ALGORITHMS = {"KL": entropy_threshold, "abs_max": largest_threshold}


class PostTrainingQuantization:
    """Quantises a saved inference model with the scales that samples of its inputs give.

    Args:
      executor: runs the model.
      scope: receives it; by default the global scope.
      model_dir, model_filename, params_filename: where the model is.
      sample_generator: gives samples, tuples in the order of the model's inputs.
      batch_generator: gives batches instead.
      batch_size, batch_nums: of samples, and how many batches are used; None for all.
      algo: ``KL`` clips activations where rounding loses least, ``abs_max`` not at all.
      quantizable_op_type: the types of operators that are quantised.
      is_full_quantize: rounds the inputs of operators without weights as well.
      activation_bits, weight_bits, activation_quantize_type, weight_quantize_type: see `QuantizationTransformPass`.
      is_use_cache_file, cache_dir: have no effect: what is sampled stays in memory.
    """

    def __init__(
        self,
        executor: Any = None,
        scope: Scope | None = None,
        model_dir: str | None = None,
        model_filename: str | None = None,
        params_filename: str | None = None,
        batch_generator: Callable[[], Iterable[Any]] | None = None,
        sample_generator: Callable[[], Iterable[Any]] | None = None,
        batch_size: int = 10,
        batch_nums: int | None = None,
        algo: str = "KL",
        quantizable_op_type: Sequence[str] = ("conv2d", "depthwise_conv2d", "mul"),
        is_full_quantize: bool = False,
        activation_bits: int = 8,
        weight_bits: int = 8,
        activation_quantize_type: str = "range_abs_max",
        weight_quantize_type: str = "channel_wise_abs_max",
        is_use_cache_file: bool = False,
        cache_dir: str = "./temp_post_training",
    ):
        for name, value in (("executor", executor), ("model_dir", model_dir)):
            assert value is not None, f"The {name} cannot be None."
        assert (batch_generator is None) != (sample_generator is None), (
            "Give sample_generator or batch_generator: the data that activations are sampled from."
        )
        assert algo in _ALGORITHMS, f"The algo should be {' or '.join(_ALGORITHMS)}, not {algo}."
        self._executor, self._scope = executor, global_scope() if scope is None else scope
        self._model = (model_dir, executor, model_filename, params_filename)
        self._batches, self._samples = batch_generator, sample_generator
        self._batch_size, self._batch_nums, self._algo = batch_size, batch_nums, _ALGORITHMS[algo]
        self._types, self._full = tuple(quantizable_op_type), is_full_quantize
        self._bits, self._weights = (weight_bits, activation_bits), weight_quantize_type
        self._activations = activation_quantize_type
        self._feeds: list[str] = []
        self._fetches: list[Any] = []
        self._quantized: Program | None = None

    def quantize(self) -> Program:
        """Samples activations and returns the quantised program, whose weights are in the scope."""
        with scope_guard(self._scope):
            program, self._feeds, self._fetches = io.load_inference_model(*self._model)
            thresholds = self._thresholds(program)
            for name, threshold in thresholds.items():
                for variable in (name + SCALE, name + BOTH + SCALE):
                    self._scope.var(variable).get_tensor().set(np.array([threshold], "float32"))
            graph, place = IrGraph(Graph(program.desc), for_test=True), self._executor.place
            weight_bits, activation_bits = self._bits
            QuantizationTransformPass(
                self._scope,
                place,
                weight_bits,
                activation_bits,
                self._activations,
                self._weights,
                quantizable_op_type=self._types,
            ).apply(graph)
            if self._full:
                AddQuantDequantPass(self._scope, place, quant_bits=activation_bits, is_full_quantized=True).apply(graph)
            QuantizationFreezePass(self._scope, place, weight_bits, activation_bits, self._weights, self._types).apply(
                graph
            )
            self._quantized = WriteOutputScales(thresholds).apply(graph.to_program())
        return self._quantized

    def save_quantized_model(
        self, save_model_path: str, model_filename: str | None = None, params_filename: str | None = None
    ) -> None:
        """Saves the quantised model as an inference model."""
        program = self._quantized
        if program is None:
            raise RuntimeError("call quantize before save_quantized_model")
        block = program.global_block()
        scaled_back = [variable.name + DEQUANTISED for variable in self._fetches]
        targets = [
            block.var(scaled if block.has_var(scaled) else variable.name)
            for variable, scaled in zip(self._fetches, scaled_back, strict=True)
        ]
        with scope_guard(self._scope):
            io.save_inference_model(
                save_model_path, self._feeds, targets, self._executor, program, model_filename, params_filename
            )

    def _thresholds(self, program: Program) -> dict[str, float]:
        """The magnitude at which each activation is clipped."""
        names = self._activations_of(program)
        samples: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for batch in self._read():
            fed = dict(zip(self._feeds, batch, strict=True))
            for name, value in zip(names, self._executor.run(program, feed=fed, fetch_list=names), strict=True):
                samples[name].append(np.asarray(value))
        if not all(samples.values()):
            raise ValueError("the generator gave no samples to quantise by")
        return {name: self._algo(found) for name, found in samples.items()}

    def _activations_of(self, program: Program) -> list[str]:
        """What quantised operators read and what operators that are known write."""
        types = {*self._types, *(AddQuantDequantPass._supported_quantizable_op_type if self._full else ())}
        found: dict[str, None] = {}
        for op in program.global_block().ops:
            if op.type in types:
                found.update(dict.fromkeys(inputs_of(op)))
            if op.type in WATCHED:
                found.update(dict.fromkeys(outputs_of(op)))
        block = program.global_block()
        floats = (VarType.FP32, VarType.FP64)
        return [name for name in found if not block.var(name).persistable and block.var(name).dtype in floats]

    def _read(self) -> Iterable[Sequence[np.ndarray]]:
        batches = self._batches() if self._batches is not None else self._batched()
        for number, batch in enumerate(batches):
            if self._batch_nums is not None and number >= self._batch_nums:
                return
            yield batch

    def _batched(self) -> Iterable[Sequence[np.ndarray]]:
        assert self._samples is not None
        waiting: list[Any] = []
        for sample in self._samples():
            waiting.append(sample)
            if len(waiting) == self._batch_size:
                yield [np.stack(values) for values in zip(*waiting, strict=True)]
                waiting = []
        if waiting:
            yield [np.stack(values) for values in zip(*waiting, strict=True)]
