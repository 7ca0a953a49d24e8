"""Update rules of the optimizers: dense and SelectedRows gradients, and the averages kept beside parameters."""

import numpy as np

from golden.case import Case, Rows, f32, f64

# The input every state output overwrites; ``Param``, ``Moment1`` ... are updated in place as in a training program.
_STATE = {
    "ParamOut": "Param",
    "VelocityOut": "Velocity",
    "MomentOut": "Moment",
    "Moment1Out": "Moment1",
    "Moment2Out": "Moment2",
    "Beta1PowOut": "Beta1Pow",
    "Beta2PowOut": "Beta2Pow",
    "InfNormOut": "InfNorm",
    "AvgSquaredGradOut": "AvgSquaredGrad",
    "AvgSquaredUpdateOut": "AvgSquaredUpdate",
    "MeanSquareOut": "MeanSquare",
    "MeanGradOut": "MeanGrad",
    "SquaredAccumOut": "SquaredAccumulator",
    "LinearAccumOut": "LinearAccumulator",
    "Grad_out": "Grad",
}


def scalar(value, dtype="float32"):
    return np.array([value], dtype)


def positive(*shape, **options):
    return f32(*shape, low=0.05, high=1.0, **options)


def rows(dtype="float32"):
    """Rows 1 and 6 repeat, row 0 and the last one are touched."""
    values = f32(6, 4, salt="rows").astype(dtype)
    return Rows([1, 6, 1, 8, 0, 6], values, 9)


def update(op, grad, outputs, attrs=None, name="", apart="", rate=0.05, **state):
    """A case of ``op`` on a [9, 4] parameter unless the gradient has another shape."""
    shape = (9, 4) if isinstance(grad, Rows) else grad.shape
    dtype = "float64" if not isinstance(grad, Rows) and grad.dtype == np.float64 else "float32"
    inputs = {slot: value if value.size == 1 else value.astype(dtype) for slot, value in state.items()}
    inputs.update(Param=f32(*shape, salt="param").astype(dtype), Grad=grad)
    if rate is not None:
        inputs["LearningRate"] = scalar(rate, dtype)
    shared = {out: _STATE[out] for out in outputs.split() if out not in apart and _STATE[out] in inputs}
    return Case(op, inputs, outputs, attrs, inplace=shared, name=name)


DENSE = f32(9, 4, salt="grad")
CASES = [
    update("sgd", DENSE, "ParamOut", name="dense"),
    update("sgd", f32(7, salt=1), "ParamOut", name="vector"),
    update("sgd", f64(3, 2, 2), "ParamOut", name="float64"),
    update("sgd", rows(), "ParamOut", name="rows"),
]

for nesterov in (False, True):
    kind = "-nesterov" if nesterov else ""
    attrs = {"mu": 0.9, "use_nesterov": nesterov}
    for name, grad in (("dense", DENSE), ("rows", rows())):
        CASES.append(
            update("momentum", grad, "ParamOut VelocityOut", attrs, name + kind, Velocity=f32(9, 4, salt="velocity"))
        )

CASES += [
    update("momentum", f64(5), "ParamOut VelocityOut", {"mu": 0.5}, "float64", Velocity=f64(5, salt=2)),
    update("adagrad", DENSE, "ParamOut MomentOut", {"epsilon": 1e-6}, "dense", Moment=positive(9, 4)),
    update("adagrad", rows(), "ParamOut MomentOut", {"epsilon": 1e-2}, "rows", Moment=positive(9, 4)),
    update("adagrad", DENSE, "ParamOut MomentOut", {}, "default-epsilon", Moment=np.zeros((9, 4), "float32")),
    update("decayed_adagrad", DENSE, "ParamOut MomentOut", {"decay": 0.8, "epsilon": 1e-3}, Moment=positive(9, 4)),
    update("decayed_adagrad", f32(3), "ParamOut MomentOut", {}, "defaults", Moment=positive(3)),
    update(
        "adadelta",
        DENSE,
        "ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
        {"rho": 0.9, "epsilon": 1e-4},
        rate=None,
        AvgSquaredGrad=positive(9, 4),
        AvgSquaredUpdate=positive(9, 4, salt=1),
    ),
    Case(
        "adadelta",
        {
            "Param": f32(9, 4),
            "Grad": DENSE,
            "AvgSquaredGrad": positive(9, 4),
            "AvgSquaredUpdate": positive(9, 4, salt=1),
        },
        "ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
        {"rho": 0.9, "epsilon": 1e-4},
        name="into other variables",
    ),
    update(
        "adadelta",
        f32(3),
        "ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
        {},
        "defaults",
        rate=None,
        AvgSquaredGrad=np.zeros(3, "float32"),
        AvgSquaredUpdate=np.zeros(3, "float32"),
    ),
    update(
        "adamax",
        DENSE,
        "ParamOut MomentOut InfNormOut",
        {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3},
        Moment=f32(9, 4, salt=1),
        InfNorm=positive(9, 4),
        Beta1Pow=scalar(0.512),
    ),
    update(
        "adamax",
        f32(3),
        "ParamOut MomentOut InfNormOut",
        {},
        "defaults",
        Moment=np.zeros(3, "float32"),
        InfNorm=np.zeros(3, "float32"),
        Beta1Pow=scalar(0.9),
    ),
    update("proximal_gd", DENSE, "ParamOut", {"l1": 0.3, "l2": 0.2}),
    update("proximal_gd", DENSE, "ParamOut", {"l1": 0.0, "l2": 0.2}, "only-l2"),
    update("proximal_gd", DENSE, "ParamOut", {"l1": 5.0, "l2": 0.0}, "only-l1"),
    update("proximal_adagrad", DENSE, "ParamOut MomentOut", {"l1": 2.0, "l2": 0.2}, Moment=positive(9, 4)),
    update("proximal_adagrad", DENSE, "ParamOut MomentOut", {}, "plain", Moment=positive(9, 4)),
    update(
        "lars_momentum",
        DENSE,
        "ParamOut VelocityOut",
        {"mu": 0.9, "lars_coeff": 0.1, "lars_weight_decay": 0.05},
        Velocity=f32(9, 4, salt="velocity"),
    ),
    update(
        "lars_momentum", DENSE, "ParamOut VelocityOut", {"mu": 0.9}, "defaults", Velocity=f32(9, 4, salt="velocity")
    ),
    update(
        "lars_momentum",
        DENSE,
        "ParamOut VelocityOut",
        {"mu": 0.9, "lars_weight_decay": 0.0},
        "no-decay",
        Velocity=f32(9, 4, salt="velocity"),
    ),
    update(
        "lars_momentum",
        np.zeros((9, 4), "float32"),
        "ParamOut VelocityOut",
        {"mu": 0.9},
        "zero-gradient",
        Velocity=f32(9, 4, salt="velocity"),
    ),
    update("dpsgd", DENSE, "ParamOut", {"clip": 0.5, "batch_size": 16.0, "sigma": 0.0}, "clipped"),
    update("dpsgd", DENSE, "ParamOut", {"clip": 100.0, "batch_size": 16.0, "sigma": 0.0}, "not-clipped"),
]

# Real 1.8.5 reads the beta powers after advancing them when the gradient has rows and the powers are updated in place;
# 1.5, whose programs advance them with scale ops, does not. So these cases keep them apart.
_ADAM = "ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut"
_POWERS = "Beta1PowOut Beta2PowOut"
_BETAS = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-2}
for name, grad, lazy in (
    ("dense", DENSE, False),
    ("dense-lazy", DENSE, True),
    ("rows", rows(), False),
    ("rows-lazy", rows(), True),
):
    CASES.append(
        update(
            "adam",
            grad,
            _ADAM,
            dict(_BETAS, lazy_mode=lazy, min_row_size_to_use_multithread=1000),
            name,
            apart=_POWERS,
            Moment1=f32(9, 4, salt=1),
            Moment2=positive(9, 4),
            Beta1Pow=scalar(0.64),
            Beta2Pow=scalar(0.9025),
        )
    )
CASES += [
    update(
        "adam",
        DENSE,
        _ADAM,
        {},
        "defaults",
        Moment1=np.zeros((9, 4), "float32"),
        Moment2=np.zeros((9, 4), "float32"),
        Beta1Pow=scalar(0.9),
        Beta2Pow=scalar(0.999),
    ),
    update(
        "adam",
        f64(3, 2),
        _ADAM,
        _BETAS,
        "float64",
        Moment1=f64(3, 2, salt=1),
        Moment2=f64(3, 2, low=0.1, high=1.0),
        Beta1Pow=scalar(0.64, "float64"),
        Beta2Pow=scalar(0.9025, "float64"),
    ),
    update(
        "adam",
        DENSE,
        _ADAM,
        {},
        "beta-tensors",
        Moment1=f32(9, 4, salt=1),
        Moment2=positive(9, 4),
        Beta1Pow=scalar(0.64),
        Beta2Pow=scalar(0.9025),
        Beta1Tensor=scalar(0.7),
        Beta2Tensor=scalar(0.9),
    ),
    update(
        "adam",
        rows(),
        _ADAM,
        {"lazy_mode": True},
        "beta-tensors-rows",
        apart=_POWERS,
        Moment1=f32(9, 4, salt=1),
        Moment2=positive(9, 4),
        Beta1Pow=scalar(0.64),
        Beta2Pow=scalar(0.9025),
        Beta1Tensor=scalar(0.7),
        Beta2Tensor=scalar(0.9),
    ),
]

for name, grad in (("dense", DENSE), ("rows", rows())):
    CASES.append(
        update(
            "rmsprop",
            grad,
            "ParamOut MomentOut MeanSquareOut MeanGradOut",
            {"decay": 0.8, "epsilon": 1e-2, "momentum": 0.7},
            name,
            Moment=f32(9, 4, salt=1),
            MeanSquare=positive(9, 4),
            MeanGrad=f32(9, 4, salt=2, low=-0.1, high=0.1),
        )
    )
    CASES.append(
        update(
            "rmsprop",
            grad,
            "ParamOut MomentOut MeanSquareOut MeanGradOut",
            {"decay": 0.9, "epsilon": 1e-2, "momentum": 0.0, "centered": True},
            name + "-centered",
            Moment=f32(9, 4, salt=1),
            MeanSquare=positive(9, 4),
            MeanGrad=f32(9, 4, salt=2, low=-0.1, high=0.1),
        )
    )

for name, attrs in (
    ("defaults", {}),
    ("l1-l2", {"l1": 0.4, "l2": 0.1}),
    ("other-power", {"l1": 0.2, "l2": 0.1, "lr_power": -0.7}),
):
    CASES.append(
        update(
            "ftrl",
            DENSE,
            "ParamOut SquaredAccumOut LinearAccumOut",
            attrs,
            name,
            SquaredAccumulator=positive(9, 4),
            LinearAccumulator=f32(9, 4, salt=1),
        )
    )

for name, grad in (("dense", DENSE), ("rows", rows())):
    for decay in (0.0, 0.1):
        CASES.append(
            update(
                "lamb",
                grad,
                "ParamOut Moment1Out Moment2Out",
                dict(_BETAS, weight_decay=decay),
                "%s-decay-%s" % (name, decay),
                Moment1=f32(9, 4, salt=1),
                Moment2=positive(9, 4),
                Beta1Pow=scalar(0.64),
                Beta2Pow=scalar(0.9025),
            )
        )

for name, step in (("before", 3.0), ("after", 5.0)):
    for nesterov in (False, True):
        case = update(
            "dgc_momentum",
            DENSE,
            "ParamOut VelocityOut Grad_out",
            {"mu": 0.9, "use_nesterov": nesterov, "rampup_begin_step": 5.0},
            name + ("-nesterov" if nesterov else ""),
            Velocity=f32(9, 4, salt="velocity"),
            current_step=scalar(step),
            nranks=scalar(2.0),
        )
        CASES.append(case)
CASES.append(
    Case(
        "dgc_clip_by_norm", {"X": DENSE, "current_step": scalar(5.0)}, attrs={"max_norm": 0.5, "rampup_begin_step": 5.0}
    )
)


def average(name, updates, accumulates, old, **attrs):
    slots = ["sum_1", "sum_2", "sum_3", "num_accumulates", "old_num_accumulates", "num_updates"]
    inputs = {"in_" + s: f32(3, 2, salt=s) for s in slots[:3]}
    inputs.update(
        param=f32(3, 2),
        in_num_updates=scalar(updates, "int64"),
        in_num_accumulates=scalar(accumulates, "int64"),
        in_old_num_accumulates=scalar(old, "int64"),
    )
    return Case(
        "average_accumulates",
        inputs,
        " ".join("out_" + s for s in slots),
        attrs,
        inplace={"out_" + s: "in_" + s for s in slots},
        name=name,
    )


CASES += [
    average("adds", 3, 2, 1, average_window=0.5, min_average_window=10, max_average_window=20),
    average("window-full", 19, 9, 4, average_window=0.5, min_average_window=10, max_average_window=20),
    average("window-capped", 99, 19, 4, average_window=0.5, min_average_window=10, max_average_window=20),
    average("moves-the-sum", 16383, 100, 4, average_window=1.0, min_average_window=1000, max_average_window=100000),
]
