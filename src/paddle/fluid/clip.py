"""Clipping of gradients before the optimizer reads them, and of errors during backpropagation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from paddle.fluid import layers
from refluid.ir import OP_ROLE_VAR, Parameter, Variable, VarType, default_main_program, name_scope

__all__ = [
    "ErrorClipByValue",
    "GradientClipByGlobalNorm",
    "GradientClipByNorm",
    "GradientClipByValue",
    "set_gradient_clip",
]

# Parameters with their gradients, which may be None.
Pairs = Sequence[tuple[Any, Any]]


class BaseErrorClipAttr:
    """Base class of a variable's ``error_clip``."""

    def _append_clip_op(self, block: Any, grad_name: str) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement clipping")


class ErrorClipByValue(BaseErrorClipAttr):
    """Clips the gradient of an intermediate variable to [min, max] when it is computed; min defaults to -max."""

    def __init__(self, max: float, min: float | None = None):
        self.max, self.min = _bounds(max, min)

    def __str__(self) -> str:
        return f"ByValue, min={self.min:f}, max={self.max:f}"

    def _append_clip_op(self, block, grad_name):
        block.append_op(
            type="clip", inputs={"X": grad_name}, outputs={"Out": grad_name}, attrs={"min": self.min, "max": self.max}
        )


def error_clip_callback(block: Any, context: dict[str, str]) -> None:
    """Appends the error clips of variables; ``context`` maps the last op's gradients to their variables."""
    for name in block.ops[-1].output_arg_names:
        variable = block.find_var_recursive(context[name]) if name in context else None
        error_clip = getattr(variable, "error_clip", None)
        if error_clip is None:
            continue
        if not isinstance(error_clip, BaseErrorClipAttr):
            raise TypeError(f"error_clip of {context[name]} must be an ErrorClipByValue, not {error_clip!r}")
        error_clip._append_clip_op(block, name)


class GradientClipBase:
    """A gradient clipping strategy. ``need_clip(param)`` decides whether a parameter's gradient is clipped."""

    def __init__(self, need_clip: Callable[[Variable], bool] | None = None):
        if need_clip is not None and not callable(need_clip):
            raise TypeError("need_clip must be a function from a parameter to a bool")
        self._need_clip_func = need_clip

    def __call__(self, params_grads: Pairs) -> Pairs:
        """Appends ops that clip the gradients and returns the new pairs."""
        with name_scope("gradient_clip"):
            return _clipped(params_grads, lambda param: self if self._needs_clip(param) else None)

    def _needs_clip(self, param: Variable) -> bool:
        return self._need_clip_func is None or self._need_clip_func(param)

    def _begin(self, shared: dict[Any, Any]) -> None:
        """Appends shared constants, once."""

    def _prepare(self, shared: dict[Any, Any], grad: Variable) -> None:
        """Appends ops that must run on ``grad`` before any gradient of the program is clipped."""

    def _combine(self, shared: dict[Any, Any]) -> None:
        """Appends ops that combine all prepared gradients, once."""

    def _apply(self, shared: dict[Any, Any], grad: Variable) -> Variable:
        raise NotImplementedError(f"{type(self).__name__} must implement clipping")


class GradientClipByValue(GradientClipBase):
    """Clips each element of a gradient to [min, max]; min defaults to -max."""

    def __init__(self, max: float, min: float | None = None, need_clip: Callable[[Variable], bool] | None = None):
        super().__init__(need_clip)
        self.max, self.min = _bounds(max, min)

    def __str__(self) -> str:
        return f"Gradient Clip By Value, min = {self.min:f}, max={self.max:f}"

    def _apply(self, shared, grad):
        return layers.clip(x=grad, min=self.min, max=self.max)


class GradientClipByNorm(GradientClipBase):
    """Scales each gradient down to norm ``clip_norm`` if it is longer."""

    def __init__(self, clip_norm: float, need_clip: Callable[[Variable], bool] | None = None):
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)

    def __str__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm:f}"

    def _apply(self, shared, grad):
        return layers.clip_by_norm(x=grad, max_norm=self.clip_norm)


class GradientClipByGlobalNorm(GradientClipBase):
    """Scales all gradients of a group by one factor, so that their global norm is at most ``clip_norm``."""

    def __init__(
        self, clip_norm: float, group_name: str = "default_group", need_clip: Callable[[Variable], bool] | None = None
    ):
        super().__init__(need_clip)
        if not isinstance(group_name, str):
            raise TypeError(f"group_name must be a string, not {type(group_name).__name__}")
        self.clip_norm, self.group_name = float(clip_norm), group_name

    def __str__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm:f}"

    def _group(self, shared):
        group = shared.setdefault(self.group_name, {"clip_norm": self.clip_norm, "squares": []})
        if group["clip_norm"] != self.clip_norm:
            raise ValueError(
                f"gradient clip group {self.group_name!r} has conflicting values of clip_norm:"
                f" {group['clip_norm']} and {self.clip_norm}"
            )
        return group

    def _begin(self, shared):
        group = self._group(shared)
        if "limit" not in group:
            group["limit"] = layers.fill_constant(shape=[1], dtype="float32", value=self.clip_norm)

    def _prepare(self, shared, grad):
        if grad.type == VarType.SELECTED_ROWS:
            grad = layers.get_tensor_from_selected_rows(layers.merge_selected_rows(grad))
        self._group(shared)["squares"].append(layers.reduce_sum(layers.square(grad)))

    def _combine(self, shared):
        group = self._group(shared)
        if "scale" in group:
            return
        norm = layers.sqrt(layers.sums(group["squares"]))
        self._begin(shared)
        limit = group["limit"]
        group["scale"] = layers.elementwise_div(x=limit, y=layers.elementwise_max(x=limit, y=norm))

    def _apply(self, shared, grad):
        return layers.elementwise_mul(x=grad, y=shared[self.group_name]["scale"])


ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm


def set_gradient_clip(clip: GradientClipBase, param_list: Sequence[Any] | None = None, program: Any = None) -> None:
    """Sets how optimizers without a clip of their own clip the gradients of these parameters (all, by default).

    Args:
      clip: the clipping strategy.
      param_list: parameters or their names.
      program: the program that holds them; defaults to the default main program.
    """
    if not isinstance(clip, GradientClipBase):
        raise TypeError(f"clip must be a GradientClipByValue, ByNorm or ByGlobalNorm, not {clip!r}")
    block = (program or default_main_program()).global_block()
    for given in block.all_parameters() if param_list is None else param_list:
        param = block.var(given) if isinstance(given, str) else given
        if not isinstance(param, Parameter):
            raise TypeError(f"param_list must hold parameters or their names, not {param!r}")
        param.gradient_clip_attr = copy.deepcopy(clip)


def append_gradient_clip_ops(params_grads: Pairs) -> Pairs:
    """Clips each gradient as set for its parameter by `set_gradient_clip` or ``ParamAttr(gradient_clip=)``."""
    clips = {param.name: getattr(param, "gradient_clip_attr", None) for param, _ in params_grads}
    for name, clip in clips.items():
        if clip is not None and not isinstance(clip, GradientClipBase):
            raise TypeError(
                f"gradient_clip of {name} must be a GradientClipByValue, ByNorm or ByGlobalNorm, not {clip!r}"
            )
    if not any(clips.values()):
        return params_grads
    # Transpilers recognize the ops that stay on trainers by "@CLIP".
    with name_scope("gradient_clip_@CLIP"):
        return _clipped(params_grads, lambda param: clips[param.name], begin_first=True)


def _clipped(
    params_grads: Pairs, clip_of: Callable[[Variable], GradientClipBase | None], *, begin_first: bool = False
) -> Pairs:
    """Prepares every gradient, combines, then clips every gradient, in Fluid's order of ops.

    Fluid puts its constants first for clips set on parameters, and last for the optimizer's clip.
    """
    shared: dict[Any, Any] = {}
    chosen = [(param, grad, clip_of(param) if grad is not None else None) for param, grad in params_grads]
    last: list[Any] = []
    block = default_main_program().current_block()
    start = len(block.ops)
    for param, grad, clip in chosen:
        if clip is not None:
            with param.block.program._optimized_guard([param, grad]):
                if begin_first:
                    clip._begin(shared)
                clip._prepare(shared, grad)
            last = [param, grad]
    pairs: list[tuple[Any, Any]] = []
    for param, grad, clip in chosen:
        if clip is None:
            pairs.append((param, grad))
            continue
        with param.block.program._optimized_guard(last):
            clip._combine(shared)
        with param.block.program._optimized_guard([param, grad]):
            pairs.append((param, clip._apply(shared, grad)))
    _name_clipped_gradients(block.ops[start:], pairs)
    return pairs


def _name_clipped_gradients(ops: Sequence[Any], pairs: Pairs) -> None:
    """Marks the clipping ops of a parameter with the final gradient, which is the one its optimizer reads."""
    clipped = {param.name: grad.name for param, grad in pairs if grad is not None}
    for op in ops:
        name = next(iter(op.attrs.get(OP_ROLE_VAR, ())), None)
        if name in clipped:
            op.set_attr(OP_ROLE_VAR, [name, clipped[name]])


def _bounds(max: float, min: float | None) -> tuple[float, float]:
    return float(max), -float(max) if min is None else float(min)
