"""Utilities for jobs: output on the first worker only, and metrics over all workers."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from paddle.fluid.core import CPUPlace
from paddle.fluid.executor import global_scope
from paddle.fluid.incubate.fleet.base.fleet_base import Fleet
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet as _fleet
from paddle.fluid.incubate.fleet.utils import utils

__all__ = ["FleetUtil"]

_logger = logging.getLogger(__name__)


class FleetUtil:
    """Utilities for a fleet.

    Args:
      mode: "transpiler"; "pslib" is accepted and treated the same.
    """

    def __init__(self, mode: str = "pslib") -> None:
        if mode not in ("pslib", "transpiler"):
            raise ValueError(f"mode must be 'pslib' or 'transpiler', not {mode!r}")
        self._fleet: Fleet = _fleet

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotImplementedError(
            f"FleetUtil.{name} requires tables of pslib, a library that was never published; "
            "fleet.save_persistables and fleet.save_inference_model save what the parameter servers hold"
        )

    def rank0_print(self, s: str) -> None:
        """Prints on the first worker only."""
        if self._fleet.worker_index() == 0 and self._fleet.is_worker():
            print(s, flush=True)

    def rank0_info(self, s: str) -> None:
        """Logs on the first worker only."""
        if self._fleet.is_first_worker():
            _logger.info(s)

    def rank0_error(self, s: str) -> None:
        """Logs an error on the first worker only."""
        if self._fleet.is_first_worker():
            _logger.error(s)

    def set_zero(self, var_name: str, scope: Any = None, place: Any = None, param_type: str = "int64") -> None:
        """Fills a variable with zeros, such as the counts of an AUC."""
        tensor = (scope or global_scope()).var(var_name).get_tensor()
        tensor.set(np.zeros(tensor._get_dims(), param_type), place or CPUPlace())

    def get_global_auc(
        self, scope: Any = None, stat_pos: str = "_generated_var_2", stat_neg: str = "_generated_var_3"
    ) -> float | None:
        """Computes the AUC over all workers, from the counts of ``fluid.layers.auc``; None without them."""
        scope = scope or global_scope()
        counts = []
        for name in (stat_pos, stat_neg):
            found = scope.find_var(name)
            if found is None:
                self.rank0_print("not found auc bucket")
                return None
            counts.append(self._sum_over_workers(np.array(found.get_tensor()).reshape(-1)))
        return _area(*counts)

    def print_global_auc(
        self,
        scope: Any = None,
        stat_pos: str = "_generated_var_2",
        stat_neg: str = "_generated_var_3",
        print_prefix: str = "",
    ) -> None:
        """Prints the global AUC on the first worker."""
        self.rank0_print(f"{print_prefix} global auc = {self.get_global_auc(scope, stat_pos, stat_neg)}")

    def _sum_over_workers(self, local: np.ndarray) -> np.ndarray:
        if self._fleet.worker_num() == 1:
            return local
        total = np.zeros_like(local)
        self._fleet.all_reduce_worker(local, total)
        return total

    def draw_from_program(self, program: Any, output_dir: str, output_name: str) -> None:
        """Draws a program with Graphviz."""
        utils.graphviz(program.global_block(), output_dir, output_name)

    def draw_from_program_file(self, model_filename: str, is_text: bool, output_dir: str, output_filename: str) -> None:
        """Draws a saved program with Graphviz."""
        self.draw_from_program(utils.load_program(model_filename, is_text), output_dir, output_filename)

    def program_type_trans(self, prog_dir: str, prog_fn: str, is_text: bool) -> str:
        """Converts a program file between text and binary form."""
        return utils.program_type_trans(prog_dir, prog_fn, is_text)

    def parse_program_proto(self, prog_path: str, is_text: bool, output_dir: str) -> None:
        """Lists the variables and operators of a saved program."""
        utils.parse_program(utils.load_program(prog_path, is_text), output_dir)


def _area(positive: np.ndarray, negative: np.ndarray) -> float:
    """Computes the area under the ROC curve as the threshold falls from bucket to bucket."""
    hits = np.concatenate([[0.0], np.cumsum(positive[::-1], dtype=np.float64)])
    alarms = np.concatenate([[0.0], np.cumsum(negative[::-1], dtype=np.float64)])
    if hits[-1] == 0 or alarms[-1] == 0:
        return 0.5
    return float(np.trapezoid(hits, alarms) / (hits[-1] * alarms[-1]))
