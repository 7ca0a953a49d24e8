"""Losses between a student and a teacher, whose operators are in one program (``GraphWrapper.merge``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paddle.fluid import layers
from paddle.fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from refluid.ir import Program, Variable, program_guard

__all__ = ["FSPDistiller", "L2Distiller", "SoftLabelDistiller"]


class _Distiller:
    """Adds a loss to a graph."""

    _weight: float

    def _loss_name(self) -> str:
        raise NotImplementedError

    def _loss(self, variable: Callable[[str], Variable]) -> Variable:
        raise NotImplementedError

    def distiller_loss(self, graph: GraphWrapper) -> GraphWrapper:
        """Appends the loss to the graph, as an output of its own and as a part of the output ``loss``."""
        with program_guard(graph.program, Program()):
            block = graph.program.global_block()
            loss = self._loss(block.var) * self._weight
            graph.out_nodes["loss"] = (loss + block.var(graph.out_nodes["loss"])).name
            graph.out_nodes[self._loss_name()] = loss.name
        return graph


class L2Distiller(_Distiller):
    """The mean of squared differences of two feature maps.

    Args:
      student_feature_map, teacher_feature_map: names of variables.
      distillation_loss_weight: what the loss is multiplied by.
    """

    def __init__(self, student_feature_map: str, teacher_feature_map: str, distillation_loss_weight: float = 1):
        self._student, self._teacher, self._weight = student_feature_map, teacher_feature_map, distillation_loss_weight

    def _loss_name(self) -> str:
        return f"l2loss_{self._student}_{self._teacher}"

    def _loss(self, variable: Callable[[str], Variable]) -> Variable:
        return _mean_square(variable(self._student), variable(self._teacher))


class FSPDistiller(_Distiller):
    """Compares how feature maps flow: the matrices of products of two layers of the student and of the teacher.

    Args:
      student_pairs, teacher_pairs: pairs of names of feature maps; those of a pair have the same size.
      distillation_loss_weight: what the loss is multiplied by.
    """

    def __init__(
        self,
        student_pairs: Sequence[Sequence[str]],
        teacher_pairs: Sequence[Sequence[str]],
        distillation_loss_weight: float = 1,
    ):
        if len(student_pairs) != len(teacher_pairs):
            raise ValueError(
                f"every pair of the student has one of the teacher: {len(student_pairs)} and {len(teacher_pairs)} pairs"
            )
        self._student, self._teacher, self._weight = student_pairs, teacher_pairs, distillation_loss_weight

    def _loss_name(self) -> str:
        return "fsp_distillation_loss"

    def _loss(self, variable: Callable[[str], Variable]) -> Variable:
        losses = []
        for pairs in zip(self._student, self._teacher, strict=True):
            flows = [layers.fsp_matrix(variable(first), variable(second)) for first, second in pairs]
            losses.append(_mean_square(*flows))
        return layers.sum(losses)


class SoftLabelDistiller(_Distiller):
    """Cross entropy of the student's probabilities with the teacher's.

    Args:
      student_feature_map, teacher_feature_map: names of logits.
      student_temperature, teacher_temperature: what logits are divided by; higher ones make labels softer.
      distillation_loss_weight: what the loss is multiplied by.
    """

    def __init__(
        self,
        student_feature_map: str,
        teacher_feature_map: str,
        student_temperature: float = 1.0,
        teacher_temperature: float = 1.0,
        distillation_loss_weight: float = 1,
    ):
        self._student, self._teacher, self._weight = student_feature_map, teacher_feature_map, distillation_loss_weight
        self._temperatures = student_temperature, teacher_temperature

    def _loss_name(self) -> str:
        return f"soft_label_loss_{self._student}_{self._teacher}"

    def _loss(self, variable: Callable[[str], Variable]) -> Variable:
        soft = [
            layers.softmax(variable(name) / temperature)
            for name, temperature in zip((self._student, self._teacher), self._temperatures, strict=True)
        ]
        soft[1].stop_gradient = True
        return layers.reduce_mean(layers.cross_entropy(soft[0], soft[1], soft_label=True))


def _mean_square(student: Variable, teacher: Variable) -> Variable:
    return layers.reduce_mean(layers.square(student - teacher))
