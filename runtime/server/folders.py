"""Where a server may write what trainers ask for: a caller names a folder, the server's owner says below which."""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any
from urllib.parse import unquote

from refluid import flags
from refluid.files.storage import AnyPath, at, local_path

_FLAG = "FLAGS_rpc_save_folders"
_URL = re.compile(r"[A-Za-z][\w+.-]*://[^:?#]*(:\d+)?[^:?#]*")  # without "::", which chains file systems in fsspec


def folder_for(path: str) -> AnyPath:
    """The folder that a caller names, with symlinks resolved, if it is below one of FLAGS_rpc_save_folders.

    These are folders and URLs with commas between them; by default the folder that the server was started in and the
    one for temporary files.

    Raises:
      ValueError: it is not.
    """
    local = local_path(path)
    if local is None:  # fsspec may open what a URL names as soon as it sees it
        if _URL.fullmatch(path) and ".." not in _parts(path) and any(_is_below(path, url) for url in _allowed()):
            return at(path)
    else:
        resolved = os.path.realpath(local)
        for folder in _allowed():
            if "://" not in folder and _is_below(resolved, os.path.realpath(folder)):
                return at(resolved)
    raise ValueError(
        f"refusing to write to {path}: trainers may have files written below {', '.join(_allowed())} only; to allow "
        f"other folders or URLs, set {_FLAG} for the servers, with commas between them"
    )


def check_snapshot(request: Any) -> None:
    """Refuses a SnapshotRequest whose names could be part of a path.

    Raises:
      ValueError: they are not what trainers draw.
    """
    names = [request.snapshot, *(order.base for order in request.tables if order.base)]
    for name in names:
        if not re.fullmatch(r"[0-9a-f]{32}", name):
            raise ValueError(f"a snapshot is named by 32 hexadecimal digits, not by {name[:64]!r}")


def _allowed() -> list[str]:
    given = [folder.strip() for folder in flags.read_flag(_FLAG).split(",") if folder.strip()]
    return given or [os.getcwd(), tempfile.gettempdir()]


def _parts(url: str) -> list[str]:
    return re.split(r"[/\\]", unquote(url))


def _is_below(path: str, folder: str) -> bool:
    folder = folder.rstrip("/")
    return path.rstrip("/") == folder or path.startswith(folder + "/")
