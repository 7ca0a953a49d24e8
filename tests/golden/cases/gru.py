"""GRUs over packed sequences and the single step."""

from golden.case import Case, Lod, f32, f64, layer_case

LENGTHS = {"mixed": [3, 1, 5, 2, 5], "single": [6], "ones": [1, 1, 1], "long": [1, 23, 2]}
SCRATCH = "BatchGate BatchResetHiddenPrev BatchHidden"
NOTE = "the outputs that start with Batch are scratch of real Fluid's own gradient kernel"


def _gradients(inputs, make):
    # Real Fluid gives the outputs of a float64 op that is not made by a layer float32 gradients, and stops.
    return "" if make is f64 else " ".join(sorted(inputs))


def _gru(lengths, size=3, make=f32, initial=False, bias=True, name="", **attrs):
    inputs = {
        "Input": Lod(make(sum(lengths), 3 * size), [lengths]),
        "Weight": make(size, 3 * size, salt="w"),
    }
    if bias:
        inputs["Bias"] = make(1, 3 * size, salt="b")
    if initial:
        inputs["H0"] = make(len(lengths), size, salt="h")
    return Case(
        "gru",
        inputs,
        outputs="Hidden BatchGate BatchResetHiddenPrev BatchHidden",
        attrs=attrs,
        grads=_gradients(inputs, make),
        name=name,
        skip=SCRATCH,
        reason=NOTE,
    )


CASES = [_gru(lengths, name=name) for name, lengths in sorted(LENGTHS.items())]
CASES += [
    _gru(LENGTHS["mixed"], is_reverse=True, name="reverse"),
    _gru(LENGTHS["mixed"], origin_mode=True, name="origin"),
    _gru(LENGTHS["mixed"], initial=True, name="initial"),
    _gru(LENGTHS["long"], initial=True, is_reverse=True, origin_mode=True, name="initial-reverse-origin"),
    _gru(LENGTHS["mixed"], bias=False, name="no-bias"),
    _gru(LENGTHS["mixed"], activation="relu", name="relu"),
    _gru(LENGTHS["mixed"], activation="identity", gate_activation="tanh", name="activations"),
    _gru(LENGTHS["mixed"], make=f64, initial=True, name="float64"),
    _gru([7, 2, 9, 4, 4, 1, 8, 3, 6, 5, 2, 2] * 3, size=2, initial=True, name="many"),
]


def _unit(rows=4, size=3, make=f32, bias=True, name="", **attrs):
    inputs = {
        "Input": make(rows, 3 * size),
        "HiddenPrev": make(rows, size, salt="h"),
        "Weight": make(size, 3 * size, salt="w"),
    }
    if bias:
        inputs["Bias"] = make(1, 3 * size, salt="b")
    attrs = dict({"activation": 2, "gate_activation": 1}, **attrs)
    return Case(
        "gru_unit",
        inputs,
        outputs="Gate ResetHiddenPrev Hidden",
        attrs=attrs,
        grads=_gradients(inputs, make),
        name=name,
    )


CASES += [
    _unit(name="default"),
    _unit(rows=1, size=1, name="one"),
    _unit(bias=False, name="no-bias"),
    _unit(origin_mode=True, name="origin"),
    _unit(activation=3, gate_activation=2, name="relu-tanh"),
    _unit(activation=0, gate_activation=1, name="identity"),
    _unit(make=f64, name="float64"),
]


@layer_case(CASES, x=Lod(f32(16, 9), [LENGTHS["mixed"]]))
def dynamic_gru(fluid, x):
    return fluid.layers.dynamic_gru(x, 3)


@layer_case(CASES, x=Lod(f32(16, 9), [LENGTHS["mixed"]]))
def dynamic_gru_options(fluid, x):
    return fluid.layers.dynamic_gru(
        x, 3, is_reverse=True, candidate_activation="relu", origin_mode=True, param_attr=fluid.ParamAttr(name="w")
    )


@layer_case(CASES, x=f32(4, 9), h=f32(4, 3))
def gru_unit(fluid, x, h):
    return list(fluid.layers.gru_unit(x, h, 9))


@layer_case(CASES, x=f32(4, 9), h=f32(4, 3))
def gru_unit_no_bias(fluid, x, h):
    return list(fluid.layers.gru_unit(x, h, 9, bias_attr=False, origin_mode=True))


def saved_rows(fluid, type, slots):
    """What an op has saved in batch order. What real Fluid notes there as a LoD is the order, not sequences."""
    block = fluid.default_main_program().global_block()
    (op,) = [op for op in block.ops if op.type == type]
    return [fluid.layers.lod_reset(block.var(op.output(slot)[0]), target_lod=[0, 16]) for slot in slots.split()]


@layer_case(CASES, grads=False, x=Lod(f32(16, 9), [LENGTHS["mixed"]]))
def what_gru_saves(fluid, x):
    fluid.layers.dynamic_gru(x, 3, is_reverse=True)
    return saved_rows(fluid, "gru", SCRATCH)
