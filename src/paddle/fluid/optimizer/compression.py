"""Deep gradient compression: workers exchange only the largest elements of their accumulated gradients."""

from __future__ import annotations

import math
from typing import Any

from paddle.fluid import layers
from paddle.fluid.clip import GradientClipByNorm, append_gradient_clip_ops
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.optimizer.base import Optimizer
from paddle.fluid.regularizer import L1DecayRegularizer, L2DecayRegularizer, append_regularization_ops
from refluid.ir import OP_ROLE, OP_ROLE_VAR, OpRole, Variable, VarType, default_main_program

_STEP = "__g_dgc_counter__"
_RANKS = "__g_nranks__"
_U, _V = "_dgc_u_", "_dgc_v_"
# Smaller gradients are not worth compressing.
_MIN_COMPRESSED_SIZE = 16384


class DGCMomentumOptimizer(Optimizer):
    """Momentum that compresses large gradients from ``rampup_begin_step`` on; small ones use plain momentum.

    Args:
      rampup_begin_step: the first step with compression.
      rampup_step: the number of steps over which the values of ``sparsity`` are stepped through.
      sparsity: the fractions of elements held back, in sequence; the last one stays in effect.
      local_grad_clip_norm: clips each worker's gradient to this norm divided by the root of ``num_trainers``.
      num_trainers: the number of workers, required for clipping only.
    """

    type = "dgc_momentum"

    def __init__(
        self,
        learning_rate,
        momentum,
        rampup_begin_step,
        rampup_step=1,
        sparsity=(0.999,),
        use_nesterov=False,
        local_grad_clip_norm=None,
        num_trainers=None,
        regularization=None,
        name=None,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)
        if rampup_begin_step < 0:
            raise ValueError(f"rampup_begin_step must not be negative, got {rampup_begin_step}")
        self._momentum, self._use_nesterov = momentum, bool(use_nesterov)
        self._begin, self._rampup_step = float(rampup_begin_step), float(rampup_step)
        self._sparsity = [float(share) for share in sparsity]
        self._local_norm = _local_norm(local_grad_clip_norm, grad_clip, num_trainers)
        self._step: Any = None
        self._ranks: Any = None

    def _append_dgc_ops(self, params_grads):
        self.helper = LayerHelper(self.__class__.__name__)
        self._step = self._counter(_STEP)  # starts at -1, because it is incremented before it is read
        self._ranks = self._counter(_RANKS)
        default_main_program().global_block()._prepend_op(
            type="increment", inputs={"X": self._step}, outputs={"Out": self._step}, attrs={"step": 1.0}
        )
        for param, grad in params_grads:
            self._add_accumulator(_U, param)
            if _is_compressed(param, grad):
                self._add_accumulator(_V, param)
                self._append_dgc_op(param, grad)

    def _counter(self, name: str) -> Variable:
        """Creates a persistable counter that starts at -1."""
        assert self.helper is not None
        variable = self.helper.create_global_variable(name=name, dtype="float32", shape=[1], persistable=True)
        self.helper.set_variable_initializer(variable, initializer=Constant(value=-1.0, force_cpu=True))
        variable.stop_gradient = True
        return variable

    def _append_dgc_op(self, param: Any, grad: Variable) -> None:
        block = default_main_program().global_block()
        kind, coefficient = _decay(param.regularizer or self.regularization)
        u, v = self._get_accumulator(_U, param), self._get_accumulator(_V, param)
        count = layers.create_global_var(
            shape=[1], dtype=param.dtype, persistable=True, name=param.name + "__dgc_k__", value=0.0, force_cpu=True
        )
        backward = {OP_ROLE: int(OpRole.Backward), OP_ROLE_VAR: [param.name, grad.name]}
        if self._local_norm is not None:
            block.append_op(
                type="dgc_clip_by_norm",
                inputs={"X": grad, "current_step": self._step},
                outputs={"Out": grad},
                attrs={"max_norm": self._local_norm, "rampup_begin_step": self._begin, OP_ROLE: int(OpRole.Backward)},
            )
        block.append_op(
            type="dgc",
            inputs={"U": u, "V": v, "Grad": grad, "Param": param, "current_step": self._step, "nranks": self._ranks},
            outputs={"U_out": u, "V_out": v, "Grad_out": grad, "k": count},
            attrs={
                "m": self._momentum,
                "sparsity": self._sparsity,
                "use_nesterov": self._use_nesterov,
                "rampup_begin_step": self._begin,
                "rampup_step": self._rampup_step,
                "regular_coeff": coefficient,
                "regular_type": kind,
                **backward,
            },
        )

    def apply_gradients(self, params_grads):
        """Applies gradients; compressed ones were already clipped and decayed before compression."""
        pairs = sorted(params_grads, key=lambda pair: pair[0].name)
        compressed = [pair for pair in pairs if _is_compressed(*pair)]
        plain = [pair for pair in pairs if not _is_compressed(*pair)]
        plain = self._grad_clip(plain) if self._grad_clip is not None else append_gradient_clip_ops(plain)
        plain = append_regularization_ops(plain, self.regularization)
        return self._create_optimization_pass(sorted([*plain, *compressed], key=lambda pair: pair[0].name))

    def _append_optimize_op(self, block, param_and_grad):
        param, grad = param_and_grad
        velocity = self._get_accumulator(_U, param)
        inputs = {"Param": param, "Grad": grad, "Velocity": velocity, **self._inputs(param_and_grad)}
        outputs = {"ParamOut": param, "VelocityOut": velocity}
        attrs = {"mu": self._momentum, "use_nesterov": self._use_nesterov}
        if not _is_compressed(param, grad):
            return block.append_op(type="momentum", inputs=inputs, outputs=outputs, attrs=attrs)
        return block.append_op(
            type="dgc_momentum",
            inputs={**inputs, "current_step": self._step, "nranks": self._ranks},
            outputs={**outputs, "Grad_out": grad},
            attrs={**attrs, "rampup_begin_step": self._begin},
        )


def _is_compressed(param: Variable, grad: Variable | None) -> bool:
    return (
        grad is not None
        and math.prod(param.shape) >= _MIN_COMPRESSED_SIZE
        and param.dtype == VarType.FP32
        and VarType.SELECTED_ROWS not in (param.type, grad.type)
    )


def _local_norm(local_grad_clip_norm: float | None, grad_clip: Any, num_trainers: int | None) -> float | None:
    """Returns the local clip norm: a number in 1.5, a GradientClipByNorm in later releases."""
    if grad_clip is not None and not isinstance(grad_clip, GradientClipByNorm):
        raise TypeError("DGCMomentumOptimizer supports only GradientClipByNorm")
    length = local_grad_clip_norm if grad_clip is None else grad_clip.clip_norm
    if length is None:
        return None
    if not isinstance(num_trainers, int) or num_trainers <= 0:
        raise ValueError(f"clipping on each worker requires num_trainers, the number of workers; got {num_trainers!r}")
    return length * num_trainers**-0.5


def _decay(regularizer: Any) -> tuple[int, float]:
    """Returns the dgc op's code for the kind of decay, and the coefficient."""
    if regularizer is None:
        return 0, 0.0
    for kind, cls in ((1, L1DecayRegularizer), (2, L2DecayRegularizer)):
        if isinstance(regularizer, cls):
            return kind, float(regularizer._regularization_coeff)
    raise TypeError(f"DGCMomentumOptimizer supports only L1Decay and L2Decay, not {regularizer!r}")
