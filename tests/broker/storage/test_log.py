"""One partition's log: appends, reads, rolls, cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.model.error_code import ErrorCode
from broker.model.errors import CorruptLogError, KafkaError
from broker.records.header import peek_header
from tests.broker.storage.build import (
    NOW_MS,
    append,
    batch,
    config,
    content,
    fill,
    flush,
    headers,
    new_log,
    read,
    read_all,
    reopen,
)


def test_offsets_and_leader_epoch_are_stamped_into_the_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, batch(3), leader_epoch=7)
    info = append(log, batch(2), leader_epoch=7)
    assert (info.base_offset, info.last_offset, info.record_count) == (3, 4, 2)
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers(read(log, 0))] == [
        (0, 7),
        (3, 7),
    ]
    assert log.log_end_offset == 5


def test_a_read_inside_a_batch_gives_the_whole_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, batch(10))
    append(log, batch(10))
    assert [h.base_offset for h in headers(read(log, 13))] == [10]
    assert read(log, 13).base_offset == 10


def test_a_read_at_the_log_end_is_empty_and_beyond_it_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, batch(2))
    assert read(log, 2).region is None
    for offset in (-1, 3):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 100, 2, True)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_ends_with_the_last_whole_batch_that_fits(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    size = len(batch())
    fill(log, 10)
    found = read(log, 2, 3 * size + size // 2)
    assert [h.base_offset for h in headers(found)] == [2, 3, 4]
    assert found.next_offset == 5


def test_a_first_batch_larger_than_the_limit_is_given_only_when_asked_for(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 2, count=5)
    assert [h.base_offset for h in headers(read(log, 0, 10))] == [0]
    assert read(log, 0, 10, min_one_batch=False).region is None


def test_a_read_never_passes_the_end_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 10, count=2)
    assert [h.base_offset for h in headers(read(log, 0, end_offset=6))] == [0, 2, 4]
    # An end inside a batch keeps that batch back.
    assert [h.base_offset for h in headers(read(log, 0, end_offset=5))] == [0, 2]
    assert read(log, 4, end_offset=4).region is None


@pytest.mark.parametrize("max_bytes", [1, 1000, 5000, 20_000, 1 << 20])
def test_reading_on_meets_every_batch_once(tmp_path: Path, max_bytes: int) -> None:
    log = new_log(tmp_path)
    for number in range(400):
        append(log, batch(1 + number % 3, size=number % 700))
    assert len(log.segments) > 2
    found = read_all(log, max_bytes)
    assert [h.base_offset for h in found[1:]] == [h.next_offset for h in found[:-1]]
    assert found[-1].next_offset == log.log_end_offset


def test_the_log_rolls_when_the_segment_is_full(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_bytes=2000))
    fill(log, 30)
    assert all(segment.size <= 2000 for segment in log.segments)
    assert [segment.base_offset for segment in log.segments][:3] == [0, 11, 22]


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_bytes=1000))
    with pytest.raises(KafkaError) as refused:
        append(log, batch(20))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_the_log_rolls_when_record_time_passes_segment_ms(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_ms=1000))
    append(log, batch(timestamp=NOW_MS))
    append(log, batch(timestamp=NOW_MS + 1000))
    append(log, batch(timestamp=NOW_MS + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_the_log_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_index_bytes=48, index_interval_bytes=0))
    fill(log, 20)
    # 48 bytes hold 6 entries, and the first batch has none.
    assert [segment.base_offset for segment in log.segments][:3] == [0, 7, 14]


def test_a_change_of_config_takes_effect_with_the_next_append(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 10)
    log.set_config(config(segment_bytes=500))
    fill(log, 1)
    assert [segment.base_offset for segment in log.segments] == [0, 10]


def test_a_roll_moves_the_flushed_offset_only_when_its_sync_came_back(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 5)
    work = log.roll(NOW_MS)
    assert work is not None
    assert log.flushed_offset == 0
    work.run()
    log.on_flushed(work, None)
    assert log.flushed_offset == 5


def test_group_commit_has_one_flush_under_way(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(flush_messages=1))
    fill(log, 2)
    assert log.is_flush_due(NOW_MS)
    first = log.flush_target()
    assert first is not None
    fill(log, 2)
    assert log.flush_target() is None
    first.run()
    log.on_flushed(first, None)
    assert log.flushed_offset == 2
    flush(log)
    assert log.flushed_offset == 4
    assert log.flush_target() is None


def test_flush_ms_counts_from_the_first_append_that_no_flush_covers(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(flush_ms=1000))
    assert not log.is_flush_due(NOW_MS + 99_999)
    append(log, batch(), now_ms=NOW_MS + 5000)
    append(log, batch(), now_ms=NOW_MS + 5500)
    assert not log.is_flush_due(NOW_MS + 5999)
    assert log.is_flush_due(NOW_MS + 6000)
    flush(log)
    append(log, batch(), now_ms=NOW_MS + 20_000)
    assert not log.is_flush_due(NOW_MS + 20_999)
    assert log.is_flush_due(NOW_MS + 21_000)


def test_flush_messages_counts_records(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(flush_messages=5))
    append(log, batch(4))
    assert not log.is_flush_due(NOW_MS)
    append(log, batch(1))
    assert log.is_flush_due(NOW_MS)
    flush(log)
    assert not log.is_flush_due(NOW_MS)


def test_a_follower_stores_batches_as_they_are(tmp_path: Path) -> None:
    leader = new_log(tmp_path / "a")
    for _ in range(20):
        append(leader, batch(2), leader_epoch=3)
    data = content(read(leader, 0))
    follower = new_log(tmp_path / "b")
    info = follower.append_as_follower(data, NOW_MS)
    assert (info.base_offset, info.last_offset) == (0, 39)
    assert content(read(follower, 0)) == data
    assert follower.latest_leader_epoch == 3


def test_a_follower_refuses_damaged_and_overlapping_batches(tmp_path: Path) -> None:
    leader = new_log(tmp_path / "a")
    append(leader, batch(2))
    append(leader, batch(2))
    data = bytearray(content(read(leader, 0)))
    follower = new_log(tmp_path / "b")
    broken = bytearray(data)
    broken[-1] ^= 1
    with pytest.raises(CorruptLogError):
        follower.append_as_follower(broken, NOW_MS)
    assert follower.log_end_offset == 2
    with pytest.raises(CorruptLogError):
        follower.append_as_follower(data, NOW_MS)
    assert follower.log_end_offset == 2


def test_truncation_removes_batches_and_whole_segments(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_bytes=2000))
    fill(log, 35)
    region = read(log, 12).region
    assert region is not None
    assert log.truncate_to(14)
    assert log.log_end_offset == 14
    assert region.is_stale
    assert [segment.base_offset for segment in log.segments] == [0, 11]
    append(log, batch(), leader_epoch=1)
    assert [h.base_offset for h in read_all(log)] == list(range(15))
    assert log.epoch_at(14) == 1
    assert log.end_offset_for_epoch(0) == (0, 14)


def test_truncation_inside_a_batch_removes_all_of_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 4, count=5)
    log.truncate_to(12)
    # Kafka names the target the log end offset, and fetches the batch again from there.
    assert log.log_end_offset == 12
    assert [h.base_offset for h in headers(read(log, 0))] == [0, 5]


def test_truncation_beyond_the_end_changes_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    assert not log.truncate_to(3)
    assert log.log_end_offset == 3


def test_a_log_can_start_anew_at_another_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    append(log, batch())
    assert [h.base_offset for h in read_all(log)] == [100]


def test_an_empty_log_may_begin_amid_a_batch(tmp_path: Path) -> None:
    leader, follower = new_log(tmp_path / "a"), new_log(tmp_path / "b")
    for _ in range(2):
        append(leader, batch(5), leader_epoch=3)
    data = content(read(leader, 7))
    assert [each.base_offset for each in headers(read(leader, 7))] == [5]
    follower.truncate_fully_and_start_at(7)
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(CorruptLogError):
        follower.append_as_follower(damaged, NOW_MS)
    assert (follower.log_start_offset, follower.log_end_offset) == (7, 7)
    follower.append_as_follower(data, NOW_MS)
    assert (follower.log_start_offset, follower.log_end_offset) == (7, 10)
    assert follower.leader_epochs.entries() == [(3, 7)]
    assert content(read(follower, 7)) == data
    with pytest.raises(CorruptLogError):
        follower.append_as_follower(data, NOW_MS)  # once is enough
    follower.close(clean=True)
    again = reopen(tmp_path / "b", clean=True, log_start_offset=7)
    assert (again.log_start_offset, again.log_end_offset) == (7, 10)


def test_delete_records_moves_the_log_start(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 10)
    log.set_high_watermark(8)
    assert log.set_log_start_offset(6)
    assert not log.set_log_start_offset(5)
    with pytest.raises(KafkaError) as refused:
        log.set_log_start_offset(9)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError):
        log.read(5, 100, 10, True)


def test_repeated_batches_of_an_idempotent_producer_get_their_first_offsets(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for sequence in range(7):
        append(log, batch(producer_id=9, producer_epoch=0, base_sequence=sequence))
    again = append(log, batch(producer_id=9, producer_epoch=0, base_sequence=3))
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (3, 3)
    assert log.log_end_offset == 7
    with pytest.raises(KafkaError) as refused:
        append(log, batch(producer_id=9, producer_epoch=0, base_sequence=8))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 7


def test_timestamps_are_looked_up_to_the_record(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_bytes=3000))
    for number in range(60):
        append(log, batch(3, timestamp=NOW_MS + 10 * number), leader_epoch=2)
    found = log.offset_for_timestamp(NOW_MS + 251, log.log_end_offset)
    assert found == (NOW_MS + 251, 76, 2)
    assert log.offset_for_timestamp(NOW_MS - 5, log.log_end_offset) == (NOW_MS, 0, 2)
    assert log.offset_for_timestamp(NOW_MS + 10_000, log.log_end_offset) is None
    assert log.offset_for_timestamp(NOW_MS + 251, 76) is None
    assert log.max_timestamp_offset() == (NOW_MS + 592, 179, 2)


def test_a_closed_log_opens_as_it_was(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_bytes=3000))
    for number in range(100):
        append(log, batch(2, producer_id=4, producer_epoch=1, base_sequence=2 * number), 5)
    log.close(clean=True)
    again = reopen(tmp_path, config(segment_bytes=3000), clean=True)
    assert (again.log_end_offset, again.flushed_offset) == (200, 200)
    assert again.leader_epochs.entries() == [(5, 0)]
    assert append(again, batch(2, producer_id=4, producer_epoch=1, base_sequence=198)).is_duplicate
    append(again, batch(2, producer_id=4, producer_epoch=1, base_sequence=200), 6)
    assert [h.base_offset for h in read_all(again)] == list(range(0, 202, 2))


def test_after_a_kill_everything_in_the_page_cache_is_there(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(segment_bytes=3000))
    for number in range(100):
        append(log, batch(2, producer_id=4, producer_epoch=1, base_sequence=2 * number), 5)
    end = log.segments.active
    with open(end.path(".log"), "ab") as file:
        file.write(bytes(70_000))
    again = reopen(tmp_path, config(segment_bytes=3000), clean=False)
    assert (again.log_end_offset, again.flushed_offset) == (200, 0)
    assert again.segments.active.size == end.size
    assert append(again, batch(2, producer_id=4, producer_epoch=1, base_sequence=198)).is_duplicate
    assert [h.base_offset for h in read_all(again)] == list(range(0, 200, 2))
    assert peek_header(content(read(again, 198))).partition_leader_epoch == 5
