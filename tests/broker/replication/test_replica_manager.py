"""Which partitions there are, and what becomes of them when topics change or disks fail."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest

from broker.model.error_code import ErrorCode
from broker.model.errors import DiskFullError, KafkaError, StorageError
from broker.model.ids import BrokerId
from broker.records.compression import Codec
from tests.broker.replication.build import TOPIC_ID, World, lone, tp
from tests.broker.storage.build import batch
from tests.support.faulty_filesystem import FaultyFileSystem, disk_full, io_error

OTHER_ID = uuid.UUID(int=8)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World([tmp_path])


def code_of(world: World, key: str | uuid.UUID, index: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        world.replicas.find(key, index)
    return caught.value.code


def test_partitions_are_found_by_name_and_by_id(world: World) -> None:
    partition = world.host(partitions=2)
    assert world.replicas.find("orders", 0) is partition
    assert world.replicas.find(TOPIC_ID, 0) is partition
    assert world.replicas.find(TOPIC_ID, 1) is not partition


def test_what_is_not_there_has_the_error_that_clients_know(world: World) -> None:
    world.host()
    assert code_of(world, "nothing", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(world, OTHER_ID, 0) is ErrorCode.UNKNOWN_TOPIC_ID
    for index in (1, -1, 2**31 - 1, -(2**31)):
        assert code_of(world, "orders", index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_grows_keeps_its_partitions(world: World) -> None:
    partition = world.host()
    world.append(partition)
    world.host(partitions=3)
    assert world.replicas.find("orders", 0) is partition
    assert partition.log.log_end_offset == 1
    assert world.replicas.find("orders", 2).log.log_end_offset == 0


def test_raised_leader_epochs_reach_partitions_in_use(world: World) -> None:
    partition = world.host()
    world.append(partition)
    world.host(epoch=5)
    assert partition.leader_epoch == 5
    with pytest.raises(KafkaError) as caught:
        partition.check_leader_epoch(4)
    assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(KafkaError) as caught:
        partition.check_leader_epoch(6)
    assert caught.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.check_leader_epoch(5)
    partition.check_leader_epoch(-1)


def test_a_change_of_one_partition_touches_no_other(world: World) -> None:
    first = world.host(partitions=2)
    second = world.replicas.find("orders", 1)
    world.replicas.change_states("orders", {1: lone(epoch=5)})
    assert (first.leader_epoch, second.leader_epoch) == (0, 5)
    assert world.replicas.find("orders", 1) is second


def test_a_dropped_topic_is_found_no_more(world: World) -> None:
    partition = world.host(partitions=2)
    assert world.replicas.drop_topic("orders") == [tp(0), tp(1)]
    assert partition.is_closed
    assert code_of(world, "orders", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(world, TOPIC_ID, 0) is ErrorCode.UNKNOWN_TOPIC_ID
    assert world.replicas.drop_topic("orders") == []


def test_a_topic_made_anew_is_found_by_its_new_id_alone(world: World) -> None:
    old = world.host()
    world.append(old)
    world.replicas.drop_topic("orders")
    world.logs.delete(old.topic_partition)
    anew = world.host(topic_id=OTHER_ID)
    assert anew.log.log_end_offset == 0
    assert code_of(world, TOPIC_ID, 0) is ErrorCode.UNKNOWN_TOPIC_ID
    assert world.replicas.find(OTHER_ID, 0) is anew
    assert world.replicas.partition_of(old.log) is None
    assert world.replicas.partition_of(anew.log) is anew


def test_a_log_of_a_partition_that_the_topic_has_no_more_belongs_to_nobody(world: World) -> None:
    world.host(partitions=3)
    log = world.replicas.find("orders", 2).log
    world.replicas.drop_topic("orders")
    world.logs.delete(tp(2))
    world.host(topic_id=OTHER_ID, partitions=1)
    assert world.replicas.partition_of(log) is None


def test_a_changed_configuration_holds_for_partitions_in_use_and_those_to_come(
    world: World,
) -> None:
    partition = world.host(partitions=2)
    world.reconfigure(max_message_bytes=77)
    assert partition.log.config.max_message_bytes == 77
    assert partition.rules.max_message_bytes == 77
    assert world.replicas.find("orders", 1).rules.max_message_bytes == 77
    world.replicas.set_topic_config("nothing", partition.log.config, partition.rules)


# Disks


def test_a_failed_directory_takes_its_partitions_alone() -> None:
    fs = FaultyFileSystem(random.Random(1))
    world = World(["/a", "/b"], fs)
    first = world.host(partitions=2)
    second = world.replicas.find("orders", 1)
    assert first.log.directory.startswith("/a")
    fs.fail_at(1, io_error)
    with pytest.raises(KafkaError) as caught:
        world.append(first)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(world, "orders", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.append(second).base_offset == 0
    # Nothing of it is trusted any more, and what is new goes elsewhere.
    anew = world.host("anew", topic_id=OTHER_ID)
    assert anew.log.directory.startswith("/b")


def test_a_directory_that_fails_when_a_log_is_made_is_offline_and_the_next_try_goes_elsewhere() -> (
    None
):
    fs = FaultyFileSystem(random.Random(1))
    world = World(["/a", "/b"], fs)
    fs.fail_at(1, io_error)
    with pytest.raises(KafkaError) as caught:
        world.host()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.replicas.find("orders", 0).log.directory.startswith("/b")


def test_a_full_disk_when_a_log_is_made_takes_nothing_offline() -> None:
    fs = FaultyFileSystem(random.Random(1))
    world = World(["/a"], fs)
    fs.fail_at(1, disk_full)
    with pytest.raises(KafkaError) as caught:
        world.host()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.append(world.replicas.find("orders", 0)).base_offset == 0


def test_a_second_failure_of_a_directory_harms_no_topic_that_took_a_name_since() -> None:
    """Syncs that were under way come back one by one, each with its error."""
    fs = FaultyFileSystem(random.Random(1))
    world = World(["/a"], fs)
    world.host(partitions=3)
    for index in range(3):
        world.replicas.find("orders", index)
    world.replicas.take_offline(StorageError("/a", "failed"))
    world.replicas.drop_topic("orders")
    world.replicas.host_topic("orders", OTHER_ID, [lone()], *config_and_rules(world))
    world.replicas.take_offline(StorageError("/a", "failed again"))
    assert code_of(world, "orders", 0) is ErrorCode.KAFKA_STORAGE_ERROR


def config_and_rules(world: World) -> tuple[object, object]:
    other = World(["/x"], FaultyFileSystem(random.Random(1))).host()
    return other.log.config, other.rules


def test_a_failed_roll_sync_takes_the_directory_offline(world: World) -> None:
    partition = world.host(segment_bytes=1000)
    for _ in range(10):
        world.append(partition, batch(size=300))
    rolls = world.threads.waiting("disk")
    assert rolls
    rolls[0].run(OSError("device failed"))
    assert partition.is_closed


def test_a_roll_sync_without_room_takes_nothing_offline(world: World) -> None:
    partition = world.host(segment_bytes=1000)
    for _ in range(10):
        world.append(partition, batch(size=300))
    for job in world.threads.waiting("disk"):
        job.run(DiskFullError("no space left on device"))
    assert not partition.is_closed
    assert partition.log.flushed_offset == 0


# Appends that wait


def walked() -> bytearray:
    return batch(size=5000, codec=Codec.GZIP)


def test_a_batch_behind_one_that_is_walked_waits_for_it(world: World) -> None:
    partition = world.host(cleanup_policy=frozenset({"compact"}))
    slow = world.append_later(partition, walked())
    quick = world.append_later(partition, batch(size=10))
    for job in reversed(world.threads.waiting("compute")):
        assert slow == quick == []
        job.run()
    assert [outcome.base_offset for outcome in slow + quick] == [0, 1]  # type: ignore[union-attr]
    assert not partition.pending_appends


def test_small_plain_batches_are_walked_on_the_spot(world: World) -> None:
    partition = world.host(cleanup_policy=frozenset({"compact"}))
    assert world.append(partition, batch(size=10)).base_offset == 0
    assert world.threads.jobs == []


def test_what_waits_fails_with_its_partition(world: World) -> None:
    partition = world.host(cleanup_policy=frozenset({"compact"}))
    outcomes = [world.append_later(partition, walked()) for _ in range(3)]
    world.replicas.take_offline(StorageError(next(iter(world.logs.directories)), "failed"))
    assert all(
        isinstance(outcome, KafkaError) and outcome.code is ErrorCode.KAFKA_STORAGE_ERROR
        for (outcome,) in outcomes
    )
    world.threads.run()
    assert all(len(outcome) == 1 for outcome in outcomes)
    assert partition.log.log_end_offset == 0


def test_a_disk_that_fails_at_one_waiting_batch_fails_those_behind_it() -> None:
    fs = FaultyFileSystem(random.Random(1))
    world = World(["/a"], fs)
    partition = world.host(cleanup_policy=frozenset({"compact"}))
    outcomes = [world.append_later(partition, walked()) for _ in range(3)]
    fs.fail_at(1, io_error)
    world.threads.run()
    assert [type(outcome) for (outcome,) in outcomes] == [KafkaError] * 3
    assert partition.is_closed


def test_what_another_broker_leads_is_not_found_and_gives_its_place_up(world: World) -> None:
    partition = world.host()
    world.append(partition)
    with pytest.raises(KafkaError) as caught:
        world.host(epoch=6, leader_id=BrokerId(2))
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.close_reason is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Led again, with what it had.
    again = world.host(epoch=7)
    assert again is not partition
    assert (again.leader_epoch, again.log.log_end_offset, again.high_watermark) == (7, 1, 1)
