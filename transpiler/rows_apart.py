"""nce and hierarchical_sigmoid with is_sparse, written as lookups in their weight and a loss of the rows found.

Servers can then hold the weight: trainers only look up the rows of the classes, or of the nodes, that a batch needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from refluid.ir import OP_ROLE, OP_ROLE_VAR, Block, Operator, Program, unique_name

_NCE = ("num_total_classes", "num_neg_samples", "sampler")


def with_rows_apart(program: Program) -> Program:
    """A program without these operators, where they can be replaced; it computes the same."""
    block = program.global_block()
    if not any(_is_replaced(op) for op in block.ops):
        return program
    program = program.clone()
    block, rows = program.global_block(), {}
    block.ops = [new for op in block.ops for new in _replaced(op, block, rows)]
    program.changed()
    return program


def _is_replaced(op: Operator) -> bool:
    kind = op.type.removesuffix("_grad")
    if not op.attrs.get("is_sparse"):
        return False
    return kind == "nce" or (kind == "hierarchical_sigmoid" and bool(op.input("PathTable")))


def _replaced(op: Operator, block: Block, rows: dict[str, tuple[str, str]]) -> Sequence[Operator]:
    """The operators in place of one; ``rows`` has the ids and rows of a forward operator, by its output."""
    if not _is_replaced(op):
        return [op]
    return (_nce if op.type.startswith("nce") else _path)(op, block, rows)


def _nce(op: Operator, block: Block, rows: dict[str, tuple[str, str]]) -> list[Operator]:
    attrs = {name: op.attrs[name] for name in _NCE if name in op.attrs}
    (weight,) = op.input("Weight")
    if op.type == "nce_grad":
        ids, found = rows[op.input("SampleLabels")[0]]
        return [_loss_grad(op, "nce_of_rows", "SampleLabels", ids, found, weight, attrs)]
    (ids,) = op.output("SampleLabels")
    more = {"custom_neg_classes": op.attrs.get("custom_neg_classes"), "seed": op.attrs.get("seed")}
    draw = _written(
        op, "nce_labels", ("Label", "CustomDistAlias", "CustomDistAliasProbs"), {"SampleLabels": [ids]},
        {**attrs, **more, "drawn_for": op.output("Cost")[0]},
    )  # fmt: skip
    lookup, found = _lookup(op, block, weight, ids)
    rows[ids] = ids, found
    outputs = {slot: op.output(slot) for slot in ("Cost", "SampleLogits")}
    loss = _written(op, "nce_of_rows", ("Input", "Bias", "SampleWeight", "CustomDistProbs"), outputs, attrs)
    loss.inputs |= {"Rows": [found], "SampleLabels": [ids]}
    return [draw, lookup, loss]


def _path(op: Operator, block: Block, rows: dict[str, tuple[str, str]]) -> list[Operator]:
    (weight,), (table,) = op.input("W"), op.input("PathTable")
    if op.type == "hierarchical_sigmoid_grad":
        _, found = rows[op.input("PreOut")[0]]
        return [_loss_grad(op, "hierarchical_sigmoid_of_rows", "PathTable", table, found, weight, {})]
    source = block.var(table)
    ids = block.create_var(name=unique_name.generate("path_nodes"), shape=source.shape, dtype=source.dtype).name
    nodes = _written(op, "path_nodes", ("PathTable",), {"Nodes": [ids]}, {})
    lookup, found = _lookup(op, block, weight, ids)
    rows[op.output("PreOut")[0]] = ids, found
    outputs = {slot: op.output(slot) for slot in ("Out", "PreOut")}
    attrs = {"height": block.var(weight).shape[0]}
    loss = _written(op, "hierarchical_sigmoid_of_rows", ("X", "PathTable", "PathCode", "Bias"), outputs, attrs)
    loss.inputs["Rows"] = [found]
    return [nodes, lookup, loss]


def _lookup(op: Operator, block: Block, weight: str, ids: str) -> tuple[Operator, str]:
    table, source = block.var(weight), block.var(ids)
    name = unique_name.generate(f"{weight}.rows")
    block.create_var(name=name, shape=(*source.shape, table.shape[1]), dtype=table.dtype)
    lookup = _written(op, "lookup_table_v2", (), {"Out": [name]}, {"is_sparse": True, "padding_idx": -1})
    lookup.inputs = {"W": [weight], "Ids": [ids]}
    return lookup, name


def _loss_grad(
    op: Operator, kind: str, slot: str, ids: str, found: str, weight: str, attrs: Mapping[str, object]
) -> Operator:
    """The gradient of a loss of rows: it has the inputs of the original, with rows in place of the weight."""
    given = [name for name in op.inputs if name not in ("Weight", "W", "Label", slot)]
    attrs = {**attrs, "height": op.block.var(weight).shape[0]}
    outputs = {{"W@GRAD": "Weight@GRAD"}.get(name, name): names for name, names in op.outputs.items()}
    grad = _written(op, f"{kind}_grad", given, outputs, attrs)
    grad.inputs |= {"Rows": [found], slot: [ids]}
    return grad


def _written(
    op: Operator, kind: str, slots: Sequence[str], outputs: dict[str, list[str]], attrs: Mapping[str, object]
) -> Operator:
    """An operator with some inputs of another one, in its place and role."""
    inputs = {slot: op.input(slot) for slot in slots if op.input(slot)}
    roles = {name: op.attrs[name] for name in (OP_ROLE, OP_ROLE_VAR) if name in op.attrs}
    return Operator(op.block, kind, inputs, outputs, {**attrs, **roles}, op.written_at)
