"""What the offset index and the time index share: sorted pairs in a file, appended and searched.

The file is never mapped (a sparse map brings SIGBUS back, one map per index exhausts
``vm.max_map_count``, a page fault in a map holds the interpreter). New entries wait in two arrays
and are written by whole entries, so the file has its exact size at every flush; older ones are
searched in the file. A sealed segment's index therefore holds nothing in memory but its count.

After a crash entries may be missing, torn or zero: ``recovery`` keeps the longest sane prefix and
adds the rest from the log. Nothing here is synced before the segment is sealed.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_right
from struct import Struct
from typing import ClassVar, Final

from broker.storage.cold import peek
from broker.storage.filesystem import File, FileSystem

#: Entries that wait in memory before one write takes them to the file.
PENDING_ENTRIES: Final = 64
#: Newest entries kept in memory for readers at the tail, at most twice this many.
TAIL_ENTRIES: Final = 256
#: A search in the file ends by reading so much at once: each look gives the GIL away and takes it back.
BLOCK_BYTES: Final = 1024


class SparseIndex:
    """Pairs with strictly rising keys and rising values."""

    ENTRY: ClassVar[Struct]
    KEY_CODE: ClassVar[str]
    #: Entries that ``is_full`` leaves free for the one that sealing adds.
    RESERVED_ENTRIES: ClassVar[int] = 0

    __slots__ = (
        "_file",
        "_fs",
        "_is_rebuilding",
        "_keys",
        "_max_entries",
        "_tail_start",
        "_values",
        "_written",
        "base_offset",
        "count",
        "newest",
        "path",
    )

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        base_offset: int,
        max_bytes: int,
        *,
        is_new: bool = False,
        waiting: bytes = b"",
    ) -> None:
        """``waiting``: what ``waiting_entries`` gave; there is no file yet, then."""
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self._max_entries = max_bytes // self.ENTRY.size - self.RESERVED_ENTRIES
        self._file: File | None = None
        self.count = 0
        if not is_new:
            with contextlib.suppress(FileNotFoundError):
                self._file = fs.open(path)
                self.count = self._file.size // self.ENTRY.size
        self._written = self._tail_start = self.count
        self._keys: array[int] = array(self.KEY_CODE)
        self._values: array[int] = array("I")
        for key, value in self.ENTRY.iter_unpack(waiting):
            self._keys.append(key)
            self._values.append(value)
            self.count += 1
        self._is_rebuilding = False
        #: The last pair, once it is known: appends compare with it and must not wait for it.
        self.newest: tuple[int, int] | None = None

    @property
    def file(self) -> File:
        """Asking for it makes it: a partition without records costs one file, not three."""
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
        return self._file

    @property
    def is_full(self) -> bool:
        return self.count >= self._max_entries

    def set_max_bytes(self, max_bytes: int) -> None:
        self._max_entries = max_bytes // self.ENTRY.size - self.RESERVED_ENTRIES

    def _append(self, key: int, value: int) -> None:
        self.newest = (key, value)
        self._keys.append(key)
        self._values.append(value)
        self.count += 1
        if self.count - self._written >= PENDING_ENTRIES and not self._is_rebuilding:
            self.flush()

    def waiting_entries(self) -> bytes | None:
        """All of them, packed, as long as none is in a file; None afterwards."""
        if self._file is not None:
            return None
        return b"".join(map(self.ENTRY.pack, self._keys, self._values))

    def flush(self) -> None:
        """Write what waits. After DiskFullError it still waits, and nothing else changed."""
        if self._written == self.count:
            return
        first = self._written - self._tail_start
        pack = self.ENTRY.pack
        self.file.append(b"".join(map(pack, self._keys[first:], self._values[first:])))
        self._written = self.count
        self._shorten_tail()

    def _shorten_tail(self) -> None:
        if len(self._keys) > 2 * TAIL_ENTRIES:
            self._tail_start = self.count - TAIL_ENTRIES
            del self._keys[:-TAIL_ENTRIES]
            del self._values[:-TAIL_ENTRIES]

    def entry(self, slot: int) -> tuple[int, int]:
        """The pair at ``slot``, front to back from 0."""
        start = self._tail_start
        if slot >= start:
            return self._keys[slot - start], self._values[slot - start]
        size = self.ENTRY.size
        key, value = self.ENTRY.unpack(peek(self.file, size, slot * size))
        return key, value

    def load_newest(self) -> tuple[int, int] | None:
        """The last pair; None if there is none."""
        if self.newest is None and self.count:
            self.newest = self.entry(self.count - 1)
        return self.newest

    def entries(self) -> list[tuple[int, int]]:
        """All of them, front to back; for recovery, checks and tests."""
        length = self._tail_start * self.ENTRY.size
        data = self.file.pread(length, 0) if length else b""
        old: list[tuple[int, int]] = list(self.ENTRY.iter_unpack(data))
        return old + list(zip(self._keys, self._values, strict=True))

    def _last_slot_up_to_key(self, key: int) -> int:
        """Slot of the largest key <= ``key``; -1 if there is none."""
        keys = self._keys
        if keys and key >= keys[0]:
            return self._tail_start + bisect_right(keys, key) - 1
        return self._search_file(key, 0)

    def _last_slot_up_to_value(self, value: int) -> int:
        values = self._values
        if values and value >= values[0]:
            return self._tail_start + bisect_right(values, value) - 1
        return self._search_file(value, 1)

    def _search_file(self, wanted: int, column: int) -> int:
        low, high = 0, self._tail_start
        if not high:
            return -1
        file, entry, size = self.file, self.ENTRY, self.ENTRY.size
        while (high - low) * size > BLOCK_BYTES:
            middle = (low + high) // 2
            if entry.unpack(peek(file, size, middle * size))[column] <= wanted:
                low = middle + 1
            else:
                high = middle
        block = peek(file, (high - low) * size, low * size)
        column_of_slot = [pair[column] for pair in entry.iter_unpack(block)]
        return low + bisect_right(column_of_slot, wanted) - 1

    def keep(self, count: int) -> None:
        """Drop every entry behind the first ``count``."""
        if count < self._written:
            self._written = count
            self.file.truncate(count * self.ENTRY.size)
        self._tail_start = min(self._tail_start, count)
        del self._keys[count - self._tail_start :]
        del self._values[count - self._tail_start :]
        self.count = count
        self.newest = None

    def sound_prefix(self) -> tuple[array[int], array[int]]:
        """Keys and values in the file, as far as they rise as they must. Waits for the disk."""
        keys, values = array(self.KEY_CODE), array("I")
        data = self.file.pread(self.count * self.ENTRY.size, 0) if self.count else b""
        last_key = last_value = -1
        for key, value in self.ENTRY.iter_unpack(data):
            if key <= last_key or value < last_value:
                break
            keys.append(key)
            values.append(value)
            last_key, last_value = key, value
        return keys, values

    def begin_rebuild(self, kept: int = 0) -> None:
        """Recovery adds all entries behind the first ``kept`` anew; the file keeps what it has until
        it is through."""
        self._is_rebuilding = True
        self.count = self._written = self._tail_start = kept
        self._keys = array(self.KEY_CODE)
        self._values = array("I")
        self.newest = None

    def finish_rebuild(self) -> bool:
        """Bring the file in line; gives whether it was not.

        Only what differs is touched: most of it was synced before, and must not be lost if the
        power fails now. After DiskFullError the rest waits in memory.
        """
        self._is_rebuilding = False
        if self._file is None and not self.count:
            return False
        entry, file = self.ENTRY, self.file
        start = self._tail_start * entry.size
        wanted = b"".join(map(entry.pack, self._keys, self._values))
        same = 0
        found = file.pread(file.size - start, start)
        while (
            same < len(wanted)
            and found[same : same + entry.size] == (wanted[same : same + entry.size])
        ):
            same += entry.size
        self._written = (start + same) // entry.size
        if file.size > start + same:
            file.truncate(start + same)
        self.flush()
        self._shorten_tail()
        return found != wanted

    def move_to(self, path: str) -> None:
        self.path = path
        if self._file is not None:
            self._file.path = path

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
