"""Which files of a partition's directory are taken, and how.

A compaction that was interrupted is brought to its end (``storage.interrupted_swap``). What a
clean-up left behind (``.deleted``, ``.cleaned``) is not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from broker.adopt.source import PartitionDirectory, SourceFile
from broker.records.header import HEADER_SIZE, MAGIC, peek_header
from broker.storage.interrupted_swap import finished_swap
from broker.storage.layout import (
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    parse_segment_file_name,
)

_TAKEN_SUFFIXES: Final = frozenset({*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX})
_TAKEN_NAMES: Final = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA})


class TakenFiles(NamedTuple):
    """Names in the data directory to names in the source, and what is behind them."""

    link: dict[str, str]
    copy: dict[str, str]
    copied_bytes: int
    total_bytes: int


def choose_files(
    partition: PartitionDirectory, *, is_clean: bool, recovery_point: int
) -> TakenFiles:
    """Sealed segments that nobody will ever change may be linked; all else is copied.

    After an unclean stop everything from the segment of the recovery point on will be looked at,
    perhaps cut, and indexed anew: its indexes (preallocated, full of zeros) are not taken at all.
    """
    finish, drop = finished_compaction(partition.path, partition.files)
    files: dict[str, SourceFile] = {}
    for name, file in partition.files.items():
        if name not in drop and _is_taken(name):
            files[name] = file
    for name, source_name in finish.items():
        files[name] = partition.files[source_name]
    first_rescanned = _first_rescanned(files, is_clean, recovery_point)
    link: dict[str, str] = {}
    copy: dict[str, str] = {}
    for name, file in files.items():
        parsed = parse_segment_file_name(name)
        is_rescanned = parsed is not None and parsed[0] >= first_rescanned
        if parsed is not None and parsed[1] == LOG_SUFFIX and not is_rescanned:
            link[name] = file.name
        elif is_clean or not is_rescanned or parsed is None or parsed[1] not in INDEX_SUFFIXES:
            copy[name] = file.name
    sizes = {name: files[name].size for name in (*link, *copy)}
    return TakenFiles(
        link,
        copy,
        sum(sizes[name] for name in copy),
        sum(sizes.values()),
    )


def _is_taken(name: str) -> bool:
    parsed = parse_segment_file_name(name)
    return name in _TAKEN_NAMES or (parsed is not None and parsed[1] in _TAKEN_SUFFIXES)


def _first_rescanned(files: Mapping[str, SourceFile], is_clean: bool, recovery_point: int) -> int:
    """Base offset of the first segment that may still change: the last one after a clean stop,
    the one that holds the recovery point after any other."""
    bases = sorted(
        parsed[0]
        for parsed in map(parse_segment_file_name, files)
        if parsed is not None and parsed[1] == LOG_SUFFIX
    )
    if not bases:
        return 0
    if is_clean:
        return bases[-1]
    return max((base for base in bases if base <= recovery_point), default=bases[0])


def finished_compaction(path: Path, names: Iterable[str]) -> tuple[dict[str, str], set[str]]:
    """``finished_swap`` of the files in ``path``."""
    return finished_swap(names, lambda name, base_offset: _end_offset(path / name, base_offset))


def _end_offset(path: Path, base_offset: int) -> int:
    """Offset behind the last batch of a segment."""
    end = base_offset
    position = 0
    with path.open("rb") as file:
        while len(head := file.read(HEADER_SIZE)) == HEADER_SIZE:
            header = peek_header(head)
            if header.magic != MAGIC or header.size_in_bytes < HEADER_SIZE:
                break
            end = header.next_offset
            position += header.size_in_bytes
            file.seek(position)
    return end
