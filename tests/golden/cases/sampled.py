"""Losses over sampled classes and over paths in a tree. Custom samples make them deterministic."""

import numpy as np

from golden.case import Case, f32, ints, layer_case


def column(*values):
    return np.array(values, "int64").reshape(-1, 1)


NCE = {"Input": f32(3, 4), "Label": column(0, 3, 5), "Weight": f32(6, 4), "Bias": f32(6, 1)}
TWO_LABELS = np.array([[0, 1], [3, 4], [5, 5]], "int64")
CUSTOM = {
    "CustomDistProbs": np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.1], "float32"),
    "CustomDistAlias": np.full(6, -1, "int32"),
    "CustomDistAliasProbs": np.ones(6, "float32"),
}
MERGED = "real Fluid merges the rows of the weight's gradient; refluid leaves that to whoever needs it"


def nce(inputs, attrs, grads="Input Weight Bias", skip="SampleLogits", **options):
    attrs = dict({"num_total_classes": 6, "num_neg_samples": 2, "custom_neg_classes": [1, 3]}, **attrs)
    return Case("nce", inputs, outputs="Cost SampleLogits SampleLabels", attrs=attrs, grads=grads, skip=skip, **options)


PATHS = {
    "PathTable": np.array([[0, 2, -1, -1], [0, 1, 4, -1], [0, 2, 5, 3]], "int64"),
    "PathCode": np.array([[0, 1, -1, -1], [1, 0, 1, -1], [1, 1, 0, 0]], "int64"),
}


def tree(classes, label, extra=None, scale=1.0, bias=True, grads="X W Bias", skip="PreOut W_0", attrs=None, **options):
    height = classes if extra else classes - 1
    inputs = {"X": f32(3, 4) * np.float32(scale), "W": f32(height, 4), "Label": label}
    if bias:
        inputs["Bias"] = f32(height, 1)
    inputs.update(extra or {})
    return Case(
        "hierarchical_sigmoid",
        inputs,
        outputs="Out PreOut W_Out",
        inplace={"W_Out": "W"},
        attrs=dict({"num_classes": classes}, **attrs or {}),
        grads=grads,
        skip=skip,
        **options,
    )


SAMPLES = {
    "Logits": f32(3, 8),
    "Labels": column(2, 5, 0),
    "CustomizedSamples": np.array([[2, 1, 5, 7], [5, 1, 5, 7], [0, 1, 5, 7]], "int64"),
    "CustomizedProbabilities": f32(3, 4, low=0.1),
}


def sampled(inputs, attrs, **options):
    return Case(
        "sample_logits",
        inputs,
        outputs="Samples Probabilities SampledLogits SampledLabels LogitsDim LabelsDim",
        inplace={"Samples": "CustomizedSamples", "Probabilities": "CustomizedProbabilities"},
        attrs=dict({"num_samples": 3, "use_customized_samples": True}, **attrs),
        grads="Logits",
        skip="Probabilities LogitsDim LabelsDim CustomizedProbabilities_0",
        reason="carry shapes only",
        **options,
    )


CASES = [
    nce(NCE, {}),
    nce(dict(NCE, SampleWeight=np.array([[1], [2], [0.5]], "float32")), {}),
    nce(NCE, {"sampler": 1}),
    nce(dict(NCE, **CUSTOM), {"sampler": 2}),
    nce(dict(NCE, Label=TWO_LABELS), {"custom_neg_classes": [2, 0]}),
    nce({k: v for k, v in NCE.items() if k != "Bias"}, {}, grads="Input Weight"),
    nce(NCE, {"is_sparse": True}, skip="SampleLogits Weight_0@GRAD", reason=MERGED),
    nce(NCE, {"custom_neg_classes": []}, grads="", check="shapes", skip=""),
    nce(NCE, {"custom_neg_classes": [], "sampler": 1}, grads="", check="shapes", skip=""),
    nce(dict(NCE, **CUSTOM), {"custom_neg_classes": [], "sampler": 2}, grads="", check="shapes", skip=""),
    tree(6, column(0, 3, 5)),
    tree(6, column(1, 2, 4), bias=False, grads="X W"),
    tree(6, column(0, 3, 5), scale=100.0, name="clipped"),
    tree(2, column(0, 1, 1)),
    tree(8, column(0, 7, 4)),
    tree(6, column(0, 3, 5), extra=PATHS),
    tree(6, column(0, 3, 5), extra=PATHS, attrs={"is_sparse": True}, skip="PreOut W_0 W_0@GRAD", reason=MERGED),
    sampled(SAMPLES, {}),
    sampled(SAMPLES, {"remove_accidental_hits": False}),
    sampled(
        dict(
            SAMPLES,
            Labels=np.array([[2, 5], [1, 5], [0, 3]], "int64"),
            CustomizedSamples=np.array([[2, 5, 5, 7], [1, 5, 5, 7], [0, 3, 5, 7]], "int64"),
        ),
        {"num_samples": 2},
    ),
    Case(
        "sample_logits",
        {"Logits": f32(3, 8), "Labels": column(2, 5, 0)},
        outputs="Samples Probabilities SampledLogits SampledLabels LogitsDim LabelsDim",
        attrs={"num_samples": 3, "seed": 1},
        check="shapes",
        skip="LogitsDim LabelsDim",
        reason="carry shapes only",
    ),
]


@layer_case(CASES, check="shapes", x=f32(3, 4), label=ints(3, 1, high=6))
def nce_layer(fluid, x, label):
    return fluid.layers.nce(x, label, 6, num_neg_samples=3)


@layer_case(CASES, check="shapes", x=f32(3, 4), label=ints(3, 2, high=6), weight=f32(3, 1, low=0.5))
def nce_layer_weighted(fluid, x, label, weight):
    weight.stop_gradient = True
    return fluid.layers.nce(
        x,
        label,
        6,
        sample_weight=weight,
        param_attr=fluid.ParamAttr(name="words"),
        bias_attr=False,
        sampler="log_uniform",
        seed=3,
    )


# The gradient op of scale is called scale in real Fluid, scale_grad here: the lists of ops differ.
@layer_case(CASES, grads=False, ops=False, x=f32(2, 3), label=column(0, 1))
def nce_layer_after_a_sparse_step(fluid, x, label):
    cost = fluid.layers.nce(x, label, 4, num_neg_samples=2, name="words", is_sparse=True)
    program = fluid.default_main_program()
    (nce,) = [op for op in program.global_block().ops if op.type == "nce"]
    nce._set_attr("custom_neg_classes", [1, 3])
    fluid.optimizer.SGD(0.5).minimize(fluid.layers.mean(cost))
    return [cost] + program.global_block().all_parameters()


@layer_case(CASES, x=f32(3, 4), label=ints(3, 1, high=6))
def hsigmoid_layer(fluid, x, label):
    return fluid.layers.hsigmoid(x, label, 6)


@layer_case(CASES, x=f32(3, 4), label=ints(3, 1, high=6))
def hsigmoid_layer_without_bias(fluid, x, label):
    return fluid.layers.hsigmoid(x, label, 6, param_attr=fluid.ParamAttr(name="nodes"), bias_attr=False)


@layer_case(CASES, x=f32(3, 4), label=column(0, 3, 5), table=PATHS["PathTable"], code=PATHS["PathCode"])
def hsigmoid_layer_with_custom_tree(fluid, x, label, table, code):
    return fluid.layers.hsigmoid(x, label, 6, path_table=table, path_code=code, is_custom=True)


@layer_case(CASES, grads=False, x=f32(3, 4), label=column(0, 3, 5), table=PATHS["PathTable"], code=PATHS["PathCode"])
def hsigmoid_layer_after_a_sparse_step(fluid, x, label, table, code):
    cost = fluid.layers.hsigmoid(x, label, 6, path_table=table, path_code=code, is_custom=True, is_sparse=True)
    fluid.optimizer.SGD(0.5).minimize(fluid.layers.mean(cost))
    return [cost] + fluid.default_main_program().global_block().all_parameters()


@layer_case(CASES, check="shapes", x=f32(3, 8), label=column(2, 5, 0))
def sampled_softmax_with_cross_entropy_layer(fluid, x, label):
    return fluid.layers.sampled_softmax_with_cross_entropy(x, label, 3, seed=1)


@layer_case(
    CASES,
    x=f32(3, 8),
    label=column(2, 5, 0),
    samples=SAMPLES["CustomizedSamples"],
    probabilities=SAMPLES["CustomizedProbabilities"],
)
def sampled_softmax_with_custom_samples(fluid, x, label, samples, probabilities):
    probabilities.stop_gradient = True
    return fluid.layers.sampled_softmax_with_cross_entropy(
        x,
        label,
        3,
        remove_accidental_hits=False,
        use_customized_samples=True,
        customized_samples=samples,
        customized_probabilities=probabilities,
    )
