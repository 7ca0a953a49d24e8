"""LSTMs over packed sequences and the single step. cudnn_lstm runs on GPUs only in real Fluid; it is not here."""

from golden.case import Case, Lod, f32, f64, layer_case

# Length one, a long one, equal ones, in no order.
LENGTHS = {"mixed": [3, 1, 5, 2, 5], "single": [6], "ones": [1, 1, 1], "long": [1, 23, 2]}
SCRATCH = "BatchGate BatchCellPreAct"
NOTE = "BatchGate and BatchCellPreAct are scratch of real Fluid's own gradient kernel"


def _gradients(inputs, make):
    # Real Fluid gives the outputs of a float64 op that is not made by a layer float32 gradients, and stops.
    return "" if make is f64 else " ".join(sorted(inputs))


def _lod(lengths, width, make=f32, **options):
    return Lod(make(sum(lengths), width, **options), [lengths])


def _lstm(lengths, size=3, make=f32, initial=False, name="", **attrs):
    peepholes = attrs.setdefault("use_peepholes", True)
    inputs = {
        "Input": _lod(lengths, 4 * size, make),
        "Weight": make(size, 4 * size, salt="w"),
        "Bias": make(1, (7 if peepholes else 4) * size, salt="b"),
    }
    if initial:
        inputs["H0"] = make(len(lengths), size, salt="h")
        inputs["C0"] = make(len(lengths), size, salt="c")
    return Case(
        "lstm",
        inputs,
        outputs="Hidden Cell BatchGate BatchCellPreAct",
        attrs=attrs,
        grads=_gradients(inputs, make),
        name=name,
        skip=SCRATCH,
        reason=NOTE,
    )


CASES = [_lstm(lengths, name=name) for name, lengths in sorted(LENGTHS.items())]
CASES += [_lstm(LENGTHS["mixed"], use_peepholes=False, is_reverse=r, name="plain-%d" % r) for r in (False, True)]
CASES += [
    _lstm(LENGTHS["mixed"], is_reverse=True, name="reverse"),
    _lstm(LENGTHS["mixed"], initial=True, name="initial"),
    _lstm(LENGTHS["long"], initial=True, is_reverse=True, use_peepholes=False, name="initial-reverse"),
    _lstm(LENGTHS["mixed"], make=f64, initial=True, name="float64"),
    _lstm([7, 2, 9, 4, 4, 1, 8, 3, 6, 5, 2, 2] * 3, size=2, initial=True, name="many"),
    _lstm(LENGTHS["mixed"], cell_activation="relu", name="cell-relu"),
    _lstm(LENGTHS["mixed"], candidate_activation="relu", name="candidate-relu"),
    _lstm(LENGTHS["mixed"], candidate_activation="sigmoid", cell_activation="identity", name="activations"),
    _lstm(LENGTHS["mixed"], gate_activation="tanh", name="gate-tanh"),
]


def _lstmp(lengths, size=3, projected=2, make=f32, initial=False, name="", **attrs):
    peepholes = attrs.setdefault("use_peepholes", True)
    inputs = {
        "Input": _lod(lengths, 4 * size, make),
        "Weight": make(projected, 4 * size, salt="w"),
        "ProjWeight": make(size, projected, salt="p"),
        "Bias": make(1, (7 if peepholes else 4) * size, salt="b"),
    }
    if initial:
        inputs["H0"] = make(len(lengths), projected, salt="h")
        inputs["C0"] = make(len(lengths), size, salt="c")
    return Case(
        "lstmp",
        inputs,
        outputs="Projection Cell BatchGate BatchCellPreAct BatchHidden",
        attrs=attrs,
        grads=_gradients(inputs, make),
        name=name,
        skip=SCRATCH + " BatchHidden",
        reason=NOTE,
    )


CASES += [_lstmp(lengths, name=name) for name, lengths in sorted(LENGTHS.items())]
CASES += [
    _lstmp(LENGTHS["mixed"], use_peepholes=False, is_reverse=True, name="reverse"),
    _lstmp(LENGTHS["mixed"], initial=True, name="initial"),
    _lstmp(LENGTHS["mixed"], proj_activation="identity", name="identity"),
    # Real Fluid applies the cell's activation wherever proj_activation is not the identity.
    _lstmp(LENGTHS["mixed"], proj_activation="relu", name="relu"),
    _lstmp(LENGTHS["mixed"], cell_activation="sigmoid", name="sigmoid"),
    _lstmp(LENGTHS["mixed"], cell_clip=0.3, name="cell-clip"),
    _lstmp(LENGTHS["mixed"], proj_clip=0.1, name="proj-clip"),
    _lstmp(LENGTHS["mixed"], make=f64, cell_clip=0.3, proj_clip=0.1, initial=True, name="float64"),
]

CASES += [
    Case("lstm_unit", {"X": f32(4, 12), "C_prev": f32(4, 3)}, outputs="C H", grads="X C_prev"),
    Case(
        "lstm_unit", {"X": f32(1, 20), "C_prev": f32(1, 5)}, outputs="C H", attrs={"forget_bias": 1.5}, grads="X C_prev"
    ),
    Case("lstm_unit", {"X": f64(2, 8), "C_prev": f64(2, 2)}, outputs="C H", name="float64"),
]


@layer_case(CASES, x=_lod(LENGTHS["mixed"], 12))
def dynamic_lstm(fluid, x):
    return list(fluid.layers.dynamic_lstm(x, 12))


@layer_case(CASES, x=_lod(LENGTHS["long"], 12))
def dynamic_lstm_plain_reverse(fluid, x):
    return list(
        fluid.layers.dynamic_lstm(
            x, 12, use_peepholes=False, is_reverse=True, gate_activation="sigmoid", candidate_activation="relu"
        )
    )


@layer_case(CASES, x=_lod(LENGTHS["mixed"], 3))
def dynamic_lstm_after_fc(fluid, x):
    rows = fluid.layers.fc(x, 8, bias_attr=False)
    hidden, cell = fluid.layers.dynamic_lstm(rows, 8, param_attr=fluid.ParamAttr(name="w"), name="encoder")
    return [hidden, cell]


@layer_case(CASES, x=_lod(LENGTHS["mixed"], 12))
def dynamic_lstmp(fluid, x):
    return list(fluid.layers.dynamic_lstmp(x, 12, 2))


@layer_case(CASES, x=_lod(LENGTHS["mixed"], 12))
def dynamic_lstmp_clipped(fluid, x):
    return list(
        fluid.layers.dynamic_lstmp(
            x, 12, 2, use_peepholes=False, is_reverse=True, proj_activation="identity", cell_clip=0.4, proj_clip=0.2
        )
    )


@layer_case(CASES, x=f32(3, 4), h=f32(3, 5, salt=1), c=f32(3, 5, salt=2))
def lstm_unit(fluid, x, h, c):
    return list(fluid.layers.lstm_unit(x, h, c))


@layer_case(CASES, x=f32(3, 4), h=f32(3, 2, salt=1), c=f32(3, 2, salt=2))
def lstm_unit_forget_bias(fluid, x, h, c):
    return list(fluid.layers.lstm_unit(x, h, c, forget_bias=1.0, bias_attr=False, name="cell"))


def saved_rows(fluid, type, slots):
    """What an op has saved in batch order. What real Fluid notes there as a LoD is the order, not sequences."""
    block = fluid.default_main_program().global_block()
    (op,) = [op for op in block.ops if op.type == type]
    return [fluid.layers.lod_reset(block.var(op.output(slot)[0]), target_lod=[0, 16]) for slot in slots.split()]


@layer_case(CASES, grads=False, x=Lod(f32(16, 12), [LENGTHS["mixed"]]))
def what_lstm_saves(fluid, x):
    fluid.layers.dynamic_lstm(x, 12)
    return saved_rows(fluid, "lstm", SCRATCH)


@layer_case(CASES, grads=False, x=Lod(f32(16, 12), [LENGTHS["mixed"]]))
def what_lstmp_saves(fluid, x):
    fluid.layers.dynamic_lstmp(x, 12, 2, cell_clip=0.3, is_reverse=True)
    return saved_rows(fluid, "lstmp", SCRATCH + " BatchHidden")
