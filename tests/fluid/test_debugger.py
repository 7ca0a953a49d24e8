"""Programs as text and as graphs, and what they are made of."""

import re

import pytest

import paddle.fluid as fluid
from paddle.fluid import contrib, debugger, net_drawer
from refluid.ir import drawing


@pytest.fixture(autouse=True)
def no_graphviz(monkeypatch):
    monkeypatch.setattr(drawing.shutil, "which", lambda name: None)


@pytest.fixture
def program():
    """Linear regression with SGD."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1])
        hidden = fluid.layers.fc(x, 1, act="relu")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(hidden, y))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup


def test_pseudo_code_leaves_gradients_out_unless_asked(program):
    main, _ = program
    code = debugger.pprint_program_codes(main)
    assert "mul(" in code and "fc_0.w_0" in code
    assert "@GRAD" not in code and "sgd" not in code
    assert "fc_0.w_0@GRAD" in debugger.pprint_block_codes(main.global_block(), show_backward=True)


def test_a_block_is_drawn_with_its_parameters_and_highlights(program, tmp_path):
    main, _ = program
    debugger.draw_block_graphviz(main.global_block(), highlights=["fc_0.w_0$"], path=str(tmp_path / "block.dot"))
    text = (tmp_path / "block.dot").read_text()
    assert text.startswith('digraph "block 0" {') and text.endswith("}\n")
    marked = [line.split('label="')[1] for line in text.splitlines() if '"#ffa500"' in line]
    assert [re.match(r"[a-z_]+", label)[0] for label in marked] == ["mul", "mul_grad", "sgd"], "these use the parameter"
    assert marked[0].startswith('mul ?x1\\nfc_0.w_0 3x1"')
    assert '"feed x" -> "op 0" [label="x"];' in text
    assert [path.name for path in tmp_path.iterdir()] == ["block.dot"]


def test_names_are_quoted():
    graph, named = drawing.Graph('a "name"'), fluid.Program()
    with fluid.program_guard(named):
        fluid.layers.tanh(fluid.layers.data('back\\slash and "quotes"', [2]))
    graph.add(named.global_block())
    assert 'digraph "a \\"name\\"" {' in graph.source
    assert '[label="back\\\\slash and \\"quotes\\" ?x2"' in graph.source


def test_a_picture_is_made_where_graphviz_is_installed(tmp_path, monkeypatch):
    fake = tmp_path / "dot"
    fake.write_text('#!/bin/sh\ncp "$2" "$4"\n')
    fake.chmod(0o755)
    monkeypatch.setattr(drawing.shutil, "which", lambda name: str(fake))
    graph = drawing.Graph()
    assert [path.name for path in graph.save(str(tmp_path / "graph.dot"))] == ["graph.dot", "graph.pdf"]
    assert (tmp_path / "graph.pdf").read_text() == graph.source


def test_draw_graph_puts_startup_and_main_into_one_graph(program, tmp_path, monkeypatch):
    main, startup = program
    graph = net_drawer.draw_graph(startup, main, filename=str(tmp_path / "net.gv"), graph_attr={"rankdir": "LR"})
    text = (tmp_path / "net.gv").read_text()
    assert text == graph.source
    assert 'rankdir="LR"' in text and '"startup op 0"' in text and '"main op 0"' in text
    monkeypatch.chdir(tmp_path)
    net_drawer.draw_graph(startup, main)
    assert len(list(tmp_path.glob("[0-9]*.gv"))) == 1
    with pytest.raises(TypeError, match="not colour"):
        net_drawer.draw_graph(startup, main, colour="red")


def test_memory_usage_counts_as_real_fluid_does(program):
    main, _ = program
    low, high, unit = contrib.memory_usage(main, 10)
    assert (round(low, 6), round(high, 6), unit) == (462.0, 484.0, "B")
    assert contrib.memory_usage(main, 1000)[2] == "KB"
    assert contrib.memory_usage(main, 1_000_000)[2] == "MB"
    with pytest.raises(TypeError, match="expects a Program, not int"):
        contrib.memory_usage(3, 1)
    with pytest.raises(ValueError, match="batch_size must be positive, got 0"):
        contrib.memory_usage(main, 0)


def test_op_frequencies(program):
    main, _ = program
    single, pairs = contrib.op_freq_statistic(main)
    assert dict(single)["sgd"] == 2 and single[0][1] == max(count for _, count in single)
    assert dict(pairs)["mul->elementwise_add"] == 1
    with pytest.raises(TypeError, match="expects a Program, not int"):
        contrib.op_freq_statistic(3)
