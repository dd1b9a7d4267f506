"""Kafka's log directories as they lie on the disk: what is there, and in which state.

Reading only; the one thing done to a directory is to hold its ``.lock`` (as Kafka does), so that
no Kafka can run on it meanwhile. Meaning is given to what is found here in ``judgement``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from broker.adopt.metadata_log import METADATA_DIRECTORY
from broker.adopt.refusal import Refusal
from broker.config.properties import parse_properties
from broker.model.ids import TopicId, TopicPartition
from broker.storage.checkpoints import (
    MetaProperties,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from broker.storage.layout import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_CHECKPOINT,
    DELETE_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    STRAY_DIRECTORY_SUFFIX,
    parse_partition_directory_name,
    parse_segment_file_name,
)

#: The name that ``meta.properties`` gets in a directory whose partitions are moved away: without
#: it Kafka refuses to start there.
MOVED_META_PROPERTIES: Final = "meta.properties.adopted"
CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
_MARKS: Final = {
    DELETE_DIRECTORY_SUFFIX: "being deleted",
    FUTURE_DIRECTORY_SUFFIX: "a copy that was moving between disks",
    STRAY_DIRECTORY_SUFFIX: "set aside by Kafka",
}
#: Position of a batch's magic byte, the same in every format that Kafka ever had.
_MAGIC_POSITION: Final = 16
_STATUS: Final = struct.Struct(">qq")

Offsets = dict[TopicPartition, int]


class SourceFile(NamedTuple):
    name: str
    size: int
    modified_ns: int


class PartitionDirectory(NamedTuple):
    """A directory of one partition, its files by name."""

    path: Path
    partition: TopicPartition
    #: None when Kafka has not noted it yet.
    topic_id: TopicId | None
    files: Mapping[str, SourceFile]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())

    def segments(self) -> list[tuple[int, SourceFile]]:
        """Base offset and ``.log`` file of each segment, in order."""
        found = []
        for file in self.files.values():
            parsed = parse_segment_file_name(file.name)
            if parsed is not None and parsed[1] == LOG_SUFFIX:
                found.append((parsed[0], file))
        return sorted(found)

    def oldest_magic(self) -> int | None:
        """Of the first batch; None without one."""
        for _, file in self.segments():
            if file.size > _MAGIC_POSITION:
                with (self.path / file.name).open("rb") as log:
                    head = log.read(_MAGIC_POSITION + 1)
                return head[_MAGIC_POSITION] if len(head) > _MAGIC_POSITION else None
        return None


class SourceDirectory(NamedTuple):
    """One of Kafka's log directories, surveyed."""

    path: Path
    meta: MetaProperties
    is_clean: bool
    partitions: tuple[PartitionDirectory, ...]
    #: Checkpoint file to its offsets.
    offsets: Mapping[str, Offsets]
    #: Names of directories that hold no live partition, with what they are.
    leftovers: tuple[tuple[str, str], ...]
    has_metadata: bool

    @property
    def metadata_path(self) -> Path:
        return self.path / METADATA_DIRECTORY


class SourceLocks:
    """The ``.lock`` of each directory, as long as the ``with`` block lasts."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = list(paths)
        self._descriptors: list[int] = []

    def __enter__(self) -> SourceLocks:
        try:
            for path in self._paths:
                self._take(path)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def _take(self, path: Path) -> None:
        try:
            descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # Kafka makes it at its first start and leaves it: nothing ever ran here.
            return
        except OSError as error:
            raise Refusal(
                f"{path / LOCK_FILE} cannot be locked: {error.strerror}",
                "Run it as the user that Kafka runs as, or give this user the right to write there.",
            ) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise Refusal(
                f"{path} is in use: a Kafka that runs holds its lock",
                "Stop it first (a clean stop spares the recovery), then try again.",
            ) from None
        self._descriptors.append(descriptor)

    def _release(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []


def survey(path: Path) -> SourceDirectory:
    """Look at all of a log directory. Raises ``Refusal`` for what is none of Kafka's."""
    meta = _read_meta(path)
    partitions: list[PartitionDirectory] = []
    leftovers: list[tuple[str, str]] = []
    for entry in sorted(os.scandir(path), key=lambda found: found.name):
        if not entry.is_dir() or entry.name == METADATA_DIRECTORY:
            continue
        mark = next((what for suffix, what in _MARKS.items() if entry.name.endswith(suffix)), None)
        topic_partition = parse_partition_directory_name(entry.name)
        if mark is not None:
            leftovers.append((entry.name, mark))
        elif topic_partition is not None:
            partitions.append(_survey_partition(path / entry.name, topic_partition))
    return SourceDirectory(
        path,
        meta,
        (path / CLEAN_SHUTDOWN_FILE).exists(),
        tuple(partitions),
        {name: _read_offsets(path / name) for name in CHECKPOINTS},
        tuple(leftovers),
        (path / METADATA_DIRECTORY).is_dir(),
    )


def fingerprint(sources: Iterable[SourceDirectory]) -> str:
    """Changes when a Kafka ran on the directories since."""
    digest = hashlib.sha256()
    for source in sources:
        for path, file in _all_files(source):
            digest.update(f"{path}/{file.name}\0".encode())
            digest.update(_STATUS.pack(file.size, file.modified_ns))
    return digest.hexdigest()


def _all_files(source: SourceDirectory) -> Iterable[tuple[Path, SourceFile]]:
    directories = [partition.path for partition in source.partitions]
    if source.has_metadata:
        directories.append(source.metadata_path)
    known = {partition.path: partition.files for partition in source.partitions}
    for directory in directories:
        files = known.get(directory) or _files_in(directory)
        for name in sorted(files):
            yield directory, files[name]
    top = _files_in(source.path)
    for name in (*CHECKPOINTS, CLEAN_SHUTDOWN_FILE):
        if name in top:
            yield source.path, top[name]


def _survey_partition(path: Path, topic_partition: TopicPartition) -> PartitionDirectory:
    files = _files_in(path)
    topic_id = None
    if PARTITION_METADATA in files:
        topic_id = parse_partition_metadata((path / PARTITION_METADATA).read_bytes())
    return PartitionDirectory(path, topic_partition, topic_id, files)


def _files_in(path: Path) -> dict[str, SourceFile]:
    found = {}
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_file():
                status = entry.stat()
                found[entry.name] = SourceFile(entry.name, status.st_size, status.st_mtime_ns)
    return found


def meta_file(path: Path) -> Path:
    """``meta.properties``, also of a directory that is being moved."""
    for name in (META_PROPERTIES, MOVED_META_PROPERTIES):
        if (path / name).exists():
            return path / name
    raise Refusal(
        f"{path} holds no {META_PROPERTIES}: it is none of Kafka's log directories",
        "Name the directories of log.dirs in Kafka's server.properties.",
    )


def _read_meta(path: Path) -> MetaProperties:
    if not path.is_dir():
        raise Refusal(f"{path} is no directory", "Name the directories of Kafka's log.dirs.")
    file = meta_file(path)
    data = file.read_bytes()
    if parse_properties(data.decode("utf-8", "replace")).get("version", "").strip() != "1":
        raise Refusal(
            f"{file} is not of version 1: this directory was written for ZooKeeper",
            "Migrate it to KRaft with Kafka 3.9 first.",
        )
    meta = parse_meta_properties(data)
    if meta is None:
        raise Refusal(f"{file} names no node or no cluster")
    return meta


def _read_offsets(path: Path) -> Offsets:
    try:
        return parse_offsets(path.read_bytes()) or {}
    except FileNotFoundError:
        return {}
