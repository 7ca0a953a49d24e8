"""Programs in files, as ProgramDesc messages: ``__model__`` and the like."""

from __future__ import annotations

from refluid.files.storage import AnyPath
from refluid.ir import Program

MODEL = "__model__"  # the name Fluid gives to the program of an inference model


def read_program(path: AnyPath) -> Program:
    """The program in a file.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it does not hold a program.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}")
    try:
        return Program.parse_from_string(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
