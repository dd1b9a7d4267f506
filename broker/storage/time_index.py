"""Time index: from a timestamp to an offset, never to a batch with a smaller timestamp.

On disk (Kafka's ``TimeIndex``): 12 bytes an entry, timestamp int64 and relative offset int32. An
entry (T, O) says: no record before O + 1 is younger than T, and the batch that ends at O holds a
record of time T. Sealing a segment adds its largest timestamp, by which retention goes.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from broker.storage.sparse_index import SparseIndex

NO_TIMESTAMP: Final = -1


class TimeIndex(SparseIndex):
    """Keys are timestamps, values relative offsets."""

    ENTRY = Struct(">qI")
    KEY_CODE = "q"
    RESERVED_ENTRIES = 1

    __slots__ = ()

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Add an entry unless the last one covers it; timestamps in the index only rise."""
        if timestamp < 0:
            return False
        newest = self.load_newest()
        if newest is not None and (timestamp <= newest[0] or offset - self.base_offset < newest[1]):
            return False
        self._append(timestamp, offset - self.base_offset)
        return True

    def entry_before(self, timestamp: int) -> tuple[int, int]:
        """The last entry that is not younger: a scan for ``timestamp`` may begin at its offset.

        -1 and the base offset when there is none.
        """
        slot = self._last_slot_up_to_key(timestamp)
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        indexed, relative_offset = self.entry(slot)
        return indexed, self.base_offset + relative_offset

    def last(self) -> tuple[int, int]:
        """Largest timestamp and the offset beside it; -1 and base offset if empty."""
        newest = self.load_newest()
        if newest is None:
            return NO_TIMESTAMP, self.base_offset
        return newest[0], self.base_offset + newest[1]

    def truncate_to(self, offset: int) -> None:
        """Drop entries that point to ``offset`` or behind it."""
        self.keep(self._last_slot_up_to_value(offset - self.base_offset - 1) + 1)
