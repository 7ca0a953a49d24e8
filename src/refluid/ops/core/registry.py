"""The definition of ops, and the table of all of them.

A single function defines an op. Positional parameters are its input slots, in order; keyword-only
parameters are its attributes with Fluid's defaults; the returned values are its output slots, in order.
Shapes, dtypes and gradients are derived from that function elsewhere (`infer`, `gradients`).

Slots are written as Fluid spells them, with ``*`` for a repeated slot (the rule sees a list) and ``?`` for an
optional one (the rule sees None when it is not connected)::

    @op("elementwise_add", inputs="X Y", outputs="Out")
    def elementwise_add(x, y, *, axis=-1): ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refluid.errors import UnknownOpError
from refluid.ops.core.values import SelectedRows

GRAD_SUFFIX = "@GRAD"
EMPTY = "@EMPTY@"  # the name of an output that is not needed
# Ops that move values between a program and its caller or its readers; they have no rule.
BOUNDARY = frozenset({"feed", "fetch", "read"})

# Keyword-only parameters that the lowering provides; they are not attributes of the op.
_SERVICES = frozenset({"key", "host", "run_block", "replaces_state"})

# Whether an op runs on the host: always or never, depending on its attributes and connected input slots, or depending
# on the program around it (see `refluid.lowering.host_ops`).
OnHost = (
    bool | Callable[[dict[str, Any], frozenset[str]], bool] | Literal["loop", "branch", "loop_array", "array_sizes"]
)
Slicing = Literal["rows", "sum", "norm", "fill"]
Random = bool | Literal["replayed"]
# Always or never, or depending on the inputs: values or descriptions of them, by slot (see `levels_of`).
FindsRows = bool | Callable[[dict[str, list[Any]]], bool]
Constant = bool | Literal["of_list"]  # "of_list": only if X is an array filled at known positions


@dataclass(frozen=True)
class Slot:
    """One input or output slot of an op."""

    name: str
    repeated: bool = False
    optional: bool = False

    @classmethod
    def parse(cls, text: str) -> Slot:
        name = text.rstrip("*?")
        flags = text[len(name) :]
        return cls(name, repeated="*" in flags, optional="?" in flags)


@dataclass(frozen=True)
class OpDef:
    """A registered op: its schema and its rule."""

    type: str
    rule: Callable[..., Any]
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    services: frozenset[str] = frozenset()
    differentiable: frozenset[str] | None = None  # input slots; None means all floating-point ones
    has_grad: bool = True
    infer: Callable[..., Any] | None = None
    static: frozenset[str] = frozenset()
    constant: Constant = False
    random: Random = False
    host: OnHost = False
    lod: str | None = "share"
    row_wise: bool | Callable[[dict[str, Any], dict[str, list[Any]]], bool] = False
    sparse_outputs: Callable[[dict[str, Any]], set[str]] | None = None  # attrs -> slots that hold SelectedRows
    together: Callable[..., list[Any]] | None = None
    in_place: bool = False
    slices: Slicing | None = None
    moves_values: bool | Callable[[dict[str, Any]], bool] = False
    overwrites: tuple[str, str] | None = None
    loops: bool = False
    matrix: str | None = None
    rows_of: str | None = None
    finds_rows: FindsRows = False
    makes_reader: bool = False  # it puts a reader into the scope, before a step; see `refluid.reading`
    forward: OpDef | None = None  # set on derived gradient ops only

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self.outputs)

    def takes_padding(self, attrs: dict[str, Any], arguments: dict[str, list[Any]]) -> bool:
        """Whether padding rows in the inputs leave the real rows of the outputs unchanged."""
        if self.forward is not None:
            inputs = {slot: arguments[slot] for slot in self.forward.input_names if slot in arguments}
            return self.forward.takes_padding(attrs, inputs)
        if callable(self.row_wise):
            return self.row_wise(attrs, arguments)
        return self.row_wise or self.lod == "aware"

    def may_find_rows(self, inputs: dict[str, list[Any]]) -> bool:
        """Whether how many rows the outputs have depends on values, so that some rows are padding if it is compiled."""
        if self.forward is not None:
            return self.forward.may_find_rows(inputs)
        return self.finds_rows(inputs) if callable(self.finds_rows) else self.finds_rows

    def keeps_values(self, attrs: dict[str, Any]) -> bool:
        """Whether the outputs contain only values of the inputs, so that a check on them can be made on the inputs."""
        return self.moves_values(attrs) if callable(self.moves_values) else self.moves_values

    def known_attrs(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """The attributes the rule understands; the rest only choose kernels in real Fluid."""
        return {name: attrs[name] for name in self.attrs if name in attrs}

    def call(self, arguments: dict[str, list[Any]], attrs: dict[str, Any], **services: Any) -> dict[str, list[Any]]:
        """Runs the rule on slot -> values and returns slot -> values."""
        results = self.rule(*self._positional(arguments), **self.known_attrs(attrs), **services)
        return self.bind_results(results)

    def call_together(
        self, arguments: Sequence[dict[str, list[Any]]], attrs: dict[str, Any]
    ) -> list[dict[str, list[Any]] | None]:
        """Runs several operators at once; returns for each the result of `call`, or None if `call` is still needed."""
        assert self.together is not None
        results = self.together([self._positional(each) for each in arguments], **self.known_attrs(attrs))
        return [None if result is None else self.bind_results(result) for result in results]

    def _positional(self, arguments: dict[str, list[Any]]) -> list[Any]:
        return [_argument(slot, arguments.get(slot.name)) for slot in self.inputs]

    def bind_results(self, results: Any) -> dict[str, list[Any]]:
        """Names the rule's return values by output slot; None leaves a slot unwritten."""
        if len(self.outputs) == 1:
            results = (results,)
        bound: dict[str, list[Any]] = {}
        for slot, value in zip(self.outputs, results, strict=True):
            if value is not None:
                bound[slot.name] = list(value) if slot.repeated else [value]
        return bound


def _argument(slot: Slot, values: list[Any] | None) -> Any:
    if slot.repeated:
        return list(values or ())
    return values[0] if values else None


_OPS: dict[str, OpDef] = {}


def op(
    type: str,
    *,
    inputs: str,
    outputs: str,
    grad: str | None = "auto",
    differentiable: str | None = None,
    infer: Callable[..., Any] | None = None,
    static: str = "",
    constant: Constant = False,
    random: Random = False,
    host: OnHost = False,
    lod: str | None = "share",
    row_wise: bool | Callable[[dict[str, Any], dict[str, list[Any]]], bool] = False,
    sparse_outputs: Callable[[dict[str, Any]], set[str]] | None = None,
    together: Callable[..., list[Any]] | None = None,
    in_place: bool = False,
    slices: Slicing | None = None,
    moves_values: bool | Callable[[dict[str, Any]], bool] = False,
    overwrites: str | None = None,
    loops: bool = False,
    matrix: str | None = None,
    rows_of: str | None = None,
    finds_rows: FindsRows = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the decorated function as the definition of op ``type``.

    Args:
      type: Fluid's op type.
      inputs, outputs: slot names in order, ``*`` repeated, ``?`` optional.
      grad: "auto" derives ``<type>_grad`` with jax.vjp, unless an op of that name is registered; None means that no
        gradient flows through the op.
      differentiable: input slots that can receive a gradient; by default all floating-point inputs.
      infer: replaces inference by abstract evaluation. Called as ``infer(inputs, attrs)`` with slot -> list of
        ``ShapeDtype``, returns slot -> list of ``ShapeDtype``; unknown dims are -1.
      static: input slots whose values determine shapes; the rule receives them as NumPy arrays. If they are not known
        while tracing, the op runs on the host, between compiled pieces.
      constant: the outputs depend on the inputs' shapes only, so they are known while tracing; "of_list": only if X is
        an array filled at known positions.
      random: the rule takes ``key``, a jax.random key. "replayed": the gradient is derived from the rule, which then
        draws the same numbers again; otherwise a gradient op of its own has to remember them.
      host: the rule runs on the host, on concrete arrays, never inside a compiled piece. A ``host`` parameter in its
        signature receives a `Host`. May be a function of the attributes and the connected input slots, or depend on the
        program: "loop" and "branch" run on the host unless they have a form that compiles, "loop_array" if a loop on
        the host fills the array X, "array_sizes" if the number or the sizes of the tensors in X are not known while
        tracing.
        A ``replaces_state`` parameter says whether the op writes variables that it reads.
        A rule with a ``run_block`` parameter runs blocks: it receives a `RunBlock`, and gradients are derived even on
        the host.
      lod: how sequences are passed. "share": the rule sees their rows as plain arrays, and outputs with the same number
        of rows get the offsets of the first input. None: likewise, but outputs are not sequences. "aware": the rule
        takes and returns `Ragged` values and handles their padding.
      row_wise: whether each output row depends only on the same input row, so that padding rows are harmless; or a
        function of the attributes and the arguments (see `row_wise`). Rules with lod="aware" handle padding unless they
        have such a function.
      sparse_outputs: called with the attributes; returns the output slots that hold SelectedRows instead of arrays.
      together: a faster rule for several operators with the same attributes that do not depend on each other. Called
        with a list of the positional arguments of each, and the attributes; returns for each the result of the rule, or
        None if the rule has to be called.
      in_place: ``together`` updates state in place, so it is called only where the old state is no longer needed.
      slices: how the op applies to a slice of the rows of a parameter. "rows": as it does to these rows of the whole;
        "sum": it computes a part of the sum; "norm": it needs a norm of the whole, which the transpiler adds up from
        parts; "fill": it fills a variable of any shape uniformly.
      moves_values: the outputs contain only values of the inputs; may be a function of the attributes.
      overwrites: "Slot:Out" for an op that updates the variables in ``Out`` in place. Real Fluid does not list them
        among the inputs; our op reads them through ``Slot``.
      loops: the rule multiplies matrices in every iteration of a loop.
      matrix: the slot of the matrix that rows are multiplied by.
      rows_of: the slot of a table of which the op takes only the rows that ``Ids`` names.
      finds_rows: how many rows the outputs have depends on values. In a compiled piece, they are as many as there may
        be, and some of them padding. Where sequences must not be padded, the op and its gradient run on the host
        instead, and the padding is cut off. May be a function of the inputs, which are values or descriptions of them.
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(rule).parameters.values()
        keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        add(
            OpDef(
                type=type,
                rule=rule,
                inputs=tuple(map(Slot.parse, inputs.split())),
                outputs=tuple(map(Slot.parse, outputs.split())),
                attrs={p.name: p.default for p in keywords if p.name not in _SERVICES},
                services=frozenset(p.name for p in keywords) & _SERVICES,
                differentiable=None if differentiable is None else frozenset(differentiable.split()),
                has_grad=grad is not None,
                infer=infer,
                static=frozenset(static.split()),
                constant=constant,
                random=random,
                host=host,
                lod=lod,
                row_wise=row_wise,
                sparse_outputs=sparse_outputs,
                together=together,
                in_place=in_place,
                slices=slices,
                moves_values=moves_values,
                overwrites=None if overwrites is None else _pair(overwrites),
                loops=loops,
                matrix=matrix,
                rows_of=rows_of,
                finds_rows=finds_rows,
            )
        )
        return rule

    return register


def _pair(text: str) -> tuple[str, str]:
    slot, written = text.split(":")
    return slot, written


def elementwise_ops(rules: dict[str, Callable[..., Any]], **options: Any) -> None:
    """Registers plain JAX functions of one array as ops with slots X and Out, one table entry each."""
    for type, rule in rules.items():
        op(type, inputs="X", outputs="Out", **options)(_unary(rule))


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(x):
        return x.map_values(function) if isinstance(x, SelectedRows) else function(x)

    rule.__doc__ = (function.__doc__ or "").split("\n")[0]
    return rule


def add(definition: OpDef) -> None:
    """Registers a definition; `op` is the usual way to write one."""
    if definition.type in _OPS:
        raise ValueError(f"op {definition.type} is registered twice")
    _OPS[definition.type] = definition


def lookup(type: str) -> OpDef:
    """The definition of op ``type``; gradient ops that are not registered are derived from their forward op."""
    found = _OPS.get(type)
    if found is not None:
        return found
    if type.endswith("_grad"):
        from refluid.ops.core.gradients import derive_gradient_op

        try:
            forward = lookup(type.removesuffix("_grad"))
        except UnknownOpError:
            raise UnknownOpError(type) from None
        derivable = forward.host is not True or "run_block" in forward.services
        if forward.has_grad and forward.random is not True and derivable:
            return _OPS.setdefault(type, derive_gradient_op(forward))
    raise UnknownOpError(type, nearest=_nearest(type))


def is_known(type: str) -> bool:
    """Whether ``type`` can be looked up."""
    try:
        lookup(type)
    except UnknownOpError:
        return False
    return True


def handles_readers(type: str) -> bool:
    """Whether an op makes a reader or takes a batch from one."""
    return type == "read" or (type in _OPS and _OPS[type].makes_reader)


def gradient_of(definition: OpDef) -> OpDef | None:
    """The gradient op of an op, or None where no gradient flows."""
    if not definition.has_grad or not is_known(definition.type + "_grad"):
        return None
    return lookup(definition.type + "_grad")


def all_types() -> Iterable[str]:
    """Every registered op type, excluding derived gradients."""
    return sorted(type for type, definition in _OPS.items() if definition.forward is None)


def _nearest(type: str) -> str | None:
    import difflib

    close = difflib.get_close_matches(type, _OPS, n=1, cutoff=0.85)
    return close[0] if close else None
