"""Saving and loading parameters and models, in Fluid's file formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paddle.batch import batch
from paddle.reader import buffered, cache, chain, compose, firstn, map_readers, shuffle, xmap_readers
from refluid import model_files
from refluid.ir import Parameter, Program, Variable, default_main_program
from refluid.scope import global_scope
from refluid.tensor_files import atomic_write

__all__ = [
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "get_parameter_value",
    "get_parameter_value_by_name",
    "load_inference_model",
    "load_params",
    "load_persistables",
    "load_vars",
    "map_readers",
    "save_inference_model",
    "save_params",
    "save_persistables",
    "save_vars",
    "shuffle",
    "xmap_readers",
]


def is_parameter(var: Variable) -> bool:
    """Whether a variable is a parameter."""
    return isinstance(var, Parameter)


def is_persistable(var: Variable) -> bool:
    """Whether a variable belongs into a checkpoint."""
    return model_files.is_persistable(var)


def save_vars(
    executor: Any,
    dirname: str,
    main_program: Any = None,
    vars: Sequence[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> None:
    """Saves ``vars``, or the variables of the program that satisfy ``predicate``, into ``dirname``."""
    model_files.save_variables(global_scope(), _chosen(main_program, vars, predicate), dirname, filename)


def save_params(executor: Any, dirname: str, main_program: Any = None, filename: str | None = None) -> None:
    """Saves the parameters of the program."""
    save_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


def save_persistables(executor: Any, dirname: str, main_program: Any = None, filename: str | None = None) -> None:
    """Saves everything training goes on from: parameters, optimizer state, counters."""
    save_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


def load_vars(
    executor: Any,
    dirname: str,
    main_program: Any = None,
    vars: Sequence[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> None:
    """Loads what `save_vars` saved."""
    model_files.load_variables(global_scope(), _chosen(main_program, vars, predicate), dirname, filename)


def load_params(executor: Any, dirname: str, main_program: Any = None, filename: str | None = None) -> None:
    """Loads the parameters of the program."""
    load_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


def load_persistables(executor: Any, dirname: str, main_program: Any = None, filename: str | None = None) -> None:
    """Loads everything training goes on from."""
    load_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


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
    """Saves the part of the program that computes ``target_vars``, with its parameters; returns the targets' names."""
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    targets = [target_vars] if isinstance(target_vars, Variable) else list(target_vars)
    program = model_files.inference_program(_program(main_program), feeds, targets)
    if not program_only:
        chosen = [v for v in program.list_vars() if is_persistable(v)]
        if chosen:
            model_files.save_variables(global_scope(), chosen, dirname, params_filename)
    with atomic_write(Path(dirname) / (model_filename or "__model__")) as stream:
        stream.write(program.desc.serialize_to_string())
    return [target.name for target in targets]


def load_inference_model(
    dirname: str,
    executor: Any,
    model_filename: str | None = None,
    params_filename: str | None = None,
    pserver_endpoints: Sequence[str] | None = None,
) -> list[Any]:
    """Loads an inference model: ``[program, feed names, fetch variables]``."""
    path = Path(dirname) / (model_filename or "__model__")
    if not path.is_file():
        raise ValueError(f"there is no model file {path}")
    program = Program.parse_from_string(path.read_bytes())
    variables = [v for v in program.list_vars() if is_persistable(v)]
    if variables:
        model_files.load_variables(global_scope(), variables, dirname, params_filename)
    feeds, fetches = model_files.feeds_and_fetches(program)
    return [program, feeds, [program.global_block().var(name) for name in fetches]]


def get_parameter_value(para: Parameter, executor: Any) -> Any:
    """A parameter's value, as a NumPy array."""
    if not is_parameter(para):
        raise TypeError(f"{para.name} is not a parameter")
    held = global_scope().find_var(para.name)
    if held is None or held.value is None:
        raise ValueError(f"parameter {para.name} has no value; run the startup program first")
    return held.get_tensor().__array__()


def get_parameter_value_by_name(name: str, executor: Any, program: Program | None = None) -> Any:
    """The value of the parameter of that name."""
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


def _chosen(program: Any, variables: Sequence[Any] | None, predicate: Callable[[Variable], bool] | None):
    program = _program(program)
    if variables is None:
        return [v for v in program.list_vars() if predicate is None or predicate(v)]
    return [program.global_block().var(v) if isinstance(v, str) else v for v in variables]
