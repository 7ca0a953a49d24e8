"""Fingerprints of files: size and SHA-256."""

from __future__ import annotations

import hashlib
from typing import Any, BinaryIO

from refluid.files.storage import AnyPath


class HashingStream:
    """Forwards what is written to another stream and computes its fingerprint."""

    def __init__(self, stream: BinaryIO):
        self._stream, self._digest, self._size = stream, hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._digest.update(view)
        self._size += len(view)
        return self._stream.write(view)

    def fingerprint(self) -> dict[str, Any]:
        return {"size": self._size, "sha256": self._digest.hexdigest()}


def hash_file(path: AnyPath) -> dict[str, Any]:
    """The fingerprint of a file."""
    digest, size, chunk = hashlib.sha256(), 0, memoryview(bytearray(1 << 20))
    with path.open("rb") as stream:
        while count := stream.readinto(chunk):  # pyright: ignore[reportAttributeAccessIssue] - every real stream has it
            digest.update(chunk[:count])
            size += count
    return {"size": size, "sha256": digest.hexdigest()}
