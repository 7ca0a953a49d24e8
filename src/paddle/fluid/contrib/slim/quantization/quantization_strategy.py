"""Quantisation as a part of compression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid import io
from paddle.fluid.contrib.slim.core.strategy import Strategy
from paddle.fluid.contrib.slim.quantization.quantization_pass import (
    ConvertToInt8Pass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)
from refluid.ir import Program
from refluid.ir.graph import Graph, IrGraph

__all__ = ["QuantizationStrategy"]


class QuantizationStrategy(Strategy):
    """Trains with rounded values from ``start_epoch`` on, and saves frozen models after ``end_epoch``.

    Args:
      float_model_save_path, mobile_model_save_path, int8_model_save_path: where the frozen model, the one for phones
        and the one with int8 weights are saved; None for not at all.
      weight_bits, activation_bits, weight_quantize_type, activation_quantize_type: see `QuantizationTransformPass`.
      save_in_nodes, save_out_nodes: names of the inputs and outputs of saved models; by default those of the eval
        program.
    """

    def __init__(
        self,
        start_epoch: int = 0,
        end_epoch: int = 0,
        float_model_save_path: str | None = None,
        mobile_model_save_path: str | None = None,
        int8_model_save_path: str | None = None,
        activation_bits: int = 8,
        weight_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        save_in_nodes: Sequence[str] | None = None,
        save_out_nodes: Sequence[str] | None = None,
    ):
        super().__init__(start_epoch, end_epoch)
        self.float_model_save_path, self.int8_model_save_path = float_model_save_path, int8_model_save_path
        self.mobile_model_save_path = mobile_model_save_path
        self.activation_bits, self.weight_bits = activation_bits, weight_bits
        self.activation_quantize_type, self.weight_quantize_type = activation_quantize_type, weight_quantize_type
        self.save_in_nodes, self.save_out_nodes = save_in_nodes, save_out_nodes

    def restore_from_checkpoint(self, context: Any) -> None:
        if self.start_epoch < context.epoch_id <= self.end_epoch:
            self._quantise(context)

    def on_epoch_begin(self, context: Any) -> None:
        if context.epoch_id == self.start_epoch:
            self._quantise(context)

    def _quantise(self, context: Any) -> None:
        """Rounds in training and in evaluation."""
        if context.optimize_graph is None:
            context.optimize_graph = context.train_graph.get_optimize_graph(
                context.train_optimizer, context.place, context.scope
            )
        transform = QuantizationTransformPass(
            context.scope,
            context.place,
            self.weight_bits,
            self.activation_bits,
            self.activation_quantize_type,
            self.weight_quantize_type,
        )
        for graph, for_test in ((context.optimize_graph, False), (context.eval_graph, True)):
            graph.program = transform.apply(IrGraph(Graph(graph.program.desc), for_test)).to_program()
            graph.compiled_graph = None

    def on_epoch_end(self, context: Any) -> None:
        if context.epoch_id != self.end_epoch:
            return
        graph = IrGraph(Graph(context.eval_graph.program.desc), for_test=True)
        freeze = QuantizationFreezePass(
            context.scope, context.place, self.weight_bits, self.activation_bits, self.weight_quantize_type
        )
        freeze.apply(graph)
        self._save(context, graph.to_program(), self.float_model_save_path)
        if self.int8_model_save_path is not None:
            integers = ConvertToInt8Pass(context.scope, context.place).apply(graph.clone())
            self._save(context, integers.to_program(), self.int8_model_save_path)
        if self.mobile_model_save_path is not None:
            ConvertToInt8Pass(context.scope, context.place).apply(graph)
            self._save(context, TransformForMobilePass().apply(graph).to_program(), self.mobile_model_save_path)

    def _save(self, context: Any, program: Program, path: str | None) -> None:
        if path is None:
            return
        inputs = list(self.save_in_nodes or context.eval_graph.in_nodes.values())
        outputs = list(self.save_out_nodes or context.eval_graph.out_nodes.values())
        targets = [program.global_block().var(name) for name in outputs]
        io.save_inference_model(path, inputs, targets, context.executor.exe, program, "model", "weights")
