"""Which keys were seen, and the last offset of each: a flat table of bounded size.

24 bytes a slot, as in Kafka: the offset and 124 bits of hash, made of two SipHash values under the
secret that Python draws for each process, so nobody can choose keys that collide. A ``dict`` of the
keys themselves takes 150 bytes a key and more; it is about a third faster than this, compiled, but
would need several rounds where this one needs one.

Hot path: ``put`` runs for each record of the dirty part, ``holds`` for each of the clean part.
"""

from __future__ import annotations

from array import array
from typing import Final

BYTES_PER_SLOT: Final = 24
#: Hashes that fit a small integer of compiled code.
_MASK: Final = (1 << 62) - 1
#: In front of a key its second hash is independent of the first.
_SALT: Final = b"\0"


class KeyTable:
    """Open addressing, nothing is ever removed; at most ``capacity`` keys."""

    __slots__ = ("_cells", "_slots", "capacity", "count")

    def __init__(self, slots: int, capacity: int) -> None:
        self._slots: int = slots
        self.capacity: int = min(max(capacity, 1), slots - 1)
        self.count: int = 0
        #: Offset + 1 (0: free), first hash, second hash.
        self._cells: array[int] = array("q", bytes(BYTES_PER_SLOT * slots))

    def put(self, key: bytes, offset: int) -> int:
        """Note the key's latest offset. Gives the one before, -1 for a new key, -2 for no room."""
        cells = self._cells
        first = hash(key) & _MASK
        second = hash(_SALT + key) & _MASK
        slot = first % self._slots
        while True:
            at = 3 * slot
            known: int = cells[at]
            if not known:
                if self.count >= self.capacity:
                    return -2
                self.count += 1
                cells[at] = offset + 1
                cells[at + 1] = first
                cells[at + 2] = second
                return -1
            if cells[at + 1] == first and cells[at + 2] == second:
                cells[at] = offset + 1
                return known - 1
            slot += 1
            if slot == self._slots:
                slot = 0

    def holds(self, key: bytes) -> bool:
        """Whether the key was noted."""
        cells = self._cells
        first = hash(key) & _MASK
        slot = first % self._slots
        while True:
            at = 3 * slot
            if not cells[at]:
                return False
            if cells[at + 1] == first and cells[at + 2] == hash(_SALT + key) & _MASK:
                return True
            slot += 1
            if slot == self._slots:
                slot = 0
