"""The trainer's part of saving tables that grow: servers write their rows, and the trainer, last, the manifests."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from refluid import flags
from refluid.files.storage import AnyPath, RemotePath, at
from refluid.files.variables import is_persistable, save_variables
from refluid.files.writing import path_inside, write_together, writer_of
from refluid.ir import Program, Variable
from refluid.ir.vartype import as_numpy
from refluid.runtime.inference.any_rows import RowsInFiles, look_up_any
from refluid.runtime.tables.files.chain import open_table, relative
from refluid.runtime.tables.files.manifest import Base, new_id
from refluid.runtime.tables.files.parts import Part, TableFileError
from refluid.runtime.tables.files.saving import check_parts, manifest_of, parts_before, remove_parts
from refluid.runtime.tables.files.weights import beginning_of
from refluid.runtime.trainer import session as sessions
from refluid.runtime.trainer.gather import gather_to_save
from refluid.runtime.trainer.remote_table import GB, LIMIT
from refluid.runtime.trainer.session import Session
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import pb
from refluid.scope import Scope, global_scope
from refluid.tensors import LoDTensor


@contextmanager
def saving_tables(
    names: Sequence[str], folder: str | AnyPath, base: str | AnyPath | None = None, weights_only: bool = False
) -> Iterator[dict[str, bytes]]:
    """Has servers write the rows of tables to a folder that all processes share; yields the manifests.

    The caller puts them into the folder. Then the files that the tables there had before are removed, or those of this
    time if the caller fails.

    Args:
      names: of whole variables; states of optimizers among them are passed over.
      base: the folder of the tables that only changes are saved of.
    """
    session = sessions.current()
    assert session is not None, "somebody has gathered what servers hold"
    root, snapshot = _absolute(at(folder)), new_id()
    bases = {} if base is None else _bases_of(names, _absolute(at(base)), root)
    ids = {name: found.id for name, found in bases.items()}
    orders = [pb.TableOrder(table=name, base=ids.get(name, ""), weights_only=weights_only) for name in names]
    replies = _have_written(session, str(root), snapshot, orders)
    written = {name: [(server, Part(**found[name]["part"])) for server, found in replies.items()]
               for name in next(iter(replies.values()))}  # fmt: skip
    old = [path for name in written for path in parts_before(path_inside(root, name))]
    try:
        manifests = {}
        for name, parts in written.items():
            check_parts(path_inside(root, name).parent, parts)
            described = next(iter(replies.values()))[name]["table"]
            made = manifest_of(name, snapshot, described, [part for _, part in parts], bases.get(name))
            manifests[name] = made.to_bytes()
        yield manifests
    except Exception:
        remove_parts(path_inside(root, name).parent / part.name for name in written for _, part in written[name])
        raise
    remove_parts(old)


def save_delta(program: Program, folder: str, base: str, scope: Scope | None = None) -> None:
    """Saves what a job needs to resume, as `fluid.io.save_persistables` does, but of tables only what has changed.

    Called on one trainer. Of a table that grows (`is_distributed=True`) it holds the rows that were touched since it
    was saved to ``base`` or loaded from there, and which rows were given up; all other variables are whole. Servers
    load it as they load any folder; that of its base, and what that is based on, must still be there.

    Args:
      program: the trainer's.
      folder: a new folder, which all processes share.
      base: the folder that the tables were saved to or loaded from last.

    Raises:
      ValueError: the program has no such tables, or the folder is that of the base.
      ServerError: a server does not know what has changed since.
    """
    variables = [variable for variable in program.list_vars() if is_persistable(variable)]
    found = gather_to_save(program, scope or global_scope(), variables, complete=True)
    if not found.tables:
        raise ValueError("save_delta: this job has no tables that grow; use fluid.io.save_persistables")
    if str(_absolute(at(folder))) == str(_absolute(at(base))):
        raise ValueError(f"save_delta: {folder} is the folder that changes are saved of; choose another one")
    with saving_tables(found.tables, folder, base) as manifests:
        save_variables(found.scope, found.variables, folder, beside=manifests)


@contextmanager
def tables_for_inference(program: Program, names: Sequence[str], scope: Scope, folder: str) -> Iterator[Scope]:
    """Yields a scope with the tables of a program for inference, as they are written to its folder.

    A table is a tensor of its height if that holds all of its rows and may be read at once. Otherwise the program is
    changed to one that looks rows of any ids up, and the table is selected rows, which servers write for it.
    """
    session = sessions.current()
    assert session is not None, "somebody has gathered what servers hold"
    held, block = describe_tables(session), program.global_block()
    chosen = [name for name in names if name in held and not _fits_tensor(held[name], block.var(name))]
    if not chosen:
        yield scope
        return
    gathered = Scope(scope)
    inside = at(folder) / f".rows-{new_id()}"
    with saving_tables(chosen, inside, weights_only=True) as manifests:
        for name in chosen:
            path = path_inside(inside, name)
            write_together(path.parent, {path.name: writer_of(manifests[name])})
            saved = open_table(path)
            look_up_any(program, name, beginning_of(saved.manifest))
            gathered.own_var(name).value = LoDTensor(RowsInFiles(saved, block.var(name).shape))
    try:
        yield gathered
    finally:
        _remove_folder(inside, chosen)


def _fits_tensor(held: Mapping[str, Any], variable: Variable) -> bool:
    size = math.prod(variable.shape) * as_numpy(variable.dtype).itemsize
    fits = not held["rows"] or (held["lowest"] >= 0 and held["highest"] < variable.shape[0])
    return fits and size <= flags.read_flag(LIMIT) * GB


def _remove_folder(folder: AnyPath, names: Sequence[str]) -> None:
    for path in (path_inside(folder, name) for name in names):
        remove_parts([*parts_before(path), path])
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)


def describe_tables(session: Session) -> dict[str, dict[str, Any]]:
    """What tables that grow hold, over all servers: rows, bytes, the lowest and highest id."""
    found: dict[str, list[dict[str, Any]]] = {}
    for endpoint in session.job.endpoints:
        message = session.call(endpoint, "Tables", pb.CallerRequest(caller=session.caller))
        for name, described in json.loads(wire.decode(pb.Text, message).text).items():
            found.setdefault(name, []).append(described)
    return {name: _joined(parts) for name, parts in found.items()}


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        **{key: sum(part[key] for part in parts) for key in ("rows", "bytes")},
        "step": max(part["step"] for part in parts),
        "lowest": min((part["lowest"] for part in parts if part["lowest"] is not None), default=None),
        "highest": max((part["highest"] for part in parts if part["highest"] is not None), default=None),
    }


def _have_written(session: Session, folder: str, snapshot: str, orders: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """What each server has written, when all have."""
    waiting = {
        endpoint: pb.SnapshotRequest(
            caller=session.caller, folder=folder, snapshot=snapshot, tables=orders, number=number
        )
        for number, endpoint in enumerate(session.job.endpoints)
    }
    texts: dict[str, str] = {}
    while waiting:
        for endpoint, message in session.call_all("Snapshot", waiting).items():
            reply = wire.decode(pb.SnapshotReply, message)
            if not reply.pending:
                texts[endpoint] = reply.text
                del waiting[endpoint]
    return {endpoint: json.loads(texts[endpoint]) for endpoint in session.job.endpoints}


def _bases_of(names: Sequence[str], base: AnyPath, folder: AnyPath) -> dict[str, Base]:
    """What changes of tables are based on. States of optimizers, which servers pass over, have no files."""
    found: dict[str, Base] = {}
    for name in names:
        path = path_inside(base, name)
        if path.is_file():
            found[name] = Base(relative(path, path_inside(folder, name).parent), open_table(path).manifest.id)
    if not found:
        raise TableFileError(f"{base} holds none of the tables {', '.join(names)}, so changes cannot be saved of it")
    return found


def _absolute(path: AnyPath) -> AnyPath:
    """A path for servers, which may work in another folder."""
    return path if isinstance(path, RemotePath) else at(os.path.abspath(path))
