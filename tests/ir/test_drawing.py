"""Graphs of programs as SVG pictures; those of Graphviz are in tests/fluid/test_debugger.py."""

import xml.etree.ElementTree

import paddle.fluid as fluid
from refluid.ir.drawing import graph_of
from refluid.ir.svg import to_svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(program):
    root = xml.etree.ElementTree.fromstring(to_svg(graph_of(program)))
    boxes = [
        {key: float(box.get(key)) for key in ("x", "y", "width", "height")} for box in root.findall(f"{SVG}rect")[1:]
    ]
    return [text.text for text in root.findall(f"{SVG}text")], boxes, root.findall(f"{SVG}path")


def overlap(a, b):
    return abs(a["x"] - b["x"]) < min(a["width"], b["width"]) and abs(a["y"] - b["y"]) < min(a["height"], b["height"])


def test_operators_are_boxes_that_do_not_overlap_with_arrows_between_them():
    x = fluid.layers.data("x<&>", [4])
    sides = [fluid.layers.fc(x, 3, act="relu") for _ in range(5)]
    out = fluid.layers.concat([*sides, x], axis=1)
    fluid.layers.scale(out)
    texts, boxes, arrows = drawn(fluid.default_main_program())
    assert "x<&> ?x4" in texts and "concat ?x19" in texts and "fc_4.w_0 4x3" in texts
    assert len(boxes) == 1 + 3 * 5 + 2 and len(arrows) == 3 * 5 + 6 + 1
    assert [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if overlap(a, b)] == []
    tops = [box["y"] for box in boxes]
    assert tops[0] == min(tops) and tops[-1] == max(tops)


def test_inner_blocks_are_drawn_below():
    x = fluid.layers.data("x", [4])
    turn, limit = (fluid.layers.fill_constant([1], "int64", value) for value in (0, 3))
    going = fluid.layers.less_than(turn, limit)
    loop = fluid.layers.While(going)
    with loop.block():
        fluid.layers.assign(fluid.layers.tanh(x), x)
        fluid.layers.increment(turn)
        fluid.layers.less_than(turn, limit, cond=going)
    texts, boxes, _ = drawn(fluid.default_main_program())
    assert texts.index("while ?x4") < texts.index("block 1", texts.index("while ?x4") + 2) < texts.index("tanh ?x4")
    assert [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if overlap(a, b)] == []


def test_an_empty_program_is_an_empty_picture():
    assert drawn(fluid.Program()) == ([], [], [])
