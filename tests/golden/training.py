"""Runs training cases through ``paddle.fluid``: the same code on real Fluid (to record) and on refluid (to test).

A case builds a model and says what to fetch; parameters get fixed values by name and batches come from seeds, so only
what was fetched, and for small models what was learned, is stored. Runs on Python 3.7 too.
"""

import numpy as np

from golden.case import f32, parameter_value
from golden.runner import feed_value

# Bits of op_role: the ops that an optimizer, clipping, decay and a learning rate schedule append.
_UPDATES = 2 | 16


class TrainCase:
    """One training run.

    build: called with ``fluid``, returns the variables to fetch in every step, the loss first. feed: called with the
    step, returns the batch. steps: how many. keep: "all" stores what is persistable at the end and the update ops too;
    "fetches" stores only what was fetched, for models. ops, roles: whether the update ops, and the variables that their
    roles name, must be real Fluid's. Instead of a list, build may return {"fetch": list, "finish": function}: what
    finish(fluid, exe, scope) yields after training is stored as well.
    """

    def __init__(self, name, build, feed, steps, keep="all", ops=True, roles=True, rtol=1e-5, reason=""):
        assert rtol == 1e-5 or reason, "a tolerance of its own needs a reason"
        self.name, self.build, self.feed, self.steps = name, build, feed, steps
        self.keep, self.rtol, self.reason = keep, rtol, reason
        self.ops, self.roles = ops, ops and roles


def run(fluid, case, prepare=None):
    """The case's results: key -> array. ``prepare(program)`` may change the program before it is run."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.scope_guard(scope), fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetches = case.build(fluid)
        finish = None
        if isinstance(fetches, dict):
            fetches, finish = fetches["fetch"], fetches["finish"]
        results = {}
        if case.keep == "all":
            updates = [op for op in main.global_block().ops if role(op) & _UPDATES]
            results["updates"] = np.array([describe(op) for op in updates])
            results["roles"] = np.array([describe_role(op) for op in updates])
        if prepare is not None:
            prepare(main)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        initialise(fluid, scope, main, case.keep)
        names = [v.name for v in fetches]
        steps = [exe.run(main, feed=as_feed(fluid, case.feed(step)), fetch_list=names) for step in range(case.steps)]
        for i in range(len(names)):
            results[f"fetch/{i}"] = np.stack([np.array(values[i]) for values in steps])
        if case.keep == "all":
            for variable in main.list_vars():
                if variable.persistable and scope.find_var(variable.name) is not None:
                    value = np.array(scope.find_var(variable.name).get_tensor())
                    results["state/" + variable.name] = value
        if finish is not None:
            for key, value in finish(fluid, exe, scope):
                results["finish/" + key] = np.array(value)
        return results


def as_feed(fluid, batch):
    """A batch as it is fed: sequences as LoDTensors."""
    return {name: feed_value(fluid, value) for name, value in batch.items()}


def initialise(fluid, scope, main, keep):
    """All parameters are noise in small cases; in models only matrices are, scaled by their width.

    The slow copies of LookaheadOptimizer begin where their parameters do.
    """
    for parameter in main.global_block().all_parameters():
        shape = tuple(parameter.shape)
        if keep == "all":
            value = parameter_value(parameter.name, shape)
        elif len(shape) > 1:
            width = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
            value = f32(*shape, salt=parameter.name) * np.float32(np.sqrt(3.0 / max(width, 16)))
        else:
            continue
        value = value.astype("float64" if parameter.dtype == fluid.core.VarDesc.VarType.FP64 else "float32")
        for name in (parameter.name, parameter.name + "@SLOW"):
            if scope.find_var(name) is not None:
                scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())


def role(op):
    return int(op.attr("op_role")) if op.has_attr("op_role") else 0


def describe(op):
    """An op as one line: type, inputs and outputs."""
    ins = " ".join(s + "=" + ",".join(op.input(s)) for s in sorted(op.input_names) if op.input(s))
    outs = " ".join(s + "=" + ",".join(op.output(s)) for s in sorted(op.output_names) if op.output(s))
    return f"{op.type}({ins}) -> {outs}"


def describe_role(op):
    """An op's role and the parameter and gradient it belongs to."""
    variables = ",".join(op.attr("op_role_var")) if op.has_attr("op_role_var") else ""
    return f"{role(op)} {variables}"
