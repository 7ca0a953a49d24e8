"""The token of a job that runs on this machine only: drawn by its launcher, known to its processes, gone with it."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

_GIVEN = ("FLAGS_rpc_token", "FLAGS_rpc_token_file")


class DrawnToken:
    """A token in a file that only its owner can read, or, without a folder, in the environment alone."""

    def __init__(self, folder: Path | None):
        self.path = None if folder is None else folder / ".token"
        self._text = secrets.token_urlsafe(32)
        if self.path is not None:
            self.remove()
            with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(self._text + "\n")

    @property
    def variables(self) -> dict[str, str]:
        """What the processes of the job find in their environment."""
        return {_GIVEN[0]: self._text} if self.path is None else {_GIVEN[1]: str(self.path.resolve())}

    def remove(self) -> None:
        """Removes the file."""
        if self.path is not None:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()


def is_given(environment: Mapping[str, str]) -> bool:
    """Whether the user has a token for the job."""
    return any(environment.get(name) for name in _GIVEN)
