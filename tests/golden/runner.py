"""Runs golden cases through ``paddle.fluid``: the very same code on real Fluid (to record) and on refluid (to test)."""

import numpy as np

from golden.case import Case, Lod, Rows, parameter_value


def run(fluid, case):
    """The case's results: key -> array; keys are ``out/<var>``, ``grad/<var>``, ``shape/<var>``, ..."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.scope_guard(scope), fluid.program_guard(main, startup), fluid.unique_name.guard():
        build = _build_op if isinstance(case, Case) else _build_layer
        feed, outputs, gradients, info = build(fluid, case, main)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        for parameter in main.global_block().all_parameters():
            tensor = scope.find_var(parameter.name).get_tensor()
            tensor.set(parameter_value(parameter.name, parameter.shape), fluid.CPUPlace())
        plain = [v for v in outputs + gradients if not _is_rows(fluid, v)]
        fetched = (
            exe.run(main, feed=feed, fetch_list=[v.name for v in plain], return_numpy=False)
            if plain
            else exe.run(main, feed=feed, fetch_list=[])
        )
        values = dict(zip([v.name for v in plain], fetched))
        results = dict(info)
        for kind, variables in (("out", outputs), ("grad", gradients)):
            for v in variables:
                if v.name in values:
                    results[kind + "/" + v.name] = np.array(values[v.name])
                    for level, offsets in enumerate(values[v.name].lod()):
                        results["lod%d/%s" % (level, v.name)] = np.array(offsets, "int64")
                else:
                    rows = scope.find_var(v.name).get_selected_rows()
                    results[kind + "/" + v.name] = np.array(rows.get_tensor())
                    results["rows/" + v.name] = np.array(rows.rows(), "int64")
        return results


def _is_rows(fluid, v):
    return v.type == fluid.core.VarDesc.VarType.SELECTED_ROWS


def _as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def feed_value(fluid, value):
    """A value of a case as it is fed."""
    if isinstance(value, Lod):
        return fluid.create_lod_tensor(value.array, value.lengths, fluid.CPUPlace())
    return value


def _array(value):
    return value.array if isinstance(value, Lod) else value


def _declared_shape(value):
    """How many rows sequences have is not known when a program is built."""
    shape = list(_array(value).shape)
    return [-1] + shape[1:] if isinstance(value, Lod) else shape


def _build_op(fluid, case, main):
    block, feed, inputs = main.global_block(), {}, {}
    for slot, given in sorted(case.inputs.items()):
        inputs[slot] = []
        for i, value in enumerate(_as_list(given)):
            name = "%s_%d" % (slot, i)
            if isinstance(value, Rows):
                inputs[slot].append(_selected_rows(fluid, block, feed, name, value))
                continue
            array = _array(value)
            inputs[slot].append(
                block.create_var(
                    name=name,
                    shape=_declared_shape(value),
                    dtype=str(array.dtype),
                    stop_gradient=slot not in case.grads,
                    lod_level=len(value.lengths) if isinstance(value, Lod) else 0,
                )
            )
            feed[name] = feed_value(fluid, value)
    outputs = {}
    for slot, count in case.outputs:
        if slot in case.inplace:
            outputs[slot] = inputs[case.inplace[slot]]
            continue
        outputs[slot] = [
            block.create_var(name="%s_out_%d" % (slot, i), dtype="float32", persistable=False) for i in range(count)
        ]
    block.append_op(type=case.op, inputs=inputs, outputs=outputs, attrs=dict(case.attrs))
    flat = [v for slot, _ in case.outputs for v in outputs[slot] if slot not in case.skip]
    for v in flat:
        v.persistable = v.persistable or _is_rows(fluid, v)
    info = {"shape/" + v.name: np.array(v.shape, "int64") for v in flat if not _is_rows(fluid, v)}
    gradients = _op_gradients(fluid, case, block, feed, flat, [v for s in case.grads for v in inputs[s]])
    return feed, flat, gradients, info


def _selected_rows(fluid, block, feed, name, value):
    """A variable of type SELECTED_ROWS can't be fed; the gradient of a sparse embedding makes one."""
    dtype = str(value.values.dtype)
    table = block.create_var(name=name + "_table", shape=[value.height, value.values.shape[1]], dtype=dtype)
    ids = block.create_var(name=name + "_ids", shape=value.rows.shape, dtype="int64", stop_gradient=True)
    values = block.create_var(name=name + "_values", shape=value.values.shape, dtype=dtype, stop_gradient=True)
    found = block.create_var(name=name + "_found", shape=value.values.shape, dtype=dtype)
    feed.update({table.name: np.zeros(table.shape, dtype), ids.name: value.rows, values.name: value.values})
    block.append_op(
        type="lookup_table",
        inputs={"W": table, "Ids": ids},
        outputs={"Out": found},
        attrs={"is_sparse": True, "is_distributed": False, "padding_idx": -1},
    )
    return _as_list(fluid.gradients([found], [table], [values]))[0]


def _op_gradients(fluid, case, block, feed, outputs, wanted):
    if not wanted:
        return []
    floating = (fluid.core.VarDesc.VarType.FP32, fluid.core.VarDesc.VarType.FP64)
    targets = [v for v in outputs if v.dtype in floating]
    weights = []
    for v in targets:
        if any(d < 0 for d in v.shape):
            weights.append(None)
            continue
        name = v.name + "_weight"
        dtype = "float64" if v.dtype == fluid.core.VarDesc.VarType.FP64 else "float32"
        feed[name] = np.cos(np.arange(int(np.prod(v.shape)))).reshape(v.shape).astype(dtype)
        weights.append(block.create_var(name=name, shape=v.shape, dtype=dtype, stop_gradient=True))
    gradients = fluid.gradients(targets, wanted, weights)
    found = [g for g in _as_list(gradients) if g is not None]
    for v in found:
        v.persistable = v.persistable or _is_rows(fluid, v)
    return found


def _build_layer(fluid, case, main):
    variables, feed = {}, {}
    for name, value in sorted(case.feeds.items()):
        array = _array(value)
        lod_level = len(value.lengths) if isinstance(value, Lod) else 0
        variables[name] = fluid.layers.data(
            name,
            _declared_shape(value),
            append_batch_size=False,
            dtype=str(array.dtype),
            lod_level=lod_level,
            stop_gradient=array.dtype.kind != "f",
        )
        feed[name] = feed_value(fluid, value)
    outputs = [v for v in _as_list(case.build(fluid, **variables)) if v is not None]
    block = main.global_block()
    info = {"shape/" + v.name: np.array(v.shape, "int64") for v in outputs}
    for parameter in block.all_parameters():
        info["parameter/" + parameter.name] = np.array(parameter.shape, "int64")
    if case.ops:
        info["ops"] = np.array([op.type for op in block.ops])
    gradients = []
    if case.grads:
        floating = (fluid.core.VarDesc.VarType.FP32, fluid.core.VarDesc.VarType.FP64)
        costs = [fluid.layers.mean(fluid.layers.square(v)) for v in outputs if v.dtype in floating]
        total = fluid.layers.sums(costs) if len(costs) > 1 else costs[0]
        fluid.backward.append_backward(total)
        names = [p.name for p in block.all_parameters()] + sorted(feed)
        gradients = [block.var(n + "@GRAD") for n in names if block.has_var(n + "@GRAD")]
        for v in gradients:
            v.persistable = v.persistable or _is_rows(fluid, v)
    return feed, outputs, gradients, info
