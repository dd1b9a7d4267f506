"""All logs of a broker: opening, creating, deleting, checkpoints, stopping."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from broker.model.ids import TopicPartition
from broker.storage.filesystem import RealFileSystem
from broker.storage.log import Log
from broker.storage.log_directory import DirectoryInUse, ForeignDirectory
from broker.storage.log_manager import MAX_RESTS_A_TICK, WINDOW_MS
from tests.broker.storage.build import (
    TP,
    FixedClock,
    append,
    batch,
    config,
    fill,
    flush,
    open_manager,
    read_all,
)

TOPIC_ID = uuid.UUID(int=1)


def test_logs_survive_a_clean_stop(tmp_path: Path) -> None:
    manager = open_manager([tmp_path])
    log = manager.get_or_create(TP, TOPIC_ID, config())
    fill(log, 10)
    log.set_high_watermark(9)
    log.set_log_start_offset(4)
    manager.close()
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    again = open_manager([tmp_path]).get(TP)
    assert again is not None
    assert again.topic_id == TOPIC_ID
    assert (again.log_start_offset, again.log_end_offset) == (4, 10)
    assert (again.high_watermark, again.flushed_offset) == (9, 10)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_logs_survive_a_kill(tmp_path: Path) -> None:
    manager = open_manager([tmp_path])
    log = manager.get_or_create(TP, TOPIC_ID, config())
    fill(log, 10)
    flush(log)
    for work in manager.checkpoint_work():
        work.run()
    fill(log, 5)
    manager.directories[str(tmp_path)].close()
    again = open_manager([tmp_path]).get(TP)
    assert again is not None
    # The indexes of the active segment were not synced: recovery begins inside it.
    assert (again.log_end_offset, again.flushed_offset) == (15, 9)
    assert [h.base_offset for h in read_all(again)] == list(range(15))


def test_checkpoints_are_kafkas(tmp_path: Path) -> None:
    manager = open_manager([tmp_path])
    log = manager.get_or_create(TP, TOPIC_ID, config())
    fill(log, 3)
    log.set_high_watermark(3)
    flush(log)
    for work in manager.checkpoint_work():
        work.run()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    before = (tmp_path / "recovery-point-offset-checkpoint").stat().st_ino
    for work in manager.checkpoint_work():
        work.run()
    assert (tmp_path / "recovery-point-offset-checkpoint").stat().st_ino == before


def test_a_deleted_partition_is_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    clock = FixedClock()
    manager = open_manager([tmp_path], clock=clock)
    log = manager.get_or_create(TP, TOPIC_ID, config(file_delete_delay_ms=1000))
    fill(log, 3)
    work = manager.delete(TP)
    assert work is not None
    work.run()
    assert manager.get(TP) is None
    (marked,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert marked.name.startswith("orders-0.")
    assert marked.name.endswith("-delete")
    fresh = manager.get_or_create(TP, uuid.UUID(int=2), config())
    assert fresh.log_end_offset == 0
    assert manager.tick(clock.monotonic) == []
    clock.monotonic += 1000
    for removal in manager.tick(clock.monotonic):
        removal.run()
    assert not marked.exists()


def test_a_topic_created_anew_never_sees_old_bytes(tmp_path: Path) -> None:
    manager = open_manager([tmp_path])
    fill(manager.get_or_create(TP, TOPIC_ID, config()), 3)
    fresh = manager.get_or_create(TP, uuid.UUID(int=2), config())
    assert fresh.log_end_offset == 0
    assert any(path.name.endswith("-stray") for path in tmp_path.iterdir())


def test_partitions_that_the_cluster_does_not_know_are_set_aside(tmp_path: Path) -> None:
    manager = open_manager([tmp_path])
    manager.get_or_create(TP, TOPIC_ID, config())
    other = TopicPartition("other", 3)
    manager.get_or_create(other, uuid.UUID(int=2), config())
    assert manager.set_aside(other) is not None
    assert list(manager.logs) == [TP]


def test_a_directory_is_used_by_one_process(tmp_path: Path) -> None:
    manager = open_manager([tmp_path])
    pid = __import__("os").fork()
    if pid == 0:
        try:
            open_manager([tmp_path])
        except DirectoryInUse:
            __import__("os")._exit(7)
        __import__("os")._exit(1)
    assert __import__("os").waitstatus_to_exitcode(__import__("os").waitpid(pid, 0)[1]) == 7
    manager.close()


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    open_manager([tmp_path]).close()
    with pytest.raises(ForeignDirectory):
        open_manager([tmp_path], cluster_id="another")


def test_new_partitions_go_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    manager = open_manager([tmp_path / "a", tmp_path / "b"])
    for partition in range(6):
        manager.get_or_create(TopicPartition("t", partition), TOPIC_ID, config())
    sizes = [len(one.partitions) for one in manager.describe_directories()]
    assert sizes == [3, 3]


def test_a_producer_is_remembered_across_a_clean_stop(tmp_path: Path) -> None:
    manager = open_manager([tmp_path])
    log = manager.get_or_create(TP, TOPIC_ID, config())
    for sequence in range(3):
        append(log, batch(producer_id=1, producer_epoch=0, base_sequence=sequence))
    manager.close()
    log = open_manager([tmp_path]).logs[TP]
    assert append(log, batch(producer_id=1, producer_epoch=0, base_sequence=2)).is_duplicate


def test_a_new_log_rests_until_its_first_record(tmp_path: Path) -> None:
    """Thousands of empty partitions hold neither indexes nor descriptors."""
    manager = open_manager([tmp_path])
    log, busy = (manager.get_or_create(TopicPartition("t", i), TOPIC_ID, config()) for i in (0, 1))
    fill(busy, 1)
    segments = [each.segments.active for each in (log, busy)]
    assert [each.records.file.descriptor >= 0 for each in segments] == [False, True]  # type: ignore[attr-defined]
    assert segments[0]._offset_index is None
    fill(log, 1)
    assert [header.base_offset for header in read_all(log)] == [0]


def test_logs_that_fell_silent_are_put_to_rest_a_few_at_a_time(tmp_path: Path) -> None:
    clock = FixedClock()
    fs = RealFileSystem(256)
    manager = open_manager([tmp_path], clock=clock, fs=fs)
    logs = [
        manager.get_or_create(TopicPartition("t", index), TOPIC_ID, config())
        for index in range(2 * MAX_RESTS_A_TICK)
    ]
    for log in logs:
        fill(log, 1)
    for _ in range(2):
        clock.monotonic += WINDOW_MS
        manager.tick(clock.monotonic)

    def awake() -> list[Log]:
        return [log for log in logs if log.segments.active.records.file.descriptor >= 0]  # type: ignore[attr-defined]

    assert len(awake()) == len(logs) - MAX_RESTS_A_TICK
    busy = awake()[0]
    fill(busy, 1)
    for _ in range(3):
        manager.tick(clock.monotonic)
    assert awake() == [busy]
    fill(logs[0], 1)
    assert [header.base_offset for header in read_all(logs[0])][:2] == [0, 1]
