"""What recovery makes of directories that crashes, bit rot and foreign hands left behind."""

from __future__ import annotations

import logging
import os
import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from broker.model.error_code import ErrorCode
from broker.model.errors import CorruptLogError, KafkaError
from broker.model.ids import TopicPartition
from broker.model.transaction_marker import TransactionMarker
from broker.records.control import build_marker
from broker.storage import log as log_module
from broker.storage.log import Log
from broker.storage.producer_state import ProducerEntry
from broker.storage.segment import Segment
from tests.broker.storage.build import (
    NOW_MS,
    TP,
    append,
    batch,
    config,
    fill,
    flush,
    headers,
    new_log,
    open_manager,
    read,
    read_all,
    reopen,
)
from tests.broker.storage.check import check_indexes, check_producers
from tests.support.faulty_filesystem import FaultyFileSystem, disk_full

SMALL = config(segment_bytes=2000, index_interval_bytes=200)


def segments_of(directory: Path) -> list[Path]:
    return sorted((directory / str(TP)).glob("*.log"))


def filled(directory: Path, batches: int = 40) -> Log:
    log = new_log(directory, SMALL)
    for number in range(batches):
        append(log, batch(timestamp=NOW_MS + number), leader_epoch=number // 10)
    return log


def bases(log: Log) -> list[int]:
    return [header.base_offset for header in read_all(log)]


@pytest.mark.parametrize("cut", [1, 12, 60, 61, 100, 170])
def test_a_torn_last_batch_is_cut(tmp_path: Path, cut: int) -> None:
    filled(tmp_path)
    last = segments_of(tmp_path)[-1]
    os.truncate(last, last.stat().st_size - cut)
    log = reopen(tmp_path, SMALL, clean=False)
    assert bases(log) == list(range(39))
    assert last.stat().st_size == log.segments.active.size
    check_indexes(log)
    append(log, batch())
    assert bases(log) == list(range(40))


def test_only_the_tail_from_the_recovery_point_is_judged(tmp_path: Path) -> None:
    filled(tmp_path)
    first = segments_of(tmp_path)[0]
    data = bytearray(first.read_bytes())
    data[300] ^= 1
    first.write_bytes(data)
    log = reopen(tmp_path, SMALL, clean=False, recovery_point=22)
    assert log.log_end_offset == 40


def test_damage_above_the_recovery_point_with_segments_behind_it_is_for_a_human(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    first = segments_of(tmp_path)[0]
    data = bytearray(first.read_bytes())
    data[300] ^= 1
    first.write_bytes(data)
    before = [path.read_bytes() for path in segments_of(tmp_path)]
    with pytest.raises(CorruptLogError) as damage:
        reopen(tmp_path, SMALL, clean=False)
    assert (damage.value.position, damage.value.offset) == (171, 1)
    assert [path.read_bytes() for path in segments_of(tmp_path)] == before


def test_after_a_power_loss_the_log_ends_before_the_first_lost_byte(tmp_path: Path) -> None:
    filled(tmp_path)
    second = segments_of(tmp_path)[1]
    data = bytearray(second.read_bytes())
    data[300:] = bytes(len(data) - 300)
    second.write_bytes(data)
    log = reopen(tmp_path, SMALL, clean=False, recovery_point=5, power_was_lost=True)
    assert bases(log) == list(range(12))
    assert log.leader_epochs.entries() == [(0, 0), (1, 10)]
    check_indexes(log)


def test_after_a_power_loss_segments_behind_a_lost_one_are_dropped(tmp_path: Path) -> None:
    filled(tmp_path)
    segments_of(tmp_path)[1].unlink()
    log = reopen(tmp_path, SMALL, clean=False, power_was_lost=True)
    assert bases(log) == list(range(11))


def test_gaps_of_a_compacted_topic_are_no_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    segments_of(tmp_path)[1].unlink()
    compacted = config(
        segment_bytes=2000, index_interval_bytes=200, cleanup_policy=frozenset({"compact"})
    )
    log = reopen(tmp_path, compacted, clean=False, power_was_lost=True)
    assert log.log_end_offset == 40


def test_damage_below_the_recovery_point_is_never_cut(tmp_path: Path) -> None:
    filled(tmp_path)
    last = segments_of(tmp_path)[-1]
    os.truncate(last, last.stat().st_size - 10)
    with pytest.raises(CorruptLogError):
        reopen(tmp_path, SMALL, clean=False, recovery_point=40, power_was_lost=True)


def test_a_falling_leader_epoch_ends_the_log(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for leader_epoch in (1, 1, 3, 2, 4):
        data = batch()
        log.append_as_leader(data, headers_of(data), leader_epoch, NOW_MS)
    assert bases(reopen(tmp_path, clean=False, power_was_lost=True)) == [0, 1, 2]


def headers_of(data: bytearray):  # type: ignore[no-untyped-def]
    from broker.records.header import peek_header

    return peek_header(data)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: None,
        lambda data: b"",
        lambda data: data[:-3],
        lambda data: data + bytes(10 << 20),
        lambda data: bytes(10 << 20),
        lambda data: b"\xee" * len(data),
    ],
    ids=["missing", "empty", "torn", "preallocated", "zeros", "garbage"],
)
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_indexes_are_made_anew(
    tmp_path: Path, suffix: str, damage: object, clean: bool
) -> None:
    log = filled(tmp_path)
    log.close()
    for path in segments_of(tmp_path):
        index = path.with_suffix(suffix)
        wanted = damage(index.read_bytes())  # type: ignore[operator]
        if wanted is None:
            index.unlink()
        else:
            index.write_bytes(wanted)
    log = reopen(tmp_path, SMALL, clean=clean, recovery_point=40)
    assert bases(log) == list(range(40))
    for offset in range(40):
        assert read(log, offset, 1).base_offset == offset
    for offset in (0, 7, 33, 39):
        assert log.offset_for_timestamp(NOW_MS + offset, 40) == (
            NOW_MS + offset, offset, offset // 10,
        )  # fmt: skip
    check_indexes(log)


def test_idle_partitions_are_opened_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C023: empty ones, ones with one record, ones with one record left after retention."""
    caplog.set_level(logging.INFO)
    manager = open_manager([tmp_path])
    for index in range(30):
        log = manager.get_or_create(TopicPartition("t", index), uuid.UUID(int=1), config())
        if index >= 10:
            fill(log, 1)
        if index >= 20:
            log.truncate_fully_and_start_at(4096)
            fill(log, 1)
    expected = {tp: (log.log_start_offset, log.log_end_offset) for tp, log in manager.logs.items()}
    manager.close()
    for path in (tmp_path / "t-15").glob("*.*index"):
        path.write_bytes(path.read_bytes() + bytes(1 << 20))
    for is_clean in (True, False, False):
        caplog.clear()
        manager = open_manager([tmp_path])
        found = {tp: (log.log_start_offset, log.log_end_offset) for tp, log in manager.logs.items()}
        assert found == expected
        noisy = [record for record in caplog.records if "t-15" not in record.getMessage()]
        assert not noisy
        if is_clean:
            manager.close()
        else:
            manager.directories[str(tmp_path)].close()


def test_bit_rot_in_a_sealed_segment_stops_no_other_read(tmp_path: Path) -> None:
    """C028: a damaged header is told with its place, what lies behind it is read."""
    log = filled(tmp_path)
    log.close()
    first = segments_of(tmp_path)[0]
    data = bytearray(first.read_bytes())
    data[5 * 171 + 16] ^= 0x7F  # magic of batch 5
    first.write_bytes(data)
    log = reopen(tmp_path, SMALL, clean=True)
    assert headers(read(log, 0, 3 * 171))[-1].base_offset == 2
    with pytest.raises(CorruptLogError) as damage:
        read(log, 5, 171)
    assert damage.value.position == 5 * 171
    assert read(log, 9, 171).base_offset == 9
    assert [header.base_offset for header in headers(read(log, 12, 171))] == [12]


def test_a_damaged_index_of_a_sealed_segment_is_repaired_when_it_is_met(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    log = reopen(tmp_path, SMALL, clean=True)
    path = segments_of(tmp_path)[1].with_suffix(".index")
    size = path.stat().st_size
    path.write_bytes(bytes.fromhex("0000000300000001") * (size // 8))
    for offset in range(11, 22):
        assert read(log, offset, 171).base_offset == offset
    check_indexes(log)


def test_leftovers_of_an_interrupted_run_are_swept_away(tmp_path: Path) -> None:
    filled(tmp_path).close()
    directory = tmp_path / str(TP)
    for name in (
        "00000000000000000099.log.deleted",
        "00000000000000000000.index.cleaned",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000099.index",
        "00000000000000000005.snapshot",
    ):
        (directory / name).write_bytes(b"x")
    log = reopen(tmp_path, SMALL, clean=True)
    assert bases(log) == list(range(40))
    names = {path.name for path in directory.iterdir()}
    assert not any(name.endswith((".deleted", ".cleaned", ".tmp")) for name in names)
    assert "00000000000000000099.index" not in names
    assert "00000000000000000005.snapshot" not in names


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_a_compaction_that_was_interrupted_is_brought_to_its_end(
    tmp_path: Path, renamed: int, is_clean: bool
) -> None:
    """Two segments became one; Kafka was killed while it swapped the files."""
    compacted = config(
        segment_bytes=2000, index_interval_bytes=200, cleanup_policy=frozenset({"compact"})
    )
    filled(tmp_path).close()
    first, second = segments_of(tmp_path)[:2]
    kept_batches = first.read_bytes()[: first.stat().st_size // 11 * 3] + second.read_bytes()
    swapped = [first.with_name(first.name + ".swap"), first.with_suffix(".index.swap")]
    swapped[0].write_bytes(kept_batches)
    swapped[1].write_bytes(b"")
    if renamed:
        # What is replaced goes first.
        first.unlink()
        second.unlink()
    for path in swapped[:renamed]:
        path.rename(path.with_name(path.name.removesuffix(".swap")))
    log = reopen(tmp_path, compacted, clean=is_clean)
    assert bases(log) == [0, 1, 2, *range(11, 40)]
    check_indexes(log)
    names = {path.name for path in (tmp_path / str(TP)).iterdir()}
    assert not any(name.endswith(".swap") for name in names)
    assert second.name not in names


def test_a_swap_beside_files_that_were_not_finished_is_undone(tmp_path: Path) -> None:
    filled(tmp_path).close()
    first, second = segments_of(tmp_path)[:2]
    second.with_name(second.name + ".swap").write_bytes(second.read_bytes())
    first.with_name(first.name + ".cleaned").write_bytes(b"half")
    log = reopen(tmp_path, SMALL, clean=True)
    assert bases(log) == list(range(40))
    assert not list((tmp_path / str(TP)).glob("*.swap"))


def test_a_damaged_snapshot_costs_only_reading_more(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    for sequence in range(40):
        append(log, batch(producer_id=3, producer_epoch=0, base_sequence=sequence))
    log.close()
    for path in (tmp_path / str(TP)).glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1])
    log = reopen(tmp_path, SMALL, clean=False, recovery_point=40)
    assert append(log, batch(producer_id=3, producer_epoch=0, base_sequence=38)).is_duplicate


@pytest.mark.parametrize("is_clean", [False, True])
def test_records_below_the_start_tell_their_producers_sequence(
    tmp_path: Path, is_clean: bool
) -> None:
    """C078: only the marker is left to read, and no snapshot."""
    log = new_log(tmp_path, SMALL)
    append(log, batch(5, size=1, **produced_in_transaction(0)))
    append(log, build_marker(TransactionMarker(3, 0, is_commit=True, coordinator_epoch=0), NOW_MS))
    log.close()
    for path in (tmp_path / str(TP)).glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1])
    log = reopen(tmp_path, SMALL, clean=is_clean, log_start_offset=5)
    assert append(log, batch(5, size=1, **produced_in_transaction(0))).is_duplicate
    assert append(log, batch(size=1, **produced_in_transaction(5))).base_offset == 6
    log.set_high_watermark(6)
    log.truncate_to(6)
    assert append(log, batch(size=1, **produced_in_transaction(5))).base_offset == 6


def produced_in_transaction(base_sequence: int) -> dict[str, Any]:
    return {
        "producer_id": 3,
        "producer_epoch": 0,
        "base_sequence": base_sequence,
        "is_transactional": True,
    }


def test_a_log_that_ends_below_its_start_begins_anew_there(tmp_path: Path) -> None:
    filled(tmp_path).close()
    log = reopen(tmp_path, SMALL, clean=False, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    append(log, batch())
    assert bases(log) == [100]


def test_a_damaged_partition_is_offline_alone(tmp_path: Path) -> None:
    manager = open_manager([tmp_path], SMALL)
    good = TopicPartition("good", 0)
    for topic_partition in (TP, good):
        log = manager.get_or_create(topic_partition, None, SMALL)
        fill(log, 40)
        flush(log)
    for work in manager.checkpoint_work():
        work.run()
    manager.directories[str(tmp_path)].close()
    last = segments_of(tmp_path)[-1]
    os.truncate(last, 200)
    manager = open_manager([tmp_path], SMALL)
    assert list(manager.offline_partitions) == [TP]
    with pytest.raises(KafkaError) as refused:
        manager.get(TP)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.get(good) is not None
    manager.close()
    assert "orders 0 39" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


# From the last checkpoint on


LONG = config(segment_bytes=1 << 20, index_interval_bytes=300)


def checkpointed(directory: Path, before: int = 200, behind: int = 20) -> Log:
    """A producer, an open and two ended transactions, leader epochs: all of it before and behind."""
    log = new_log(directory, LONG)
    for number in range(before):
        append(log, batch(2, timestamp=NOW_MS + number), leader_epoch=number // 50)
    append(log, produced(7, 0), leader_epoch=4)
    abort(log, producer_id=8)
    log.checkpoint()
    append(log, produced(7, 1), leader_epoch=4)
    abort(log, producer_id=9)
    for number in range(behind):
        append(log, batch(2, timestamp=NOW_MS + before + number), leader_epoch=5)
    append(log, produced(6, 0), leader_epoch=5)
    return log


def produced(producer_id: int, sequence: int, **options: bool) -> bytearray:
    return batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **options)


def abort(log: Log, producer_id: int) -> None:
    append(log, produced(producer_id, 0, is_transactional=True), leader_epoch=4)
    marker = TransactionMarker(producer_id, 0, is_commit=False, coordinator_epoch=0)
    append(log, build_marker(marker, NOW_MS), leader_epoch=4)


def kept(log: Log) -> tuple[object, ...]:
    """All that recovery makes of a log."""
    log.set_high_watermark(log.log_end_offset)
    return (
        log.log_end_offset,
        log.leader_epochs.entries(),
        sorted((e.producer_id, e.last_sequence) for e in log.producers.entries.values()),
        log.first_unstable_offset,
        [
            (
                segment.offset_index.entries(),
                segment.time_index.entries(),
                segment.transaction_index.entries(),
                segment.load_max_timestamp(),
            )
            for segment in log.segments
        ],
    )


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Last offsets of the batches that recovery goes over."""
    found: list[int] = []
    known = Segment.note_batch

    def note(self: Segment, length: int, last_offset: int, max_timestamp: int) -> None:
        found.append(last_offset)
        known(self, length, last_offset, max_timestamp)

    monkeypatch.setattr(Segment, "note_batch", note)
    return found


@pytest.mark.parametrize("recovery_point", [0, 300, 410])
def test_after_a_kill_the_last_segment_is_read_from_its_checkpoint_on(
    tmp_path: Path, noted: list[int], recovery_point: int
) -> None:
    before = checkpointed(tmp_path)
    checkpoint = max(before._snapshots.offsets)
    noted.clear()
    log = reopen(tmp_path, LONG, clean=False, recovery_point=recovery_point)
    tail = list(noted)
    assert checkpoint - 10 < tail[0] <= checkpoint
    noted.clear()
    whole = reopen(tmp_path, LONG, clean=False, power_was_lost=True)
    assert len(noted) > 200 > 30 > len(tail)
    assert kept(log) == kept(whole)
    check_indexes(log)
    check_producers(log)
    assert [entry.producer_id for entry in log.segments.active.transaction_index.entries()] == [
        8,
        9,
    ]


@pytest.mark.parametrize("cut", [1, 100, 700])
def test_a_torn_tail_behind_a_checkpoint_is_cut(tmp_path: Path, cut: int) -> None:
    checkpointed(tmp_path)
    (path,) = segments_of(tmp_path)
    os.truncate(path, path.stat().st_size - cut)
    log = reopen(tmp_path, LONG, clean=False)
    assert log.segments.active.size == path.stat().st_size
    whole = reopen(tmp_path, LONG, clean=False, power_was_lost=True)
    assert kept(log) == kept(whole)
    append(log, batch(), leader_epoch=6)
    check_indexes(log)


def test_a_log_that_ends_before_its_checkpoint_is_read_whole(
    tmp_path: Path, noted: list[int]
) -> None:
    before = checkpointed(tmp_path)
    (path,) = segments_of(tmp_path)
    place = before.segments.active.find_batch(max(before._snapshots.offsets) - 1)
    assert place is not None
    os.truncate(path, place.position)  # its index entry is still before that
    noted.clear()
    log = reopen(tmp_path, LONG, clean=False)
    assert len(noted) >= 200
    assert kept(log) == kept(reopen(tmp_path, LONG, clean=False, power_was_lost=True))
    check_producers(log)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["missing", "zeros", "garbage"])
def test_a_checkpoint_that_cannot_be_trusted_is_passed_over(
    tmp_path: Path, noted: list[int], suffix: str, damage: str
) -> None:
    checkpointed(tmp_path)
    (path,) = (tmp_path / str(TP)).glob(f"*{suffix}")
    size = path.stat().st_size
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(bytes(size) if damage == "zeros" else os.urandom(size))
    noted.clear()
    log = reopen(tmp_path, LONG, clean=False)
    assert len(noted) > 200
    assert kept(log) == kept(reopen(tmp_path, LONG, clean=False, power_was_lost=True))
    check_indexes(log)
    check_producers(log)


def test_a_newer_checkpoint_and_a_roll_take_the_place_of_the_last(tmp_path: Path) -> None:
    log = new_log(tmp_path, LONG)
    snapshots = []
    for _ in range(3):
        fill(log, 10)
        log.checkpoint()
        snapshots.append(sorted(path.name for path in (tmp_path / str(TP)).glob("*.snapshot")))
    assert snapshots == [[f"{offset:020d}.snapshot"] for offset in (10, 20, 30)]
    fill(log, 5)
    log.roll(NOW_MS)
    assert log._snapshots.offsets == [35]
    log.truncate_to(35)
    fill(log, 3)
    log.checkpoint()
    assert log._snapshots.offsets == [35, 38]


def test_a_checkpoint_without_room_changes_nothing() -> None:
    fs = FaultyFileSystem(random.Random(5))
    log = new_log("/data", LONG, fs)
    fill(log, 20)
    fs.fail_at(1, disk_full)
    log.checkpoint()
    assert log._snapshots.offsets == []
    fill(log, 20)
    log.checkpoint()
    assert log._snapshots.offsets == [40]
    assert reopen("/data", LONG, clean=False, fs=fs.after_kill()).log_end_offset == 40


@pytest.mark.interpreted
def test_logs_that_grew_are_checkpointed_by_the_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "CHECKPOINT_BYTES", 5000)
    manager = open_manager([tmp_path], LONG)
    topic_partitions = [TopicPartition("orders", index) for index in range(20)]
    for index, topic_partition in enumerate(topic_partitions):
        log = manager.get_or_create(topic_partition, None, LONG)
        fill(log, 40 if index % 2 else 10)
    for second in range(10):
        manager.tick(1_000_000 + 1000 * second)
    for index, topic_partition in enumerate(topic_partitions):
        assert manager.logs[topic_partition]._snapshots.offsets == ([40] if index % 2 else [])
    log = manager.logs[topic_partitions[1]]
    fill(log, 10)
    assert not log.is_checkpoint_due
    fill(log, 30)
    assert log.is_checkpoint_due
    log.producers.entries.update({number: ProducerEntry(number, 0) for number in range(2000)})
    assert not log.is_checkpoint_due  # their snapshot costs more
