"""Arguments and errors of quantisation. tests/golden/test_quantized.py compares results with real Fluid."""

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import core
from paddle.fluid.contrib.quantize import QuantizeTranspiler
from paddle.fluid.contrib.slim import quantization as q
from paddle.fluid.framework import IrGraph


def test_an_unknown_way_to_scale_is_an_error():
    with pytest.raises(ValueError, match="Unknown activation_quantize_type: 'mean'. It can only be 'abs_max' or"):
        QuantizeTranspiler(activation_quantize_type="mean")
    with pytest.raises(ValueError, match="Unknown weight_quantize_type: 'channel_wise_abs_max'"):
        QuantizeTranspiler(weight_quantize_type="channel_wise_abs_max")
    with pytest.raises(ValueError, match="Unknown weight_quantize_type : 'mean'"):
        q.QuantizationTransformPass(weight_quantize_type="mean")
    with pytest.raises(AssertionError, match="activation quantization type does not support 'channel_wise_abs_max'"):
        q.QuantizationTransformPass(activation_quantize_type="channel_wise_abs_max")
    with pytest.raises(AssertionError, match="softmax is not supported for quantization"):
        q.QuantizationTransformPass(quantizable_op_type=["softmax"])


def test_passes_expect_graphs_scopes_and_places():
    with pytest.raises(AssertionError, match="graph must be the instance of IrGraph"):
        q.TransformForMobilePass().apply(fluid.Program())
    for make in (q.QuantizationFreezePass, q.ConvertToInt8Pass):
        with pytest.raises(AssertionError, match="The scope cannot be set None"):
            make(None, fluid.CPUPlace())
        with pytest.raises(AssertionError, match="The place cannot be set None"):
            make(fluid.Scope(), None)
    graph = IrGraph(core.Graph(build().desc))
    with pytest.raises(ValueError, match="the pass needs a scope: it initializes x.scale there"):
        q.QuantizationTransformPass(activation_quantize_type="moving_average_abs_max").apply(graph)
    with pytest.raises(AssertionError, match="The scope cannot be set None"):
        q.OutScaleForInferencePass().apply(graph)


def build():
    fluid.layers.fc(fluid.layers.data("x", [4]), 3, bias_attr=False)
    return fluid.default_main_program()


def test_freezing_needs_values_in_the_scope():
    program = build()
    transpiler = QuantizeTranspiler()
    transpiler.training_transpile(program)
    with pytest.raises(ValueError, match="no value of fc_0.w_0; run the startup program or load the model first"):
        transpiler.freeze_program(program, fluid.CPUPlace(), scope=fluid.Scope())
    with pytest.raises(NotImplementedError, match="XLA fuses batch_norm"):
        transpiler.freeze_program(program, fluid.CPUPlace(), fuse_bn=True)


def test_the_startup_program_initializes_scales():
    build()
    QuantizeTranspiler(activation_quantize_type="range_abs_max", window_size=3).training_transpile()
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    held = {n: np.array(fluid.global_scope().find_var(n).get_tensor()).tolist() for n in ("x.scale", "@STEP_COUNTER@")}
    assert held == {"x.scale": [pytest.approx(0.001)], "@STEP_COUNTER@": [0]}


def test_a_test_graph_keeps_the_scales_of_training():
    graph = IrGraph(core.Graph(build().desc), for_test=True)
    scope = fluid.Scope()
    scope.var("x.scale").get_tensor().set(np.array([5], "float32"))
    q.QuantizationTransformPass(scope, activation_quantize_type="moving_average_abs_max").apply(graph)
    assert np.array(scope.find_var("x.scale").get_tensor()).tolist() == [5]


def test_scales_of_outputs_become_attributes():
    graph, scope = IrGraph(core.Graph(build().desc), for_test=True), fluid.Scope()
    q.ScaleForTrainingPass(scope).apply(graph)
    scope.var("fc_0.tmp_0@scale").get_tensor().set(np.array([2.5], "float32"))
    q.ScaleForInferencePass(scope).apply(graph)
    assert graph.to_program().global_block().ops[0].attr("out_threshold") == 2.5


def test_quantisation_after_training_needs_a_model_and_data(tmp_path):
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(AssertionError, match="The executor cannot be None"):
        q.PostTrainingQuantization()
    with pytest.raises(AssertionError, match="Give sample_generator or batch_generator"):
        q.PostTrainingQuantization(exe, model_dir="model")
    with pytest.raises(AssertionError, match="The algo should be KL or abs_max, not mean"):
        q.PostTrainingQuantization(exe, model_dir="model", sample_generator=list, algo="mean")
    prediction = build().global_block().var("fc_0.tmp_0")
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [prediction], exe)
    made = q.PostTrainingQuantization(exe, model_dir=str(tmp_path / "model"), batch_generator=list)
    with pytest.raises(RuntimeError, match="call quantize before save_quantized_model"):
        made.save_quantized_model(str(tmp_path / "quantised"))
    with pytest.raises(ValueError, match="the generator gave no samples"):
        made.quantize()


def test_everything_can_be_quantised_after_training(tmp_path):
    x = fluid.layers.data("x", [4])
    prediction = fluid.layers.softmax(fluid.layers.elementwise_add(fluid.layers.fc(x, 3, bias_attr=False), x[:, :3]))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [prediction], exe)
    batch = [np.linspace(-1, 1, 8).reshape(2, 4).astype("float32")]
    options = {"batch_generator": lambda: [batch, batch], "batch_nums": 1, "is_full_quantize": True, "algo": "abs_max"}
    made = q.PostTrainingQuantization(exe, fluid.Scope(), str(tmp_path / "model"), **options)
    types = [op.type for op in made.quantize().global_block().ops]
    assert types.count("fake_quantize_dequantize_moving_average_abs_max") > 1
    made.save_quantized_model(str(tmp_path / "quantised"))
    results = []
    for name in ("model", "quantised"):
        with fluid.scope_guard(fluid.Scope()):
            program, _, targets = fluid.io.load_inference_model(str(tmp_path / name), exe)
            results.append(exe.run(program, feed={"x": batch[0]}, fetch_list=targets)[0])
    np.testing.assert_allclose(*results, atol=0.03)


def image_net():
    """Two convolutions, one of whose inputs is never negative."""
    layers = fluid.layers
    image = layers.data("image", [3, 6, 6])
    hidden = layers.conv2d(layers.conv2d(image, 4, 3, act="relu"), 4, 3, groups=4, act="relu", use_cudnn=False)
    prediction = layers.fc(hidden, 3, act="softmax")
    exe = fluid.Executor(fluid.CPUPlace())
    fluid.default_startup_program().random_seed = 3  # KL clips one large value in 20 or so
    exe.run(fluid.default_startup_program())
    options = {"feed_var_names": ["image"], "fetch_list": [prediction], "exe": exe}
    return {"program": fluid.default_main_program().clone(for_test=True), **options}


@pytest.mark.parametrize("algo", ["direct", "KL"])
def test_a_calibrator_saves_a_model_of_integers(algo, tmp_path):
    options = image_net()
    exe, images = options["exe"], np.random.RandomState(0).uniform(-1, 1, (3, 2, 3, 6, 6)).astype("float32")
    calibrator = fluid.contrib.Calibrator(algo=algo, output=str(tmp_path), pretrained_model="unused", **options)
    with pytest.raises(RuntimeError, match="run Calibrator.sampling_program before sample_data: .* has no value"):
        calibrator.sample_data()
    for batch in images:
        (expected,) = exe.run(calibrator.sampling_program, {"image": batch}, options["fetch_list"])
        calibrator.sample_data()
    calibrator.save_int8_model()
    program, _, targets = fluid.io.load_inference_model(str(tmp_path), exe)
    ops = program.global_block().ops
    assert [op.attr("is_negative_input") for op in ops if op.type == "quantize"] == [True, False]
    assert [len(op.attr("Scale_weights")) for op in ops if op.type == "conv2d"] == [4, 4]
    np.testing.assert_allclose(exe.run(program, {"image": images[-1]}, targets)[0], expected, atol=0.01)


def test_a_calibrator_says_what_it_needs():
    options = image_net()
    with pytest.raises(RuntimeError, match="call sample_data before save_int8_model"):
        fluid.contrib.Calibrator(output="unused", **options).save_int8_model()
    with pytest.raises(ValueError, match="algo must be KL or direct, not 'mean'"):
        fluid.contrib.Calibrator(output="unused", algo="mean", **options)
    with pytest.raises(TypeError, match="Calibrator needs program, output"):
        fluid.contrib.Calibrator(exe=options["exe"])
    with pytest.raises(TypeError, match="takes program, .* by name, not \\['outputs'\\]"):
        fluid.contrib.Calibrator(outputs="unused", **options)


def test_weights_of_other_operators_cannot_be_stored():
    smaller = q.WeightQuantization("unused")
    with pytest.raises(AssertionError, match="softmax is not supported for weight quantization"):
        smaller.quantize_weight_to_int("unused", quantizable_op_type=["softmax"])
    with pytest.raises(AssertionError, match="weight_bits should be 8 or 16"):
        smaller.quantize_weight_to_int("unused", weight_bits=4)
    with pytest.raises(AssertionError, match="weight_quantize_type should in"):
        smaller.quantize_weight_to_int("unused", weight_quantize_type="mean")
