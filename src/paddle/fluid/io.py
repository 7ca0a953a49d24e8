"""Saving and loading of parameters and models in Fluid's file formats."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from paddle._missing import missing_names
from paddle.batch import batch
from paddle.fluid.reader import DataLoader, PyReader
from paddle.reader import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)
from refluid.files import inference_models, program_state, variables
from refluid.ir import Parameter, Program, Variable, default_main_program
from refluid.ir.slices import slices_of
from refluid.scope import Scope, global_scope

__all__ = [
    "ComposeNotAligned",
    "DataLoader",
    "PyReader",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "get_parameter_value",
    "get_parameter_value_by_name",
    "get_program_parameter",
    "get_program_persistable_vars",
    "load",
    "load_inference_model",
    "load_params",
    "load_persistables",
    "load_program_state",
    "load_vars",
    "map_readers",
    "multiprocess_reader",
    "save",
    "save_inference_model",
    "save_params",
    "save_persistables",
    "save_vars",
    "set_program_state",
    "shuffle",
    "xmap_readers",
]

__getattr__ = missing_names(__name__)


def is_parameter(var: Variable) -> bool:
    """Returns whether a variable is a parameter."""
    return isinstance(var, Parameter)


def is_persistable(var: Variable) -> bool:
    """Returns whether a variable belongs in a checkpoint."""
    return variables.is_persistable(var)


def get_program_parameter(program: Program) -> list[Variable]:
    """Returns the parameters of a program."""
    return program_state.parameters(program)


def get_program_persistable_vars(program: Program) -> list[Variable]:
    """Returns the persistable variables of a program."""
    return [v for v in program.list_vars() if is_persistable(v)]


def save_vars(
    executor: Any,
    dirname: str | None,
    main_program: Any = None,
    vars: Sequence[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Saves ``vars``, or the variables of the program that satisfy ``predicate``, to ``dirname``.

    A new directory appears complete or not at all, and an existing one is replaced atomically if the system supports
    it; a crash never leaves a partial file. Without ``dirname`` and ``filename``, returns the contents of the file.
    """
    return _save(main_program, _select_variables(main_program, vars, predicate), dirname, filename)


def _save(
    program: Any, chosen: list[Variable], dirname: str | None, filename: str | None, complete: bool = False
) -> bytes | None:
    scope, chosen, tables = _gather_to_save(program, chosen, complete)
    if tables:
        return _save_with_tables(scope, chosen, tables, dirname, filename)
    if dirname is None and filename is None:
        return variables.variables_to_bytes(scope, chosen)
    if chosen:
        variables.save_variables(scope, chosen, dirname or "", filename)
    return None


def _gather_to_save(
    program: Any, chosen: list[Variable], complete: bool = False
) -> tuple[Scope, list[Variable], list[str]]:
    """On a trainer with parameter servers, fetches the variables from them; loads the runtime only then.

    Returns a scope that holds the variables, the variables, and the tables that only servers can write.
    """
    if "refluid.runtime.trainer.session" not in sys.modules:
        return global_scope(), chosen, []
    from refluid.runtime.trainer.gather import gather_to_save

    return gather_to_save(_program(program), global_scope(), chosen, complete=complete)


def _save_with_tables(
    scope: Scope, chosen: list[Variable], tables: list[str], dirname: str | None, filename: str | None
) -> None:
    from refluid.runtime.trainer.table_saving import saving_tables

    if dirname is None or filename is not None:
        raise ValueError(
            f"table {tables[0]} grows (is_distributed=True): servers write its rows to files of their own; "
            "pass dirname, and no filename"
        )
    with saving_tables(tables, dirname) as manifests:
        variables.save_variables(scope, chosen, dirname, beside=manifests)


def save_params(executor: Any, dirname: str | None, main_program: Any = None, filename: str | None = None) -> Any:
    """Saves the parameters of the program."""
    return save_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


def save_persistables(executor: Any, dirname: str | None, main_program: Any = None, filename: str | None = None) -> Any:
    """Saves everything needed to resume training: parameters, optimizer state, counters.

    With parameter servers, the slices they hold are gathered into whole variables; a single trainer does it for all.
    Servers write tables that grow (``is_distributed=True``) themselves, to the same folder, which they must see.
    """
    return _save(main_program, _select_variables(main_program, None, is_persistable), dirname, filename, complete=True)


def load_vars(
    executor: Any,
    dirname: str | None,
    main_program: Any = None,
    vars: Sequence[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Loads what `save_vars` saved; if anything is missing or does not match, nothing is loaded.

    Without ``dirname``, ``filename`` may be the bytes that `save_vars` returned.
    """
    chosen = _select_variables(main_program, vars, predicate)
    if isinstance(filename, bytes):
        variables.set_holders(global_scope(), variables.read_variables_from_bytes(chosen, filename))
    elif dirname is None and filename is None:
        raise ValueError("load_vars requires dirname or filename")
    else:
        variables.load_variables(global_scope(), chosen, dirname or "", filename)


def load_params(
    executor: Any, dirname: str | None, main_program: Any = None, filename: str | bytes | None = None
) -> None:
    """Loads the parameters of the program."""
    load_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


def load_persistables(
    executor: Any, dirname: str | None, main_program: Any = None, filename: str | bytes | None = None
) -> None:
    """Loads everything needed to resume training.

    With the main or startup program of a parameter server, its slices are read from the files of whole variables.
    """
    if slices_of(_program(main_program)):
        if filename is not None or dirname is None:
            raise ValueError(
                "a parameter server loads a directory with one file per variable: pass dirname, not filename"
            )
        _load_on_server(_program(main_program), dirname)
        return
    load_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


def _load_on_server(program: Program, folder: str) -> None:
    """Loads the slices of a server; the runtime is loaded for tables that grow."""
    growing = [part for part in slices_of(program) if part.grows]
    if not growing:
        variables.load_slices(global_scope(), program, folder)
        return
    from refluid.runtime.server.saved_tables import find_tables, hold_tables

    found = find_tables(program, growing, folder)
    variables.load_slices(global_scope(), program, folder)
    hold_tables(global_scope(), found)


def save_inference_model(
    dirname: str,
    feeded_var_names: Sequence[str] | str,
    target_vars: Sequence[Variable] | Variable,
    executor: Any,
    main_program: Any = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Saves the part of the program that computes ``target_vars``, with its parameters; returns the fetched names.

    Args:
      feeded_var_names: the names of the variables to feed.
      model_filename: the program file; defaults to ``__model__``.
      params_filename: one file for all parameters; by default each has its own.
      export_for_deployment: False saves the whole program to ``__model__.main_program``.
      program_only: save no parameters.
    """
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    targets = [target_vars] if isinstance(target_vars, Variable) else list(target_vars or ())
    if not all(isinstance(name, str) for name in feeds):
        raise ValueError("feeded_var_names must be a list of names")
    if not targets or not all(isinstance(target, Variable) for target in targets):
        raise ValueError("target_vars must be a non-empty list of variables")
    program = _program(main_program)
    if not export_for_deployment:
        model_filename = (model_filename or inference_models.MODEL) + ".main_program"
        names = [target.name for target in targets]
    else:
        program = inference_models.inference_program(program, feeds, targets)
        names = inference_models.feeds_and_fetches(program)[1]
    scope, _, tables = _gather_to_save(program, [v for v in program.list_vars() if is_persistable(v)])
    with ExitStack() as stack:
        if tables and not program_only:
            from refluid.runtime.trainer.table_saving import tables_for_inference

            scope = stack.enter_context(tables_for_inference(program, tables, scope, dirname))
        inference_models.save_inference(scope, program, dirname, model_filename, params_filename, not program_only)
    return names


def load_inference_model(
    dirname: str | None,
    executor: Any,
    model_filename: str | bytes | None = None,
    params_filename: str | bytes | None = None,
    pserver_endpoints: Sequence[str] | None = None,
) -> list[Any]:
    """Loads an inference model and returns ``[program, feed names, fetch variables]``.

    With ``dirname`` None, ``model_filename`` and ``params_filename`` are the contents of the two files.
    """
    program, feeds, fetches = inference_models.load_inference(global_scope(), dirname, model_filename, params_filename)
    for op in program.global_block().ops:
        if pserver_endpoints and "epmap" in op.attrs:
            op.set_attr("epmap", list(pserver_endpoints))
    return [program, feeds, fetches]


def save(program: Program, model_path: str) -> None:
    """Saves parameters, optimizer state and program to ``model_path`` + .pdparams, .pdopt and .pdmodel."""
    program_state.save_state(global_scope(), _program(program), model_path)


def load(program: Program, model_path: str, executor: Any = None, var_list: Sequence[Variable] | None = None) -> None:
    """Loads what `save` or the `save_vars` family saved; if anything does not match, nothing is loaded.

    Args:
      executor: ignored; missing values are created.
      var_list: the variables of a file that holds several.
    """
    program_state.load_state(global_scope(), _program(program), model_path, var_list)


def load_program_state(model_path: str, var_list: Sequence[Variable] | None = None) -> dict[str, Any]:
    """Returns the saved arrays by name. Never executes code from the file, so untrusted files are safe."""
    return program_state.read_state(model_path, var_list)


def set_program_state(program: Program, state_dict: Mapping[str, Any]) -> None:
    """Sets variables of a program by name, after its startup program has run."""
    unused = program_state.set_state(global_scope(), _program(program), state_dict)
    if unused:
        warnings.warn(f"the program has no variable for {', '.join(unused)}", UserWarning, stacklevel=2)


def get_parameter_value(para: Parameter, executor: Any) -> Any:
    """Returns a parameter's value as a NumPy array."""
    if not is_parameter(para):
        raise TypeError(f"{para.name} is not a parameter")
    held = global_scope().find_var(para.name)
    if held is None or held.value is None:
        raise ValueError(f"parameter {para.name} has no value; run the startup program first")
    return held.get_tensor().__array__()


def get_parameter_value_by_name(name: str, executor: Any, program: Program | None = None) -> Any:
    """Returns the value of the parameter with that name."""
    return get_parameter_value(_program(program).global_block().var(name), executor)  # pyright: ignore


def _program(program: Any) -> Program:
    if program is None:
        return default_main_program()
    if isinstance(program, Program):
        return program
    inner = getattr(program, "program", None)
    if not isinstance(inner, Program):
        raise TypeError(f"expected a Program, not {type(program).__name__}")
    return inner


def _select_variables(program: Any, wanted: Sequence[Any] | None, predicate: Callable[[Variable], bool] | None):
    program = _program(program)
    if wanted is None:
        return [v for v in program.list_vars() if predicate is None or predicate(v)]
    return [program.global_block().var(v) if isinstance(v, str) else v for v in wanted]
