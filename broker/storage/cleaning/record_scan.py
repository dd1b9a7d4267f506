"""Over the records of one uncompressed payload, in place: keys noted, records kept or dropped.

Hot path: every record that is cleaned passes through here, most of them twice. Numbers are read in
place, because a call for each costs as much again as all the rest; ``broker/compiled`` makes it
machine code. Damaged records raise ``MalformedBatch``.
"""

from __future__ import annotations

from typing import Final

from broker.records.header import MalformedBatch
from broker.storage.cleaning.key_table import KeyTable

#: What is known of an offset of the dirty part: superseded (or never there), alive, alive tombstone.
DEAD: Final = 0
ALIVE: Final = 1
ALIVE_TOMBSTONE: Final = 2
_ALL_FIT: Final = -1
_MAX_BITS: Final = 70


class Marks:
    """Which offsets of the dirty part hold the latest record of their key; a byte each."""

    __slots__ = ("flags", "start")

    def __init__(self, start: int) -> None:
        self.start: int = start
        self.flags: bytearray = bytearray()

    @property
    def end(self) -> int:
        return self.start + len(self.flags)

    def extend_to(self, end: int) -> None:
        missing = end - self.end
        if missing > 0:
            self.flags.extend(bytes(missing))

    def count(self, base_offset: int, last_offset: int) -> int:
        """Records alive in the range, which must lie inside."""
        low, high = base_offset - self.start, last_offset - self.start + 1
        return self.flags.count(ALIVE, low, high) + self.flags.count(ALIVE_TOMBSTONE, low, high)

    def has_tombstone(self, base_offset: int, last_offset: int) -> bool:
        low, high = base_offset - self.start, last_offset - self.start + 1
        return self.flags.find(ALIVE_TOMBSTONE, low, high) >= 0


class Kept:
    """What ``sift`` kept of a batch."""

    __slots__ = ("count", "has_tombstone", "max_delta", "pieces")

    def __init__(self) -> None:
        #: Start, and end, of the records kept, in turn; runs of neighbours are one piece.
        self.pieces: list[int] = []
        self.count: int = 0
        self.has_tombstone: bool = False
        #: Largest timestamp delta.
        self.max_delta: int = 0


class Sieve:
    """Decides by offset and key; the same for all batches of a round."""

    __slots__ = ("end", "marks", "table")

    def __init__(self, table: KeyTable, marks: Marks, end: int) -> None:
        self.table: KeyTable = table
        self.marks: Marks = marks
        #: From here on nothing is known: everything stays.
        self.end: int = end


def _rest(payload: bytes, position: int, raw: int) -> tuple[int, int]:
    """A number of more than one byte, whose first one is ``raw``: it, and where it ends."""
    raw &= 0x7F
    shift: int = 7
    while shift < _MAX_BITS:
        byte: int = payload[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position
        shift += 7
    raise MalformedBatch("a number that does not end")


def note_keys(
    payload: bytes, count: int, base_offset: int, start_offset: int, table: KeyTable, marks: Marks
) -> int:
    """Note every key from ``start_offset`` on; ``marks`` reach to the end of the batch.

    Gives -1, or the offset of the first record whose key found no room.
    """
    try:
        return _note_keys(payload, count, base_offset, start_offset, table, marks)
    except IndexError:
        raise MalformedBatch("the records end inside a record") from None


def _note_keys(
    payload: bytes, count: int, base_offset: int, start_offset: int, table: KeyTable, marks: Marks
) -> int:
    flags = marks.flags
    first: int = marks.start
    end_offset: int = marks.end
    size: int = len(payload)
    position: int = 0
    for _ in range(count):
        raw: int = payload[position]
        position += 1
        if raw >= 0x80:
            raw, position = _rest(payload, position, raw)
        end: int = position + (raw >> 1)
        if raw & 1 or end > size:
            raise MalformedBatch("a record with an impossible length")
        position += 1  # attributes
        while payload[position] >= 0x80:  # timestamp
            position += 1
        position += 1
        raw = payload[position]
        position += 1
        if raw >= 0x80:
            raw, position = _rest(payload, position, raw)
        offset: int = base_offset + (raw >> 1)
        if raw & 1 or offset >= end_offset:
            raise MalformedBatch("a record with an offset outside its batch")
        raw = payload[position]
        position += 1
        if raw >= 0x80:
            raw, position = _rest(payload, position, raw)
        if not raw & 1 and offset >= start_offset:
            key_end: int = position + (raw >> 1)
            if key_end >= end:
                raise MalformedBatch("a key reaches beyond its record")
            before: int = table.put(payload[position:key_end], offset)
            if before < -1:
                return offset
            if before >= first:
                flags[before - first] = DEAD
            # The value's length: only that of null is odd.
            flags[offset - first] = ALIVE_TOMBSTONE if payload[key_end] & 1 else ALIVE
        position = end
    return _ALL_FIT


def sift(
    payload: bytes, count: int, base_offset: int, sieve: Sieve, drops_tombstones: bool
) -> Kept:
    """Which records stay: the latest of their key, and what lies beyond the round's end.

    ``drops_tombstones``: the batch's delete horizon has passed.
    """
    try:
        return _sift(payload, count, base_offset, sieve, drops_tombstones)
    except IndexError:
        raise MalformedBatch("the records end inside a record") from None


def _sift(  # noqa: C901 - straight-line decoding, see the module
    payload: bytes, count: int, base_offset: int, sieve: Sieve, drops_tombstones: bool
) -> Kept:
    kept = Kept()
    pieces = kept.pieces
    table = sieve.table
    flags = sieve.marks.flags
    first: int = sieve.marks.start
    end_offset: int = sieve.end
    size: int = len(payload)
    position: int = 0
    number: int = 0
    max_delta: int = 0
    last_end: int = -1
    for _ in range(count):
        start: int = position
        raw: int = payload[position]
        position += 1
        if raw >= 0x80:
            raw, position = _rest(payload, position, raw)
        end: int = position + (raw >> 1)
        if raw & 1 or end > size:
            raise MalformedBatch("a record with an impossible length")
        position += 1  # attributes
        delta: int = payload[position]
        position += 1
        if delta >= 0x80:
            delta, position = _rest(payload, position, delta)
        raw = payload[position]
        position += 1
        if raw >= 0x80:
            raw, position = _rest(payload, position, raw)
        offset: int = base_offset + (raw >> 1)
        if first <= offset < end_offset and not flags[offset - first]:
            position = end
            continue
        raw = payload[position]
        position += 1
        if raw >= 0x80:
            raw, position = _rest(payload, position, raw)
        key_end: int = position if raw & 1 else position + (raw >> 1)
        if key_end >= end:
            raise MalformedBatch("a key reaches beyond its record")
        is_tombstone: int = payload[key_end] & 1
        if offset < end_offset and (
            (is_tombstone and drops_tombstones)
            or (offset < first and (raw & 1 or table.holds(payload[position:key_end])))
        ):
            position = end
            continue
        if is_tombstone:
            kept.has_tombstone = True
        delta = (delta >> 1) ^ -(delta & 1)
        if not number or delta > max_delta:
            max_delta = delta
        number += 1
        if start == last_end:
            pieces[-1] = end
        else:
            pieces.append(start)
            pieces.append(end)
        last_end = end
        position = end
    kept.count = number
    kept.max_delta = max_delta
    return kept
