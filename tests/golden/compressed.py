"""Compressions of a small net: pruned, distilled, quantised. What real Fluid makes of them is recorded by:

PYTHONPATH=tests ORACLE/bin/python tests/golden/compressed.py

Each compression is described by a YAML file, as users write them. Recorded are the loss of every training step, the
outputs of the eval program after every epoch, and parameters at the end. Runs on Python 3.7 too.
"""

import os
import shutil
import tempfile
import warnings

import numpy as np

from golden.case import f32, ints

STEPS, EPOCHS = 3, 2

PRUNED = """
pruners:
    by_norm:
        class: StructurePruner
        pruning_axis: {'*': 0}
        criterions: {'*': l1_norm}
strategies:
    prune:
        class: UniformPruneStrategy
        pruner: by_norm
        start_epoch: 0
        target_ratio: 0.5
        pruned_params: '.*_weights'
        metric_name: accuracy
"""
DISTILLED = """
distillers:
    features:
        class: L2Distiller
        student_feature_map: first.tmp_2
        teacher_feature_map: teacher_first.tmp_2
        distillation_loss_weight: 2
    flow:
        class: FSPDistiller
        student_pairs: [[first.tmp_2, second.tmp_1]]
        teacher_pairs: [[teacher_first.tmp_2, teacher_second.tmp_1]]
    labels:
        class: SoftLabelDistiller
        student_feature_map: last.tmp_1
        teacher_feature_map: teacher_last.tmp_1
        student_temperature: 2.0
        teacher_temperature: 3.0
        distillation_loss_weight: 0.5
strategies:
    distil:
        class: DistillationStrategy
        distillers: [features, flow, labels]
        start_epoch: 0
        end_epoch: 1
"""
QUANTISED = """
strategies:
    quantise:
        class: QuantizationStrategy
        start_epoch: 0
        end_epoch: 1
        float_model_save_path: {folder}/float
        mobile_model_save_path: {folder}/mobile
        int8_model_save_path: {folder}/int8
        activation_quantize_type: moving_average_abs_max
        weight_quantize_type: abs_max
        save_in_nodes: [image]
        save_out_nodes: [last.tmp_2]
"""
CASES = {"pruned": PRUNED, "distilled": DISTILLED, "quantised": QUANTISED}


def net(fluid, prefix, widths):
    def attrs(name):
        return {
            "name": prefix + name,
            "param_attr": fluid.ParamAttr(name=prefix + name + "_weights"),
            "bias_attr": fluid.ParamAttr(name=prefix + name + "_bias"),
        }

    image = fluid.layers.data("image", [3, 6, 6])
    first = fluid.layers.conv2d(image, widths[0], 3, padding=1, act="relu", **attrs("first"))
    second = fluid.layers.conv2d(first, widths[1], 3, padding=1, **attrs("second"))
    third = fluid.layers.conv2d(second, 4, 3, **attrs("third"))
    last = dict(attrs("last"), param_attr=fluid.ParamAttr(name=prefix + "last_matrix"))
    return fluid.layers.fc(third, 4, act="softmax", **last)


def build(fluid):
    programs = [fluid.Program() for _ in range(4)]
    student, startup, teacher, teacher_startup = programs
    with fluid.unique_name.guard():
        with fluid.program_guard(student, startup):
            prediction = net(fluid, "", (8, 6))
            label = fluid.layers.data("label", [1], dtype="int64")
            loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
            accuracy = fluid.layers.accuracy(prediction, label)
        with fluid.program_guard(teacher, teacher_startup):
            net(fluid, "teacher_", (8, 6))
    return programs, loss.name, accuracy.name


def batches(count, salt):
    def reader():
        for i in range(count):
            image, label = f32(4, 3, 6, 6, salt=(salt, i)), ints(4, 1, high=4, salt=(salt, i))
            yield [(image[j], label[j]) for j in range(4)]

    return reader


def recorder(slim, results):
    """A strategy that writes down the results of every step and of every evaluation."""
    executor = slim.graph.SlimGraphExecutor
    run = executor.run

    class Recorder(slim.core.Strategy):
        def on_compression_begin(self, context):
            def recorded(self, graph, scope, data=None):
                values = run(self, graph, scope, data=data)
                if graph is context.optimize_graph:
                    results.setdefault("steps", []).append(np.array([np.mean(value) for value in values]))
                return values

            executor.run = recorded

        def on_epoch_end(self, context):
            found = {name: values[-1] for name, values in context.eval_results.items()}
            results.setdefault("evaluated", []).append([found["loss"], found["accuracy"]])

        def on_compression_end(self, context):
            executor.run = run

    return Recorder(0, 0)


def compress(fluid, case, folder):
    """What a compression gave: name -> array."""
    from paddle.fluid.contrib import slim

    results = {}
    scope, place = fluid.Scope(), fluid.CPUPlace()
    with fluid.scope_guard(scope):
        (student, startup, teacher, teacher_startup), loss, accuracy = build(fluid)
        test = student.clone(for_test=True)
        exe = fluid.Executor(place)
        for each in (startup, teacher_startup):
            exe.run(each)
        for program in (student, teacher):
            for parameter in program.all_parameters():
                value = f32(*parameter.shape, salt=parameter.name) * np.float32(0.3)
                if (
                    len(parameter.shape) == 4
                ):  # real Fluid prunes in any order: norms differ enough for it not to matter
                    spread = np.arange(parameter.shape[0]) * 5 % (parameter.shape[0] + 1) + 1
                    value *= spread.reshape(-1, 1, 1, 1).astype("float32") / parameter.shape[0]
                scope.find_var(parameter.name).get_tensor().set(value, place)
        feeds = [("image", "image"), ("label", "label")]
        compressor = slim.Compressor(
            place,
            scope,
            student,
            train_reader=batches(STEPS, "train"),
            train_feed_list=feeds,
            train_fetch_list=[("loss", loss)],
            eval_program=test,
            eval_reader=batches(2, "test"),
            eval_feed_list=feeds,
            eval_fetch_list=[("accuracy", accuracy), ("loss", loss)],
            teacher_programs=[teacher] if case == "distilled" else [],
            train_optimizer=fluid.optimizer.Momentum(0.05, 0.9),
            distiller_optimizer=fluid.optimizer.SGD(0.05) if case == "distilled" else None,
        )
        compressor.config(configuration(case, folder))
        compressor._add_strategy(recorder(slim, results))
        graph = compressor.run()
        results = {name: np.array(flat(value)) for name, value in results.items()}
        for parameter in student.all_parameters():
            results["state/" + parameter.name] = np.array(scope.find_var(parameter.name).get_tensor())
        results["operations"] = np.array(graph.flops(only_conv=True))
        if case == "quantised":
            saved = fluid.io.load_inference_model(os.path.join(folder, "float"), exe, "model", "weights")
            program, feeds, targets = saved
            image = np.stack([sample[0] for sample in next(batches(1, "test")())])
            results["predictions"] = exe.run(program, feed={feeds[0]: image}, fetch_list=targets)[0]
    return results


def flat(values):
    """The numbers of steps, which may have different numbers of outputs."""
    return np.concatenate([np.asarray(value, "float64") for value in values])


def configuration(case, folder):
    path = os.path.join(folder, case + ".yaml")
    text = CASES[case].replace("{folder}", folder)
    names = [line.strip(" :") for line in text.split("strategies:")[1].splitlines() if line.startswith("    ")][:1]
    with open(path, "w") as file:
        file.write("version: 1.0" + text)
        file.write(f"compressor:\n    epoch: {EPOCHS}\n    strategies: [{names[0]}]\n")
    return path


def record(fluid):
    data = {}
    for case in CASES:
        folder = tempfile.mkdtemp()
        for key, value in compress(fluid, case, folder).items():
            data[case + "|" + key] = value
            if key in ("steps", "evaluated"):
                print(case, key, value)
        shutil.rmtree(folder)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "compressed.npz")
    np.savez_compressed(path, **data)
    print(os.path.getsize(path), "bytes")


if __name__ == "__main__":
    import paddle.fluid

    warnings.simplefilter("ignore")
    record(paddle.fluid)
