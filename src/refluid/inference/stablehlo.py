"""Inference models as StableHLO: what `jax.export` writes, with parameters and signature beside it.

The folder can be served without refluid: ``jax.export.deserialize`` of ``model.jax_export`` gives a function of
(parameters by name, list of feeds), ``parameters.npz`` has the former, ``signature.json`` names the latter, and
``model.mlir`` is there to be read or to be given to other compilers.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from refluid.errors import FeedError
from refluid.files.storage import at
from refluid.files.writing import write_together
from refluid.inference.models import InferenceModel, arguments_by_name, open_model
from refluid.ir import as_numpy
from refluid.jax_function import to_jax

EXPORTED = "model.jax_export"
TEXT = "model.mlir"
PARAMETERS = "parameters.npz"
SIGNATURE = "signature.json"


def export(
    path: str | Path | InferenceModel,
    out: str | Path,
    platforms: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Writes an inference model as StableHLO into the folder ``out``; `refluid.load` loads it.

    Unknown dims stay open: the first is the same for all feeds, the batch. Ids outside a table are not reported by the
    exported form; XLA takes the nearest row. Ops that are random even in inference draw the same numbers in every call.

    Args:
      path: the folder of the model, or an open one.
      platforms: such as ``["cpu", "cuda", "tpu"]``; by default the one JAX runs on here.
      shapes: fixed shapes for some feeds, for models whose ops need to know them.

    Raises:
      ValueError: the model takes sequences, contains host ops, or cannot be exported with open dims.
    """
    model = path if isinstance(path, InferenceModel) else open_model(path)
    exported, state = export_function(model, platforms, shapes)
    block = model.program.global_block()
    signature = {
        "format": 1,
        "feeds": [
            {"name": name, "dtype": as_numpy(block.var(name).dtype).name, "shape": list(block.var(name).shape)}
            for name in model.feeds
        ],
        "fetches": model.fetches,
        "platforms": list(exported.platforms),
    }
    content = bytes(exported.serialize())
    write_together(
        out,
        {
            TEXT: lambda stream: stream.write(exported.mlir_module().encode()),
            PARAMETERS: lambda stream: _write_npz(stream, state),
            SIGNATURE: lambda stream: stream.write(json.dumps(signature, indent=1).encode()),
            EXPORTED: lambda stream: stream.write(content),  # the last: where it is, the others are
        },
    )


def export_function(
    model: InferenceModel, platforms: Sequence[str] | None, shapes: Mapping[str, Sequence[int]] | None
) -> tuple[Any, dict[str, jax.Array]]:
    """The model as a jax.export.Exported of (parameters, feeds), and its parameters."""
    block = model.program.global_block()
    for name in model.feeds:
        if block.var(name).lod_level > 0:
            raise ValueError(f"feed {name} holds sequences; only models that take plain arrays can be exported")
    with jax.enable_x64(True):
        function, state = to_jax(model.program, model.feeds, model.fetches, model.scope)

        def score(parameters: dict[str, Any], feeds: list[Any]) -> list[Any]:
            key = jax.random.key(0)  # for ops that would be random in training
            return function(parameters, key=key, **dict(zip(model.feeds, feeds, strict=True)))[0]

        arguments = _abstract_feeds(model, shapes or {})
        try:
            exported = _jax_export().export(jax.jit(score), platforms=platforms)(state, arguments)
        except (ValueError, TypeError, NotImplementedError) as error:  # an op's, or JAX's own
            if "ymbolic" not in str(error):
                raise
            fixed = {name: [1, *block.var(name).shape[1:]] for name in model.feeds}
            raise ValueError(
                f"the model cannot be exported with open dims: {error}\n  hint        fix them: shapes={fixed}"
            ) from error
    return exported, state


def _abstract_feeds(model: InferenceModel, shapes: Mapping[str, Sequence[int]]) -> list[jax.ShapeDtypeStruct]:
    unknown = set(shapes) - set(model.feeds)
    if unknown:
        raise FeedError(min(unknown), "the model has no such feed", f"its feeds are {', '.join(model.feeds)}")
    scope = _jax_export().SymbolicScope()
    feeds = []
    for name in model.feeds:
        variable = model.program.global_block().var(name)
        dims = [_symbol(name, i) if dim < 0 else str(dim) for i, dim in enumerate(variable.shape)]
        shape = shapes.get(name) or _jax_export().symbolic_shape(",".join(dims), scope=scope)
        feeds.append(jax.ShapeDtypeStruct(tuple(shape), as_numpy(variable.dtype)))
    return feeds


def _write_npz(stream: BinaryIO, arrays: Mapping[str, Any]) -> None:
    """As `numpy.savez`, whose own arguments may not be names of arrays."""
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _symbol(feed: str, position: int) -> str:
    return "batch" if position == 0 else f"d_{re.sub(r'[^A-Za-z0-9_]', '_', feed)}_{position}"


def is_exported(path: str | Path) -> bool:
    """Whether a folder holds an exported model."""
    return (at(path) / EXPORTED).is_file()


class ExportedModel:
    """A model that `export` wrote, ready to be called; compiled once for each shape of its feeds.

    Attributes:
      feeds: the names of its arguments, in their order.
      fetches: the names of its results, in their order.
    """

    def __init__(self, path: str | Path):
        folder = at(path)
        signature = json.loads((folder / SIGNATURE).read_text(encoding="utf-8"))
        self.feeds = [feed["name"] for feed in signature["feeds"]]
        self.fetches = list(signature["fetches"])
        self._dtypes = {feed["name"]: np.dtype(feed["dtype"]) for feed in signature["feeds"]}
        with jax.enable_x64(True), (folder / PARAMETERS).open("rb") as stream, np.load(stream) as arrays:
            self._parameters = {name: jax.device_put(arrays[name]) for name in arrays.files}
        self._call = jax.jit(_jax_export().deserialize(bytearray((folder / EXPORTED).read_bytes())).call)

    def __call__(self, *values: Any, **named: Any) -> list[np.ndarray]:
        """The results for feeds given in order or by name."""
        return self.run(arguments_by_name(self.feeds, values, named))

    def run(self, feed: Mapping[str, Any]) -> list[np.ndarray]:
        """The results for a dict of name to array."""
        with jax.enable_x64(True):
            feeds = [np.asarray(feed[name], self._dtypes[name]) for name in self.feeds]
            return [np.asarray(value).copy() for value in self._call(self._parameters, feeds)]


def _jax_export() -> Any:
    from jax import export as jax_export

    try:
        import flatbuffers as flatbuffers
    except ImportError as error:
        raise ImportError("exported models need the package flatbuffers: pip install refluid[export]") from error
    return jax_export
