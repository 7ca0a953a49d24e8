"""DistributeTranspiler: from one training program to those of all trainers and servers of a job."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from refluid.ir import Program, default_main_program, default_startup_program
from refluid.ir.modes import Mode
from refluid.transpiler import collective
from refluid.transpiler.config import DistributeTranspilerConfig, ServerRuntimeConfig, check_config, choose_mode
from refluid.transpiler.endpoints import parse_endpoints
from refluid.transpiler.exchange import Exchange
from refluid.transpiler.geo import check_geo, geo_server_program, geo_trainer_program
from refluid.transpiler.joining import Job, join_once
from refluid.transpiler.kept import place_kept
from refluid.transpiler.parts import take_apart
from refluid.transpiler.placement import Placement, place
from refluid.transpiler.rows_apart import with_rows_apart
from refluid.transpiler.server import server_program
from refluid.transpiler.startup import server_startup, trainer_startup
from refluid.transpiler.trainer import trainer_program

_HERE = "127.0.0.1:6174"
_TRANSPILERS = {"grad_allreduce": collective.GradAllReduce, "local_sgd": collective.LocalSGD}
_CONFIGURED = ("slice_var_up", "split_method")  # arguments of older versions that set a field of the configuration


class DistributeTranspiler:
    """Turns a single-machine program into programs for trainers and parameter servers, or for trainers alone.

    Args:
      config: a `DistributeTranspilerConfig`; the default one trains in sync mode with sliced parameters.
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None):
        self.config = DistributeTranspilerConfig() if config is None else config
        check_config(self.config)
        self.server_config = ServerRuntimeConfig()
        self._servers: dict[str, Program] = {}
        self._placement: Placement | None = None
        self._job: Job | None = None  # of trainers without servers

    def transpile(self, *args: Any, **options: Any) -> None:
        """Distributes a program. It and its startup program become those of trainer ``trainer_id``, in place.

        Two older signatures are accepted: with ``slice_var_up`` and ``split_method`` as arguments, and with the
        two results of `minimize` in front: ``transpile(optimize_ops, params_grads, trainer_id, pservers=, trainers=)``.

        Args:
          trainer_id: the number of this trainer, from 0; servers may pass any.
          program: the training program; by default the default main program.
          pservers: the endpoints of all servers, separated by commas.
          trainers: the number of trainers; in modes "nccl2" and "collective" their endpoints, separated by commas.
          sync_mode: False for async training.
          startup_program: the startup program; by default the default one.
          current_endpoint: this process's own endpoint; used by collective training only.
        """
        oldest = (args and isinstance(args[0], list | tuple)) or "optimize_ops" in options
        given = (_OLDEST if oldest else _NEWER).bind(self, *args, **options)
        given.apply_defaults()
        chosen = given.arguments
        if chosen["trainer_id"] is None:
            chosen["trainer_id"] = os.environ.get("PADDLE_TRAINER_ID", 0)
        for field in _CONFIGURED:
            if chosen[field] is not None:
                setattr(self.config, field, chosen[field])
        programs = chosen["program"] or default_main_program(), chosen["startup_program"] or default_startup_program()
        if self.config.mode != "pserver":
            current = chosen.get("current_endpoint", _HERE)
            self._transpile_collective(int(chosen["trainer_id"]), *programs, chosen["trainers"], current)
            return
        self._transpile(
            int(chosen["trainer_id"]),
            *programs,
            parse_endpoints(chosen["pservers"]),
            chosen["trainers"],
            chosen["sync_mode"],
        )

    def _transpile(
        self,
        trainer_id: int,
        program: Program,
        startup: Program,
        endpoints: Sequence[str],
        trainers: int,
        sync_mode: bool,
    ) -> None:
        check_config(self.config)
        if not isinstance(trainers, int) or trainers < 1:
            raise ValueError(f"trainers must be a positive integer, not {trainers!r}")
        if program._is_distributed:
            raise ValueError("the program has already been transpiled; build it again to distribute it differently")
        self.trainer_id, self._trainer = trainer_id, program
        self._original, self._startup = program.clone(), startup.clone()
        if choose_mode(self.config, sync_mode) is not Mode.GEO:
            self._original = with_rows_apart(self._original)
        placement = place(self._original, endpoints, trainers, sync_mode, self.config)
        parts = take_apart(self._original)
        placement = replace(placement, kept=place_kept(self._original, self._startup, parts, endpoints))
        self._placement = placement
        self._servers.clear()
        whole = self.config.runtime_split_send_recv or placement.mode is Mode.GEO
        # dc_asgd corrects for what other trainers have changed since a trainer's own last push, so it waits for that.
        exchange = Exchange(placement, trainer_id, whole, in_background=whole and not self.config.enable_dc_asgd)
        if placement.mode is Mode.GEO:
            check_geo(parts)
            states = set[str]()
            trained = geo_trainer_program(self._original, exchange, self.config.geo_sgd_need_push_nums)
        else:
            states = {name for update in parts.updates for name in update.states}
            trained = trainer_program(self._original, exchange, compensated=self.config.enable_dc_asgd)
        begun = trainer_startup(self._startup, exchange, states)
        trained._is_distributed, trained._parameters_on_pservers = True, placement
        program.become(trained)
        startup.become(begun)
        if self.config.print_log:
            print(placement.describe(), flush=True)

    def _transpile_collective(
        self, trainer_id: int, program: Program, startup: Program, trainers: Any, current_endpoint: str
    ) -> None:
        check_config(self.config)
        if isinstance(trainers, int):
            raise TypeError(
                f"trainers is {trainers}; with config.mode={self.config.mode!r} it must list the endpoints of all "
                "trainers, such as '127.0.0.1:6170,127.0.0.1:6171'"
            )
        endpoints = parse_endpoints(trainers, "trainers")
        self.trainer_id, self._trainer = trainer_id, program
        self._job = job = Job(endpoints, trainer_id)
        if self.config.mode == "collective":
            transpiler = _TRANSPILERS[str(self.config.collective_mode)](self.config.nccl_comm_num)
            transpiler.transpile(startup, program, trainer_id, list(endpoints), current_endpoint, self.config.wait_port)
            return
        self._transpile_nccl2(program, startup, job)

    def _transpile_nccl2(self, program: Program, startup: Program, job: Job) -> None:
        """Lets the startup program join the trainers; gradients meet once the program is compiled for replicas."""
        config = self.config
        options = ("nccl_comm_num", "use_hierarchical_allreduce", "hierarchical_allreduce_inter_nranks")
        names = ["NCCLID", *(f"NCCLID_{i}" for i in range(1, config.nccl_comm_num))]
        if config.use_hierarchical_allreduce:
            levels = ("inter", "exter")
            names += [f"Hierarchical_{level}_NCCLID_{i}" for i in range(config.nccl_comm_num) for level in levels]
        join_once(startup, job, names, **{name: getattr(config, name) for name in options})
        job.mark(startup, program)

    def _set_server_config(self, server_config: ServerRuntimeConfig | None = None) -> None:
        self.server_config = ServerRuntimeConfig() if server_config is None else server_config

    @property
    def placement(self) -> Placement:
        """Where all variables live."""
        if self._job is not None:
            raise RuntimeError(f"config.mode={self.config.mode!r} trains without servers, which have no programs")
        if self._placement is None:
            raise RuntimeError("call transpile before get_trainer_program, get_pserver_program or get_startup_program")
        return self._placement

    def get_trainer_program(self) -> Program:
        """The program of this trainer, the same one each time."""
        if self._job is not None:
            return self._trainer
        trainers = self.placement.trainers
        if not 0 <= self.trainer_id < trainers:
            raise ValueError(
                f"trainer_id is {self.trainer_id}; with {trainers} trainers it must be between 0 and {trainers - 1}"
            )
        return self._trainer

    def get_pserver_program(self, endpoint: str) -> Program:
        """The program of the server at ``endpoint``."""
        placement = self.placement
        if endpoint not in placement.endpoints:
            raise ValueError(
                f"{endpoint!r} is not among the servers passed to transpile: {', '.join(placement.endpoints)}"
            )
        if endpoint not in self._servers:
            if placement.mode is Mode.GEO:
                made = geo_server_program(self._original, placement, endpoint)
            else:
                made = server_program(self._original, placement, endpoint, self.config.enable_dc_asgd)
            self._servers[endpoint] = made
        return self._servers[endpoint]

    def get_startup_program(
        self, endpoint: str, pserver_program: Program | None = None, startup_program: Program | None = None
    ) -> Program:
        """The startup program of the server at ``endpoint``."""
        server = self.get_pserver_program(endpoint) if pserver_program is None else pserver_program
        return server_startup(self._startup if startup_program is None else startup_program, server)

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """The main and the startup program of the server at ``endpoint``."""
        main = self.get_pserver_program(endpoint)
        return main, self.get_startup_program(endpoint, main)


def _newer(
    self,
    trainer_id,
    program=None,
    pservers=_HERE,
    trainers=1,
    sync_mode=True,
    startup_program=None,
    current_endpoint=_HERE,
    slice_var_up=None,
    split_method=None,
): ...


def _oldest(
    self,
    optimize_ops,
    params_grads,
    trainer_id=None,
    program=None,
    pservers=_HERE,
    trainers=1,
    split_method=None,
    sync_mode=True,
    startup_program=None,
    slice_var_up=None,
): ...


_NEWER, _OLDEST = inspect.signature(_newer), inspect.signature(_oldest)
# Users see the signature of Fluid 1.5 and later, without the arguments that became fields of the configuration.
DistributeTranspiler.transpile.__signature__ = _NEWER.replace(  # pyright: ignore[reportFunctionMemberAccess]
    parameters=[parameter for name, parameter in _NEWER.parameters.items() if name not in _CONFIGURED]
)
