"""One adoption from beginning to end: look, judge, write the plan, carry it out.

Both sides are locked first: the data directory (no broker of ours, no second adoption), then each of
Kafka's directories. Called again after an interruption it goes on where it was, unless a Kafka has
run on the directories meanwhile: then what was linked or copied is thrown away and made anew.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from broker.adopt.disk import Disk
from broker.adopt.execution import Execution, Progress, staged_partitions
from broker.adopt.judgement import Circumstances, judge
from broker.adopt.kafka_metadata import InconsistentMetadata, KafkaMetadata
from broker.adopt.metadata_log import MetadataHistory, UnreadableMetadata, read_metadata
from broker.adopt.metadata_record import MalformedRecord
from broker.adopt.names import DATA_LOCK, LOGS, METADATA, PLAN, REPORT, SETTINGS, STAGING
from broker.adopt.plan import Mode, Plan, Report, decode_plan, decode_report
from broker.adopt.refusal import Refusal
from broker.adopt.settings import Settings, choose_settings
from broker.adopt.source import SourceDirectory, SourceLocks, fingerprint, meta_file, survey
from broker.config.properties import parse_properties
from broker.storage.filesystem import RealFileSystem
from broker.storage.layout import META_PROPERTIES, SNAPSHOT_SUFFIX
from broker.storage.producer_snapshot import CorruptSnapshot, decode_snapshot

#: Room that is left free besides what is copied.
_SPARE_BYTES: Final = 64 * 1024 * 1024


class Options(NamedTuple):
    sources: Sequence[Path]
    data: Path
    #: Kafka's server.properties.
    config: Path | None = None
    mode: Mode = Mode.LINK
    is_salvage: bool = False


class Adopted(NamedTuple):
    """``is_new`` False: it had been done before."""

    report: Report
    is_new: bool


def adopt(options: Options, disk: Disk, on_progress: Progress) -> Adopted:
    """Raises ``Refusal`` (nothing was changed) or ``OSError`` (called again, it goes on)."""
    options = options._replace(sources=_distinct(options.sources), data=options.data.resolve())
    _check_apart(options)
    options.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(options.data):
        done = _earlier_report(options, disk)
        if done is not None:
            return Adopted(done, is_new=False)
        begun = _begun_plan(options)
        if begun is not None and begun.is_staged:
            plan = begun
            Execution(options.data, plan, disk, on_progress).run()
            return Adopted(plan.report, is_new=True)
        with SourceLocks(options.sources):
            if begun is not None and _has_begun_to_move(begun, options.data):
                plan = begun
            else:
                plan = make_plan(options, disk)
                _prepare(options, plan, begun, disk)
            Execution(options.data, plan, disk, on_progress).run()
        return Adopted(plan.report, is_new=True)


def make_plan(options: Options, disk: Disk) -> Plan:
    """Look at everything and decide; changes nothing. The directories are locked."""
    sources = [survey(path) for path in options.sources]
    history, metadata = _read_newest_metadata(sources, options)
    settings = _read_settings(options, sources)
    plan = judge(
        Circumstances(
            sources,
            fingerprint(sources),
            metadata,
            history,
            settings,
            options.mode,
            options.is_salvage,
            0 if metadata is not None else _next_seen_producer_id(sources),
        )
    )
    return _with_real_costs(plan, options, disk)


# What was there before ---------------------------------------------------------------------------


def _earlier_report(options: Options, disk: Disk) -> Report | None:
    """Of an adoption that is finished, but perhaps for its empty staging directory."""
    data = options.data
    if not (data / REPORT).exists() or _holds_something(data / STAGING):
        return None
    if (data / STAGING).exists():
        disk.remove_directory(data / STAGING)
    report = decode_report(json.loads((data / REPORT).read_bytes()))
    if set(report.sources) == {str(source) for source in options.sources}:
        return report
    raise Refusal(
        f"{data} was made by adopting {', '.join(report.sources)}",
        "Choose another directory with --data DIR.",
    )


def _begun_plan(options: Options) -> Plan | None:
    """The plan of an interrupted adoption of the same directories."""
    data = options.data
    staging = data / STAGING
    plan = None
    if (staging / PLAN).exists():
        plan = decode_plan((staging / PLAN).read_bytes())
    if plan is None and staged_partitions(data):
        # They may have been moved here, and be the only ones.
        raise Refusal(
            f"{staging} holds an adoption that another version of Odradek began",
            "Finish it with that version, or remove the directory if nothing was moved.",
        )
    if plan is None:
        _refuse_used(data)
    elif set(plan.sources) != {str(source) for source in options.sources}:
        raise Refusal(
            f"{staging} holds an unfinished adoption of {', '.join(plan.sources)}",
            "Name those directories to go on with it.",
        )
    return plan


def _has_begun_to_move(plan: Plan, data: Path) -> bool:
    """Whether only this plan leads to a whole directory again."""
    if plan.mode is not Mode.MOVE:
        return False
    is_whole = all((Path(source) / META_PROPERTIES).exists() for source in plan.sources)
    return not is_whole or bool(staged_partitions(data))


def _refuse_used(data: Path) -> None:
    used = [name for name in (LOGS, METADATA) if _holds_something(data / name)]
    if (data / SETTINGS).exists():
        used.append(SETTINGS)
    if used:
        raise Refusal(
            f"{data} is not new: it holds {' and '.join(used)}",
            "Choose a new directory with --data DIR.",
        )


def _holds_something(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def _prepare(options: Options, plan: Plan, begun: Plan | None, disk: Disk) -> None:
    """Throw away what an earlier try made of something else; look for room."""
    if begun == plan:
        return
    disk.remove_tree(options.data / STAGING)
    needed = sum(partition.copied_bytes for partition in plan.partitions) + _SPARE_BYTES
    free = RealFileSystem().free_bytes(str(options.data))
    if needed > free:
        raise Refusal(
            f"{options.data} has {free} bytes free, {needed} are needed",
            "Choose a directory on Kafka's own file system, where segments are linked, or --move.",
        )


# What Kafka left ---------------------------------------------------------------------------------


def _read_newest_metadata(
    sources: Sequence[SourceDirectory], options: Options
) -> tuple[MetadataHistory | None, KafkaMetadata | None]:
    """Of several metadata logs the one that goes furthest."""
    with_metadata = [source for source in sources if source.has_metadata]
    if not with_metadata:
        if options.is_salvage:
            return None, None
        raise Refusal(
            "no directory holds __cluster_metadata-0: topics and their settings are not known",
            "Name the directory of metadata.log.dir too; or --salvage takes the topics as the "
            "directories show them, and deletes nothing of them.",
        )
    try:
        histories = [read_metadata(source.metadata_path) for source in with_metadata]
        newest = max(histories, key=lambda history: (history.leader_epoch, history.end_offset))
        return newest, KafkaMetadata.replay(newest.payloads)
    except (UnreadableMetadata, InconsistentMetadata, MalformedRecord) as error:
        raise Refusal(f"Kafka's metadata cannot be read: {error}") from error


def _read_settings(options: Options, sources: Sequence[SourceDirectory]) -> Settings | None:
    if options.config is None:
        return None
    try:
        text = options.config.read_text(encoding="utf-8")
    except OSError as error:
        raise Refusal(f"{options.config} cannot be read: {error.strerror}") from error
    home = next((source for source in sources if source.partitions), sources[0])
    return choose_settings(parse_properties(text), home.meta)


def _next_seen_producer_id(sources: Sequence[SourceDirectory]) -> int:
    highest = -1
    for source in sources:
        for partition in source.partitions:
            for name in partition.files:
                if name.endswith(SNAPSHOT_SUFFIX):
                    try:
                        entries = decode_snapshot((partition.path / name).read_bytes())
                    except CorruptSnapshot:
                        continue
                    highest = max(highest, *(entry.producer_id for entry in entries), -1)
    return highest + 1


def _with_real_costs(plan: Plan, options: Options, disk: Disk) -> Plan:
    """What cannot be linked or moved to the data directory's file system."""
    foreign = {
        source
        for source in plan.sources
        if not disk.is_one_file_system(meta_file(Path(source)), options.data)
    }
    if plan.mode is Mode.MOVE and foreign:
        raise Refusal(
            f"{', '.join(sorted(foreign))} and {options.data} are on different file systems:"
            " nothing can be moved",
            "Choose --data on Kafka's own file system, or leave --move out to copy.",
        )
    partitions = tuple(
        replace(partition, copied_bytes=partition.total_bytes)
        if partition.source in foreign
        else partition
        for partition in plan.partitions
    )
    return replace(plan, partitions=partitions)


# Places ------------------------------------------------------------------------------------------


def _distinct(paths: Sequence[Path]) -> list[Path]:
    return list(dict.fromkeys(path.resolve() for path in paths))


def _check_apart(options: Options) -> None:
    for source in options.sources:
        if source == options.data or source in options.data.parents:
            raise Refusal(f"{options.data} lies in {source}", "Choose another --data.")
        if options.data in source.parents:
            raise Refusal(f"{source} lies in {options.data}", "Choose another --data.")


@contextmanager
def _locked(data: Path) -> Iterator[None]:
    descriptor = os.open(data / DATA_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refusal(
                f"{data} is in use by a broker or by another adoption",
                "Stop that one first, or choose another directory with --data DIR.",
            ) from None
        yield
    finally:
        os.close(descriptor)
