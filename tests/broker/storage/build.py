"""Logs, batches and managers for storage tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.config.topic_config import DEFAULT_TOPIC_CONFIG, TopicConfig
from broker.model.ids import TopicPartition
from broker.records.builder import build_batch
from broker.records.header import BatchHeader, peek_header, walk_headers
from broker.records.record import Record
from broker.storage.append_info import AppendInfo
from broker.storage.context import StorageContext
from broker.storage.filesystem import FileSystem, RealFileSystem
from broker.storage.log import Log, RetentionOutcome
from broker.storage.log_manager import LogManager
from broker.storage.log_reader import LogRead
from broker.storage.recovery import LoadRules, create_log, load_log
from broker.storage.retention import Doomed

TP = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000


class FixedClock:
    """Both times, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.monotonic = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.monotonic


def config(**changes: Any) -> TopicConfig:
    """Small segments, and whatever the test changes."""
    return replace(DEFAULT_TOPIC_CONFIG, **{"segment_bytes": 64 * 1024, **changes})


def batch(
    count: int = 1, *, size: int = 100, timestamp: int = NOW_MS, key: bytes = b"k", **options: Any
) -> bytearray:
    records = [Record(index, timestamp + index, key, b"v" * size) for index in range(count)]
    return build_batch(records, **options)


def append(
    log: Log, data: bytearray, leader_epoch: int = 0, now_ms: int = NOW_MS, *, sync: bool = True
) -> AppendInfo:
    """As the server does it: what the roll asks for is run and reported."""
    info = log.append_as_leader(data, peek_header(data), leader_epoch, now_ms)
    if info.rolled is not None:
        if sync:
            info.rolled.run()
        log.on_flushed(info.rolled, None if sync else OSError("not run"))
    return info


def fill(log: Log, batches: int, **options: Any) -> None:
    for _ in range(batches):
        append(log, batch(**options))


def flush(log: Log) -> None:
    work = log.flush_target()
    if work is not None:
        work.run()
        log.on_flushed(work, None)


def retain(manager: LogManager, log: Log, now_ms: int = NOW_MS) -> list[Doomed]:
    """As the server does it: choose, write the new start down, take."""
    while not isinstance(outcome := log.condemn(now_ms), RetentionOutcome):
        outcome.pull()
    if outcome.flush is not None:
        outcome.flush.run()
        log.on_flushed(outcome.flush, None)
    for work in manager.log_start_work():
        work.run()
    taken: list[Doomed] = []
    for step in manager.delete_condemned(log):
        if step.wait is not None:
            step.wait()
        if step.outcome is not None:
            taken += step.outcome.doomed
    return taken


def read(log: Log, start_offset: int, max_bytes: int = 1 << 20, **options: Any) -> LogRead:
    """A read that waits for cold pages."""
    options = {"end_offset": log.log_end_offset, "min_one_batch": True, **options}
    while True:
        found = log.read(start_offset, max_bytes, **options)
        if isinstance(found, LogRead):
            return found
        found.pull()


def content(found: LogRead) -> bytes:
    region = found.region
    return b"" if region is None else region.file.pread(region.length, region.position)  # type: ignore[attr-defined]


def headers(found: LogRead) -> list[BatchHeader]:
    return [header for _, header in walk_headers(content(found))]


def read_all(log: Log, max_bytes: int = 1 << 20) -> list[BatchHeader]:
    """Every batch header, by reading on and on as a consumer does."""
    found: list[BatchHeader] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = read(log, offset, max_bytes)
        assert part.region is not None, f"nothing to read at {offset} of {log}"
        found += headers(part)
        assert part.next_offset > offset
        offset = part.next_offset
    return found


def new_log(
    directory: Path | str, topic_config: TopicConfig | None = None, fs: FileSystem | None = None
) -> Log:
    fs = fs or RealFileSystem(64)
    path = f"{directory}/{TP}"
    fs.make_directory(path)
    context = StorageContext(fs, str(directory))
    return create_log(context, path, TP, topic_config or config(), 0, NOW_MS)


def reopen(
    directory: Path | str,
    topic_config: TopicConfig | None = None,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    power_was_lost: bool = False,
    fs: FileSystem | None = None,
) -> Log:
    context = StorageContext(fs or RealFileSystem(64), str(directory))
    rules = LoadRules(recovery_point, log_start_offset, clean, power_was_lost, NOW_MS)
    return load_log(context, f"{directory}/{TP}", TP, topic_config or config(), rules)


def open_manager(
    dirs: Sequence[Path | str],
    topic_config: TopicConfig | None = None,
    *,
    fs: FileSystem | None = None,
    clock: FixedClock | None = None,
    **options: Any,
) -> LogManager:
    settings = {"cluster_id": "cluster", "node_id": 1, **options}
    manager = LogManager(
        [str(path) for path in dirs], fs or RealFileSystem(64), clock or FixedClock(), **settings
    )
    manager.open(lambda topic_partition: topic_config or config())
    return manager
