"""Compression: arguments, errors, checkpoints. tests/golden/test_compressed.py compares with real Fluid."""

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.contrib import slim
from paddle.fluid.contrib.slim.core import ConfigFactory, Context, Strategy
from paddle.fluid.contrib.slim.distillation import DistillationStrategy, FSPDistiller, L2Distiller
from paddle.fluid.contrib.slim.graph import GraphWrapper, SlimGraphExecutor
from paddle.fluid.contrib.slim.nas import LightNASStrategy, SearchSpace
from paddle.fluid.contrib.slim.prune import (
    AutoPruneStrategy,
    Pruner,
    SensitivePruneStrategy,
    StructurePruner,
    UniformPruneStrategy,
)
from paddle.fluid.contrib.slim.searcher import EvolutionaryController, SAController

pytestmark = pytest.mark.filterwarnings("ignore:CPU_NUM is not set")
PLACE = fluid.CPUPlace()
BY_NORM = StructurePruner({"*": 0}, {"*": "l1_norm"})


@pytest.fixture
def graph():
    """A convolution and a product, with parameters in the global scope."""
    image = fluid.layers.data("image", [1, 4, 4])
    label = fluid.layers.data("label", [1], dtype="int64")
    hidden = fluid.layers.conv2d(image, 4, 3, act="relu", param_attr=fluid.ParamAttr(name="conv_weights"))
    prediction = fluid.layers.fc(hidden, 3, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
    fluid.default_startup_program().random_seed = 1
    fluid.Executor(PLACE).run(fluid.default_startup_program())
    nodes = [("image", "image"), ("label", "label")]
    return GraphWrapper(fluid.default_main_program(), nodes, [("loss", loss.name)])


def samples(count=2):
    random = np.random.RandomState(0)
    return [(random.rand(1, 4, 4).astype("float32"), np.array([i % 3])) for i in range(count)]


def reader():
    yield samples()
    yield samples()


def compressor(graph, **options):
    arguments = {
        "train_reader": reader,
        "train_feed_list": graph.in_nodes,
        "train_fetch_list": graph.out_nodes,
        "eval_program": graph.program.clone(for_test=True),
        "eval_reader": reader,
        "eval_feed_list": graph.in_nodes,
        "eval_fetch_list": graph.out_nodes,
        "train_optimizer": fluid.optimizer.Momentum(0.1, 0.9),
        **options,
    }
    return slim.Compressor(PLACE, fluid.global_scope(), graph.program, **arguments)


def value(name):
    return np.array(fluid.global_scope().find_var(name).get_tensor())


# Graphs


def test_variables_and_operators_know_each_other(graph):
    weight, convolution = graph.var("conv_weights"), graph.ops()[0]
    assert (weight.shape(), graph.is_parameter(weight), graph.is_persistable(weight)) == ((4, 1, 3, 3), True, True)
    assert (weight.inputs(), weight.outputs()) == ([convolution], [])
    assert (convolution.type(), convolution.idx(), convolution.attr("groups")) == ("conv2d", 0, 1)
    assert [op.type() for op in graph.next_ops(convolution)] == ["elementwise_add"]
    assert graph.pre_ops(graph.ops()[1]) == [convolution]
    assert graph.get_param_by_op(convolution) == convolution.inputs("Filter") == [weight]
    assert [variable.name() for variable in convolution.outputs("Output")] == ["conv2d_0.tmp_0"]
    assert len({weight, graph.var("conv_weights")}) == 1
    convolution.set_attr("note", "kept")
    assert graph.clone().ops()[0].attr("note") == "kept"
    assert graph.numel_params() == 36 + 4 + 16 * 3 + 3
    assert len(graph.vars()) > len(graph.all_parameters()) == 4


def test_an_optimizer_makes_a_graph_to_train(graph):
    trained = graph.get_optimize_graph(fluid.optimizer.SGD(0.1), PLACE, fluid.global_scope())
    kinds = [(op.is_bwd_op(), op.is_opt_op()) for op in trained.ops()]
    assert (kinds[0], kinds[-1]) == ((False, False), (False, True))
    executor, before = SlimGraphExecutor(PLACE), value("conv_weights")
    (loss,) = executor.run(trained, fluid.global_scope(), data=samples())
    assert loss > 0
    assert np.abs(value("conv_weights") - before).max() > 0
    with pytest.raises(TypeError, match="trained by an optimizer, not by a str"):
        graph.get_optimize_graph("SGD", PLACE, fluid.global_scope())
    with pytest.raises(ValueError, match=r"its output 'loss' or 'cost'; it has \['accuracy'\]"):
        GraphWrapper(graph.program, [], {"accuracy": "x"}).compile()


def test_a_graph_is_saved(graph, tmp_path):
    executor = SlimGraphExecutor(PLACE)
    graph.save_infer_model(str(tmp_path / "infer"), executor, (["image"], ["fc_0.tmp_2"]))
    graph.save_model(str(tmp_path / "whole"), executor)
    before = value("conv_weights")
    fluid.global_scope().find_var("conv_weights").get_tensor().set(before * 0)
    graph.load_persistables(str(tmp_path / "whole"), executor)
    np.testing.assert_array_equal(value("conv_weights"), before)
    assert (tmp_path / "whole" / "__model__").exists()
    assert sorted(path.name for path in (tmp_path / "infer").iterdir()) == ["__model__", "__params__"]


def test_shapes_follow_the_scope(graph):
    fluid.global_scope().find_var("conv_weights").get_tensor().set(np.ones((2, 1, 3, 3), "float32"))
    fluid.global_scope().find_var("conv2d_0.b_0").get_tensor().set(np.ones(2, "float32"))
    fluid.global_scope().find_var("fc_0.w_0").get_tensor().set(np.ones((8, 3), "float32"))
    graph.update_param_shape(fluid.global_scope())
    graph.infer_shape()
    assert graph.var("conv2d_0.tmp_2").shape() == (-1, 2, 2, 2)


# Pruning


def test_a_pruner_has_options_for_parameters():
    weight = np.array([[3.0, 0], [1, 1]])
    assert StructurePruner({"a": 1, "*": 0}, {"*": "l1_norm"}).cal_pruned_idx("a", weight, 0.5).tolist() == [1]
    assert BY_NORM.cal_pruned_idx("a", weight, 0.5).tolist() == [1]
    assert BY_NORM.cal_pruned_idx("a", weight, 0.5, axis=1).tolist() == [1]
    assert BY_NORM.prune_tensor(weight, [0], 0).tolist() == [[1, 1]]
    with pytest.raises(KeyError, match="no option for b and none for"):
        StructurePruner({"a": 0}, {"*": "l1_norm"}).cal_pruned_idx("b", weight, 0.5)
    with pytest.raises(ValueError, match="criterion of a is 'l2'; StructurePruner knows l1_norm"):
        StructurePruner({"*": 0}, {"a": "l2"})
    with pytest.raises(NotImplementedError, match="Pruner does not say how"):
        Pruner().prune(weight)


def test_a_model_is_pruned_by_sensitivity(graph, tmp_path):
    compressed = compressor(graph)
    file = tmp_path / "sensitivities"
    options = {"delta_rate": 0.5, "metric_name": "loss", "sensitivities_file": str(file)}
    compressed._add_strategy(SensitivePruneStrategy(BY_NORM, 0, 1, target_ratio=0.4, **options))
    result = compressed.run()
    kept = value("conv_weights").shape[0]
    assert result.var("conv_weights").shape() == (kept, 1, 3, 3)
    assert kept < 4
    assert "conv_weights" in file.read_text()


def test_sensitivities_that_are_known_are_not_measured(graph):
    known = {"conv_weights": {"pruned_percent": [0.25, 0.5], "loss": [0.1, 0.4]}}
    strategy = SensitivePruneStrategy(BY_NORM, delta_rate=0.25, sensitivities=known, metric_name="loss")
    context = Context(PLACE, fluid.global_scope(), eval_graph=graph, eval_reader=reader)
    ratios = strategy._get_best_ratios(context, known, 0.25)
    assert 0.2 < ratios["conv_weights"] < 0.4


def test_errors_of_pruning(graph):
    context = Context(PLACE, fluid.global_scope(), train_graph=graph)
    with pytest.raises(ValueError, match="pruned_params is 'no'; no parameter of the program has such a name"):
        UniformPruneStrategy(BY_NORM, pruned_params="no").on_epoch_begin(context)
    with pytest.raises(ValueError, match="the scope has no value of conv_weights"):
        UniformPruneStrategy(BY_NORM).on_epoch_begin(Context(PLACE, fluid.Scope(), train_graph=graph))
    with pytest.raises(ValueError, match="needs the eval_program and eval_reader"):
        SensitivePruneStrategy(BY_NORM).on_epoch_begin(context)
    context.eval_graph, context.eval_reader = graph, reader
    with pytest.raises(ValueError, match="metric_name is 'top1_acc'; the eval program has loss"):
        SensitivePruneStrategy(BY_NORM)._metric(context, graph)
    with pytest.raises(NotImplementedError, match="AutoPruneStrategy is not supported"):
        AutoPruneStrategy()


# Compression


def test_a_compression_goes_on_from_its_checkpoint(graph, tmp_path):
    class Stop(Strategy):
        def on_epoch_begin(self, context):
            if context.epoch_id == 2:
                raise KeyboardInterrupt

    def run(path, epochs, *strategies):
        with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
            fluid.Executor(PLACE).run(fluid.default_startup_program())
            made = compressor(
                GraphWrapper(graph.program.clone(), graph.in_nodes, graph.out_nodes), checkpoint_path=path
            )
            made.epoch = epochs
            for strategy in strategies:
                made._add_strategy(strategy)
            made.run()
            return value("conv_weights")

    pruning = UniformPruneStrategy(BY_NORM, target_ratio=0.5)
    whole = run(str(tmp_path / "whole"), 3, pruning)
    with pytest.raises(KeyboardInterrupt):
        run(str(tmp_path / "parts"), 3, pruning, Stop())
    again = run(str(tmp_path / "parts"), 3, pruning)
    assert whole.shape == again.shape == (2, 1, 3, 3)
    np.testing.assert_allclose(again, whole, rtol=1e-5)


def test_functions_may_evaluate(graph):
    made = compressor(graph, eval_func={"score": lambda program, scope: 7})
    results = []

    class Look(Strategy):
        def on_epoch_end(self, context):
            results.append((context.eval_results, context.eval_converged("score")))

    made.epoch = 2
    made._add_strategy(Look())
    made.run()
    assert results[-1] == ({"score": [7, 7]}, True)


def test_what_a_compressor_needs(graph):
    with pytest.raises(ValueError, match="needs train_feed_list"):
        slim.Compressor(PLACE, fluid.global_scope(), graph.program, train_reader=reader)
    made = compressor(graph, train_reader=None)
    made.epoch = 1
    with pytest.raises(ValueError, match="needs train_reader"):
        made.run()
    context = Context(PLACE, fluid.global_scope(), eval_graph=graph, eval_reader=list)
    with pytest.raises(ValueError, match="the eval_reader has no batches"):
        context.run_eval_graph()
    context.put("key", 3)
    assert (context.get("key"), context.get("none")) == (3, None)


def test_errors_of_distillation(graph):
    with pytest.raises(ValueError, match="every pair of the student has one of the teacher: 1 and 0 pairs"):
        FSPDistiller([["a", "b"]], [])
    context = Context(PLACE, fluid.global_scope(), train_graph=graph)
    with pytest.raises(ValueError, match="needs the argument distiller_optimizer"):
        DistillationStrategy([L2Distiller("conv2d_0.tmp_0", "conv2d_0.tmp_1")]).on_epoch_begin(context)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "expected sections such as compressor and strategies"),
        ("strategies: {s: {class: Unknown}}", "s is of class Unknown; known are AddQuantDequantPass, "),
        (
            "pruners: {p: {class: StructurePruner, axis: 1}}",
            "StructurePruner has no argument axis; it has pruning_axis",
        ),
        ("compressor: {epoch: 1, strategies: [s]}", "names the strategy s, which the file does not describe"),
    ],
)
def test_a_configuration_that_is_wrong_says_where(text, message, tmp_path):
    path = tmp_path / "compress.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        ConfigFactory(str(path))


def test_objects_of_a_configuration_refer_to_each_other(tmp_path):
    path = tmp_path / "compress.yaml"
    path.write_text(
        "version: 1.0\nstrategies: {s: {class: UniformPruneStrategy, pruner: p}}\n"
        "pruners: {p: {class: StructurePruner, pruning_axis: {'*': 0}, criterions: {'*': l1_norm}}}\n"
        "compressor: {epoch: 4, strategies: [s]}"
    )
    factory = ConfigFactory(str(path))
    assert factory.instance("s").pruner is factory.instance("p")
    assert (factory.version, factory.compressor["epoch"], factory.instance("none")) == (1.0, 4, None)


# Searches


def test_annealing_finds_better_tokens():
    np.random.seed(0)
    controller = SAController(reduce_rate=0.5, init_temperature=1)
    controller.reset([4, 4, 1], [0, 0, 0], lambda tokens: tokens[0] < 3)
    for _ in range(60):
        tokens = controller.next_tokens()
        assert tokens[0] < 3 and tokens[2] == 0
        controller.update(tokens, float(sum(tokens)))
    assert controller.best_tokens == [2, 3, 0]
    assert sum(a != b for a, b in zip(controller.next_tokens([1, 1, 0]), [1, 1, 0], strict=True)) == 1


def test_errors_of_searches():
    with pytest.raises(ValueError, match="call reset before next_tokens"):
        SAController().next_tokens()
    controller = SAController(max_iter_number=5)
    controller.reset([2], [0], lambda tokens: False)
    with pytest.raises(RuntimeError, match="none of 5 proposals satisfied constrain_func"):
        controller.next_tokens()
    with pytest.raises(NotImplementedError, match="LightNASStrategy is not supported; write the loop around"):
        LightNASStrategy()
    for call in (SearchSpace().init_tokens, SearchSpace().range_table, EvolutionaryController().next_tokens):
        with pytest.raises(NotImplementedError, match=r"SearchSpace says|controller proposes"):
            call()
    with pytest.raises(NotImplementedError, match="builds the network"):
        SearchSpace().create_net([])
    with pytest.raises(NotImplementedError, match="learns from rewards"):
        EvolutionaryController().update([], 0)
    with pytest.raises(NotImplementedError, match="starts searches"):
        EvolutionaryController().reset([])
