"""Inference models: the part of a program that computes given targets, with its parameters, in one folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from refluid.files.programs import MODEL, read_program
from refluid.files.storage import at
from refluid.files.variables import (
    feeds_and_fetches,
    is_persistable,
    read_variables,
    read_variables_from_bytes,
    save_variables,
    set_holders,
)
from refluid.files.writing import write_together, writer_of
from refluid.ir import Operator, Program, Variable, VarType, name_of, unique_name
from refluid.ir.remote import look_up_locally
from refluid.scope import Scope


def inference_program(program: Program, feeds: Sequence[str], targets: Sequence[Any]) -> Program:
    """The part of a program that computes ``targets`` from ``feeds``, for inference, with feed and fetch ops.

    As in Fluid, each target passes through a ``scale`` by 1, so that a model can return one of its own feeds, and the
    fetched variables are named ``save_infer_model/scale_0.tmp_0`` and so on. Does not change ``program``.
    """
    unknown = [name for name in feeds if not program.global_block().has_var(name)]
    if unknown:
        raise ValueError(f"feeded_var_names: the program has no variable {', '.join(unknown)}")
    copy = program.clone()
    block = copy.global_block()
    block.ops = [op for op in block.ops if op.type not in ("feed", "fetch")]
    look_up_locally(copy)
    fetched = [_scaled(copy, target, column) for column, target in enumerate(targets)]
    pruned = copy._prune_with_input(feeds, fetched)._inference_optimize()
    block = pruned.global_block()
    if feeds:
        block.create_var(name="feed", type=VarType.FEED_MINIBATCH, persistable=True)
    block.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
    for column, name in enumerate(feeds):  # each is inserted at the front, as in Fluid, so the last one comes first
        block.ops.insert(0, Operator(block, "feed", {"X": ["feed"]}, {"Out": [name]}, {"col": column}))
    for column, target in enumerate(fetched):
        block.ops.append(Operator(block, "fetch", {"X": [target.name]}, {"Out": ["fetch"]}, {"col": column}))
    pruned.changed()
    return pruned


def _scaled(program: Program, target: Any, column: int) -> Variable:
    block = program.global_block()
    source = block.var(name_of(target))
    name = unique_name.generate(f"save_infer_model/scale_{column}.tmp")
    made = block.create_var(name=name, dtype=source.dtype, shape=source.shape, lod_level=source.lod_level)
    attrs = {"scale": 1.0, "bias": 0.0, "bias_after_scale": True}
    block.append_op(type="scale", inputs={"X": source}, outputs={"Out": made}, attrs=attrs)
    return made


def save_inference(
    scope: Scope,
    program: Program,
    folder: str,
    model_filename: str | None,
    params_filename: str | None,
    parameters: bool,
) -> None:
    """Writes a program and, if ``parameters`` is set, its persistable variables; all files appear together."""
    model = {os.path.basename(model_filename or MODEL): program.desc.serialize_to_string()}
    chosen = [v for v in program.list_vars() if is_persistable(v)] if parameters else []
    if chosen:
        name = os.path.basename(params_filename) if params_filename is not None else None
        save_variables(scope, chosen, folder, name, beside=model)
    else:
        write_together(folder, {name: writer_of(data) for name, data in model.items()})


def load_inference(
    scope: Scope, folder: str | None, model: str | bytes | None, params: str | bytes | None
) -> tuple[Program, list[str], list[Variable]]:
    """Returns the program, its feeds and its fetched variables; puts its parameters into the scope.

    Args:
      folder: where the files are, or None if ``model`` and ``params`` are the contents of the files.
    """
    if folder is None:
        if not isinstance(model, bytes) or not isinstance(params, bytes):
            raise ValueError("without a folder, model_filename and params_filename must be the contents of the files")
        program = Program.parse_from_string(model)
        holders = read_variables_from_bytes([v for v in program.list_vars() if is_persistable(v)], params)
    else:
        if not at(folder).is_dir():
            raise ValueError(f"there is no folder {folder} to load a model from")
        program = read_program(at(folder) / os.path.basename(os.fspath(model or MODEL)))  # pyright: ignore
        variables = [v for v in program.list_vars() if is_persistable(v)]
        name = os.path.basename(os.fspath(params)) if params is not None else None
        holders = read_variables(variables, folder, name) if variables else {}  # pyright: ignore
    feeds, fetches = feeds_and_fetches(program)
    set_holders(scope, holders)
    return program, feeds, [program.global_block().var(name) for name in fetches]
