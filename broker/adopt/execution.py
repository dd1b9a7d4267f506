"""Carrying a plan out, in steps that may be interrupted anywhere and gone on with.

Everything is made in the staging directory. A partition's directory gets its name when it is whole;
the last file of the logs is the clean-shutdown mark; then all is synced and the plan marked as
staged. From there only renames are left: store, logs, settings, then the report, and the staging
directory goes. With ``Mode.MOVE`` the source's ``meta.properties`` is renamed before anything else,
so that no Kafka starts on directories of which some are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker.adopt.disk import Disk
from broker.adopt.names import LOGS, METADATA, PLAN, REPORT, SETTINGS, STAGING
from broker.adopt.partition_files import finished_compaction
from broker.adopt.plan import Mode, PartitionPlan, Plan, encode_plan, encode_report
from broker.adopt.settings import render_properties
from broker.adopt.source import MOVED_META_PROPERTIES
from broker.adopt.store_writer import write_store
from broker.model.ids import TopicPartition
from broker.storage.checkpoints import (
    encode_offsets,
    encode_partition_metadata,
    parse_topic_id,
)
from broker.storage.filesystem import RealFileSystem
from broker.storage.layout import (
    BOOT_ID_FILE,
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    PARTITION_METADATA,
    parse_partition_directory_name,
)

_PARTIAL_SUFFIX: Final = ".partial"

#: Partitions done, of how many, bytes copied, of how many.
Progress = Callable[[int, int, int, int], None]


class Execution:
    """See the module's docstring."""

    def __init__(self, data: Path, plan: Plan, disk: Disk, on_progress: Progress) -> None:
        self._data = data
        self._staging = data / STAGING
        self._logs = self._staging / LOGS
        self._plan = plan
        self._disk = disk
        self._on_progress = on_progress
        self._partitions_done = 0
        self._bytes_done = 0
        self._bytes_total = sum(partition.copied_bytes for partition in plan.partitions)

    def run(self) -> None:
        if not self._plan.is_staged:
            self._stage()
        self._publish()

    # Staging ---------------------------------------------------------------------------------

    def _stage(self) -> None:
        disk, plan = self._disk, self._plan
        disk.make_directory(self._staging)
        disk.write(self._staging / PLAN, encode_plan(plan))
        disk.make_directory(self._logs)
        if plan.mode is Mode.MOVE:
            for source in map(Path, plan.sources):
                if (source / META_PROPERTIES).exists():
                    disk.rename(source / META_PROPERTIES, source / MOVED_META_PROPERTIES)
                    disk.sync_directory(source)
        for partition in plan.partitions:
            self._stage_partition(partition)
            self._partitions_done += 1
            self._tell()
        self._write_directory_files()
        disk.remove_tree(self._staging / METADATA)
        write_store(self._staging / METADATA, plan)
        disk.write(self._staging / SETTINGS, render_properties(plan.settings).encode())
        disk.sync_all(self._staging)
        disk.write(self._staging / PLAN, encode_plan(replace(plan, is_staged=True)))

    def _stage_partition(self, partition: PartitionPlan) -> None:
        target = self._logs / partition.name
        partial = self._logs / f"{partition.name}{_PARTIAL_SUFFIX}"
        if target.exists():
            self._bytes_done += partition.copied_bytes
            return
        if self._plan.mode is Mode.MOVE:
            if not partial.exists():
                self._disk.rename(Path(partition.source) / partition.name, partial)
            self._finish_compaction(partial)
        else:
            self._disk.remove_tree(partial)
            self._disk.make_directory(partial)
            self._bring_files(partition, partial)
        topic_id = parse_topic_id(partition.topic_id) if partition.topic_id is not None else None
        if topic_id is not None:
            self._disk.write(partial / PARTITION_METADATA, encode_partition_metadata(topic_id))
        self._disk.rename(partial, target)

    def _bring_files(self, partition: PartitionPlan, target: Path) -> None:
        source = Path(partition.source) / partition.name
        for name, source_name in partition.link.items():
            if not self._disk.link(source / source_name, target / name):
                self._disk.copy(source / source_name, target / name, self._count_bytes)
        for name, source_name in partition.copy.items():
            self._disk.copy(source / source_name, target / name, self._count_bytes)

    def _finish_compaction(self, directory: Path) -> None:
        names = [path.name for path in directory.iterdir()]
        finish, drop = finished_compaction(directory, names)
        for name in sorted(drop):
            self._disk.remove(directory / name)
        for name, swap in sorted(finish.items()):
            self._disk.rename(directory / swap, directory / name)

    def _write_directory_files(self) -> None:
        disk, plan, logs = self._disk, self._plan, self._logs
        disk.write(logs / META_PROPERTIES, plan.meta_properties.encode())
        for name, lines in plan.offsets.items():
            offsets = [(TopicPartition(topic, index), offset) for topic, index, offset in lines]
            disk.write(logs / name, encode_offsets(offsets))
        # As if we had been killed a moment ago: then what recovery does not understand is damage,
        # told and left alone, and not the loss of power after which ends of logs are dropped.
        disk.write(logs / BOOT_ID_FILE, RealFileSystem().boot_id().encode())
        if plan.clean_mark is not None:
            disk.write(logs / CLEAN_SHUTDOWN_FILE, plan.clean_mark.encode())

    def _count_bytes(self, count: int) -> None:
        self._bytes_done += count
        self._tell()

    def _tell(self) -> None:
        self._on_progress(
            self._partitions_done,
            len(self._plan.partitions),
            self._bytes_done,
            max(self._bytes_total, self._bytes_done),
        )

    # Publishing ------------------------------------------------------------------------------

    def _publish(self) -> None:
        disk, data, staging = self._disk, self._data, self._staging
        for name in (METADATA, LOGS, SETTINGS):
            if (staging / name).exists():
                disk.rename(staging / name, data / name)
        disk.sync_directory(data)
        disk.write(data / REPORT, encode_report(self._plan.report))
        disk.remove(staging / PLAN)
        disk.remove_directory(staging)
        disk.sync_directory(data)


def staged_partitions(data: Path) -> list[str]:
    """Names of partition directories in the staging directory, whole or not."""
    logs = data / STAGING / LOGS
    if not logs.is_dir():
        return []
    names = [path.name.removesuffix(_PARTIAL_SUFFIX) for path in logs.iterdir() if path.is_dir()]
    return [name for name in names if parse_partition_directory_name(name) is not None]
