"""Inference models as StableHLO: the output of `jax.export`, with parameters and signature in files next to it.

The folder can be served without refluid: ``jax.export.deserialize`` of ``model.jax_export`` gives a function of
(parameters by name, list of feeds), ``parameters.npz`` has the former, ``signature.json`` names the latter, and
``model.mlir`` is there to be read or to be given to other compilers.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from refluid.errors import FeedError
from refluid.files.storage import at
from refluid.files.writing import write_together, writer_of
from refluid.inference.exported_sequences import Sizes, abstract, as_ragged, packed, unpacked
from refluid.inference.models import InferenceModel, arguments_by_name, open_model, refuse_own_folder
from refluid.ir import Program, as_numpy, name_of
from refluid.jax_function import to_jax
from refluid.ops.core.values import Ragged
from refluid.scope import global_scope
from refluid.tables import as_text, table

EXPORTED = "model.jax_export"
TEXT = "model.mlir"
PARAMETERS = "parameters.npz"
SIGNATURE = "signature.json"


def export(
    path: str | Path | InferenceModel | Program,
    out: str | Path,
    platforms: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    sequences: Mapping[str, Sequence[int]] | None = None,
    *,
    feeds: Sequence[Any] = (),
    fetches: Sequence[Any] = (),
) -> None:
    """Writes an inference model as StableHLO into the folder ``out``; `refluid.load` loads it.

    Unknown dims stay open: the first is the same for all feeds, the batch. Ids outside a table are not reported by the
    exported form; XLA takes the nearest row. Ops that are random even in inference draw the same numbers in every call.
    A model that takes sequences is exported for a fixed number of them, which then is the batch of all feeds.

    Args:
      path: the folder of the model, or an open one; or a program, with parameters in the global scope.
      platforms: such as ``["cpu", "cuda", "tpu"]``; by default the one JAX runs on here.
      shapes: fixed shapes for some feeds, for models whose ops need to know them.
      sequences: for each feed of sequences: how many, how many rows at most in all, and in the longest of them.
      feeds, fetches: of a program: variables or names.

    Raises:
      ValueError: the sizes of sequences are missing, the model contains host ops, or cannot be exported with open dims.
    """
    if isinstance(path, Program):
        if not feeds or not fetches:
            raise ValueError("a program needs feeds= and fetches= to be exported")
        names = [name_of(feed) for feed in feeds], [name_of(fetch) for fetch in fetches]
        model = InferenceModel(path.clone(for_test=True), *names, global_scope())
    elif isinstance(path, InferenceModel):
        model = path
    else:
        refuse_own_folder(path, out)
        model = open_model(path)
    sizes = {name: Sizes(*numbers) for name, numbers in (sequences or {}).items()}
    exported, state, hidden = export_function(model, platforms, shapes or {}, sizes)
    signature = {
        "format": 1,
        "feeds": [_described(model, name, sizes) for name in model.feeds],
        "fetches": model.fetches,
        "fetched_sequences": hidden,
        "platforms": list(exported.platforms),
    }
    write_together(
        out,
        {
            TEXT: writer_of(exported.mlir_module().encode()),
            PARAMETERS: lambda stream: _write_npz(stream, state),
            SIGNATURE: writer_of(json.dumps(signature, indent=1).encode()),
            EXPORTED: writer_of(bytes(exported.serialize())),  # the last: where it is, the others are
        },
    )


def _described(model: InferenceModel, name: str, sizes: Mapping[str, Sizes]) -> dict[str, Any]:
    variable = model.program.global_block().var(name)
    found = {"name": name, "dtype": as_numpy(variable.dtype).name, "shape": list(variable.shape)}
    return {**found, "sequences": asdict(sizes[name])} if name in sizes else found


def export_function(
    model: InferenceModel,
    platforms: Sequence[str] | None,
    shapes: Mapping[str, Sequence[int]],
    sizes: Mapping[str, Sizes],
) -> tuple[Any, dict[str, jax.Array], dict[str, int]]:
    """The model as a jax.export.Exported of (parameters, feeds), its parameters, and which fetches are sequences.

    Sequences are tuples of rows and offsets; those fetched are listed with the number of levels that users do not see.
    """
    hidden: dict[str, int] = {}
    with jax.enable_x64(True):
        function, state = to_jax(model.program, model.feeds, model.fetches, model.scope)

        def score(parameters: dict[str, Any], feeds: list[Any]) -> list[Any]:
            key = jax.random.key(0)  # for ops that would be random in training
            named = zip(model.feeds, feeds, strict=True)
            values = {n: as_ragged(value, sizes[n]) if n in sizes else value for n, value in named}
            return [
                _flattened(name, value, hidden)
                for name, value in zip(model.fetches, function(parameters, key=key, **values)[0], strict=True)
            ]

        arguments = _abstract_feeds(model, shapes, sizes)
        try:
            exported = _jax_export().export(jax.jit(score), platforms=platforms)(state, arguments)
        except (ValueError, TypeError, NotImplementedError) as error:  # an op's, or JAX's own
            if "ymbolic" not in str(error):
                raise
            fixed = {name: [1, *model.program.global_block().var(name).shape[1:]] for name in model.feeds}
            raise ValueError(
                f"the model cannot be exported with open dims: {error}\n  hint        fix them: shapes={fixed}"
            ) from error
    return exported, state, hidden


def _flattened(name: str, value: Any, hidden: dict[str, int]) -> Any:
    if not isinstance(value, Ragged):
        return value
    hidden[name] = value.hidden
    return value.data, *value.offsets


def _abstract_feeds(model: InferenceModel, shapes: Mapping[str, Sequence[int]], sizes: Mapping[str, Sizes]) -> list:
    unknown = {*shapes, *sizes} - set(model.feeds)
    if unknown:
        raise FeedError(min(unknown), "the model has no such feed", f"its feeds are {', '.join(model.feeds)}")
    counts = {size.sequences for size in sizes.values()}
    scope, feeds = _jax_export().SymbolicScope(), []
    for name in model.feeds:
        variable = model.program.global_block().var(name)
        if variable.lod_level and name not in sizes:
            raise ValueError(
                f"feed {name} holds sequences, and their sizes must be known to export the model\n"
                f"  hint        sequences={{{name!r}: (8, 256, 64)}}, or --sequences {name}=8,256,64: "
                "how many, rows at most in all, and in the longest"
            )
        if name in sizes:
            feeds.append(abstract(variable, sizes[name]))
            continue
        dims = [_symbol(name, i) if dim < 0 else str(dim) for i, dim in enumerate(variable.shape)]
        if len(counts) == 1 and dims and dims[0] == "batch":
            dims[0] = str(min(counts))
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


def describe(path: str | Path) -> str:
    """Feeds, fetches, platforms and parameters of an exported model."""
    folder = at(path)
    signature = json.loads((folder / SIGNATURE).read_text(encoding="utf-8"))
    lines = []
    for feed in signature["feeds"]:
        sizes = f", up to {Sizes(**feed['sequences'])}" if "sequences" in feed else ""
        lines.append(f"feed     {feed['name']}  {feed['dtype']}{feed['shape']}{sizes}")
    lines += [f"fetch    {name}" for name in signature["fetches"]]
    lines.append(f"runs on  {', '.join(signature['platforms'])}")
    with (folder / PARAMETERS).open("rb") as stream, np.load(stream) as arrays:
        found = [(name, arrays[name].dtype.name, arrays[name].shape, arrays[name].nbytes) for name in arrays.files]
    rows = [(name, dtype, str(list(shape)), f"{size:,}") for name, dtype, shape, size in sorted(found)]
    lines += ["", as_text(table(("parameter", "dtype", "shape", "bytes"), rows))]
    return "\n".join(lines)


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
        self._sizes = {f["name"]: Sizes(**f["sequences"]) for f in signature["feeds"] if "sequences" in f}
        self._hidden = signature.get("fetched_sequences", {})
        with jax.enable_x64(True), (folder / PARAMETERS).open("rb") as stream, np.load(stream) as arrays:
            self._parameters = {name: jax.device_put(arrays[name]) for name in arrays.files}
        self._call = jax.jit(_jax_export().deserialize(bytearray((folder / EXPORTED).read_bytes())).call)

    def __call__(self, *values: Any, **named: Any) -> list[Any]:
        """The results for feeds given in order or by name."""
        return self.run(arguments_by_name(self.feeds, values, named))

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        """The results for a dict of name to array, or to LoDTensor where the model takes sequences."""
        with jax.enable_x64(True):
            results = self._call(self._parameters, [self._argument(name, feed[name]) for name in self.feeds])
            return [
                unpacked(value, self._hidden[name]) if name in self._hidden else np.asarray(value).copy()
                for name, value in zip(self.fetches, results, strict=True)
            ]

    def _argument(self, name: str, value: Any) -> Any:
        if name in self._sizes:
            return packed(name, value, self._sizes[name], self._dtypes[name])
        return np.asarray(value, self._dtypes[name])


def _jax_export() -> Any:
    from jax import export as jax_export

    try:
        import flatbuffers as flatbuffers
    except ImportError as error:
        raise ImportError("exporting a model needs the package flatbuffers: pip install flatbuffers") from error
    return jax_export
