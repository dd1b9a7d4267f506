"""Kafka's ``__cluster_metadata-0``: the newest checkpoint, then the log behind it.

A checkpoint (``<end offset>-<leader epoch>.checkpoint``) is the metadata below its end offset,
between a header and a footer record; Kafka gives it its name when it is whole. The log's batches
follow each other without gaps. A directory that was written by ``kill -9`` may end in a torn batch:
the log ends before it. The high watermark of the quorum is nowhere on disk; with a single voter all
that is whole is committed, with more the end of one voter's log may not be: ``voter_count`` tells.

Reading changes nothing. Anything that a crash does not explain raises ``UnreadableMetadata``.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from broker.records.batch import iter_records
from broker.records.header import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    MalformedBatch,
    compute_crc,
    peek_header,
)
from broker.storage.layout import LOG_SUFFIX, parse_segment_file_name

METADATA_DIRECTORY: Final = "__cluster_metadata-0"
QUORUM_STATE: Final = "quorum-state"
#: Kafka's own batches stay below 8 MiB; nobody else writes here.
MAX_BATCH_BYTES: Final = 64 * 1024 * 1024

_CHECKPOINT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CONTROL_KEY = struct.Struct(">hh")
_LEADER_CHANGE, _SNAPSHOT_HEADER, _SNAPSHOT_FOOTER, _VOTERS = 2, 3, 4, 6


class UnreadableMetadata(Exception):
    """The metadata log is damaged, or does not hang together."""


class Checkpoint(NamedTuple):
    end_offset: int
    leader_epoch: int
    path: Path


class LogSegment(NamedTuple):
    base_offset: int
    path: Path


class MetadataHistory(NamedTuple):
    """What an adoption reads of one ``__cluster_metadata-0``. ``payloads`` in order."""

    payloads: list[bytes]
    checkpoint: Checkpoint | None
    #: Of the log: the offset behind its last whole batch, and that batch's leader epoch.
    end_offset: int
    leader_epoch: int
    voter_count: int
    #: Bytes behind the last whole batch: an interrupted write.
    torn_bytes: int


class _Batch(NamedTuple):
    header: BatchHeader
    data: bytes


class _Torn(Exception):
    """No whole batch here."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def find_checkpoints(directory: Path) -> list[Checkpoint]:
    """The newest first; half-written ones have another name."""
    found = []
    for path in directory.iterdir():
        match = _CHECKPOINT_NAME.fullmatch(path.name)
        if match is not None:
            found.append(Checkpoint(int(match[1]), int(match[2]), path))
    return sorted(found, reverse=True)


def find_segments(directory: Path) -> list[LogSegment]:
    found = []
    for path in directory.iterdir():
        parsed = parse_segment_file_name(path.name)
        if parsed is not None and parsed[1] == LOG_SUFFIX:
            found.append(LogSegment(parsed[0], path))
    return sorted(found)


def read_metadata(directory: Path) -> MetadataHistory:
    """Raises ``UnreadableMetadata``, or ``OSError``."""
    segments = find_segments(directory)
    log_start = segments[0].base_offset if segments else None
    problems = []
    for checkpoint in find_checkpoints(directory):
        if log_start is not None and log_start > checkpoint.end_offset:
            break
        try:
            return _HistoryReader(directory, checkpoint).read(segments)
        except _Torn as torn:
            problems.append(f"{checkpoint.path.name} at byte {torn.position}: {torn}")
    if log_start == 0:
        return _HistoryReader(directory, None).read(segments)
    raise UnreadableMetadata(
        f"{directory}: no checkpoint reaches the beginning of the log"
        f" ({'no log' if log_start is None else f'offset {log_start}'})"
        + "".join(f"; {problem}" for problem in problems)
    )


class _HistoryReader:
    """One pass over a checkpoint and the log behind it."""

    def __init__(self, directory: Path, checkpoint: Checkpoint | None) -> None:
        self._directory = directory
        self._checkpoint = checkpoint
        self._payloads: list[bytes] = []
        self._voter_count = 0
        self._start = 0 if checkpoint is None else checkpoint.end_offset
        self._end_offset = self._start
        self._leader_epoch = 0 if checkpoint is None else checkpoint.leader_epoch
        self._torn_bytes = 0

    def read(self, segments: list[LogSegment]) -> MetadataHistory:
        if self._checkpoint is not None:
            for batch in _checkpoint_batches(self._checkpoint):
                self._note(batch)
        for index, segment in enumerate(segments):
            is_last = index + 1 == len(segments)
            if is_last or segments[index + 1].base_offset > self._start:
                self._read_segment(segment, is_last)
        return MetadataHistory(
            self._payloads,
            self._checkpoint,
            self._end_offset,
            self._leader_epoch,
            self._voter_count or _voters_of_quorum_state(self._directory),
            self._torn_bytes,
        )

    def _read_segment(self, segment: LogSegment, is_last: bool) -> None:
        if segment.base_offset > self._end_offset:
            raise UnreadableMetadata(
                f"{self._directory}: the log has nothing between offsets {self._end_offset}"
                f" and {segment.base_offset}"
            )
        with segment.path.open("rb") as file:
            try:
                for batch in _batches(file):
                    self._take(segment, batch)
            except _Torn as torn:
                if not is_last:
                    raise UnreadableMetadata(
                        f"{segment.path} at byte {torn.position}: {torn}, and segments follow"
                    ) from None
                file.seek(torn.position)
                self._torn_bytes = len(file.read().rstrip(b"\0"))

    def _take(self, segment: LogSegment, batch: _Batch) -> None:
        header = batch.header
        if header.last_offset < self._start:
            return
        if header.base_offset != self._end_offset:
            raise UnreadableMetadata(
                f"{segment.path}: offset {header.base_offset} where {self._end_offset} was due"
            )
        self._note(batch)
        self._end_offset = header.next_offset
        self._leader_epoch = header.partition_leader_epoch

    def _note(self, batch: _Batch) -> None:
        try:
            for record in iter_records(batch.data, MAX_BATCH_BYTES):
                if batch.header.is_control:
                    self._voter_count = _voters(record.key, record.value) or self._voter_count
                elif record.value is not None:
                    self._payloads.append(record.value)
        except MalformedBatch as error:
            # Its sum was right: Kafka wrote something that we do not understand.
            raise UnreadableMetadata(f"offset {batch.header.base_offset}: {error}") from error


def _voters(key: bytes | None, value: bytes | None) -> int:
    """Number of voters in a control record that names them; 0 in any other."""
    if key is None or value is None or len(key) < _CONTROL_KEY.size or len(value) < 3:
        return 0
    _, control_type = _CONTROL_KEY.unpack_from(key)
    if control_type == _VOTERS:
        return value[2] - 1  # version, then a compact array
    if control_type == _LEADER_CHANGE and len(value) > 6:
        return value[6] - 1  # version, leader, then a compact array
    return 0


def _voters_of_quorum_state(directory: Path) -> int:
    try:
        state = json.loads((directory / QUORUM_STATE).read_bytes())
        return len(state.get("currentVoters") or ())
    except (OSError, ValueError, AttributeError):
        return 0


def _checkpoint_batches(checkpoint: Checkpoint) -> Iterator[_Batch]:
    """All of a checkpoint; raises ``_Torn`` unless it begins and ends as a whole one does."""
    with checkpoint.path.open("rb") as file:
        batches = list(_batches(file))
        if file.read(1):
            raise _Torn(file.tell(), "bytes that are no batch")
    kinds = [_control_type(batch) for batch in batches if batch.header.is_control]
    if not kinds or kinds[0] != _SNAPSHOT_HEADER or _control_type(batches[-1]) != _SNAPSHOT_FOOTER:
        raise _Torn(0, "no header or no footer")
    yield from batches


def _control_type(batch: _Batch) -> int:
    for record in iter_records(batch.data, MAX_BATCH_BYTES):
        if batch.header.is_control and record.key is not None:
            return int(_CONTROL_KEY.unpack_from(record.key)[1])
    return -1


def _batches(file: BinaryIO) -> Iterator[_Batch]:
    """Whole batches with right sums, up to the end of the file; raises ``_Torn`` before it."""
    position = 0
    while head := file.read(HEADER_SIZE):
        if len(head) < HEADER_SIZE:
            raise _Torn(position, "a torn header")
        header = peek_header(head)
        size = header.size_in_bytes
        if header.magic != MAGIC or not HEADER_SIZE <= size <= MAX_BATCH_BYTES:
            raise _Torn(position, "no batch")
        data = head + file.read(size - HEADER_SIZE)
        if len(data) < size:
            raise _Torn(position, "a torn batch")
        if compute_crc(data, 0, size) != header.crc:
            raise _Torn(position, "a wrong sum")
        yield _Batch(header, data)
        position += size
