"""The producer snapshots of one partition on disk: ``<offset>.snapshot``.

One is written when a segment is rolled (as of the new base offset), at a clean stop and now and
then amid a long segment, so that recovery after a kill need not read all of it. They are derived
from the log and carry a sum, so a damaged or a missing one only costs reading more of the log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from broker.storage.filesystem import FileSystem, replace_file
from broker.storage.layout import SNAPSHOT_SUFFIX, segment_file_name
from broker.storage.producer_snapshot import (
    CorruptSnapshot,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)


class SnapshotFiles:
    __slots__ = ("_fs", "_offsets", "directory")

    def __init__(self, fs: FileSystem, directory: str, offsets: list[int]) -> None:
        self._fs = fs
        self.directory = directory
        self._offsets: array[int] = array("q", sorted(offsets))

    @property
    def offsets(self) -> list[int]:
        return list(self._offsets)

    def paths(self) -> list[str]:
        return [self._path(offset) for offset in self._offsets]

    @property
    def newest(self) -> int:
        return self._offsets[-1] if self._offsets else -1

    def write(self, offset: int, entries: list[SnapshotEntry]) -> str:
        """State as of ``offset``; gives the file's path, '' when there is one already."""
        if self.newest >= offset:
            return ""
        path = self._path(offset)
        replace_file(self._fs, path, encode_snapshot(entries), sync=False)
        self._offsets.append(offset)
        return path

    def load_newest(self, up_to: int) -> tuple[int, list[SnapshotEntry]] | None:
        """The newest readable one at or below ``up_to``; unreadable ones are removed."""
        for offset in reversed(self._offsets[: bisect_right(self._offsets, up_to)]):
            try:
                return offset, decode_snapshot(self._fs.read_bytes(self._path(offset)))
            except (CorruptSnapshot, FileNotFoundError):
                self._remove(offset)
        return None

    def drop(self, offset: int) -> None:
        """The one at ``offset``, if there is one."""
        if offset in self._offsets:
            self._remove(offset)

    def drop_above(self, offset: int) -> None:
        """They tell of batches that are no longer there."""
        for doomed in self._offsets[bisect_right(self._offsets, offset) :]:
            self._remove(doomed)

    def drop_below(self, offset: int) -> None:
        """The segments that they spare reading are gone."""
        for doomed in [known for known in self._offsets if known < offset]:
            self._remove(doomed)

    def drop_stray(self, base_offsets: set[int]) -> None:
        """Keep those at a segment's beginning, and the newest one (of a stop or a flush)."""
        for doomed in self._offsets[:-1]:
            if doomed not in base_offsets:
                self._remove(doomed)

    def _remove(self, offset: int) -> None:
        self._fs.remove(self._path(offset))
        self._offsets.remove(offset)

    def _path(self, offset: int) -> str:
        return f"{self.directory}/{segment_file_name(offset, SNAPSHOT_SUFFIX)}"
