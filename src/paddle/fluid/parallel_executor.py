"""ParallelExecutor: the older API for running a program on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from refluid.executor import Executor
from refluid.ir import Program, default_main_program
from refluid.places import CPUPlace, CUDAPlace, cpu_places, cuda_places
from refluid.scope import Scope, global_scope

__all__ = ["BuildStrategy", "ExecutionStrategy", "ParallelExecutor"]


class ParallelExecutor:
    """Runs a program, by default the default main program, data-parallel over the devices."""

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ):
        if share_vars_from is not None and not isinstance(share_vars_from, ParallelExecutor):
            raise TypeError("share_vars_from must be a ParallelExecutor")
        self._scope = share_vars_from._scope if share_vars_from is not None else scope or global_scope()
        self._executor = Executor(CUDAPlace(0) if use_cuda else CPUPlace())
        strategy = build_strategy or BuildStrategy()
        if num_trainers > 1:
            strategy.num_trainers, strategy.trainer_id = num_trainers, trainer_id
        self._program = CompiledProgram(main_program or default_main_program()).with_data_parallel(
            loss_name=loss_name,
            build_strategy=strategy,
            exec_strategy=exec_strategy,
            share_vars_from=None if share_vars_from is None else share_vars_from._program,
            places=cuda_places() if use_cuda else cpu_places(),
        )

    def run(
        self, fetch_list: Sequence[Any], feed: Any = None, feed_dict: Any = None, return_numpy: bool = True
    ) -> list[Any]:
        """Runs the program once, on a dict whose rows are split over the devices, or on a list of one dict for each.

        ``feed_dict`` is the older name of ``feed``.
        """
        return self._executor.run(
            self._program,
            feed=feed if feed is not None else feed_dict,
            fetch_list=fetch_list,
            scope=self._scope,
            return_numpy=return_numpy,
        )

    @property
    def device_count(self) -> int:
        """Returns the number of devices the program runs on."""
        return self._program._device_count()

    def drop_local_exe_scopes(self) -> None:
        """Does nothing: temporaries exist only inside compiled steps."""
