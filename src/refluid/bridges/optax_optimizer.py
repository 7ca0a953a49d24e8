"""Optax transformations as optimizers of Fluid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax

from paddle.fluid.initializer import Constant, NumpyArrayInitializer
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.optimizer import Optimizer
from refluid.bridges.transformations import ClockUpdate, JointUpdate, Leaf, ParameterUpdate, Transformation
from refluid.errors import OpError
from refluid.ir import Variable, VarType, as_numpy, default_main_program, default_startup_program, unique_name
from refluid.ir.source import user_line
from refluid.ops.jax_call import JaxCall


class OptaxOptimizer(Optimizer):
    """Minimizes a loss with an optax transformation, with the methods of Fluid's optimizers.

    >>> schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, warmup_steps=100, decay_steps=1000)
    >>> refluid.OptaxOptimizer(optax.adamw(schedule)).minimize(loss)

    The transformation sees a dict from names to parameters, so masks and labels go by name. Its state consists of
    persistable variables that are saved and loaded with all others: those of parameters are named after them
    (``fc_0.w_0_0.mu_0``), those that all share after the optimizer (``optax_0.0.count``; with
    `optax.inject_hyperparams`, ``optax_0.hyperparams.learning_rate``).

    What the transformation looks at is found by following its computation. One that works element by element updates
    slices of parameters on servers, and the rows of sparse gradients, where rows without a gradient keep their state.
    One that looks at whole parameters keeps each on one server and takes no sparse gradients. One that looks at several
    parameters at once, such as clipping by their common norm, cannot be used with servers; ``grad_clip`` can.

    Args:
      transformation: its updates are added to the parameters, so it contains the learning rate.
      regularization: weight decay for parameters without their own, added to gradients.
      grad_clip: how gradients are clipped before the transformation.
      name: the prefix of the variables that all parameters share.
      parameter_list: the parameters to update, unless given to `minimize`.
    """

    type = "optax"

    def __init__(
        self,
        transformation: optax.GradientTransformation,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        parameter_list: Sequence[Any] | None = None,
    ):
        if not (hasattr(transformation, "init") and hasattr(transformation, "update")):
            raise TypeError(f"expected an optax transformation, such as optax.adam(1e-3), not {transformation!r}")
        super().__init__(1.0, regularization, name, grad_clip, parameter_list)
        self._transformation = transformation

    def _create_optimization_pass(self, parameters_and_grads: Any) -> list[Any]:
        block = default_main_program().global_block()
        start = len(block.ops)
        self.helper = LayerHelper("optax", name=self._name)
        pairs = [(p, g) for p, g in parameters_and_grads if getattr(p, "trainable", True) and g is not None]
        if not pairs:
            self._finish_update(block, parameters_and_grads)
            return block._slice_ops(start, len(block.ops))
        whole = self._followed(pairs)
        joint = whole.separation.joint
        if joint is None:
            self._update_apart(block, whole, pairs)
        else:
            self._update_together(block, whole, pairs, joint)
        self._finish_update(block, parameters_and_grads)
        return block._slice_ops(start, len(block.ops))

    def _followed(self, pairs: Sequence[tuple[Variable, Variable]]) -> Transformation:
        """The transformation for these parameters, with what it looks at known."""
        params = {p.name: jax.ShapeDtypeStruct(p.shape, as_numpy(p.dtype)) for p, _ in pairs}
        try:
            whole = Transformation(self._transformation, params)
            assert whole.separation
        except Exception as error:
            lines = [f"parameter   {p.name}  {as_numpy(p.dtype)}{list(p.shape)}" for p, _ in pairs]
            problem = f"the transformation cannot be used: {str(error).strip().splitlines()[0]}"
            raise OpError("OptaxOptimizer", problem, lines, [], str(user_line())) from error
        return whole

    def _update_apart(self, block: Any, whole: Transformation, pairs: Sequence[tuple[Variable, Variable]]) -> None:
        now = self._append_clock(block, whole)
        for param, grad in pairs:
            is_whole = param.name in whole.separation.whole
            if is_whole:
                _refuse_sparse(param, grad, "the transformation needs whole gradients of it")
            states = [self._state_of(param, whole, leaf) for leaf in whole.owned(param.name)]
            with param.block.program._optimized_guard([param, grad]):
                block.append_op(
                    type="optax_update" if is_whole else "optax_row_update",
                    inputs={"Param": param, "Grad": grad, "State": states, "Now": now},
                    outputs={"ParamOut": param, "StateOut": states},
                    attrs={"update": ParameterUpdate(whole, param.name, _factor(param))},
                )

    def _append_clock(self, block: Any, whole: Transformation) -> list[Variable]:
        """Appends the operator that advances what all parameters share; returns the values for this step."""
        clock = [self._shared_state(whole, leaf) for leaf in whole.clock]
        if not clock:
            return []
        assert self.helper is not None
        now = [self.helper.create_variable_for_type_inference(v.dtype, stop_gradient=True) for v in clock]
        with default_main_program()._lr_schedule_guard():
            block.append_op(
                type="optax_clock",
                inputs={"Clock": clock},
                outputs={"Now": now, "ClockOut": clock},
                attrs={"update": ClockUpdate(whole)},
            )
        return now

    def _update_together(
        self, block: Any, whole: Transformation, pairs: Sequence[tuple[Variable, Variable]], reason: str
    ) -> None:
        params, grads = [p for p, _ in pairs], [g for _, g in pairs]
        for param, grad in pairs:
            _refuse_sparse(param, grad, f"the transformation looks at several parameters at once: {reason}")
        by_name = {param.name: param for param in params}
        states = [
            self._shared_state(whole, leaf) if leaf.owner is None else self._state_of(by_name[leaf.owner], whole, leaf)
            for leaf in whole.leaves
        ]
        with default_main_program()._optimized_guard([v for pair in pairs for v in pair]):
            block.append_op(
                type="optax_joint_update",
                inputs={"Param": params, "Grad": grads, "State": states},
                outputs={"ParamOut": params, "StateOut": states},
                attrs={"update": JointUpdate(whole, [_factor(param) for param in params], reason)},
            )

    def _shared_state(self, whole: Transformation, leaf: Leaf) -> Variable:
        assert self.helper is not None
        first = next(iter(whole.params.values()))
        value = np.asarray(whole.initial(leaf, np.zeros(first.shape, first.dtype)))
        name = f"{self.helper.name}.{leaf.name}"
        if name in default_main_program().global_block().vars:  # of an earlier call of minimize, for another loss
            name = unique_name.generate(name)
        return self._kept(name, leaf, NumpyArrayInitializer(value))

    def _state_of(self, param: Variable, whole: Transformation, leaf: Leaf) -> Variable:
        """A state of a parameter; the startup program computes those that begin with more than one number."""
        name = unique_name.generate(f"{param.name}_{leaf.name}")
        fill = whole.constant(leaf)
        if fill is not None:
            return self._kept(name, leaf, Constant(fill))
        variable = self._kept(name, leaf, None)

        def begin(values: Any, params: Any, states: Any, *_: Any) -> tuple[Any, Any]:
            return whole.initial(leaf, values[0]), states

        call = JaxCall(f"optax {leaf.name}", begin, whole.x64)
        default_startup_program().global_block().append_op(
            type="jax_call", inputs={"X": param.name}, outputs={"Out": name}, attrs={"call": call}
        )
        return variable

    def _kept(self, name: str, leaf: Leaf, initializer: Any) -> Variable:
        assert self.helper is not None
        variable = self.helper.create_global_variable(
            name=name,
            persistable=True,
            dtype=leaf.form.dtype,
            shape=list(leaf.form.shape),
            belong_to_optimizer=True,
        )
        self._opti_name_list.append(name)
        startup = default_startup_program().global_block()
        startup.create_var(
            name=name, dtype=variable.dtype, shape=variable.shape, persistable=True, initializer=initializer
        )
        return variable


def _refuse_sparse(param: Variable, grad: Variable, reason: str) -> None:
    if grad.type == VarType.SELECTED_ROWS:
        raise OpError(
            "OptaxOptimizer",
            f"the gradient of {param.name} is sparse, but {reason}",
            [f"parameter   {param.name}  {as_numpy(param.dtype)}{list(param.shape)}"],
            hint="build the embedding with is_sparse=False, or choose a transformation that works element by element; "
            "clip with grad_clip=fluid.clip.GradientClipByGlobalNorm",
            written_at=str(user_line()),
        )


def _factor(param: Variable) -> float:
    factor = getattr(param, "optimize_attr", {"learning_rate": 1.0})["learning_rate"]
    if isinstance(factor, Variable):
        raise TypeError(f"OptaxOptimizer: the learning rate of {param.name} must be a number, not a variable")
    return float(factor)
