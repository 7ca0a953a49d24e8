"""Programs of collective training, in a short form. What real Fluid makes of them is recorded by:

PYTHONPATH=tests ORACLE/bin/python tests/golden/collective_programs.py

Real Fluid on a CPU does not have the ops that exchange the ids of NCCL; the recording notes that they were appended.
"""

import json
import os

ENDPOINTS = "127.0.0.1:6170,127.0.0.1:6171,127.0.0.1:6172,127.0.0.1:6173"
MISSING = {}  # in real Fluid: program -> the operators that it could not append, and where
COLLECTIVE = ("c_", "scale", "assign", "elementwise_sub", "sum", "gen_nccl_id", "sgd", "adam")


def dense(fluid):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 3, act="relu", bias_attr=False)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.SGD(0.1).minimize(loss)


def shared(fluid):
    ids = [fluid.layers.data(name, [1], dtype="int64") for name in ("a", "b")]
    rows = [fluid.layers.embedding(each, [10, 4], is_sparse=True, param_attr="table") for each in ids]
    loss = fluid.layers.mean(fluid.layers.fc(rows[0] + rows[1], 1))
    fluid.optimizer.Adam(0.1, regularization=fluid.regularizer.L2Decay(0.1)).minimize(loss)


def with_transpiler(kind, trainers, **arguments):
    def distribute(fluid, main, startup):
        from paddle.fluid.transpiler import collective

        endpoints = ENDPOINTS.split(",")[:trainers]
        transpiler = getattr(collective, kind)(**arguments)
        transpiler.transpile(startup, main, trainers - 1, ",".join(endpoints), endpoints[-1], False)

    return distribute


def with_config(**fields):
    def distribute(fluid, main, startup):
        config = fluid.DistributeTranspilerConfig()
        config.wait_port = False
        for name, value in fields.items():
            setattr(config, name, value)
        first = ENDPOINTS.split(",")[0]
        transpiler = fluid.DistributeTranspiler(config)
        transpiler.transpile(0, main, trainers=ENDPOINTS, startup_program=startup, current_endpoint=first)

    return distribute


CASES = {
    "all-reduce, 2 rings": (dense, with_transpiler("GradAllReduce", 2)),
    "all-reduce, 1 ring": (dense, with_transpiler("GradAllReduce", 3, nrings=1)),
    "all-reduce, shared sparse table": (shared, with_transpiler("GradAllReduce", 2)),
    "local sgd": (dense, with_transpiler("LocalSGD", 2)),
    "local sgd, shared sparse table": (shared, with_transpiler("LocalSGD", 3, nrings=1)),
    "threads": (dense, with_transpiler("SingleProcessMultiThread", 1)),
    "nccl2": (dense, with_config(mode="nccl2")),
    "nccl2, 3 communicators": (dense, with_config(mode="nccl2", nccl_comm_num=3)),
    "nccl2, hierarchical": (
        dense,
        with_config(mode="nccl2", use_hierarchical_allreduce=True, hierarchical_allreduce_inter_nranks=2),
    ),
    "collective, grad_allreduce": (dense, with_config(mode="collective", collective_mode="grad_allreduce")),
    "collective, local_sgd": (shared, with_config(mode="collective", collective_mode="local_sgd")),
}


def shorten(fluid, case):
    """The operators of both programs that collective training knows, with variables and attributes, in order."""
    build, distribute = CASES[case]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        build(fluid)
        before = len(main.global_block().ops)
        distribute(fluid, main, startup)
    ids = sorted(v.name for v in startup.list_vars() if "nccl" in v.name.lower() and v.persistable)
    added = len(main.global_block().ops) - before
    return {"main": lines(main), "added": added, "startup": lines(startup), "ids": ids}


def lines(program):
    """The operators, without those that real Fluid's layers make otherwise."""
    ops = [line(op) for op in program.global_block().ops]
    for place, text in MISSING.get(program, []):
        ops.insert(place, text)
    kinds = [text for text in ops if text[0].startswith(COLLECTIVE) and "grad" not in text[0]]
    return [text for text in kinds if "_generated_var" not in str(text)]


ATTRS = ("ring_id", "root", "use_calc_stream", "nranks", "rank", "scale", "op_role", "endpoint", "other_endpoints")
ATTRS += (
    "trainers",
    "trainer_id",
    "nccl_comm_num",
    "use_hierarchical_allreduce",
    "hierarchical_allreduce_inter_nranks",
)


def line(op):
    attrs = {name: op.attr(name) for name in ATTRS if op.has_attr(name) and name in op.attr_names}
    attrs = {name: round(value, 6) if isinstance(value, float) else value for name, value in attrs.items()}
    return [op.type, sorted(op.input_arg_names), sorted(op.output_arg_names), attrs]


def note_missing_ops(fluid):
    """Lets real Fluid on a CPU go on when it cannot append an op; where and what is kept in MISSING."""
    append = fluid.framework.Block.append_op

    def names(slots):
        each = [value if isinstance(value, (list, tuple)) else [value] for value in (slots or {}).values()]
        return sorted(getattr(name, "name", name) for values in each for name in values)

    def append_op(block, *args, **options):
        if options.get("type") not in ("gen_nccl_id", "c_gen_nccl_id"):
            return append(block, *args, **options)
        missing = MISSING.setdefault(block.program, [])
        attrs = {name: value for name, value in options["attrs"].items() if name in ATTRS}
        attrs["op_role"] = int(attrs.get("op_role", 0))
        text = [options["type"], names(options.get("inputs")), names(options["outputs"]), attrs]
        missing.append((len(block.ops) + len(missing), text))

    fluid.framework.Block.append_op = append_op


if __name__ == "__main__":
    import paddle.fluid

    note_missing_ops(paddle.fluid)
    recorded = {case: shorten(paddle.fluid, case) for case in CASES}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "collective_programs.json")
    with open(path, "w") as file:
        json.dump(recorded, file, sort_keys=True)
        file.write("\n")
