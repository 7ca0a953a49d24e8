"""What two tables in files differ in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refluid.ops.core.growing import SHARDS
from refluid.runtime.tables.files.chain import SavedTable
from refluid.runtime.tables.files.loading import in_shards
from refluid.runtime.tables.files.weights import up_to_date

_AT_ONCE = 4_000_000  # rows of a table in memory


@dataclass
class Differences:
    """Counts of rows, and the largest difference of a weight, with the id of its row."""

    same: int = 0
    only_first: int = 0
    only_second: int = 0
    different: int = 0
    largest: float = 0.0
    largest_id: int | None = None

    @property
    def none(self) -> bool:
        return not (self.only_first or self.only_second or self.different)


def compare(first: SavedTable, second: SavedTable, tolerance: float = 0.0) -> Differences:
    """Compares the weights of two tables; those that differ by more than a tolerance are different.

    Takes memory for some million rows: larger tables are read several times.
    """
    if first.form.width != second.form.width:
        raise ValueError(f"{first.path} has rows of {first.form.width}, {second.path} of {second.form.width}")
    rows = max(sum(each.manifest.rows for each in table.snapshots) for table in (first, second))
    passes, found = min(SHARDS, max(1, -(-rows // _AT_ONCE))), Differences()
    for number in range(passes):
        shards = SHARDS * number // passes, SHARDS * (number + 1) // passes
        _compare_some(_rows(first, shards), _rows(second, shards), tolerance, found)
    return found


def _compare_some(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray], tolerance: float, found: Differences
) -> None:
    ids, ours, theirs = np.intersect1d(first[0], second[0], assume_unique=True, return_indices=True)
    found.only_first += len(first[0]) - len(ids)
    found.only_second += len(second[0]) - len(ids)
    if not len(ids):
        return
    a, b = first[1][ours].astype(np.float64), second[1][theirs].astype(np.float64)
    with np.errstate(invalid="ignore"):
        distances = np.abs(a - b).max(1)
    distances[(a == b).all(1)] = 0.0  # infinite ones as well
    apart = ~(distances <= tolerance)
    found.different += int(apart.sum())
    found.same += int((~apart).sum())
    place = int(np.argmax(np.nan_to_num(distances, nan=np.inf)))
    if not distances[place] <= found.largest:
        found.largest, found.largest_id = float(distances[place]), int(ids[place])


def _rows(saved: SavedTable, shards: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    current, kept_ids = up_to_date(saved), [np.empty(0, np.int64)]
    weights = [np.empty((0, saved.form.width), saved.form.dtype)]
    for ids, records in saved.records(lambda part: part.start < shards[1] and shards[0] < part.end):
        chosen = in_shards(ids, shards)
        kept_ids.append(ids[chosen])
        weights.append(current.weights(ids[chosen], records[chosen]))
    return np.concatenate(kept_ids), np.concatenate(weights)
