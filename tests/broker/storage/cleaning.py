"""Compacted logs for tests: filled at random, cleaned in this process, read as consumers do."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from broker.config.topic_config import TopicConfig
from broker.model.ids import TopicPartition
from broker.model.transaction_marker import TransactionMarker
from broker.records.batch import iter_records
from broker.records.builder import build_batch
from broker.records.compression import Codec
from broker.records.control import build_marker, parse_marker
from broker.records.header import stamp, walk_headers
from broker.records.record import Record
from broker.storage.cleaning.cleaner import clean
from broker.storage.cleaning.job import CleanedGroup, CleaningJob, RoundResult
from broker.storage.cleaning.plan import Cleanable, CleanerLimits, cleanable, job_for
from broker.storage.cleaning.throttle import Throttle
from broker.storage.cold import ColdRead
from broker.storage.filesystem import FileSystem
from broker.storage.layout import CLEANED_SUFFIX
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.segment_swap import SegmentSwap
from tests.broker.storage.build import NOW_MS, config, content, flush, read

TP = TopicPartition("compacted", 0)
#: A table for many keys.
ROOMY = CleanerLimits(1 << 20, 0.9, 1 << 16, 1e18)


def compacted(**changes: Any) -> TopicConfig:
    return config(
        cleanup_policy=frozenset({"compact"}),
        **{
            "segment_bytes": 3000,
            "index_interval_bytes": 300,
            "delete_retention_ms": 1000,
            **changes,
        },
    )


class Told(NamedTuple):
    """A committed record as its producer sent it."""

    offset: int
    timestamp: int
    value: bytes | None


class Story:
    """What was written to a log, at random; the plain reference of what must be in it."""

    def __init__(self, log: Log, rng: random.Random, keys: int = 20) -> None:
        self.log = log
        self.rng = rng
        self.keys = keys
        self.last: dict[bytes, Told] = {}
        self.sequences: dict[int, int] = {}
        self.open: dict[int, dict[bytes, Told]] = {}
        #: First offsets of open transactions.
        self.open_from: dict[int, int] = {}
        self.now_ms = NOW_MS

    def write(self, batches: int) -> None:
        for _ in range(batches):
            self.now_ms += 1
            producer_id = self.rng.choice((-1, -1, 5, 100, 101))
            if producer_id in self.open and self.rng.random() < 0.4:
                self.end(producer_id)
            else:
                self.append(producer_id)

    def append(self, producer_id: int) -> None:
        rng, base = self.rng, self.log.log_end_offset
        records = [
            Record(
                base + index,
                self.now_ms + rng.randrange(-3, 3),
                b"key-%d" % rng.randrange(self.keys),
                None if rng.random() < 0.15 else rng.randbytes(rng.randrange(120)),
                [("h", b"x")] if rng.random() < 0.1 else [],
            )
            for index in range(rng.randrange(1, 8))
        ]
        options: dict[str, Any] = {}
        told = {
            record.key: Told(record.offset, record.timestamp, record.value) for record in records
        }
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(records)
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        if producer_id >= 100:
            options["is_transactional"] = True
            self.open.setdefault(producer_id, {}).update(told)  # type: ignore[arg-type]
            self.open_from.setdefault(producer_id, base)
        else:
            self.last.update(told)  # type: ignore[arg-type]
        codec = rng.choice(
            (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY)
        )
        self._store(build_batch(records, codec=codec, base_offset=base, **options))

    def end(self, producer_id: int) -> None:
        told = self.open.pop(producer_id)
        del self.open_from[producer_id]
        is_commit = self.rng.random() < 0.6
        if is_commit:
            for key, each in told.items():
                if key not in self.last or self.last[key].offset < each.offset:
                    self.last[key] = each
        self._store(build_marker(TransactionMarker(producer_id, 0, is_commit, 1), self.now_ms))

    def end_all(self) -> None:
        for producer_id in list(self.open):
            self.end(producer_id)

    def _store(self, batch: bytearray) -> None:
        stamp(batch, 0, self.log.log_end_offset, 0)
        info = self.log.append_as_follower(batch, self.now_ms)
        if info.rolled is not None:
            info.rolled.run()
            self.log.on_flushed(info.rolled, None)

    def seal(self) -> None:
        """Everything may be cleaned, but for what open transactions hold back."""
        rolled = self.log.roll(self.now_ms)
        if rolled is not None:
            rolled.run()
            self.log.on_flushed(rolled, None)
        flush(self.log)
        self.log.set_high_watermark(self.log.log_end_offset)

    def expected(self) -> dict[bytes, Told]:
        return {key: told for key, told in self.last.items() if told.value is not None}


def look_at(log: Log, now_ms: int) -> Cleanable:
    while isinstance(found := cleanable(log, now_ms), ColdRead):
        found.pull()
    return found


def clean_once(
    manager: LogManager,
    log: Log,
    now_ms: int,
    limits: CleanerLimits = ROOMY,
    fs: FileSystem | None = None,
    throttle: Throttle | None = None,
) -> RoundResult:
    """One round, as broker and child do it together."""
    what = look_at(log, now_ms)
    for work in manager.checkpoint_work():
        work.run()
    job = job_for(log, what, list(log.producers.entries.values()), limits, now_ms)
    job = CleaningJob.from_json(json.loads(json.dumps(job.to_json())))
    segments = {segment.base_offset: segment for segment in what.segments}

    def put_in_place(group: CleanedGroup) -> bool:
        for step in SegmentSwap(log, [segments[at] for at in group.old], group).steps():
            if step is not None:
                step.run()
        return True

    try:
        result = clean(
            fs or log.fs, job, put_in_place, throttle or Throttle(limits.io_bytes_per_second)
        )
    except Exception:  # not of a crash, which runs nothing any more
        for entry in log.fs.list_directory(log.directory):
            if entry.name.endswith(CLEANED_SUFFIX):
                log.fs.remove(f"{log.directory}/{entry.name}")
        raise
    log.cleaned_offset = result.end_offset
    manager.cleaner_work(log).run()
    return result


def clean_all(manager: LogManager, log: Log, now_ms: int, limits: CleanerLimits = ROOMY) -> int:
    """Rounds until nothing is dirty; gives how many."""
    rounds = 0
    while look_at(log, now_ms).dirty_bytes:
        before = log.cleaned_offset
        clean_once(manager, log, now_ms, limits)
        assert log.cleaned_offset > before, "a round must get on"
        rounds += 1
    return rounds


def batches_of(log: Log) -> list[bytes]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        part = read(log, offset)
        if part.region is None:
            break
        data = content(part)
        found += [data[at : at + header.size_in_bytes] for at, header in walk_headers(data)]
        offset = part.next_offset
    return found


def committed(log: Log, open_from: Mapping[int, int] = MappingProxyType({})) -> list[Record]:
    """What a read_committed consumer from the beginning is given, as Java's does it.

    It would stop at the first open transaction; this goes on, and passes its batches over.
    """
    while isinstance(
        aborted := log.aborted_transactions(log.log_start_offset, log.log_end_offset), ColdRead
    ):
        aborted.pull()
    coming, now_aborted = list(aborted), set()
    seen: list[Record] = []
    for batch in batches_of(log):
        ((_, header),) = walk_headers(batch)
        while coming and coming[0][1] <= header.last_offset:
            now_aborted.add(coming.pop(0)[0])
        if header.is_control:
            marker = parse_marker(batch)
            if marker is not None and not marker.is_commit:
                now_aborted.discard(header.producer_id)
        elif header.base_offset >= open_from.get(header.producer_id, log.log_end_offset):
            pass
        elif not (header.is_transactional and header.producer_id in now_aborted):
            seen += iter_records(batch, 1 << 20)
    return seen


def latest(records: list[Record]) -> dict[bytes, Told]:
    """Of each key what a reader of all of them believes in the end."""
    found: dict[bytes, Told] = {}
    for record in records:
        assert record.key is not None
        found[record.key] = Told(record.offset, record.timestamp, record.value)
    return {key: told for key, told in found.items() if told.value is not None}
