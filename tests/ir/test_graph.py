"""Graphs: views of a program that passes rewrite."""

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import core
from paddle.fluid.framework import IrGraph

FP32, TENSOR = core.VarDesc.VarType.FP32, core.VarDesc.VarType.LOD_TENSOR


@pytest.fixture
def graph():
    x = fluid.layers.data("x", [3])
    fluid.layers.relu(fluid.layers.fc(x, 2, bias_attr=False))
    return IrGraph(core.Graph(fluid.default_main_program().desc), for_test=True)


def op_node(graph, name):
    return next(node for node in graph.all_op_nodes() if node.name() == name)


def var_node(graph, name):
    return graph._find_node_by_name(graph.all_var_nodes(), name)


def test_nodes_know_their_neighbours(graph):
    multiply = op_node(graph, "mul")
    assert [node.name() for node in multiply.inputs] == ["x", "fc_0.w_0"]
    (product,) = multiply.outputs
    assert (product.name(), product.shape(), product.dtype()) == ("fc_0.tmp_0", [-1, 2], FP32)
    assert product.inputs == [multiply]
    assert [node.name() for node in product.outputs] == ["relu"]
    assert [node.name() for node in graph.all_persistable_nodes()] == ["fc_0.w_0"]
    assert (multiply.is_op(), multiply.is_var(), multiply.is_ctrl_var(), multiply.var()) == (True, False, False, None)
    assert multiply.op().type() == "mul"
    assert len(graph.all_nodes()) == 2 + 4
    assert graph.is_test()


def test_an_operator_is_placed_before_those_that_read_it(graph):
    half, doubled = (graph.create_var_node(name, TENSOR, [-1, 3], FP32) for name in ("half", "doubled"))
    x, multiply = var_node(graph, "x"), op_node(graph, "mul")
    second = graph.create_op_node("scale", {"scale": 4.0}, {"X": half}, {"Out": doubled})
    first = graph.create_op_node("scale", {"scale": 0.5}, {"X": x}, {"Out": half})
    graph.link_to(x, first)
    graph.link_to(first, half)
    graph.update_input_link(x, doubled, multiply)
    assert graph.topology_sort() == [first, second, multiply, op_node(graph, "relu")]
    assert graph.build_adjacency_list()[multiply] == {second}
    program = graph.to_program()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    result = exe.run(program, feed={"x": np.ones((1, 3), "float32")}, fetch_list=["doubled"])[0]
    assert result.tolist() == [[2, 2, 2]]


def test_nodes_are_renamed_and_removed(graph):
    relu = op_node(graph, "relu")
    relu.set_type("tanh")
    relu.rename_input("fc_0.tmp_0", "x")
    graph.safe_remove_nodes({op_node(graph, "mul"), var_node(graph, "fc_0.w_0")})
    program = graph.to_program()
    assert [op.type for op in program.global_block().ops] == ["tanh"]
    assert not program.global_block().has_var("fc_0.w_0")


def test_a_graph_does_not_change_the_program_it_was_made_of(graph):
    other = graph.clone()
    other.safe_remove_nodes(op_node(other, "relu"))
    assert [node.name() for node in graph.topology_sort()] == ["mul", "relu"]
    assert len(fluid.default_main_program().global_block().ops) == 2


def test_new_nodes_may_be_like_others(graph):
    copy = graph.create_var_node_from_desc(var_node(graph, "x").var())
    assert (copy.name(), copy.persistable()) == ("x", False)
    kept = graph.create_persistable_node("kept", TENSOR, [1], FP32)
    graph.create_op_node_from_desc(op_node(graph, "relu").op())
    assert kept.persistable()
    assert [node.name() for node in graph.topology_sort()] == ["mul", "relu", "relu"]


def test_a_graph_is_drawn(graph, tmp_path):
    graph.draw(str(tmp_path / "drawings"), "net", marked_nodes=[var_node(graph, "fc_0.tmp_0")])
    assert "mul" in (tmp_path / "drawings" / "net.dot").read_text()


def test_a_compiled_program_takes_a_graph(graph):
    assert fluid.CompiledProgram(graph.graph).program is graph.graph.program


def test_what_is_not_a_graph_is_an_error(graph):
    with pytest.raises(TypeError, match=r"expects core.Graph\(program.desc\), not Program"):
        IrGraph(fluid.default_main_program())
    with pytest.raises(TypeError, match=r"core.Graph expects program.desc, not Program"):
        core.Graph(fluid.default_main_program())
    with pytest.raises(TypeError, match="link_to expects two nodes, not str"):
        graph.link_to(op_node(graph, "relu"), "x")
    with pytest.raises(AssertionError, match="none of these nodes is called y"):
        var_node(graph, "y")
