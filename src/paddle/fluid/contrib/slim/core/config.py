"""Compression described by a YAML file: named objects, by class and arguments, and the order of strategies."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

__all__ = ["ConfigFactory"]


def _known() -> dict[str, Any]:
    """The classes that a file may name."""
    from paddle.fluid.contrib.slim import distillation, nas, prune, quantization, searcher

    rooms = (prune, distillation, quantization, searcher, nas)
    return {name: getattr(room, name) for room in rooms for name in room.__all__}


class ConfigFactory:
    """Makes the objects that a file describes.

    Args:
      config: the path of a YAML file with sections ``strategies``, ``pruners``, ``distillers`` and so on, each of named
        objects, and a section ``compressor``.
    """

    def __init__(self, config: str):
        self.instances: dict[str, Any] = {}
        self.compressor: dict[str, Any] = {}
        self.version: Any = None
        self._path, self._described = config, {}
        try:
            import yaml
        except ImportError as error:
            raise ImportError("Compressor.config reads YAML; install it with: pip install pyyaml") from error
        with open(config, encoding="utf-8") as file:
            content = yaml.safe_load(file)
        if not isinstance(content, Mapping):
            raise ValueError(f"{config}: expected sections such as compressor and strategies")
        self._read(content)

    def instance(self, name: str) -> Any:
        """The object of that name; None if the file has none."""
        return self.instances.get(name)

    def _read(self, content: Mapping[str, Any]) -> None:
        for section, value in content.items():
            if section == "version":
                self.version = value
            elif section == "compressor":
                self.compressor = {**value, "strategies": value.get("strategies") or []}
            elif isinstance(value, Mapping):
                self._described.update(value)
        for name in self._described:
            self._make(name)
        for name in self.compressor.get("strategies", []):
            if name not in self.instances:
                raise ValueError(
                    f"{self._path}: compressor names the strategy {name}, which the file does not describe"
                )

    def _make(self, name: str) -> Any:
        if name in self.instances:
            return self.instances[name]
        described = dict(self._described[name])
        kind = described.pop("class", None)
        made = _known().get(kind) if kind else None
        if made is None:
            raise ValueError(f"{self._path}: {name} is of class {kind}; known are {', '.join(sorted(_known()))}")
        accepted = inspect.signature(made).parameters
        unknown = sorted(described.keys() - accepted.keys())
        if unknown:
            raise ValueError(f"{self._path}: {kind} has no argument {', '.join(unknown)}; it has {', '.join(accepted)}")
        arguments = {argument: self._resolved(value) for argument, value in described.items()}
        self.instances[name] = made(**arguments)
        return self.instances[name]

    def _resolved(self, value: Any) -> Any:
        """The object that a value names, or the value."""
        if isinstance(value, str) and value in self._described:
            return self._make(value)
        if isinstance(value, list):
            return [self._resolved(item) for item in value]
        return value
