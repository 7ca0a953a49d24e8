"""Fluid 0.14's high-level inference: builds a model from a function and loads the parameters a Trainer saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddle.fluid import io
from paddle.fluid.compiler import CompiledProgram
from paddle.fluid.trainer import _place
from refluid.executor import Executor
from refluid.ir import Program, program_guard, unique_name
from refluid.places import Place
from refluid.scope import Scope, scope_guard

__all__ = ["Inferencer"]


class Inferencer:
    """Computes the outputs of infer_func with saved parameters.

    Args:
      infer_func: builds the model with the layers used in training; returns a variable or a list of variables.
      param_path: a directory written by `Trainer.save_params`.
      place: defaults to a GPU if there is one.
      parallel: run one replica per device.
    """

    def __init__(
        self, infer_func: Callable[[], Any], param_path: str, place: Place | None = None, parallel: bool = False
    ):
        self.param_path, self.place, self.parallel = param_path, _place(place), parallel
        self.scope, built = Scope(), Program()
        with program_guard(built, Program()), unique_name.guard():
            self.predict_var = infer_func()
        outputs = self.predict_var if isinstance(self.predict_var, list | tuple) else [self.predict_var]
        self._names = [output.name for output in outputs]
        self.inference_program = built.clone(for_test=True)
        self.exe = Executor(self.place)
        with scope_guard(self.scope):
            io.load_params(self.exe, param_path, built)

    def infer(self, inputs: Mapping[str, Any], return_numpy: bool = True) -> list[Any]:
        """Returns the outputs for ``inputs``, a dict of name to array or LoDTensor."""
        if not isinstance(inputs, Mapping):
            raise ValueError(f"inputs must be a dict of name to value, not {type(inputs).__name__}")
        program: Any = self.inference_program
        if self.parallel:
            program = CompiledProgram(program).with_data_parallel()
        return self.exe.run(program, feed=inputs, fetch_list=self._names, scope=self.scope, return_numpy=return_numpy)
