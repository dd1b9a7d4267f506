"""Apache Kafka's dump-log tool reads every file that storage writes, without a complaint."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.model.ids import TopicPartition
from broker.model.transaction_marker import TransactionMarker
from broker.records.builder import build_batch
from broker.records.control import build_marker
from broker.records.header import peek_header, stamp
from broker.records.record import Record
from broker.storage.log import Log
from tests.broker.storage.build import (
    NOW_MS,
    append,
    batch,
    config,
    flush,
    open_manager,
    retain,
)
from tests.support import apache, dump_log

pytestmark = pytest.mark.conformance


def fill_at_random(log: Log, rng: random.Random, count: int) -> None:
    """Batches of all sizes, some of idempotent producers, timestamps out of order."""
    sequences: dict[int, int] = {}
    for _ in range(count):
        records = rng.randrange(1, 6)
        options = {}
        producer_id = rng.choice((-1, 7, 8))
        if producer_id >= 0:
            sequence = sequences.get(producer_id, 0)
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            sequences[producer_id] = sequence + records
        timestamp = NOW_MS + rng.randrange(1_000_000)
        append(log, batch(records, size=rng.randrange(900), timestamp=timestamp, **options), 3)


def fill_with_transactions(log: Log) -> None:
    """As a follower or an adopted directory gets them: aborted and committed, interleaved."""
    for number in range(40):
        offset = log.log_end_offset
        producer_id = 100 + number % 3
        data = build_batch(
            [Record(offset, NOW_MS + number, b"k", b"v" * 200)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number // 3,
            is_transactional=True,
            leader_epoch=1,
        )
        log.append_as_follower(data, NOW_MS)
        if number % 4 == 3:
            marker = build_marker(
                TransactionMarker(producer_id, 0, number % 8 == 3, 2), NOW_MS + number
            )
            stamp(marker, 0, log.log_end_offset, 1)
            log.append_as_follower(marker, NOW_MS)


@pytest.mark.parametrize("is_mapped", [False, True])
def test_everything_that_is_written_is_sound(tmp_path: Path, is_mapped: bool) -> None:
    apache.require_jars()
    rng = random.Random(1)
    manager = open_manager([tmp_path / "logs"], max_mapped_tails=256 * is_mapped)
    logs = [
        manager.get_or_create(TopicPartition("t", index), None, config(segment_bytes=40_000))
        for index in range(5)
    ]
    plain, cut, trimmed, transactional, _untouched = logs
    for log in (plain, cut, trimmed):
        if is_mapped:
            log._heat()
        fill_at_random(log, rng, 150)
    fill_with_transactions(transactional)
    boundary = cut.read(cut.log_end_offset // 2, 1, cut.log_end_offset, True)
    cut.truncate_to(boundary.base_offset)  # type: ignore[union-attr]
    fill_at_random_anew(cut)
    trimmed.set_high_watermark(trimmed.log_end_offset)
    trimmed.set_log_start_offset(trimmed.log_end_offset // 2)
    for log in logs:
        retain(manager, log)
    for log in logs:
        log.trim()
    # Active segments, trimmed.
    dumps = dump_log.check(tmp_path / "logs")
    assert sum(len(dump.batches) for dump in dumps.values()) > 300

    for log in logs:
        flush(log)
    kept = {log.topic_partition: log.log_end_offset for log in logs}
    manager.directories[str(tmp_path / "logs")].close()
    manager = open_manager([tmp_path / "logs"], max_mapped_tails=256 * is_mapped)
    # After a kill and its recovery.
    dump_log.check(tmp_path / "logs")
    assert {tp: log.log_end_offset for tp, log in manager.logs.items()} == kept
    manager.close()
    # After a clean stop.
    dump_log.check(tmp_path / "logs")
    assert list((tmp_path / "logs").rglob("*.snapshot"))
    assert list((tmp_path / "logs").rglob("*.txnindex"))


def fill_at_random_anew(log: Log) -> None:
    for _ in range(60):
        data = batch(2, size=300)
        log.append_as_leader(data, peek_header(data), 4, NOW_MS)
