"""Programs that DistributeTranspiler makes, in a short form. What real Fluid makes of them is recorded by:

PYTHONPATH=tests ORACLE/bin/python tests/golden/transpiled.py
"""

import json
import os

EXCHANGE = ("split_byref", "split_selected_rows", "send", "send_barrier", "recv", "fetch_barrier", "concat")
SERVERS = ["127.0.0.1:6174", "127.0.0.1:6175", "127.0.0.1:6176"]


def network(fluid, sparse=False):
    x, y = fluid.layers.data("x", [20]), fluid.layers.data("y", [1])
    inputs = [x]
    if sparse:
        word = fluid.layers.data("word", [1], dtype="int64")
        inputs.append(fluid.layers.embedding(word, [6000, 4], is_sparse=True, param_attr="emb"))
    hidden = fluid.layers.fc(inputs, 1200, act="relu")
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))


def plain(fluid):
    fluid.optimizer.SGD(0.1).minimize(network(fluid))


def decayed(fluid):
    rate = fluid.layers.exponential_decay(0.1, 100, 0.9)
    decay = fluid.regularizer.L2Decay(0.01)
    loss = network(fluid)
    fluid.optimizer.Momentum(rate, 0.9, regularization=decay).minimize(loss)


def sparse(fluid):
    fluid.optimizer.Adam(0.1).minimize(network(fluid, sparse=True))


# Model and number of servers. Without slicing, real Fluid places parameters by chance.
CASES = {"plain": (plain, 2), "three servers": (plain, 3), "decayed": (decayed, 2), "sparse": (sparse, 2)}


def programs(fluid, case):
    """The trainer's and all servers' programs of a case."""
    build, servers = CASES[case]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        build(fluid)
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, pservers=",".join(SERVERS[:servers]), trainers=2)
        pairs = {}  # before the trainer's program: real Fluid cannot make them afterwards
        for endpoint in SERVERS[:servers]:
            program = transpiler.get_pserver_program(endpoint)
            pairs[endpoint] = (program, transpiler.get_startup_program(endpoint, program))
        trainer = transpiler.get_trainer_program(wait_port=False)
    return trainer, pairs


def shorten(fluid, case):
    """What is to be the same: the operators of servers with their variables, and what trainers exchange with whom."""
    trainer, servers = programs(fluid, case)
    short = {"trainer": sorted(filter(None, (exchanged(op) for op in trainer.global_block().ops))), "servers": {}}
    for endpoint, (program, startup) in servers.items():
        blocks = [[line(op) for op in block.ops] for block in program.blocks[1:]]
        written = sorted(name for op in startup.global_block().ops for name in op.output_arg_names)
        held = {name: list(program.global_block().var(name).shape) for name in written}
        short["servers"][endpoint] = {"blocks": [block for block in blocks if block], "held": held}
    return short


def line(op):
    inputs = sorted((slot, list(op.input(slot))) for slot in op.input_names if op.input(slot))
    outputs = sorted((slot, list(op.output(slot))) for slot in op.output_names if op.output(slot))
    return [op.type, [list(each) for each in inputs], [list(each) for each in outputs]]


def exchanged(op):
    """An operator of the exchange without trainers' numbers and variables that only order operators."""
    if op.type not in EXCHANGE:
        return None
    inputs = [strip(name) for name in op.input_arg_names if "__control_var" not in name]
    outputs = [strip(name) for name in op.output_arg_names if "__control_var" not in name]
    where = list(op.attr("epmap")) if op.type in ("send", "recv") else []
    return [op.type, inputs, [] if op.type == "fetch_barrier" else outputs, where]


def strip(name):
    return name.replace(".trainer_0", "")


if __name__ == "__main__":
    import paddle.fluid

    recorded = {case: shorten(paddle.fluid, case) for case in CASES}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "transpiled.json")
    with open(path, "w") as file:
        json.dump(recorded, file, sort_keys=True)
        file.write("\n")
