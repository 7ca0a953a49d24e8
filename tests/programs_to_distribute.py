"""Small training programs, a short form of their text, and a transpiler for them."""

from __future__ import annotations

import numpy as np

import paddle.fluid as fluid
from refluid.ir import Program

SERVERS = "127.0.0.1:6174,127.0.0.1:6175"
FIRST, SECOND = SERVERS.split(",")


def regression(optimizer=None, size=1, clip=None):
    """One layer; with ``size`` 2 and slices of at least 8 elements, two slices of its weights."""
    x, y = fluid.layers.data("x", [8]), fluid.layers.data("y", [size])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, size), y))
    if clip is not None:
        fluid.clip.set_gradient_clip(clip)
    return (optimizer or fluid.optimizer.SGD(0.1)).minimize(loss)


def tagger(rows=10, **options):
    """A table with sparse gradients, and a layer on it."""
    word, y = fluid.layers.data("word", [1], dtype="int64"), fluid.layers.data("y", [1])
    found = fluid.layers.embedding(word, [rows, 4], is_sparse=True, param_attr="emb", **options)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(found, 1, bias_attr=False), y))
    fluid.optimizer.SGD(0.1).minimize(loss)


def config(**fields):
    made = fluid.DistributeTranspilerConfig()
    made.min_block_size = 8
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def transpile(settings=None, pservers=SERVERS, trainers=2, trainer_id=0, **options):
    """A transpiler of the default programs."""
    transpiler = fluid.DistributeTranspiler(settings or config())
    transpiler.transpile(trainer_id, pservers=pservers, trainers=trainers, **options)
    return transpiler


def lines(block, *attrs, last=0):
    """A line per operator: what it writes, what it is, what it reads, and these attributes where it has them."""
    ops = block.ops[-last:]
    return [f"{' '.join(op.output_arg_names)} = {op.type}({_arguments(op, attrs)})" for op in ops]


def _arguments(op, attrs):
    words = [*op.input_arg_names, *(f"{name}={op.attrs[name]}" for name in attrs if name in op.attrs)]
    return ", ".join(words)


def assert_survives_protobuf(program):
    """Read back, a program says the same; which variables are parameters is not in the message."""
    read = Program.parse_from_string(program.desc.serialize_to_string())
    assert str(read) == str(read.clone())
    for before, after in zip(program.blocks, read.blocks, strict=True):
        for op, again in zip(before.ops, after.ops, strict=True):
            assert (again.type, again.inputs, again.outputs) == (op.type, op.inputs, op.outputs)
            assert _plain(again.attrs) == _plain(op.attrs), f"{op}\n{again}"
        assert {n: (v.shape, v.dtype, v.type, v.persistable) for n, v in before.vars.items()} == {
            n: (v.shape, v.dtype, v.type, v.persistable) for n, v in after.vars.items()
        }


def _plain(attrs):
    """Attributes as a message can hold them."""
    return {name: repr(_value(value)) for name, value in attrs.items()}


def _value(value):
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, int | float):
        return str(np.float32(value))
    return getattr(value, "idx", value)
