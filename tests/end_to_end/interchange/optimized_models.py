"""Models that real Fluid's inference passes optimize, and what they make of them. Run it with real Fluid:

    python optimized_models.py tests/end_to_end/fixtures [MODEL ...]

Each model is saved with the fused operators that real Fluid's passes have made of it, as optimized_<model>.zip, with
inputs and what real Fluid predicts from them. Runs under Python 3.7.
"""

import os
import sys
import tempfile

import numpy as np
import save_and_run
from models import set_parameters
from numbers_by_name import numbers


def rows(name, lengths, width):
    return numbers(name, sum(lengths), width).astype("float32"), [list(lengths)]


def ids(lengths, high):
    values = np.arange(sum(lengths)).reshape(-1, 1) * 7 % high
    return values.astype("int64"), [list(lengths)]


def sequence(fluid, name, width, dtype="float32"):
    return fluid.layers.data(name, [width], dtype=dtype, lod_level=1)


def repeated_fc_relu(fluid):
    x = fluid.layers.data("x", [6])
    for size in (5, 4, 3):
        x = fluid.layers.fc(x, size, act="relu")
    return {"x": numbers("x", 3, 6).astype("float32")}, [x]


def fc(fluid):
    x = fluid.layers.data("x", [2, 3])
    hidden = fluid.layers.fc(x, 4, num_flatten_dims=2, act="relu")
    return {"x": numbers("x", 3, 2, 3).astype("float32")}, [fluid.layers.fc(hidden, 3)]


def gru(fluid):
    embedded = fluid.layers.embedding(sequence(fluid, "ids", 1, "int64"), [20, 6])
    backwards = fluid.layers.dynamic_gru(fluid.layers.fc(embedded, 12), 4, is_reverse=True)
    hidden = fluid.layers.dynamic_gru(fluid.layers.fc(embedded, 12), 4)
    last = [fluid.layers.sequence_pool(each, "last") for each in (hidden, backwards)]
    return {"ids": ids((2, 5, 1), 20)}, [fluid.layers.concat(last, axis=1)]


def lstm(fluid):
    x = sequence(fluid, "x", 6)
    peeping, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(x, 16), 16, use_peepholes=True)
    plain, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(x, 16), 16, use_peepholes=False, is_reverse=True)
    return {"x": rows("x", (2, 5, 1), 6)}, [peeping, plain]


def embedded_lstm(fluid):
    embedded = fluid.layers.embedding(sequence(fluid, "ids", 1, "int64"), [20, 6])
    hidden, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(embedded, 16), 16, use_peepholes=False, is_reverse=True)
    return {"ids": ids((2, 5, 1), 20)}, [hidden]


def sequence_convolution(fluid):
    x = sequence(fluid, "x", 4)
    return {"x": rows("x", (2, 5, 1), 4)}, [fluid.layers.sequence_conv(x, 3, filter_size=3, act="relu")]


def pooled_sequences(fluid):
    found = [sequence(fluid, name, 4) for name in ("a", "b", "c")]
    pooled = [fluid.layers.sequence_pool(each, "sum") for each in found]
    feeds = {name: rows(name, lengths, 4) for name, lengths in (("a", (2, 5)), ("b", (1, 3)), ("c", (4, 1)))}
    return feeds, [fluid.layers.fc(fluid.layers.concat(pooled, axis=1), 3)]


def shows_and_clicks(fluid):
    clicks = fluid.layers.data("clicks", [2])
    pooled = [fluid.layers.sequence_pool(sequence(fluid, name, 4), "sum") for name in ("a", "b")]
    joined = fluid.layers.concat([fluid.layers.continuous_value_model(each, clicks) for each in pooled], axis=1)
    feeds = {name: rows(name, lengths, 4) for name, lengths in (("a", (2, 5)), ("b", (1, 3)))}
    feeds = {name: (np.abs(values), lengths) for name, (values, lengths) in feeds.items()}
    return dict(feeds, clicks=np.ones((2, 2), "float32")), [fluid.layers.fc(joined, 3)]


def expanded_rows(fluid):
    x = sequence(fluid, "x", 4)
    others = [fluid.layers.sequence_expand(sequence(fluid, name, 2), x) for name in ("a", "b")]
    out = fluid.layers.fc(fluid.layers.concat([x, *others], axis=1), 3, act="relu")
    feeds = {"x": rows("x", (2, 5), 4), "a": rows("a", (1, 1), 2), "b": rows("b", (1, 1), 2)}
    return feeds, [out]


def squared_difference(fluid):
    layers = fluid.layers
    x = layers.data("x", [4])
    y = layers.create_parameter([4, 3], "float32", name="factors")
    crossed = layers.square(layers.matmul(x, y)) - layers.matmul(layers.square(x), layers.square(y))
    half = layers.fill_constant([1], "float32", 0.5)
    return {"x": numbers("x", 3, 4).astype("float32")}, [layers.elementwise_mul(crossed, half)]


def convolution(fluid):
    image = fluid.layers.data("image", [3, 8, 8])
    hidden = fluid.layers.conv2d(image, 4, 3, padding=1, bias_attr=False)
    hidden = fluid.layers.batch_norm(hidden, act="relu", is_test=True)
    pooled = fluid.layers.pool2d(hidden, pool_type="avg", global_pooling=True)
    return {"image": numbers("image", 2, 3, 8, 8).astype("float32")}, [fluid.layers.fc(pooled, 3)]


def mkldnn_convolutions(fluid):
    layers = fluid.layers
    image = layers.data("image", [3, 8, 8])
    first = layers.conv2d(image, 4, 3, padding=1, act="relu")
    second = layers.batch_norm(layers.conv2d(first, 4, 3, padding=1, bias_attr=False), is_test=True)
    joined = layers.elementwise_add(first, second, act="relu")
    pooled = layers.pool2d(layers.conv2d(joined, 4, 1, act="relu6"), pool_type="avg", global_pooling=True)
    return {"image": numbers("image", 2, 3, 8, 8).astype("float32")}, [layers.fc(pooled, 3)]


def eight_bits(fluid):
    """Quantised by the predictor itself, after it has seen some images."""
    return mkldnn_convolutions(fluid)


def activated_sums(fluid):
    layers = fluid.layers
    x = layers.data("x", [4])
    hidden = layers.relu(layers.elementwise_add(x, layers.create_parameter([4], "float32", name="shift")))
    scaled = layers.elementwise_add(hidden, layers.scale(layers.fc(x, 4), 0.5))
    return {"x": numbers("x", 3, 4).astype("float32")}, [scaled]


def attention_lstm(fluid):
    """The pass that makes it asks for one network only, so the operator is appended as it is."""
    x, cell = sequence(fluid, "x", 4), fluid.layers.data("cell", [3])
    shapes = {"AttentionWeight": [7, 1], "AttentionBias": [1, 1], "LSTMWeight": [7, 12], "LSTMBias": [1, 12]}
    inputs = {slot: fluid.layers.create_parameter(shape, "float32", name=slot) for slot, shape in shapes.items()}
    block = fluid.default_main_program().global_block()
    slots = "Hidden Cell AttentionedX AttentionFCOut LSTMX LSTMOUT".split()
    outputs = {slot: block.create_var(name="attended_" + slot, dtype="float32") for slot in slots}
    block.append_op(type="attention_lstm", inputs=dict(inputs, X=x, C0=cell), outputs=outputs)
    feeds = {"x": rows("x", (2, 5, 1), 4), "cell": numbers("cell", 3, 3).astype("float32")}
    return feeds, [outputs["Hidden"], outputs["Cell"]]


# Each model, the operators that real Fluid makes of it, and by which passes; None: by those of its predictor. What some
# passes compute a predictor does not save.
MODELS = {
    repeated_fc_relu: (["fusion_repeated_fc_relu"], None),
    fc: (["fc"], None),
    gru: (["fusion_gru"], None),
    lstm: (["fusion_lstm"], ["fc_lstm_fuse_pass"]),
    embedded_lstm: (["fused_embedding_fc_lstm"], ["embedding_fc_lstm_fuse_pass"]),
    sequence_convolution: (["fusion_seqconv_eltadd_relu"], None),
    pooled_sequences: (["fusion_seqpool_concat"], ["seqpool_concat_fuse_pass"]),
    shows_and_clicks: (["fusion_seqpool_cvm_concat"], None),
    expanded_rows: (["fusion_seqexpand_concat_fc"], None),
    squared_difference: (["fusion_squared_mat_sub"], None),
    convolution: (["conv2d", "elementwise_add"], None),
    mkldnn_convolutions: (["conv2d", "fc"], None),
    eight_bits: (["quantize", "conv2d", "fc", "dequantize"], None),
    activated_sums: (["fused_elemwise_activation"], ["fuse_elewise_add_act_pass"]),
    attention_lstm: (["attention_lstm"], []),
}


def optimize(fluid, build, folder):
    """Writes __model__ and params as real Fluid's passes have made them; returns what to feed."""
    passes = MODELS[build][1]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.core.Scope()):
        feeds, targets = build(fluid)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        set_parameters(fluid, main)
        if passes is None:
            plain = tempfile.mkdtemp()
            fluid.io.save_inference_model(plain, sorted(feeds), targets, executor, main)
            save_optimized(
                fluid, plain, folder, build in (mkldnn_convolutions, eight_bits), build is eight_bits and feeds
            )
        else:
            program = with_passes(fluid, main.clone(for_test=True), passes) if passes else main
            targets = [program.global_block().var(target.name) for target in targets]
            fluid.io.save_inference_model(folder, sorted(feeds), targets, executor, program, params_filename="params")
    return feeds


def save_optimized(fluid, plain, folder, with_mkldnn, samples=None):
    """Saves what the passes of a predictor have made of the model in the folder ``plain``.

    With samples it is quantised: they say how large values are.
    """
    config = fluid.core.AnalysisConfig(plain)
    config.disable_gpu()
    config.disable_glog_info()
    config.switch_ir_optim(True)
    if with_mkldnn:
        config.enable_mkldnn()
    if samples:
        config.enable_quantizer()
        config.quantizer_config().set_quant_data([fluid.core.PaddleTensor(samples[name]) for name in sorted(samples)])
        config.quantizer_config().set_quant_batch_size(len(next(iter(samples.values()))))
    fluid.core.create_paddle_predictor(config).SaveOptimModel(folder)
    os.rename(os.path.join(folder, "model"), os.path.join(folder, "__model__"))


def with_passes(fluid, program, passes):
    """The program after some passes; what they have put into the scope is persistable there."""
    graph = fluid.core.Graph(program.desc)
    graph.set_not_owned("__param_scope__", fluid.global_scope())
    for name in passes:
        fluid.core.get_pass(name).apply(graph)
    program = fluid.framework.IrGraph(graph, for_test=True).to_program()
    block = program.global_block()
    for name in {name for op in block.ops for name in op.input_arg_names}:
        found = fluid.global_scope().find_var(name)
        if found is not None and not block.has_var(name):
            block.create_var(name=name, shape=found.get_tensor().shape(), dtype="float32")
        if found is not None and not block.var(name).is_data:
            block.var(name).persistable = True
    return program


def operators_in(fluid, folder):
    with open(os.path.join(folder, "__model__"), "rb") as file:
        desc = fluid.core.ProgramDesc(file.read())
    return [desc.block(0).op(i).type() for i in range(desc.block(0).op_size())]


def record(fluid, build, target):
    folder = os.path.join(tempfile.mkdtemp(), "optimized_" + build.__name__)
    os.mkdir(folder)
    feeds = optimize(fluid, build, folder)
    types = operators_in(fluid, folder)
    assert set(MODELS[build][0]) <= set(types), types
    outputs = save_and_run.run(fluid, folder, feeds)
    arrays = dict(feeds, **{"output_{}".format(i): value for i, value in enumerate(outputs)})
    np.savez_compressed(os.path.join(folder, "data.npz"), **save_and_run.as_arrays(arrays))
    save_and_run.pack(folder, os.path.join(target, "optimized_" + build.__name__ + ".zip"))


def main(target, *only):
    save_and_run.traceback.extract_stack = lambda *_, **__: []  # see save_and_run
    import paddle.fluid as fluid

    for build in MODELS:
        if not only or build.__name__ in only:
            record(fluid, build, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
