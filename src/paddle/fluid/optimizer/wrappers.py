"""Optimizers that wrap other optimizers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from paddle.fluid import layers
from paddle.fluid.clip import error_clip_callback
from paddle.fluid.optimizer.base import Optimizer
from refluid.ir import Variable, default_startup_program, program_guard
from refluid.ir.backward import append_backward
from refluid.transpiler.gradient_merge import MergeGradients


class LookaheadOptimizer:
    """After every ``k`` steps of ``inner_optimizer``, moves slow weights a fraction ``alpha`` towards the fast ones."""

    def __init__(self, inner_optimizer: Optimizer, alpha: float = 0.5, k: int = 5):
        if inner_optimizer is None:
            raise ValueError("LookaheadOptimizer requires an inner optimizer")
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
        if not (isinstance(k, int) and k > 0):
            raise ValueError(f"k must be a positive integer, got {k!r}")
        self.inner_optimizer, self.alpha, self.k = inner_optimizer, alpha, k
        self.type = "lookahead"

    def minimize(self, loss: Variable, startup_program: Any = None) -> tuple[list[Any], Any]:
        """Minimizes with the inner optimizer and appends the slow updates."""
        result = self.inner_optimizer.minimize(loss, startup_program=startup_program)
        startup = default_startup_program() if startup_program is None else startup_program
        params = loss.block.program.all_parameters()
        slow = {param.name: _slow_copy(param, loss.block, startup.global_block()) for param in params}
        with program_guard(loss.block.program, startup):
            self._append_slow_updates(params, slow)
        return result

    def _append_slow_updates(self, params: Sequence[Variable], slow: dict[str, Variable]) -> None:
        k = _constant("lookahead_k", int(self.k), "int32")
        alpha = _constant("lookahead_alpha", float(self.alpha), "float32")
        step = _constant("lookahead_step", 0, "int32")
        layers.increment(step, value=1.0, in_place=True)
        zero = layers.fill_constant(shape=[1], dtype="int32", value=0)
        # Fluid expresses this as a Switch: every k-th step mixes, the others do nothing. Mixing with weights 1 and 0
        # gives the same numbers.
        mixes = layers.cast(layers.equal(layers.elementwise_mod(step, k), zero), "float32")
        stays = 1.0 - mixes
        for param in params:
            moved = layers.elementwise_add(
                layers.elementwise_mul(param, alpha), layers.elementwise_mul(slow[param.name], 1.0 - alpha)
            )
            for variable in (slow[param.name], param):
                kept = layers.elementwise_mul(variable, stays)
                layers.assign(layers.elementwise_add(layers.elementwise_mul(moved, mixes), kept), output=variable)


def _slow_copy(param: Variable, block: Any, startup: Any) -> Variable:
    name = param.name + "@SLOW"
    copies = [
        home.create_var(name=name, shape=param.shape, dtype=param.dtype, persistable=True) for home in (block, startup)
    ]
    startup.append_op(type="assign", inputs={"X": param.name}, outputs={"Out": name})
    return copies[0]


def _constant(name: str, value: float, dtype: str) -> Variable:
    return layers.create_global_var(name=name, shape=[1], value=value, dtype=dtype, persistable=True)


class RecomputeOptimizer(Optimizer):
    """Keeps only checkpoints of the forward pass in memory and recomputes the rest during backward."""

    def __init__(self, optimizer: Optimizer):
        super().__init__(0.0)
        self._optimizer = optimizer
        self._checkpoints: list[Any] | None = None

    def _set_checkpoints(self, checkpoints: Sequence[Any]) -> None:
        """Sets the variables to keep."""
        self._checkpoints = list(checkpoints)

    def backward(
        self,
        loss: Variable,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        callbacks: Sequence[Callable[..., Any]] | None = None,
    ):
        """Appends backward ops that recompute the forward values between checkpoints."""
        if not self._checkpoints:
            raise ValueError("RecomputeOptimizer requires checkpoints: call _set_checkpoints([...]) before minimize")
        self._dtype = self._optimizer._dtype = loss.dtype
        ignored = self._get_no_grad_set(loss, no_grad_set)
        callbacks = [error_clip_callback] if callbacks is None else list(callbacks)
        with program_guard(loss.block.program, startup_program):
            return append_backward(loss, parameter_list, ignored, callbacks, checkpoints=self._checkpoints)

    def apply_gradients(self, params_grads):
        """Calls the inner optimizer's `apply_gradients`."""
        return self._optimizer.apply_gradients(params_grads)

    def apply_optimize(self, loss, startup_program, params_grads):
        """Calls the inner optimizer's `apply_optimize`."""
        return self._optimizer.apply_optimize(loss, startup_program, params_grads)

    def minimize(self, loss, startup_program=None, parameter_list=None, no_grad_set=None, grad_clip=None):
        """Appends backward and the inner optimizer's updates; returns the update ops and the pairs."""
        if grad_clip is not None:
            self._check_clip(grad_clip)
            self._optimizer._grad_clip = grad_clip
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs


class PipelineOptimizer:
    """Minimizes a loss whose program is cut into sections, which real Fluid runs on several devices at a time.

    Here the sections run one after the other, on the executor's own device, as parts of one compiled step: the numbers
    are those of a pipeline with ``sync_steps=1``, and so is the memory of one device. To train on several devices, use
    data parallelism (`CompiledProgram.with_data_parallel`), or parameters sharded over a mesh.

    Args:
      optimizer: the optimizer to wrap.
      cut_list: for each cut a list of variables, in the order of the program; the last one usually holds the loss.
      place_list: where sections run in real Fluid: with n cuts, n forward and n - 1 backward sections. Its length is
        checked; it has no other effect. The same holds for ``concurrency_list``.
      queue_size: has no effect, like ``sync_steps`` and ``start_cpu_core_id``.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        cut_list: Sequence[Sequence[Variable]] | None = None,
        place_list: Sequence[Any] | None = None,
        concurrency_list: Sequence[int] | None = None,
        queue_size: int = 30,
        sync_steps: int = 1,
        start_cpu_core_id: int = 0,
    ):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"PipelineOptimizer expects a fluid.optimizer.Optimizer, not {type(optimizer).__name__}")
        self._optimizer = optimizer
        self._cut_list = [list(cut) for cut in cut_list or ()]
        sections = max(1, 2 * len(self._cut_list) - 1)
        for name, given in (("place_list", place_list), ("concurrency_list", concurrency_list)):
            if given is not None and len(given) != sections:
                raise ValueError(
                    f"{name} has {len(given)} entries; {len(self._cut_list)} cuts make {sections} sections, forward "
                    "and backward"
                )

    def minimize(
        self,
        loss: Variable,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Any], Any]:
        """Minimizes with the inner optimizer; returns the update ops and the (parameter, gradient) pairs."""
        written = {name: i for i, op in enumerate(loss.block.ops) for name in op.output_arg_names}
        last = -1
        for cut in self._cut_list:
            for variable in cut:
                if written.get(variable.name, -1) < last:
                    raise ValueError(f"cut_list: {variable.name} is not computed after the cuts before it")
            last = max([last, *(written[variable.name] for variable in cut)])
        if len(self._cut_list) > 1:
            warnings.warn(
                "PipelineOptimizer: the sections of the program run one after the other on one device; the numbers "
                "are the same, place_list and concurrency_list have no effect",
                stacklevel=2,
            )
        return self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)


class GradientMergeOptimizer:
    """Updates parameters once for several batches, with the mean of their gradients, or their sum.

    Clipping and regularization see the merged gradients; learning rate schedules count every batch.

    Args:
      inner_optimizer: the optimizer to wrap.
      k_steps: the number of batches for one update.
      avg: whether gradients are averaged, rather than added up.
    """

    def __init__(self, inner_optimizer: Any, k_steps: int = 1, avg: bool = True):
        if inner_optimizer is None:
            raise ValueError("GradientMergeOptimizer requires an inner optimizer")
        self.inner_optimizer, self.type = inner_optimizer, "gradient_merge"
        self._merge = MergeGradients(k_steps, bool(avg))

    def minimize(
        self,
        loss: Variable,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Any], Any]:
        """Minimizes with the inner optimizer, and makes its updates conditional."""
        startup = default_startup_program() if startup_program is None else startup_program
        result = self.inner_optimizer.minimize(loss, startup, parameter_list, no_grad_set)
        self._merge.apply(loss.block.program, startup)
        return result
