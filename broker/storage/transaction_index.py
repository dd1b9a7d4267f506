"""Transaction index: the aborted transactions of a segment, for read_committed consumers.

On disk (Kafka's ``TransactionIndex``): 34 bytes an entry, in order of their last offset: version
int16 (0), producer id, first offset, last offset (of the marker), last stable offset when the
marker was written. The file exists only once there is an entry. Committed transactions leave none.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from broker.storage.cold import peek, waiting
from broker.storage.filesystem import File, FileSystem

ENTRY: Final = Struct(">hqqqq")
_VERSION = 0
_ENTRIES_PER_READ = 240


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Appends and searches; opened only while somebody looks."""

    __slots__ = ("_file", "_fs", "_rebuilt", "path", "size")

    def __init__(self, fs: FileSystem, path: str, size: int) -> None:
        self._fs = fs
        self.path = path
        self.size = size
        self._file: File | None = None
        #: Entries that recovery has found so far, while it is at it.
        self._rebuilt: list[AbortedTransaction] | None = None

    @property
    def file(self) -> File:
        """The file; asking for it makes it."""
        if self._file is None:
            if self.size:
                self._file = self._fs.open(self.path, size=self.size)
            else:
                self._file = self._fs.open(self.path, create=True)
        return self._file

    @property
    def is_sane(self) -> bool:
        return self.size % ENTRY.size == 0

    def append(self, transaction: AbortedTransaction) -> None:
        if self._rebuilt is not None:
            self._rebuilt.append(transaction)
            return
        self.file.append(ENTRY.pack(_VERSION, *transaction))
        self.size += ENTRY.size

    def entries(self) -> list[AbortedTransaction]:
        """All of them, in order of their last offset."""
        found: list[AbortedTransaction] = []
        position = 0
        end = self.size // ENTRY.size * ENTRY.size
        while position < end:
            length = min(end - position, _ENTRIES_PER_READ * ENTRY.size)
            data = peek(self.file, length, position)
            found += [AbortedTransaction(*fields[1:]) for fields in ENTRY.iter_unpack(data)]
            position += length
        return found

    def overlapping(
        self, start_offset: int, end_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Aborted transactions with records in the range, and whether that is all of them.

        Later segments matter until an entry's last stable offset reaches the end of the range:
        whatever was open before that has ended by then.
        """
        found = []
        for transaction in self.entries() if self.size else ():
            if transaction.last_offset >= start_offset and transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop transactions whose marker lies at ``offset`` or behind it."""
        kept = sum(transaction.last_offset < offset for transaction in self.entries())
        self.keep(kept)

    def keep(self, count: int) -> None:
        if self.size:
            self.file.truncate(count * ENTRY.size)
            self.size = count * ENTRY.size

    def begin_rebuild(self, kept_below: int = 0) -> None:
        """Recovery finds all entries anew whose marker lies at ``kept_below`` or behind it; the file
        keeps what it has until it is through. Waits for the disk."""
        kept = waiting(self.entries) if kept_below and self.size else []
        self._rebuilt = [entry for entry in kept if entry.last_offset < kept_below]

    def finish_rebuild(self) -> bool:
        """Bring the file in line, touching only what differs; gives whether anything did."""
        rebuilt, self._rebuilt = self._rebuilt or [], None
        found = self.file.pread(self.size, 0) if self.size else b""
        kept = 0
        for transaction in rebuilt:
            start = kept * ENTRY.size
            if found[start : start + ENTRY.size] != ENTRY.pack(_VERSION, *transaction):
                break
            kept += 1
        is_changed = self.size > kept * ENTRY.size or kept < len(rebuilt)
        if self.size > kept * ENTRY.size:
            self.keep(kept)
        for transaction in rebuilt[kept:]:
            self.append(transaction)
        return is_changed

    def move_to(self, path: str) -> None:
        self.path = path
        if self._file is not None:
            self._file.path = path

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
