"""Fluid's transpilers for collective training: they rewrite a program and its startup program in place."""

from __future__ import annotations

from collections.abc import Sequence

from refluid.ir import Program, default_main_program, default_startup_program
from refluid.transpiler.data_parallel import gradients, reduce_gradients, scale_loss_gradient
from refluid.transpiler.endpoints import parse_endpoints
from refluid.transpiler.joining import Job, broadcast_parameters, join_rings
from refluid.transpiler.local_sgd import SNAPSHOT, AverageParameters


class Collective:
    """Base class: processes join, and begin with the parameters of the first one.

    Args:
      nrings: the number of communicators in Fluid, which take turns; here they only appear in the program.
    """

    def __init__(self, nrings: int):
        self.nrings = nrings

    def transpile(
        self,
        startup_program: Program | None,
        main_program: Program | None,
        rank: int,
        endpoints: str | Sequence[str],
        current_endpoint: str,
        wait_port: bool | str = True,
    ) -> None:
        """Rewrites both programs.

        Args:
          startup_program: by default the default startup program.
          main_program: by default the default main program.
          rank: the number of this process, from 0.
          endpoints: where all processes are, as a list or separated by commas.
          current_endpoint: where this process is.
          wait_port: accepted; processes wait for each other when the startup program runs.
        """
        self.startup_program = default_startup_program() if startup_program is None else startup_program
        self.main_program = default_main_program() if main_program is None else main_program
        self.endpoints = list(parse_endpoints(endpoints, "endpoints"))
        self.nranks, self.rank, self.wait_port = len(self.endpoints), int(rank), wait_port
        self.current_endpoint = current_endpoint
        self._check()
        job = Job(tuple(self.endpoints), self.rank)
        self._transpile_startup_program(job)
        self._transpile_main_program()
        job.mark(self.startup_program, self.main_program)
        self.main_program._is_distributed = True

    def _check(self) -> None:
        if self.nranks < 2:
            raise ValueError(
                f"collective training takes at least 2 processes; endpoints lists only {self.endpoints[0]}"
            )
        if self.current_endpoint not in self.endpoints:
            raise ValueError(f"current_endpoint {self.current_endpoint} is not among {', '.join(self.endpoints)}")
        if self.main_program._is_distributed:
            raise ValueError("the program has already been transpiled; build it again to distribute it differently")

    def _transpile_startup_program(self, job: Job) -> None:
        join_rings(self.startup_program, job, self.nrings)
        broadcast_parameters(self.startup_program, self.nrings)

    def _transpile_main_program(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how replicas communicate; use GradAllReduce")


class GradAllReduce(Collective):
    """Averages gradients over all processes in every step."""

    def __init__(self, nrings: int = 2):
        super().__init__(nrings)
        self.mode = "grad_allreduce"

    def _transpile_main_program(self) -> None:
        block = self.main_program.global_block()
        if not gradients(block):
            raise ValueError("the program computes no gradients of parameters; call minimize before distributing it")
        scale_loss_gradient(block, 1.0 / self.nranks)
        reduce_gradients(block, self.nrings)


class LocalSGD(Collective):
    """Lets every process train on its own, and averages parameters.

    Args:
      nrings: as in `Collective`.
      k_steps: the number of steps between averages, beyond Fluid, which has 1.
    """

    def __init__(self, nrings: int = 2, k_steps: int = 1):
        super().__init__(nrings)
        self.mode = "local_sgd"
        self.k_steps = k_steps

    def snapshot_name(self, param_name: str) -> str:
        """The name of a parameter's value after the last average."""
        return param_name + SNAPSHOT

    def _transpile_main_program(self) -> None:
        AverageParameters(self.nranks, self.nrings, self.k_steps).apply(self.main_program, self.startup_program)


class SingleProcessMultiThread(GradAllReduce):
    """Averages gradients over the devices of one process."""

    def __init__(self):
        super().__init__(1)
        self.mode = "single_process_multi_thread"

    def _check(self) -> None:
        if self.main_program._is_distributed:
            raise ValueError("the program has already been transpiled; build it again to distribute it differently")

    def _transpile_startup_program(self, job: Job) -> None:
        block = self.startup_program.global_block()
        block.append_op(type="c_comm_init_all", attrs={"devices": [], "ring_id": 0})
