"""The weights of saved rows as they were when the snapshot was made: rows may lag behind in memory and in files."""

from __future__ import annotations

import numpy as np

from refluid.runtime.tables.files.chain import SavedTable
from refluid.runtime.tables.files.manifest import Manifest
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import Beginning, Rule, zeros
from refluid.runtime.tables.table import Table


class UpToDate:
    """Brings records up to date with a step: by momentum or weight decay rows move without a gradient.

    Args:
      form: of the records.
      rule: how they are updated.
      step: the step.
      past: what `Table.past` returned then.
    """

    def __init__(self, form: RecordForm, rule: Rule, step: int, past: np.ndarray):
        self._form, self._rule, self._step, self._past = form, rule, step, past

    @property
    def moves_all_rows(self) -> bool:
        """Whether rows change in steps in which they have no gradient."""
        return self._rule.drifts

    def records(self, ids: np.ndarray, records: np.ndarray) -> np.ndarray:
        """The records of different rows, up to date."""
        if not self._rule.drifts or (self._form.versions_of(records) == self._step).all():
            return records
        scratch = Table("rows that are read", self._form, self._rule)
        scratch.put(ids, records)
        scratch.resume(self._step, self._past)
        scratch.read(ids)
        parts = list(scratch.records())
        found = np.concatenate([ids for ids, _ in parts])
        order = np.argsort(found)
        return np.concatenate([records for _, records in parts])[order[np.searchsorted(found, ids, sorter=order)]]

    def weights(self, ids: np.ndarray, records: np.ndarray) -> np.ndarray:
        """The weights of rows, up to date."""
        return self._form.weights_of(self.records(ids, records))

    def without_slots(self, ids: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Records of the same rows that hold only weights."""
        like = np.full(len(ids), self._step, np.int64), self._form.counts_of(records)
        return without_slots(self._form).packed(ids, self.weights(ids, records), {}, like)


def up_to_date(saved: SavedTable) -> UpToDate:
    """Brings the records of a table in files up to date with its latest snapshot."""
    return UpToDate(saved.form, rule_of(saved.manifest), saved.manifest.step, saved.past())


def rule_of(manifest: Manifest) -> Rule:
    """How rows were updated, as far as rows without a gradient need to know."""
    attrs = dict(manifest.rule)
    return Rule(manifest.optimizer or "add", attrs, attrs.pop("l2", 0.0), attrs.pop("l1", 0.0))


def beginning_of(manifest: Manifest) -> Beginning:
    """What an id that has no row is looked up as."""
    return Beginning.read(np.array(manifest.beginning)) if manifest.admits_all else zeros()


def without_slots(form: RecordForm) -> RecordForm:
    """The form of rows that only weights are saved of."""
    return RecordForm(form.width, form.dtype, (), form.precision, form.has_id)
