"""Offset index: from an offset to a byte position in the segment, every so many bytes.

On disk (Kafka's ``OffsetIndex``): 8 bytes an entry, relative offset and position, both int32.
The offset is the *last* of the batch that begins at the position.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from broker.storage.sparse_index import SparseIndex

MAX_RELATIVE_OFFSET: Final = 0x7FFF_FFFF


class OffsetIndex(SparseIndex):
    """Keys are relative offsets, values positions."""

    ENTRY = Struct(">II")
    KEY_CODE = "I"

    __slots__ = ()

    def append(self, offset: int, position: int) -> None:
        self._append(offset - self.base_offset, position)

    def position_before(self, offset: int) -> tuple[int, int]:
        """Where a scan for ``offset`` may begin, and the last offset of the batch there.

        (0, -1) when it has to begin at the start.
        """
        slot = self._last_slot_up_to_key(offset - self.base_offset)
        if slot < 0:
            return 0, -1
        relative_offset, position = self.entry(slot)
        return position, self.base_offset + relative_offset

    def batch_at_or_before(self, position: int) -> tuple[int, int]:
        """The last indexed position that is <= ``position``, and the last offset of its batch."""
        slot = self._last_slot_up_to_value(position)
        if slot < 0:
            return 0, -1
        relative_offset, indexed = self.entry(slot)
        return indexed, self.base_offset + relative_offset

    def last(self) -> tuple[int, int]:
        """Last offset and position in the index; base offset and 0 if it is empty."""
        newest = self.load_newest()
        if newest is None:
            return self.base_offset, 0
        return self.base_offset + newest[0], newest[1]

    def truncate_to(self, offset: int) -> None:
        """Drop entries whose batch holds ``offset`` or anything behind it."""
        self.keep(self._last_slot_up_to_key(offset - self.base_offset - 1) + 1)
