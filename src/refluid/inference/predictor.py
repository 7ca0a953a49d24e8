"""Predictors: saved models as functions of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from refluid.executor import Executor
from refluid.inference import stablehlo
from refluid.inference.models import InferenceModel, arguments_by_name, open_model
from refluid.places import Place
from refluid.tensors import LoDTensor


class Predictor:
    """A callable inference model, compiled once for each shape of its feeds.

    Attributes:
      feeds: the names of its arguments, in their order.
      fetches: the names of its results, in their order.
    """

    def __init__(self, model: InferenceModel, place: Place | None = None, eager: bool = False):
        self.model = model
        self.feeds, self.fetches = list(model.feeds), list(model.fetches)
        self._executor = Executor(place, eager)

    def __call__(self, *values: Any, **named: Any) -> list[Any]:
        """The results for feeds given in order or by name: NumPy arrays, and LoDTensors where they are sequences."""
        return self.run(arguments_by_name(self.feeds, values, named))

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        """The results for a dict of name to array or LoDTensor."""
        tensors = self._executor.run(self.model.program, feed, self.fetches, scope=self.model.scope, return_numpy=False)
        return [t if not isinstance(t, LoDTensor) or t.lod() else np.asarray(t.value).copy() for t in tensors]


def load(
    path: str | Path,
    model_filename: str | None = None,
    params_filename: str | None = None,
    place: Place | None = None,
) -> Predictor | stablehlo.ExportedModel:
    """A saved inference model, or one that `refluid.export` wrote, as a function::

        model = refluid.load("recommender")
        (score,) = model(user=users, item=items)

    Args:
      path: the folder.
      model_filename: the program's file; by default ``__model__``.
      params_filename: the file of combined parameters; by default it is detected.
      place: where it runs; by default the CPU.
    """
    if model_filename is None and stablehlo.is_exported(path):
        return stablehlo.ExportedModel(path)
    return Predictor(open_model(path, model_filename, params_filename), place)
