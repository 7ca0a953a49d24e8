"""Conditional random fields and chunk counting."""

import numpy as np

from golden.case import Case, Lod, f32, f64, ints, layer_case

LENGTHS = {"mixed": [3, 1, 5, 2, 5], "single": [6], "ones": [1, 1, 1], "long": [1, 23, 2]}
OUTPUTS = "Alpha EmissionExps TransitionExps LogLikelihood"


def _crf(lengths, tags=4, make=f32, name=""):
    inputs = {
        "Emission": Lod(make(sum(lengths), tags), [lengths]),
        "Transition": make(tags + 2, tags, salt="w"),
        "Label": Lod(ints(sum(lengths), 1, high=tags), [lengths]),
    }
    # No weights for the gradient of the cost: real Fluid declares it with a row per step.
    return Case("linear_chain_crf", inputs, outputs=OUTPUTS, name=name)


def _padded(lengths, steps, tags=4, make=f32, name="", labels=3, columns=True, **options):
    count = len(lengths)
    label = ints(count, steps, high=tags)
    inputs = {
        "Emission": make(count, steps, tags),
        "Transition": make(tags + 2, tags, salt="w"),
        "Label": label[:, :, None] if labels == 3 else label,
        "Length": np.array(lengths, "int64").reshape((-1, 1) if columns else (-1,)),
    }
    return inputs, dict(name=name, **options)


CASES = [_crf(lengths, name=name) for name, lengths in sorted(LENGTHS.items())]
CASES += [_crf(LENGTHS["mixed"], make=f64, name="float64"), _crf(LENGTHS["mixed"], tags=2, name="two-tags")]
for given, options in (
    _padded([3, 1, 4], 4, name="padded"),
    _padded([3, 1, 4], 6, labels=2, columns=False, name="padded-flat"),
    _padded([5], 5, tags=2, name="padded-one"),
):
    CASES.append(
        Case(
            "linear_chain_crf",
            given,
            outputs=OUTPUTS,
            grads="Emission Transition",
            skip="Alpha EmissionExps TransitionExps",
            reason="real Fluid ignores gradients of its intermediate outputs",
            **options,
        )
    )
    CASES.append(Case("linear_chain_crf", given, outputs=OUTPUTS, name=options["name"] + "-all"))

for name, lengths in sorted(LENGTHS.items()):
    emission = {"Emission": Lod(f32(sum(lengths), 4), [lengths]), "Transition": f32(6, 4, salt="w")}
    CASES.append(Case("crf_decoding", emission, outputs="ViterbiPath", name=name))
    label = Lod(ints(sum(lengths), 1, high=4), [lengths])
    CASES.append(Case("crf_decoding", dict(emission, Label=label), outputs="ViterbiPath", name=name + "-label"))
ties = {"Emission": Lod(np.zeros((7, 3), "float32"), [[4, 3]]), "Transition": np.zeros((5, 3), "float32")}
CASES.append(Case("crf_decoding", ties, outputs="ViterbiPath", name="ties"))
given, _ = _padded([3, 1, 4], 5)
CASES.append(Case("crf_decoding", given, outputs="ViterbiPath", name="padded-label"))
without = {slot: value for slot, value in given.items() if slot != "Label"}
CASES.append(Case("crf_decoding", without, outputs="ViterbiPath", name="padded"))


def _chunks(scheme, kinds, types=3, excluded=(), name="", padded=False):
    lengths = [9, 1, 30, 4]
    rows = sum(lengths)
    label = ints(rows, 1, high=types * kinds + 1, salt=scheme)
    # About half of the tags are right.
    found = np.where(ints(rows, 1, high=3, salt="right") > 0, label, ints(rows, 1, high=types * kinds + 1, salt="f"))
    if padded:
        inputs = {
            "Inference": found.reshape(4, -1),
            "Label": label.reshape(4, -1),
            "SeqLength": np.array([11, 1, 4, 7], "int64"),
        }
    else:
        inputs = {"Inference": Lod(found, [lengths]), "Label": Lod(label, [lengths])}
    return Case(
        "chunk_eval",
        inputs,
        outputs="Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks",
        attrs={"chunk_scheme": scheme, "num_chunk_types": types, "excluded_chunk_types": list(excluded)},
        name=name or scheme,
    )


for scheme, kinds in (("IOB", 2), ("IOE", 2), ("IOBES", 4), ("plain", 1)):
    CASES += [
        _chunks(scheme, kinds),
        _chunks(scheme, kinds, types=1, name=scheme + "-one-type"),
        _chunks(scheme, kinds, excluded=[1], name=scheme + "-excluded"),
        _chunks(scheme, kinds, padded=True, name=scheme + "-padded"),
    ]


@layer_case(CASES, x=Lod(f32(16, 4), [LENGTHS["mixed"]]), y=Lod(ints(16, 1, high=4), [LENGTHS["mixed"]]))
def linear_chain_crf(fluid, x, y):
    return fluid.layers.linear_chain_crf(x, y, param_attr=fluid.ParamAttr(name="crf"))


@layer_case(CASES, x=Lod(f32(26, 3), [LENGTHS["long"]]), y=Lod(ints(26, 1, high=3), [LENGTHS["long"]]))
def tagger(fluid, x, y):
    emission = fluid.layers.fc(x, 3)
    attr = fluid.ParamAttr(name="crf")
    cost = fluid.layers.linear_chain_crf(emission, y, param_attr=attr)
    path = fluid.layers.crf_decoding(emission, attr)
    right = fluid.layers.crf_decoding(emission, attr, label=y)
    counted = fluid.layers.chunk_eval(path, y, "IOB", 1)
    return [fluid.layers.mean(cost), path, right] + list(counted)


@layer_case(CASES, x=f32(3, 4, 2), y=ints(3, 4, high=2), n=np.array([[4], [1], [3]], "int64"))
def linear_chain_crf_padded(fluid, x, y, n):
    attr = fluid.ParamAttr(name="crf")
    cost = fluid.layers.linear_chain_crf(x, y, attr, n)
    return [cost, fluid.layers.crf_decoding(x, attr, length=n)]


@layer_case(CASES, grads=False, x=ints(3, 4, high=5), y=ints(3, 4, high=5, salt=1), n=np.array([4, 1, 3], "int64"))
def chunk_eval_padded(fluid, x, y, n):
    return list(fluid.layers.chunk_eval(x, y, "IOB", 2, excluded_chunk_types=[0], seq_length=n))
