"""Automatic differentiation of programs: appends gradient ops with Fluid's names.

The gradient of ``x`` is ``x@GRAD``. If several ops contribute to it, each writes ``x@GRAD@RENAME@block0@i`` and a
``sum`` op adds them up. A gradient that is not needed is written to the name ``@EMPTY@``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from refluid.ir import unique_name
from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.recompute import RecomputedSegments
from refluid.ir.roles import OP_ROLE, OP_ROLE_VAR, OpRole
from refluid.ir.variable import Parameter, Variable, name_of
from refluid.ir.vartype import VarType
from refluid.ops.core import registry
from refluid.ops.core.registry import BOUNDARY, EMPTY, GRAD_SUFFIX

_FLOATING = (VarType.FP16, VarType.FP32, VarType.FP64, VarType.BF16)


def append_backward(
    loss: Variable,
    parameter_list: Sequence[Any] | None = None,
    no_grad_set: Iterable[Any] | None = None,
    callbacks: Sequence[Callable[..., Any]] | None = None,
    checkpoints: Sequence[Any] | None = None,
) -> list[tuple[Variable, Variable]]:
    """Appends the ops that compute the gradient of ``loss`` and returns (parameter, gradient) pairs.

    Args:
      loss: a variable with one element.
      parameter_list: variables or names to differentiate with respect to; defaults to every trainable parameter.
      no_grad_set: variables or names that block gradients, besides those with stop_gradient.
      callbacks: called as ``callback(block=, context=)`` after each gradient op is appended.
      checkpoints: variables to keep; values between them are recomputed in the backward pass.
    """
    if not isinstance(loss, Variable):
        raise TypeError(f"append_backward expects a loss variable, not {type(loss).__name__}")
    if loss.op is None:
        raise ValueError(f"no op of the program computes {loss.name}, so it has no gradient")
    program, block = loss.block.program, loss.block
    parameters = _parameters(block, parameter_list)
    loss.op.set_attr(OP_ROLE, int(loss.op.role | OpRole.Loss))
    with program._role_guard(OpRole.Backward):
        walk = _Walk(block, _no_grad_names(block, no_grad_set), callbacks or ())
        seed = block.create_var(name=walk.gradient_name(loss.name), shape=_seed_shape(loss), dtype=loss.dtype)
        block.append_op(
            type="fill_constant",
            outputs={"Out": seed},
            attrs={
                "shape": list(_seed_shape(loss)),
                "value": 1.0,
                "dtype": int(loss.dtype),
                OP_ROLE: int(OpRole.Backward | OpRole.Loss),
            },
        )
        walk.contribute(loss.name, seed.name)
        ops = _path(block.ops, {loss.name}, walk.no_grad)
        walk.run(RecomputedSegments(block, checkpoints) if checkpoints else None, ops)
    pairs = []
    for parameter in parameters:
        gradient = walk.results.get(parameter.name)
        if gradient is not None:
            pairs.append((parameter, block.var(gradient)))
    _mark_role_variables(block, pairs)
    return pairs


def gradients(
    targets: Any, inputs: Any, target_gradients: Any = None, no_grad_set: Iterable[Any] | None = None
) -> list[Variable | None]:
    """Appends ops that compute the gradients of ``targets`` with respect to ``inputs``; None if there is no path.

    Args:
      target_gradients: the incoming gradient of each target; ones by default.
    """
    targets, inputs = _as_list(targets), _as_list(inputs)
    block = targets[0].block
    given = _as_list(target_gradients) if target_gradients is not None else [None] * len(targets)
    if len(given) != len(targets):
        raise ValueError(f"expected {len(targets)} target_gradients, one per target, got {len(given)}")
    with block.program._role_guard(OpRole.Backward):
        walk = _Walk(block, _no_grad_names(block, no_grad_set), ())
        ops = _path(block.ops, {t.name for t in targets}, walk.no_grad, {v.name for v in inputs})
        for target, gradient in zip(targets, given, strict=True):
            walk.contribute(target.name, _target_gradient(walk, block, target, gradient))
        walk.run(None, ops)
        found = [walk.results.get(variable.name) for variable in inputs]
    return [None if name is None else block.var(name) for name in found]


calc_gradient = gradients


def _target_gradient(walk: _Walk, block: Block, target: Variable, given: Variable | None) -> str:
    if given is not None:
        if given.shape != target.shape and -1 not in (*given.shape, *target.shape):
            raise ValueError(
                f"target_gradients: {given.name} has shape {list(given.shape)}, "
                f"but its target {target.name} has {list(target.shape)}"
            )
        return given.name
    ones = block.create_var(name=walk.gradient_name(target.name), shape=target.shape, dtype=target.dtype)
    block.append_op(
        type="fill_any_like",
        inputs={"X": target},
        outputs={"Out": ones},
        attrs={"value": 1.0, "dtype": int(target.dtype)},
    )
    return ones.name


class _Walk:
    """Visits forward ops in reverse order and appends their gradient ops."""

    def __init__(self, block: Block, no_grad: set[str], callbacks: Sequence[Callable[..., Any]]):
        self.block = block
        self.no_grad = no_grad
        self.callbacks = callbacks
        self.contributions: dict[str, list[str]] = {}  # variable -> names of the parts of its gradient
        self.writers: dict[str, Operator] = {}  # gradient name -> the op that writes it
        self.complete: dict[str, str] = {}  # variable -> its complete gradient, until its writer consumes it
        self.results: dict[str, str] = {}  # variable -> its complete gradient, for the caller
        self.names: dict[str, str] = {}
        self.gradient_to_variable: dict[str, str] = {}

    def gradient_name(self, variable: str) -> str:
        """Returns ``x@GRAD``, or a new name if an earlier differentiation already used it."""
        if variable not in self.names:
            name = variable + GRAD_SUFFIX
            self.names[variable] = unique_name.generate(name) if self.block.has_var(name) else name
        return self.names[variable]

    def contribute(self, variable: str, name: str) -> None:
        self.contributions.setdefault(variable, []).append(name)
        self.gradient_to_variable[name] = variable

    def finish(self, variable: str) -> str | None:
        """Returns the name of a variable's complete gradient, summing its parts on first use."""
        parts = self.contributions.pop(variable, None)
        if parts is not None:
            name = parts[0]
            if len(parts) > 1:
                name = self._gradient_variable(variable, self.gradient_name(variable)).name
                self.block.append_op(type="sum", inputs={"X": parts}, outputs={"Out": name})
            self.complete[variable] = self.results[variable] = name
        return self.complete.get(variable)

    def run(self, segments: RecomputedSegments | None, ops: list[Operator]) -> None:
        for op in reversed(ops):
            self._differentiate(op if segments is None else segments.recomputed(op, self._incoming(op)))
        for variable in list(self.contributions):
            self.finish(variable)

    def _incoming(self, op: Operator) -> list[str]:
        """Returns the complete or partial gradients of the op's outputs."""
        names = (self.complete.get(n) or next(iter(self.contributions.get(n, ())), None) for n in op.output_arg_names)
        return [name for name in names if name]

    def _differentiate(self, op: Operator) -> None:
        gradient = registry.gradient_of(op.definition)
        if gradient is None:
            return
        outgoing = {}
        for slot, names in op.outputs.items():
            found = [self._take(_original(name, op)) for name in names]
            if any(found):
                outgoing[slot + GRAD_SUFFIX] = [name or EMPTY for name in found]
        wanted = {slot.name.removesuffix(GRAD_SUFFIX): slot.name for slot in gradient.outputs}
        sources = {slot: [_original(name, op) for name in names] for slot, names in op.inputs.items() if slot in wanted}
        if not outgoing:
            return
        supply = self._supply_targets([name for names in sources.values() for name in names])
        targets = {wanted[slot]: [next(supply[name]) for name in names] for slot, names in sources.items()}
        if all(name == EMPTY for names in targets.values() for name in names):
            return
        available = {**op.inputs, **op.outputs, **outgoing}
        inputs = {slot.name: available[slot.name] for slot in gradient.inputs if slot.name in available}
        attrs = {n: v for n, v in op.attrs.items() if n not in (OP_ROLE, OP_ROLE_VAR)}
        appended = self._append(op, gradient.type, inputs, targets, attrs)
        for slot, names in targets.items():
            for name, source in zip(names, sources[slot.removesuffix(GRAD_SUFFIX)], strict=True):
                if name != EMPTY:
                    self.contribute(source, name)
                    self.writers[name] = appended
        for callback in self.callbacks:
            callback(block=self.block, context=self.gradient_to_variable)

    def _take(self, variable: str) -> str | None:
        """Consumes the gradient of an op's output. Earlier ops that write the same name wrote a different value."""
        gradient = self.finish(variable)
        self.complete.pop(variable, None)
        return gradient

    def _append(self, forward: Operator, type: str, inputs: dict, targets: dict, attrs: dict) -> Operator:
        appended = self.block.append_op(type=type, inputs=inputs, outputs=targets, attrs=attrs)
        appended.written_at, appended.originals = forward.written_at, forward.originals
        return appended

    def _supply_targets(self, variables: list[str]) -> dict[str, Iterator[str]]:
        """Returns, for each variable, the names for its next gradient parts; a variable may occur more than once."""
        return {v: iter(self._target_names(v, variables.count(v))) for v in dict.fromkeys(variables)}

    def _target_names(self, variable: str, count: int) -> list[str]:
        described = self.block.find_var_recursive(variable)
        if variable in self.no_grad or described is None or described.dtype not in _FLOATING:
            return [EMPTY] * count
        parts = self.contributions.get(variable, [])
        plain = self.gradient_name(variable)
        if not parts and count == 1:
            return [self._gradient_variable(variable, plain).name]
        if parts == [plain] and plain in self.writers:
            parts[0] = self._renamed(variable, plain, 0)
        rename = f"{plain}@RENAME@block{self.block.idx}@"
        return [self._gradient_variable(variable, f"{rename}{len(parts) + i}").name for i in range(count)]

    def _renamed(self, variable: str, plain: str, index: int) -> str:
        """Renames the first part of a gradient when a second one appears."""
        name = self._gradient_variable(variable, f"{plain}@RENAME@block{self.block.idx}@{index}").name
        writer = self.writers.pop(plain)
        writer.rename_output(plain, name)
        self.block.var(name).type = self.block.var(plain).type
        self.gradient_to_variable[name] = variable
        self.writers[name] = writer
        return name

    def _gradient_variable(self, variable: str, name: str) -> Variable:
        source = self.block._var_recursive(variable)
        if self.block.has_var(name):
            return self.block.var(name)
        created = self.block.create_var(name=name, shape=source.shape, dtype=source.dtype, persistable=False)
        created.lod_level = source.lod_level
        if source.type == VarType.LOD_TENSOR_ARRAY:
            created.type = source.type
        return created


def _original(name: str, op: Operator) -> str:
    """Returns the original of a recomputed variable, whose gradient it shares."""
    return op.originals.get(name, name)


def _path(ops: Sequence[Operator], targets: set[str], no_grad: set[str], sources: set[str] | None = None):
    """Returns the ops on a path from ``sources`` (any, by default) to ``targets``."""
    ops = [op for op in ops if op.type not in BOUNDARY]
    if sources is not None:
        reached, forward = set(sources), []
        for op in ops:
            if reached.intersection(op.input_arg_names):
                reached.update(n for n in op.output_arg_names if n not in no_grad)
                forward.append(op)
        ops = forward
    needed, kept = set(targets), []
    for op in reversed(ops):
        if needed.intersection(op.output_arg_names):
            needed.update(n for n in op.input_arg_names if n not in no_grad)
            kept.append(op)
    return kept[::-1]


def _no_grad_names(block: Block, extra: Iterable[Any] | None) -> set[str]:
    names = {v.name for v in block.program.list_vars() if v.stop_gradient}
    if extra is not None:
        names |= {name_of(v) for v in extra}
    return names


def _parameters(block: Block, wanted: Sequence[Any] | None) -> list[Variable]:
    if wanted is None:
        return [p for p in block.program.all_parameters() if p.trainable]
    return [block._var_recursive(name_of(v)) for v in wanted]


def _mark_role_variables(block: Block, pairs: list[tuple[Variable, Variable]]) -> None:
    """Marks the op that completes a parameter's gradient with both names, for transpilers."""
    last_writer = {name: op for op in block.ops for name in op.output_arg_names}
    for parameter, gradient in pairs:
        op = last_writer.get(gradient.name)
        if op is not None and isinstance(parameter, Parameter):
            op.attrs[OP_ROLE_VAR] = [*op.attrs.get(OP_ROLE_VAR, ()), parameter.name, gradient.name]


def _seed_shape(loss: Variable) -> tuple[int, ...]:
    size = 1
    for dim in loss.shape:
        size *= dim
    if size not in (1, -1) or any(dim not in (1, -1) for dim in loss.shape):
        raise ValueError(f"the loss {loss.name} must have one element, but has shape {list(loss.shape)}; take its mean")
    return tuple(1 for _ in loss.shape) or (1,)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
