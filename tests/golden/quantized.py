"""Quantised programs and what they compute. What real Fluid makes of them is recorded by:

PYTHONPATH=tests ORACLE/bin/python tests/golden/quantized.py

A small MobileNet is trained with rounded values, frozen and stored as int8, by the transpiler and by passes over
graphs; another net, with branches, says which operators passes choose. Programs are compared as sets of operators: the
order of a graph is arbitrary in real Fluid, and so are the numbers behind the names of state. Runs on Python 3.7 too.
"""

import os
import re
import shutil
import tempfile
import warnings

import numpy as np

from golden.case import f32, ints
from golden.training import initialise

STEPS = 3


def separable(fluid, x, channels, stride):
    """Depthwise and pointwise convolution."""
    deep = int(x.shape[1])
    for filters, size, step, groups in ((deep, 3, stride, deep), (channels, 1, 1, 1)):
        x = fluid.layers.conv2d(
            x, filters, size, step, padding=size // 2, groups=groups, bias_attr=False, use_cudnn=False
        )
        x = fluid.layers.batch_norm(x, act="relu")
    return x


def mobilenet(fluid):
    image = fluid.layers.data("image", [3, 8, 8])
    label = fluid.layers.data("label", [1], dtype="int64")
    x = fluid.layers.batch_norm(fluid.layers.conv2d(image, 4, 3, 2, padding=1, bias_attr=False), act="relu")
    x = separable(fluid, separable(fluid, x, 6, 1), 8, 2)
    x = fluid.layers.pool2d(x, pool_type="avg", global_pooling=True)
    prediction = fluid.layers.fc(x, 5, act="softmax")
    return fluid.layers.mean(fluid.layers.cross_entropy(prediction, label)), prediction


def branches(fluid):
    x = fluid.layers.data("x", [3, 6, 6])
    a = fluid.layers.conv2d(x, 3, 3, padding=1)
    b = fluid.layers.conv2d(x, 3, 3, padding=1)
    c = fluid.layers.elementwise_add(a, b, act="relu")
    with fluid.name_scope("skip_quant"):
        d = fluid.layers.conv2d(c, 3, 1, bias_attr=False)
    e = fluid.layers.pool2d(fluid.layers.relu6(d), 2, "avg", 2)
    m = fluid.layers.matmul(e, e, transpose_y=True)
    joined = fluid.layers.concat([fluid.layers.fc(m, 4), fluid.layers.fc(x, 4)], axis=1)
    return fluid.layers.mean(joined), joined


def batch(step):
    return {"image": f32(4, 3, 8, 8, salt=step), "label": ints(4, 1, high=5, salt=step)}


def with_transpiler(fluid, main, startup, test, activations, weights):
    """QuantizeTranspiler: the programs to train and to test, and functions that freeze and convert the latter."""
    from paddle.fluid.contrib.quantize import QuantizeTranspiler

    transpiler = QuantizeTranspiler(activation_quantize_type=activations, weight_quantize_type=weights, window_size=2)
    transpiler.training_transpile(main, startup)
    test = main.clone(for_test=True)._prune([test.global_block().ops[-1].output_arg_names[0]])
    place = fluid.CPUPlace()
    fluid.Executor(place).run(startup)

    def frozen():
        transpiler.freeze_program(test, place)
        return test

    def as_int8():
        transpiler.convert_to_int8(test, place)
        return test

    return main, test, frozen, as_int8, None


def with_passes(fluid, main, startup, test, activations, weights):
    """The same by passes over graphs."""
    from paddle.fluid.contrib.slim import quantization

    place, scope = fluid.CPUPlace(), fluid.global_scope()
    fluid.Executor(place).run(startup)
    transform = quantization.QuantizationTransformPass(
        scope, place, activation_quantize_type=activations, weight_quantize_type=weights, window_size=2
    )
    graphs = []
    for program, for_test in ((main, False), (test, True)):
        graph = fluid.framework.IrGraph(fluid.core.Graph(program.desc), for_test=for_test)
        transform.apply(graph)
        graphs.append(graph)

    def applied(made):
        made.apply(graphs[1])
        return graphs[1].to_program()

    return (
        graphs[0].to_program(),
        graphs[1].to_program(),
        lambda: applied(quantization.QuantizationFreezePass(scope, place, weight_quantize_type=weights)),
        lambda: applied(quantization.ConvertToInt8Pass(scope, place)),
        lambda: applied(quantization.TransformForMobilePass()),
    )


TRAINED = {
    "transpiler, range_abs_max": (with_transpiler, "range_abs_max", "abs_max"),
    "passes, abs_max": (with_passes, "abs_max", "abs_max"),
    "passes, per channel": (with_passes, "moving_average_abs_max", "channel_wise_abs_max"),
}


def train(fluid, case):
    """Programs, as lists of operators, and numbers."""
    rewrite, activations, weights = TRAINED[case]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        loss, prediction = mobilenet(fluid)
        test = main.clone(for_test=True)._prune([prediction])
        fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
        parameters = fluid.Program.clone(main)
        main, test, frozen, as_int8, mobile = rewrite(fluid, main, startup, test, activations, weights)
        initialise(fluid, fluid.global_scope(), parameters, "matrices")
        programs, numbers = {"train": lines(main), "test": lines(test)}, {}
        exe = fluid.Executor(fluid.CPUPlace())
        steps = [exe.run(main, feed=batch(step), fetch_list=[loss.name])[0] for step in range(STEPS)]
        numbers["losses"] = np.concatenate(steps)
        fed = {"image": batch(STEPS)["image"]}
        numbers["rounded"] = exe.run(test, feed=fed, fetch_list=[prediction.name])[0]
        program = frozen()
        programs["frozen"] = lines(program)
        numbers["frozen"] = exe.run(program, feed=fed, fetch_list=[prediction.name])[0]
        weight = "conv2d_0.w_0"
        numbers["weight"] = np.array(fluid.global_scope().find_var(weight).get_tensor())
        programs["int8"] = lines(as_int8())
        numbers["int8"] = np.array(fluid.global_scope().find_var(weight + ".int8").get_tensor())
        if mobile is not None:
            programs["mobile"] = lines(mobile())
        return programs, numbers


REWRITTEN = {
    "transform": lambda q, s, p: q.QuantizationTransformPass(
        s, p, activation_quantize_type="range_abs_max", quantizable_op_type=["conv2d", "mul", "matmul"], weight_bits=4
    ),
    "transform, convolutions only": lambda q, s, p: q.QuantizationTransformPass(s, p, quantizable_op_type=["conv2d"]),
    "round activations": lambda q, s, p: q.AddQuantDequantPass(s, p, moving_rate=0.8, quant_bits=5),
    "round all activations": lambda q, s, p: q.AddQuantDequantPass(s, p, is_full_quantized=True),
    "watch outputs": lambda q, s, p: q.OutScaleForTrainingPass(s, p, moving_rate=0.8),
}


def rewrite(fluid, case):
    """The training program and the test program of the net with branches, after one pass."""
    from paddle.fluid.contrib.slim import quantization

    programs = {}
    for which in ("train", "test"):
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
            loss, _ = branches(fluid)
            if which == "test":
                main = main.clone(for_test=True)
            else:
                fluid.optimizer.SGD(0.1).minimize(loss)
            place = fluid.CPUPlace()
            fluid.Executor(place).run(startup)
            graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=which == "test")
            REWRITTEN[case](quantization, scope, place).apply(graph)
            programs[which] = lines(graph.to_program())
    return programs


def save_model(fluid, exe, folder):
    """Saves a small model in the folder "float"."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        image = fluid.layers.data("image", [3, 6, 6])
        hidden = fluid.layers.pool2d(fluid.layers.conv2d(image, 4, 3, act="relu"), 2, "avg", 2)
        prediction = fluid.layers.fc(hidden, 3, act="softmax")
        exe.run(startup)
        initialise(fluid, fluid.global_scope(), main, "matrices")
        fluid.io.save_inference_model(os.path.join(folder, "float"), ["image"], [prediction], exe, main)


STORED = {
    "8 bits": {},
    "16 bits": {"weight_bits": 16},
    "one scale": {"weight_quantize_type": "abs_max"},
    "clipped": {"weight_quantize_type": "abs_max", "threshold_rate": 0.1, "quantizable_op_type": ["mul"]},
}


def store(fluid, case, folder):
    """Weights as WeightQuantization stores them, their scales, and what the model for tests predicts."""
    from paddle.fluid.contrib.slim.quantization import WeightQuantization

    exe, found = fluid.Executor(fluid.CPUPlace()), {}
    save_model(fluid, exe, folder)
    with fluid.scope_guard(fluid.Scope()):
        smaller = WeightQuantization(os.path.join(folder, "float"))
        smaller.quantize_weight_to_int(os.path.join(folder, "stored"), generate_test_model=True, **STORED[case])
    for name in ("quantized_model", "test_model"):
        with fluid.scope_guard(fluid.Scope()):
            program, feeds, fetches = fluid.io.load_inference_model(os.path.join(folder, "stored", name), exe)
            for weight in ("conv2d_0.w_0", "fc_0.w_0"):
                found[name + " " + weight] = np.array(fluid.global_scope().find_var(weight).get_tensor())
            for op in program.global_block().ops:
                if op.has_attr("quantization_type"):
                    scales = [op.attr(attr) for attr in op.attr_names if attr.endswith("_quant_scale")]
                    found[name + " " + op.type] = np.array(scales[0])
                    text = "{} {}".format(op.attr("quantization_type"), op.attr("quantize_weight_bits"))
                    found[name + " how " + op.type] = np.array(text)
            if name == "test_model":
                fed = {feeds[0]: f32(2, 3, 6, 6, salt="test")}
                found["predicted"] = exe.run(program, feed=fed, fetch_list=fetches)[0]
    return found


CALIBRATED = {"KL": ("KL", "channel_wise_abs_max"), "abs_max": ("abs_max", "abs_max")}


def calibrate(fluid, case, folder):
    """What a model gives that was quantised after training, and the scales of its activations."""
    from paddle.fluid.contrib.slim.quantization import PostTrainingQuantization

    algorithm, weights = CALIBRATED[case]
    exe = fluid.Executor(fluid.CPUPlace())
    save_model(fluid, exe, folder)

    def samples():
        for i in range(9):
            yield (f32(3, 6, 6, salt=("sample", i)) ** 3,)

    with fluid.scope_guard(fluid.Scope()):
        quantization = PostTrainingQuantization(
            executor=exe,
            scope=fluid.global_scope(),
            model_dir=os.path.join(folder, "float"),
            sample_generator=samples,
            batch_size=4,
            batch_nums=2,
            algo=algorithm,
            weight_quantize_type=weights,
        )
        program = quantization.quantize()
        quantization.save_quantized_model(os.path.join(folder, "quantized"))
        names = ["image.scale", "pool2d_0.tmp_0.scale"]
        scales = [np.array(fluid.global_scope().find_var(name).get_tensor()) for name in names]
        ops = {op.type: op for op in program.global_block().ops}
        outputs = np.array([ops[type].attr("out_threshold") for type in ("conv2d", "relu", "pool2d", "mul")])
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(os.path.join(folder, "quantized"), exe)
        fed = {feeds[0]: f32(2, 3, 6, 6, salt="test")}
        predicted = exe.run(program, feed=fed, fetch_list=fetches)[0]
    return {"scales": np.concatenate(scales), "outputs": outputs, "predicted": predicted}


ATTRS = ("bit_length", "is_test", "moving_rate", "quant_bits", "window_size", "step")
FORWARD_INPUTS = ("Input", "Filter", "X", "Y")


def lines(program):
    """The operators that read or write something quantised, in an order of their own."""
    ops = [op for op in program.global_block().ops if op.type not in ("relu_grad", "relu6_grad")]  # of Out, there
    found = [line(op) for op in ops]
    return sorted(text for text in found if "quant" in text or "int8" in text or "moving_average" in text)


def line(op):
    gradient = op.type.endswith("_grad")
    inputs = {s: op.input(s) for s in sorted(op.input_names) if op.input(s)}
    if gradient:  # ours read more; and real Fluid's also read outputs of forward operators as others round them
        inputs = {s: names for s, names in inputs.items() if s in FORWARD_INPUTS}
    inputs.pop("InScales", None)  # the window that real Fluid overwrites without reading it by name
    outputs = {s: op.output(s) for s in sorted(op.output_names) if op.output(s) and op.output(s) != ["@EMPTY@"]}
    attrs = [] if gradient else [(name, plain(op.attr(name))) for name in ATTRS if op.has_attr(name)]
    quantises = "quant" in op.type or "moving_average" in op.type
    text = "{} {} -> {} {}".format(op.type, inputs, outputs, attrs if quantises else "")
    return re.sub(r"(accum@?|state@?|scales|channel_scale)_\d+", r"\1", text)


def plain(value):
    return round(value, 6) if isinstance(value, float) else value


def record(fluid):
    data = {}
    for case in TRAINED:
        programs, numbers = train(fluid, case)
        data.update({case + "|" + key: np.array(value) for key, value in programs.items()})
        data.update({case + "|" + key + "/value": value for key, value in numbers.items()})
        print(case, numbers["losses"], np.abs(numbers["rounded"] - numbers["frozen"]).max())
    for case in REWRITTEN:
        data.update({case + "|" + key: np.array(value) for key, value in rewrite(fluid, case).items()})
    for case in CALIBRATED:
        folder = tempfile.mkdtemp()
        data.update({"after training, " + case + "|" + k: v for k, v in calibrate(fluid, case, folder).items()})
        shutil.rmtree(folder)
    for case in STORED:
        folder = tempfile.mkdtemp()
        data.update({"stored, " + case + "|" + key: value for key, value in store(fluid, case, folder).items()})
        shutil.rmtree(folder)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "quantized.npz")
    np.savez_compressed(path, **data)
    print(os.path.getsize(path), "bytes")


if __name__ == "__main__":
    import paddle.fluid

    warnings.simplefilter("ignore")
    record(paddle.fluid)
