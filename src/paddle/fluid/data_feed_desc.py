"""The description of a dataset's input, read from a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refluid.datasets.feed_desc import desc_text, read_desc
from refluid.files.storage import at

__all__ = ["DataFeedDesc"]


class DataFeedDesc:
    """Slots, batch size and pipe command, from a file in protobuf's text format.

    Args:
      proto_file: the path of the file.
    """

    def __init__(self, proto_file: str):
        self.proto_desc = read_desc(at(proto_file).read_text(), proto_file)
        self.proto_desc.pipe_command = "cat"

    def set_batch_size(self, batch_size: int) -> None:
        """Sets the number of samples in a batch."""
        self.proto_desc.batch_size = batch_size

    def set_dense_slots(self, dense_slots_name: Sequence[str]) -> None:
        """Marks slots as dense: their variables are arrays, not sequences."""
        for name in dense_slots_name:
            self._slot(name).is_dense = True

    def set_use_slots(self, use_slots_name: Sequence[str]) -> None:
        """Marks slots as used; the values of others are skipped."""
        for name in use_slots_name:
            self._slot(name).is_used = True

    def desc(self) -> str:
        """Returns the description in protobuf's text format."""
        return desc_text(self.proto_desc)

    def _slot(self, name: str) -> Any:
        slots = {slot.name: slot for slot in self.proto_desc.multi_slot_desc.slots}
        if name not in slots:
            raise KeyError(f"the data feed has no slot {name}; it has {', '.join(slots)}")
        return slots[name]
