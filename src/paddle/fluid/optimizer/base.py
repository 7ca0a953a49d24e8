"""The base class of optimizers: from a loss to the ops that update its parameters."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddle.fluid import layers
from paddle.fluid.clip import GradientClipBase, append_gradient_clip_ops, error_clip_callback
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.learning_rate_scheduler import scheduled_rate
from paddle.fluid.regularizer import append_regularization_ops
from refluid.ir import Variable, default_main_program, name_of, name_scope, program_guard, unique_name
from refluid.ir.backward import append_backward

# Parameters with their gradients, which may be None.
Pairs = Sequence[tuple[Any, Any]]


@dataclass(frozen=True)
class State:
    """A tensor that an optimizer keeps for every parameter (Fluid's accumulator).

    Fields: the suffix of its name; its input slot; the output slot that overwrites it, if any; its initial value; its
    shape and dtype, if different from the parameter's.
    """

    name: str
    slot: str
    out: str | None
    fill: float = 0.0
    shape: tuple[int, ...] | None = None
    dtype: Any = None


def state(name: str, slot: str, fill: float = 0.0, **options: Any) -> State:
    """Returns a state that is read from ``slot`` and overwritten by ``slot + "Out"``."""
    return State(name, slot, slot + "Out", fill, **options)


class Optimizer:
    """Base class of optimizers, which append one op of type ``type`` for each parameter.

    Most subclasses define ``attributes`` and ``_states``; others override ``_append_optimize_op``.

    Args:
      learning_rate: a number, a variable, or a schedule of optax: a function of the number of steps before this one.
      regularization: weight decay for parameters without their own.
      name: a prefix of the names of the states.
      grad_clip: how gradients are clipped; overrides `set_gradient_clip`.
      parameter_list: the parameters to update, unless given to `minimize`.
    """

    type = ""
    attributes: Mapping[str, str] = {}  # attribute of the op -> the field that holds its value

    def __init__(
        self,
        learning_rate: float | Variable | Callable[[Any], Any],
        regularization: Any = None,
        name: str | None = None,
        grad_clip: GradientClipBase | None = None,
        parameter_list: Sequence[Any] | None = None,
    ):
        if not isinstance(learning_rate, numbers.Real | Variable) and not callable(learning_rate):
            raise TypeError(
                f"learning_rate must be a number, a variable or a schedule, not {type(learning_rate).__name__}"
            )
        self._check_clip(grad_clip)
        self.regularization = regularization
        self._grad_clip = grad_clip
        self._parameter_list = None if parameter_list is None else list(parameter_list)
        self._name = name
        self._learning_rate = learning_rate
        self._learning_rate_map: dict[Any, Variable] = {}
        if isinstance(learning_rate, Variable):
            self._learning_rate_map[default_main_program()] = learning_rate
        self._dtype: Any = None
        self._accumulators: dict[str, dict[str, Variable]] = {}
        self._opti_name_list: list[str] = []
        self.helper: LayerHelper | None = None

    @staticmethod
    def _check_clip(clip: Any) -> None:
        if clip is not None and not isinstance(clip, GradientClipBase):
            raise TypeError(f"grad_clip must be a GradientClipByValue, ByNorm or ByGlobalNorm, not {clip!r}")

    # Public methods

    def minimize(
        self,
        loss: Variable,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        grad_clip: GradientClipBase | None = None,
    ) -> tuple[list[Any], Pairs]:
        """Appends backward and update ops; returns the update ops and the (parameter, gradient) pairs."""
        if not isinstance(loss, Variable):
            raise TypeError(f"minimize expects the loss variable, not {type(loss).__name__}")
        self._check_clip(grad_clip)
        self._grad_clip = grad_clip or self._grad_clip
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs

    def load(self, stat_dict: Mapping[str, Any]) -> None:
        """Raises: with static programs, states are variables of the scope, and Fluid has this for dynamic graphs."""
        raise RuntimeError(
            f"{type(self).__name__}.load is for dynamic graphs, which refluid does not have yet; the states of "
            "optimizers are loaded with fluid.load or fluid.io.load_persistables"
        )

    def backward(
        self,
        loss: Variable,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        callbacks: Sequence[Callable[..., Any]] | None = None,
    ) -> Pairs:
        """Appends the backward ops and returns the (parameter, gradient) pairs."""
        self._dtype = loss.dtype
        if loss.shape != (1,):
            raise ValueError(
                f"the loss must have shape [1], but {loss.name} has {list(loss.shape)}; take its mean or its sum"
            )
        program = loss.block.program
        ignored = self._get_no_grad_set(loss, no_grad_set)
        with program_guard(program, startup_program):
            pairs = self._append_backward(loss, parameter_list or self._parameter_list, ignored, callbacks)
            self._append_dgc_ops(pairs)
        return pairs

    def apply_gradients(self, params_grads: Pairs) -> list[Any]:
        """Appends clipping, regularization and updates for these gradients; returns the update ops."""
        pairs = sorted(params_grads, key=lambda pair: pair[0].name)
        pairs = self._grad_clip(pairs) if self._grad_clip is not None else append_gradient_clip_ops(pairs)
        return self._create_optimization_pass(append_regularization_ops(pairs, self.regularization))

    def apply_optimize(self, loss: Variable, startup_program: Any, params_grads: Pairs) -> list[Any]:
        """Calls `apply_gradients` in the loss's own program."""
        with program_guard(loss.block.program, startup_program):
            return self.apply_gradients(params_grads)

    def get_opti_var_name_list(self) -> list[str]:
        """Returns the names of the variables this optimizer created: the learning rate and the states."""
        return self._opti_name_list

    # Hooks for subclasses

    def _states(self) -> Sequence[State]:
        """Returns the states to keep for every parameter."""
        return ()

    def _attrs(self, param: Variable) -> dict[str, Any]:
        """Returns the attributes of the op that updates ``param``."""
        return {name: getattr(self, field) for name, field in self.attributes.items()}

    def _inputs(self, param_and_grad: tuple[Variable, Variable]) -> dict[str, Any]:
        """Returns the inputs of the update besides parameter, gradient and states."""
        return {"LearningRate": self._create_param_lr(param_and_grad)}

    def _create_accumulators(self, block: Any, parameters: Sequence[Variable]) -> None:
        """Creates the states of all parameters."""
        for param in parameters:
            for kept in self._states():
                self._add_accumulator(kept.name, param, dtype=kept.dtype, fill_value=kept.fill, shape=kept.shape)

    def _append_optimize_op(self, block: Any, param_and_grad: tuple[Variable, Variable]) -> Any:
        """Appends the op that updates one parameter."""
        param, grad = param_and_grad
        states = {kept: self._get_accumulator(kept.name, param) for kept in self._states()}
        return block.append_op(
            type=self.type,
            inputs={
                "Param": param,
                "Grad": grad,
                **self._inputs(param_and_grad),
                **{kept.slot: variable for kept, variable in states.items()},
            },
            outputs={"ParamOut": param, **{kept.out: variable for kept, variable in states.items() if kept.out}},
            attrs=self._attrs(param),
        )

    def _finish_update(self, block: Any, parameters_and_grads: Pairs) -> None:
        """Appends ops that follow the updates of all parameters."""

    def _append_dgc_ops(self, params_grads: Pairs) -> None:
        """Appends ops that compress gradients right after backward."""

    def _append_backward(self, loss, parameter_list, no_grad_set, callbacks) -> Pairs:
        callbacks = [error_clip_callback] if callbacks is None else list(callbacks)
        return append_backward(loss, parameter_list, no_grad_set, callbacks)

    # Learning rate

    def _create_global_learning_rate(self) -> None:
        program = default_main_program()
        if program in self._learning_rate_map:
            return
        if isinstance(self._learning_rate, Variable):
            raise ValueError(
                f"the learning rate {self._learning_rate.name} belongs to a different program than the loss; "
                "build the schedule inside the program_guard of the training program"
            )
        if callable(self._learning_rate):
            self._learning_rate_map[program] = scheduled_rate(self._learning_rate)
            return
        rate = layers.create_global_var(
            name=unique_name.generate("learning_rate"),
            shape=[1],
            value=float(self._learning_rate),
            dtype="float32" if self._dtype is None else self._dtype,
            persistable=True,
        )
        self._learning_rate_map[program] = rate
        self._opti_name_list.append(rate.name)

    def _global_learning_rate(self, program: Any = None) -> Variable | None:
        """Returns the learning rate variable of ``program``, by default the default main program."""
        return self._learning_rate_map.get(program or default_main_program())

    def _create_param_lr(self, param_and_grad: tuple[Variable, Variable]) -> Variable:
        """Returns the learning rate of one parameter: the global one times ``ParamAttr(learning_rate=)``."""
        factor = getattr(param_and_grad[0], "optimize_attr", {"learning_rate": 1.0})["learning_rate"]
        if isinstance(factor, Variable):
            return factor
        rate = self._global_learning_rate()
        assert rate is not None
        if factor == 1.0:
            return rate
        with default_main_program()._lr_schedule_guard(is_with_opt=True), name_scope("scale_with_param_lr"):
            return rate * factor

    # States

    def _add_accumulator(
        self,
        name: str,
        param: Variable,
        dtype: Any = None,
        fill_value: float = 0.0,
        shape: Sequence[int] | None = None,
        type: Any = None,
    ) -> Variable:
        """Creates the state ``name`` of one parameter, named ``<parameter>_<name>_0``."""
        name = self._state_name(name)
        if param.name in self._accumulators.get(name, {}):
            raise ValueError(f"{param.name} already has a state {name}; an optimizer can minimize a loss only once")
        assert self.helper is not None
        variable = self.helper.create_global_variable(
            name=unique_name.generate(f"{param.name}_{name}"),
            persistable=True,
            dtype=dtype or param.dtype,
            type=param.type if type is None else type,
            shape=list(param.shape) if shape is None else list(shape),
            belong_to_optimizer=True,
        )
        self.helper.set_variable_initializer(variable, initializer=Constant(value=float(fill_value)))
        self._opti_name_list.append(variable.name)
        self._accumulators.setdefault(name, {})[param.name] = variable
        return variable

    def _get_accumulator(self, name: str, param: Variable) -> Variable:
        """Returns the state ``name`` of one parameter."""
        try:
            return self._accumulators[self._state_name(name)][param.name]
        except KeyError:
            raise ValueError(f"{param.name} has no state {name}") from None

    def _state_name(self, name: str) -> str:
        return name if self._name is None else f"{self._name}_{name}"

    # The optimization pass

    def _create_optimization_pass(self, parameters_and_grads: Pairs) -> list[Any]:
        """Appends states, learning rate and updates; returns the ops in order."""
        block = default_main_program().global_block()
        start = len(block.ops)
        self.helper = LayerHelper(self.__class__.__name__)
        trainable = [(param, grad) for param, grad in parameters_and_grads if getattr(param, "trainable", True)]
        self._create_accumulators(block, [param for param, _ in trainable])
        self._create_global_learning_rate()
        for param, grad in trainable:
            if grad is None:
                continue
            with param.block.program._optimized_guard([param, grad]), name_scope("optimizer"):
                self._append_optimize_op(block, (param, grad))
        self._finish_update(block, parameters_and_grads)
        return block._slice_ops(start, len(block.ops))

    def _get_no_grad_set(self, loss: Variable, no_grad_set: Any = None) -> set[str]:
        """Returns the given names and those of parameters that are not trainable."""
        names = {name_of(variable) for variable in no_grad_set or ()}
        return names | {param.name for param in loss.block.program.all_parameters() if not param.trainable}
