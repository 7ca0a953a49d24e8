"""Archives in memory, the same bytes in every run."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping


def tar(files: Mapping[str, bytes], *, compressed: bool = True) -> bytes:
    """A tar of files by name, in this order; gzipped unless told otherwise."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gz(stream.getvalue()) if compressed else stream.getvalue()


def gz(content: bytes) -> bytes:
    """Gzipped content, without the time of day in it."""
    return gzip.compress(content, 1, mtime=0)


def zip_(files: Mapping[str, bytes]) -> bytes:
    """A zip of files by name, in this order."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()
