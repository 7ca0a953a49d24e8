"""Memory that grows without being copied: anonymous mappings, which the kernel moves page table by page table."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE
_HUGE_FROM = 64 << 20  # bytes; below, huge pages would waste more than they save


class Mapping:
    """Zeroed bytes at an address, which changes when they grow. They take memory when they are written."""

    def __init__(self, size: int):
        self._map = _mapped(_rounded(size))
        self._view = np.frombuffer(self._map, np.uint8)
        self._advise()

    @property
    def address(self) -> int:
        return self._view.ctypes.data

    @property
    def size(self) -> int:
        return self._view.size

    def grow(self, size: int) -> None:
        """Appends zeroed bytes; nobody may use the old address any longer.

        Raises:
          MemoryError: the system does not have as much.
        """
        size = _rounded(size)
        self._view = np.empty(0, np.uint8)
        try:
            self._map.resize(size)
        except OSError as error:
            self._view = np.frombuffer(self._map, np.uint8)
            raise MemoryError(f"a table cannot grow to {size:,} bytes: {error}") from error
        except (SystemError, ValueError):  # systems without mremap
            self._copy_to(size)
        self._view = np.frombuffer(self._map, np.uint8)
        self._advise()

    def as_array(self, dtype: Any) -> np.ndarray:
        """All of it as an array; it must be dropped before the memory grows."""
        return np.frombuffer(self._map, dtype)

    def _copy_to(self, size: int) -> None:
        larger = _mapped(size)
        larger[: len(self._map)] = self._map[:]
        self._map = larger

    def _advise(self) -> None:
        if self.size >= _HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self._map.madvise(mmap.MADV_HUGEPAGE)
            except OSError:  # a kernel without huge pages
                return


def _mapped(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory cannot grow


def _rounded(size: int) -> int:
    return max(_PAGE, -(-size // _PAGE) * _PAGE)
