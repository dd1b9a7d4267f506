"""Reads that meet cold pages, and what read_committed readers are told."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from broker.model.transaction_marker import TransactionMarker
from broker.records.builder import build_batch
from broker.records.compression import Codec
from broker.records.control import build_marker
from broker.records.header import stamp
from broker.records.record import Record
from broker.storage.cold import ColdRead
from broker.storage.log import Log
from broker.storage.log_reader import (
    MAX_RECORDS_AT_ONCE,
    MAX_REMEMBERED_ENDS,
    MAX_REMEMBERED_SEARCHES,
    LogRead,
    RecordSearch,
)
from tests.broker.storage.build import (
    NOW_MS,
    append,
    batch,
    config,
    fill,
    headers,
    new_log,
    read,
    read_all,
    reopen,
)
from tests.support.faulty_filesystem import FaultyFileSystem

SMALL = config(segment_bytes=3000, index_interval_bytes=300)


def cold_log(cold_probability: float) -> Log:
    fs = FaultyFileSystem(random.Random(3))
    log = new_log("/data", SMALL, fs)
    for number in range(100):
        append(log, batch(2, timestamp=NOW_MS + 10 * number))
    log.close()
    log = reopen("/data", SMALL, clean=True, fs=fs)
    fs.cold_probability = cold_probability
    return log


def test_a_cold_page_is_named_and_read_once_it_was_pulled() -> None:
    log = cold_log(1.0)
    found = log.read(50, 1000, 200, True)
    assert isinstance(found, ColdRead)
    for _ in range(50):
        found.pull()
        found = log.read(50, 1000, 200, True)
        if isinstance(found, LogRead):
            break
    assert isinstance(found, LogRead)
    assert found.base_offset == 50


@pytest.mark.parametrize("cold_probability", [0.0, 0.3, 0.9])
def test_every_look_up_gets_by_on_cold_pages(cold_probability: float) -> None:
    log = cold_log(cold_probability)
    assert [header.base_offset for header in read_all(log, 700)] == list(range(0, 200, 2))
    for number in random.Random(1).sample(range(100), 20):
        found = log.offset_for_timestamp(NOW_MS + 10 * number, 200)
        while isinstance(found, ColdRead):
            found.pull()
            found = log.offset_for_timestamp(NOW_MS + 10 * number, 200)
        assert found == (NOW_MS + 10 * number, 2 * number, 0)
    largest = log.max_timestamp_offset()
    while isinstance(largest, ColdRead):
        largest.pull()
        largest = log.max_timestamp_offset()
    assert largest == (NOW_MS + 991, 199, 0)


def test_real_pages_that_left_the_cache_are_pulled(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_bytes=1 << 20))
    fill(log, 2000, size=1000)
    log.close()
    log = reopen(tmp_path, config(segment_bytes=1 << 20), clean=True)
    for path in tmp_path.rglob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    assert [header.base_offset for header in read_all(log)] == list(range(2000))


def test_where_reads_ended_is_remembered_and_bounded(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    for offset in range(60):
        read(log, offset, 1)
    assert len(log._reader._ends) <= MAX_REMEMBERED_ENDS
    found = read(log, 0, 500)
    fill(log, 30)
    assert read(log, found.next_offset, 500).base_offset == found.next_offset


def test_a_reader_at_the_tail_goes_on_in_the_next_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    offset = 0
    for number in range(100):
        append(log, batch())
        found = read(log, offset)
        assert [header.base_offset for header in headers(found)] == [number]
        offset = found.next_offset
    assert len(log.segments) > 3


def test_equal_timestamps_give_the_first_record_and_compressed_ones_their_own(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, SMALL)
    for codec in Codec:
        records = [Record(index, NOW_MS + index // 2, b"k", b"v") for index in range(6)]
        append(log, build_batch(records, codec=codec))
    assert log.max_timestamp_offset() == (NOW_MS + 2, 4, 0)
    assert log.offset_for_timestamp(NOW_MS + 1, 30) == (NOW_MS + 1, 2, 0)
    log.set_high_watermark(30)
    log.set_log_start_offset(3)
    assert log.offset_for_timestamp(NOW_MS + 1, 30) == (NOW_MS + 1, 3, 0)
    log.set_log_start_offset(5)
    assert log.offset_for_timestamp(NOW_MS, 30) == (NOW_MS + 2, 5, 0)
    # The rest of that batch is older: the next one has it.
    log.set_log_start_offset(6)
    assert log.offset_for_timestamp(NOW_MS + 2, 30) == (NOW_MS + 2, 10, 0)


class Transactions:
    """Batches as a leader of another cluster wrote them."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def send(self, producer_id: int, count: int = 1) -> int:
        offset = self.log.log_end_offset
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        records = [Record(offset + index, NOW_MS, b"k", b"v" * 100) for index in range(count)]
        data = build_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
            is_transactional=True, leader_epoch=0,
        )  # fmt: skip
        self.log.append_as_follower(data, NOW_MS)
        return offset

    def end(self, producer_id: int, *, commit: bool) -> int:
        offset = self.log.log_end_offset
        marker = build_marker(TransactionMarker(producer_id, 0, commit, 0), NOW_MS)
        stamp(marker, 0, offset, 0)
        self.log.append_as_follower(marker, NOW_MS)
        return offset


def told(log: Log) -> tuple[object, object, int]:
    log.set_high_watermark(log.log_end_offset)
    return (
        log.aborted_transactions(0, log.log_end_offset),
        log.aborted_transactions(13, 14),
        log.last_stable_offset(log.log_end_offset),
    )


@pytest.mark.parametrize("how", ["open", "stop", "kill"])
def test_read_committed_readers_are_told_of_aborted_transactions(tmp_path: Path, how: str) -> None:
    log = new_log(tmp_path, config(segment_bytes=900, index_interval_bytes=100))
    story = Transactions(log)
    story.send(1, 3)
    story.send(2, 3)
    story.send(1, 3)
    story.end(1, commit=False)  # 9, aborts 0..8
    story.send(2, 3)
    story.end(2, commit=True)  # 13
    story.send(1, 2)
    story.end(1, commit=False)  # 16, aborts 14..15
    story.send(3, 2)  # open from 17 on
    story.send(1, 2)
    story.end(1, commit=False)  # 21, aborts 19..20
    assert len(log.segments) > 2
    expected = ([(1, 0), (1, 14), (1, 19)], [], 17)
    assert told(log) == expected
    if how == "stop":
        log.close()
    if how != "open":
        topic = config(segment_bytes=900, index_interval_bytes=100)
        log = reopen(tmp_path, topic, clean=how == "stop")
    assert told(log) == expected
    assert log.aborted_transactions(5, 8) == [(1, 0)]
    assert [entry.producer_id for entry in log.active_producers()] == [1, 2, 3]
    Transactions(log).end(3, commit=True)
    assert told(log)[2] == log.log_end_offset


def test_truncation_takes_transactions_back(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_bytes=900, index_interval_bytes=100))
    story = Transactions(log)
    story.send(1, 3)
    marker = story.end(1, commit=False)
    story.send(2, 3)
    story.end(2, commit=False)
    log.truncate_to(marker)
    assert log.aborted_transactions(0, 100) == []
    assert log.last_stable_offset(marker) == 0


def test_truncation_does_not_take_the_last_stable_offset_back(tmp_path: Path) -> None:
    """What ended below the high watermark stays ended, though the producers are read anew."""
    log = new_log(tmp_path)
    story = Transactions(log)
    story.send(1, 3)
    story.end(1, commit=True)
    log.set_high_watermark(log.log_end_offset)
    cut = story.send(1, 2)
    assert log.last_stable_offset(log.high_watermark) == cut
    log.truncate_to(cut)
    assert (log.high_watermark, log.last_stable_offset(log.high_watermark)) == (cut, cut)


def test_a_batch_of_many_records_is_looked_through_in_a_thread(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_bytes=1 << 20))
    count = MAX_RECORDS_AT_ONCE + 1
    append(log, batch(count, size=1))
    append(log, batch(count, timestamp=NOW_MS + 10_000, codec=Codec.GZIP))
    append(log, batch(200, size=1000, timestamp=NOW_MS + 20_000))
    for wanted, offset in (
        (NOW_MS + 500, 500),
        (NOW_MS + 10_299, count + 299),
        (NOW_MS + 20_000, 2 * count),
    ):
        search = log.offset_for_timestamp(wanted, log.log_end_offset)
        assert isinstance(search, RecordSearch)
        search.pull()
        assert log.offset_for_timestamp(wanted, log.log_end_offset) == (wanted, offset, 0)
    # Another question needs another search; few answers are kept.
    for wanted in range(NOW_MS, NOW_MS + 100):
        found = log.offset_for_timestamp(wanted, log.log_end_offset)
        assert isinstance(found, RecordSearch)
        found.pull()
    assert len(log._reader._found) == MAX_REMEMBERED_SEARCHES


def test_a_search_from_before_a_cut_is_not_believed_after_it(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_bytes=1 << 20))
    count = MAX_RECORDS_AT_ONCE + 1
    append(log, batch(5, timestamp=NOW_MS - 1000))
    append(log, batch(count, size=1))
    search = log.offset_for_timestamp(NOW_MS + 500, log.log_end_offset)
    assert isinstance(search, RecordSearch)
    log.truncate_to(5)
    search.pull()
    append(log, batch(2 * count, size=1, timestamp=NOW_MS - 1))
    found = log.offset_for_timestamp(NOW_MS + 500, log.log_end_offset)
    assert isinstance(found, RecordSearch)
    found.pull()
    assert log.offset_for_timestamp(NOW_MS + 500, log.log_end_offset) == (NOW_MS + 500, 506, 0)
