"""How a collective job trains: Fluid's DistributedStrategy."""

from __future__ import annotations

from typing import Any

from paddle.fluid.compiler import BuildStrategy, ExecutionStrategy

__all__ = ["DistFCConfig", "DistributedStrategy", "LambConfig"]


class LambConfig:
    """Reserved by Fluid; it has no options."""


class DistFCConfig:
    """Reserved by Fluid for layers split over devices; it has no options."""


class DistributedStrategy(BuildStrategy):
    """Options of collective training, besides those of a BuildStrategy.

    Options, with their defaults:
      mode: "nccl2": the program is compiled for data parallelism over all devices of all processes. "collective": the
        program itself says where processes communicate, and runs on one device of each.
      collective_mode: of mode "collective": "grad_allreduce" or "local_sgd".
      use_local_sgd: mode "collective" with "local_sgd".
      local_sgd_frequency: the number of steps between averages of local SGD, beyond Fluid, which has 1.
      use_amp, amp_loss_scaling: mixed precision, with dynamic loss scaling that begins with this value.
      forward_recompute, recompute_checkpoints: keep only these variables of the forward pass, and recompute the rest.
      gradient_merge_steps: the number of batches for one update, beyond Fluid, which has 1.
      exec_strategy: an ExecutionStrategy, which has no effect.
      nccl_comm_num, use_hierarchical_allreduce, fuse_all_reduce_ops and the like choose how NCCL communicates. XLA
        decides that itself: they appear in the startup program and have no other effect.
      use_dist_fc, dist_fc_config: not supported, neither here nor in published versions of Fluid.
    """

    _defaults = {
        **BuildStrategy._defaults,
        "fuse_all_reduce_ops": True,
        "use_local_sgd": False,
        "local_sgd_frequency": 1,
        "use_dist_fc": False,
        "dist_fc_config": None,
        "mode": "nccl2",
        "collective_mode": None,
        "use_amp": False,
        "amp_loss_scaling": 2**15,
        "forward_recompute": False,
        "recompute_checkpoints": [],
        "gradient_merge_steps": 1,
        "exec_strategy": None,
        "_ut4grad_allreduce": False,
    }

    def __init__(self):
        super().__init__()
        self.exec_strategy = ExecutionStrategy()
        self.recompute_checkpoints = []

    def _check(self) -> None:
        """Raises if options contradict each other; local SGD and its test option select their mode."""
        options: Any = self
        if options.use_local_sgd:
            options.mode, options.collective_mode = "collective", "local_sgd"
        if options._ut4grad_allreduce:
            options.mode, options.collective_mode = "collective", "grad_allreduce"
        if options.use_dist_fc:
            raise NotImplementedError("strategy.use_dist_fc is not supported: layers are not split over devices")
        if options.forward_recompute and not options.recompute_checkpoints:
            raise ValueError(
                "strategy.forward_recompute requires strategy.recompute_checkpoints, a list of variables to keep"
            )
