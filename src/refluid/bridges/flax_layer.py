"""Flax modules as layers: their variables become parameters and persistable variables of the program."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import jax
import numpy as np

from paddle.fluid.initializer import Initializer
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.param_attr import ParamAttr
from refluid.bridges.appending import Inputs, append_call
from refluid.bridges.modules import Held, Module, Path, as_module
from refluid.bridges.storage import Stored
from refluid.ir import Block, Operator, Parameter, Variable, as_numpy
from refluid.ops.jax_call import JaxCall


def flax_layer(
    module: Any,
    *inputs: Any,
    name: str | None = None,
    param_attr: Any = None,
    method: Any = None,
    rngs: Sequence[str] = ("dropout",),
    x64: bool | None = None,
    **static: Any,
) -> Any:
    """Appends a flax module to the program as an operator; returns its results as variables.

    >>> hidden = refluid.flax_layer(nn.Dense(64), x, name="hidden")                            # linen
    >>> hidden = refluid.flax_layer(lambda rngs: nnx.Linear(13, 64, rngs=rngs), x)             # NNX

    The module's parameters are parameters of the program, such as ``hidden.kernel``: the startup program initialises
    them, from its seed, in the way of the module; optimizers, clipping, regularization, files, servers and several
    devices treat them like all others. Other collections, such as the statistics of a BatchNorm, become persistable
    variables that training updates. Random streams follow the program's seed and step. The module is told that it
    trains through whichever of the arguments ``train``, ``training``, ``deterministic`` and ``use_running_average`` its
    method has; ``clone(for_test=True)`` turns that off.

    Args:
      module: of linen or NNX; or a function from `nnx.Rngs` to an NNX module. An NNX module begins with its own values.
      inputs: variables, or trees of them. The first dim may be unknown. Sequences (LoD) are given as rows, to modules
        that work row by row.
      name: the prefix of all variables; calls with the same name share them.
      param_attr: a ParamAttr for all parameters, or a dict from paths, such as ``"Dense_0.kernel"`` or ``"*.bias"``, to
        ParamAttrs for some of them.
      method: the method to call, or its name.
      rngs: the names of linen's random streams that the module uses in addition to ``params``.
      x64: whether the module works with 64-bit values; see `jax_layer`.
      static: keyword arguments of the method; those that hold variables are inputs, too.

    Returns:
      A variable, or a tree of variables in the structure that the method returns.

    Raises:
      OpError: the module cannot be traced with inputs of these shapes, or has variables that programs cannot hold.
    """
    fed = {key: value for key, value in static.items() if any(isinstance(v, Variable) for v in jax.tree.leaves(value))}
    given = Inputs("flax_layer", getattr(module, "__name__", type(module).__name__), (inputs, fed))
    wide = given.has_doubles if x64 is None else x64
    try:
        with jax.enable_x64(wide):
            wrapped = as_module(module, method, {key: value for key, value in static.items() if key not in fed}, rngs)
    except Exception as error:
        raise given.explained(error) from error
    given.title = f"{wrapped.kind.__name__}.{wrapped.method}"
    held = _held(wrapped, given, wide)
    helper = LayerHelper(wrapped.kind.__name__.lower(), name=name)
    attrs = _attrs(param_attr, list(held.params), given)
    params = [
        _parameter(helper, given, _Beginning(wrapped, True, path, form, wide), attrs[path])
        for path, form in held.params.items()
    ]
    states = [_state(helper, _Beginning(wrapped, False, path, form, wide)) for path, form in held.states.items()]

    def run(values: Any, kept_params: Any, kept_states: Any, key: Any, is_test: bool) -> tuple[Any, Any]:
        unpacked = [form.unpack(kept) for form, kept in zip(held.params.values(), kept_params, strict=True)]
        before = [form.unpack(kept) for form, kept in zip(held.states.values(), kept_states, strict=True)]
        results, after = wrapped.run(given.filled(values), unpacked, before, key, is_test)
        return results, [form.pack(state) for form, state in zip(held.states.values(), after, strict=True)]

    return append_call(given, helper, JaxCall(wrapped.title, run, wide), params, states)


@dataclass(frozen=True)
class _Beginning(Initializer):
    """How a param or a state of a module begins, as an initializer of Fluid."""

    module: Module
    is_param: bool
    path: Path
    form: Stored
    x64: bool

    def __call__(self, param: Variable, block: Block) -> Operator:
        def begin(values: Any, params: Any, states: Any, key: Any, is_test: bool) -> tuple[Any, Any]:
            return self.form.pack(self.module.begin(self.is_param, self.path, key)), states

        call = JaxCall(f"{self.module.title} {_text(self.path)}", begin, self.x64)
        return block._prepend_op(type="random_jax_call", outputs={"Out": param}, attrs={"call": call})


def _held(module: Module, given: Inputs, x64: bool) -> Held:
    """What a module holds, as it is stored; independent of unknown dims."""
    found: list[Held] = []
    problem: Exception | None = None
    for size in given.sizes:
        try:
            with jax.enable_x64(x64):
                found.append(module.held(given.filled(_narrow(given.abstract(size), x64))))
        except Exception as error:  # noqa: BLE001 - a module may raise anything
            problem = problem or error
        if len(found) == 2:
            break
    if not found:
        assert problem is not None
        raise given.explained(problem) from problem
    held = found[-1]
    for kind in ("params", "states"):
        for path, value in getattr(held, kind).items():
            if getattr(found[0], kind)[path].shape != value.shape:
                raise given.error(f"the shape of {_text(path)} depends on an unknown dim of the inputs")

    def stored(path: Path, value: Any) -> Stored:
        try:
            return Stored.of(value)
        except TypeError as error:
            raise given.error(f"its variable {_text(path)} cannot be kept: {error}") from error

    kinds = (held.params, held.states)
    return Held(*({path: stored(path, value) for path, value in each.items()} for each in kinds))


def _narrow(values: Sequence[Any], x64: bool) -> list[Any]:
    wide = (np.int64, np.uint64)
    return [jax.ShapeDtypeStruct(v.shape, np.int32) if v.dtype in wide and not x64 else v for v in values]


def _text(path: Path) -> str:
    return ".".join(map(str, path)).replace("/", "_")  # as in names of SpectralNorm; names are those of files, too


def _attrs(given: Any, paths: Sequence[Path], inputs: Inputs) -> dict[Path, ParamAttr]:
    """The attributes of each parameter."""
    if isinstance(given, Mapping):
        unused = [pattern for pattern in given if not any(fnmatchcase(_text(path), pattern) for path in paths)]
        if unused:
            known = ", ".join(map(_text, paths)) or "none"
            raise inputs.error(f"param_attr names {unused[0]!r}, which is no parameter of it", f"it has {known}")
        chosen = {
            path: next((attr for pattern, attr in given.items() if fnmatchcase(_text(path), pattern)), None)
            for path in paths
        }
    else:
        chosen = dict.fromkeys(paths, given)
    attrs = {path: ParamAttr._to_attr(copy.copy(attr)) for path, attr in chosen.items()}
    names = [attr.name for attr in attrs.values() if attr and attr.name is not None]
    if len(names) != len(set(names)):
        raise inputs.error(f"param_attr gives the name {names[0]!r} to several parameters; give it a dict")
    if not all(attrs.values()):
        raise inputs.error("param_attr cannot be False: a module creates its own parameters")
    return attrs


def _parameter(helper: LayerHelper, given: Inputs, beginning: _Beginning, attr: ParamAttr) -> Parameter:
    form = beginning.form
    attr = copy.copy(attr)
    attr.name = attr.name or f"{helper.name}.{_text(beginning.path)}"
    known = helper.main_program.global_block().vars.get(attr.name)
    if isinstance(known, Parameter) and (known.shape, as_numpy(known.dtype)) == (form.shape, form.dtype):
        return known
    if known is not None:
        raise given.error(
            f"{attr.name} is {as_numpy(known.dtype)}{list(known.shape)} in this program already, "
            f"but {form.dtype}{list(form.shape)} is needed",
            "layers of the same name share their variables; choose another name",
        )
    return helper.create_parameter(attr, form.shape, form.dtype, default_initializer=beginning)


def _state(helper: LayerHelper, beginning: _Beginning) -> Variable:
    name, form = f"{helper.name}.{_text(beginning.path)}", beginning.form
    variable, is_new = helper.create_or_get_global_variable(
        name, dtype=form.dtype, shape=list(form.shape), persistable=True, stop_gradient=True
    )
    if is_new:
        helper.set_variable_initializer(variable, beginning)
    return variable
