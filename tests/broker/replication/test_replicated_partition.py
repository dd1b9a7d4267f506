"""Partitions of several replicas on one broker: led, followed, given up; who waits is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import BrokerId, TopicPartition
from broker.model.leadership import LeaderAndIsr
from broker.replication.delayed import DelayedProduce
from broker.replication.followed_partition import FollowedPartition
from broker.replication.partition import Partition
from broker.replication.replica_fetch import (
    NO_ANSWER,
    Accepted,
    Diverged,
    FetchAnswer,
    FetchRefused,
    FetchVerdict,
    ReplicaFetch,
)
from broker.replication.replicated_partition import ReplicatedPartition
from tests.broker.replication.build import ORDERS, TOPIC_ID, World, lone, rules_of
from tests.broker.storage.build import batch, config

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCHS = {ONE: 101, TWO: 102, THREE: 103}
REPLICAS = (ONE, TWO, THREE)


def state(
    leader_id: BrokerId = ONE,
    epoch: int = 1,
    isr: tuple[BrokerId, ...] = REPLICAS,
    partition_epoch: int = 0,
) -> LeaderAndIsr:
    return LeaderAndIsr(leader_id, epoch, partition_epoch, REPLICAS, frozenset(isr))


class Replicas(World):
    """What is told to whoever fetches and proposes is kept."""

    def __init__(self, directory: Path) -> None:
        super().__init__([directory])
        self.followed: list[FollowedPartition] = []
        self.isr_wanted: list[ReplicatedPartition] = []
        self.replicas.on_followed = self.followed.append
        self.replicas.on_isr_wanted = self.isr_wanted.append
        self.replicas.on_brokers(EPOCHS)

    def tell(self, now: LeaderAndIsr, **changes: object) -> None:
        topic_config = config(**changes)
        self.replicas.host_topic(ORDERS, TOPIC_ID, [now], topic_config, rules_of(topic_config))
        self.replicas.materialise(ORDERS, 0)

    def lead(self, now: LeaderAndIsr | None = None, **changes: object) -> ReplicatedPartition:
        self.tell(now or state(), **changes)
        partition = self.replicas.find(ORDERS, 0)
        assert isinstance(partition, ReplicatedPartition)
        return partition

    def fetch(
        self,
        partition: ReplicatedPartition,
        replica: BrokerId,
        offset: int,
        epoch: int = 1,
        sent_ms: int | None = None,
    ) -> FetchVerdict:
        last_epoch = epoch if offset else -1
        fetch = ReplicaFetch(replica, EPOCHS[replica], epoch, offset, last_epoch, NO_ANSWER)
        return partition.on_replica_fetch(fetch, 0, EPOCHS, self.scheduler.monotonic_ms(), sent_ms)

    def await_committed(self, partition: Partition) -> list[Mapping[Partition, ErrorCode]]:
        told: list[Mapping[Partition, ErrorCode]] = []
        end = partition.log.log_end_offset
        DelayedProduce({partition: end}, 1000, self.scheduler, told.append)
        return told


@pytest.fixture
def world(tmp_path: Path) -> Replicas:
    return Replicas(tmp_path)


def code_of(world: Replicas) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        world.replicas.find(ORDERS, 0)
    return caught.value.code


def test_a_record_is_acknowledged_when_all_in_the_isr_have_it(world: Replicas) -> None:
    partition = world.lead()
    world.append(partition)
    told = world.await_committed(partition)
    world.fetch(partition, TWO, 1)
    assert (partition.high_watermark, told) == (0, [])
    world.fetch(partition, THREE, 1)
    assert (partition.high_watermark, told) == (1, [{}])


@pytest.mark.interpreted
def test_followers_are_woken_by_an_append_and_consumers_by_the_high_watermark(
    world: Replicas,
) -> None:
    partition = world.lead()
    woken: list[str] = []

    class Waiter:
        def __init__(self, name: str) -> None:
            self.name = name

        def wake(self) -> None:
            woken.append(self.name)

        def on_change(self) -> None:
            pass

    partition.fetch_waiters.add(Waiter("consumer"))  # type: ignore[arg-type]
    partition.watch(TWO, Waiter("follower"))  # type: ignore[arg-type]
    world.append(partition)
    assert woken == ["follower"]
    world.fetch(partition, TWO, 1)
    world.fetch(partition, THREE, 1)
    assert woken == ["follower", "consumer"]
    partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert sorted(woken) == ["consumer", "consumer", "follower", "follower"]


def test_too_few_replicas_before_and_after_the_append(world: Replicas) -> None:
    partition = world.lead(min_insync_replicas=2)
    partition.check_append(is_acks_all=True)
    world.append(partition)
    told = world.await_committed(partition)
    world.tell(state(isr=(ONE,), partition_epoch=1), min_insync_replicas=2)
    assert told == [{partition: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}]
    with pytest.raises(KafkaError) as caught:
        partition.check_append(is_acks_all=True)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    world.reconfigure(min_insync_replicas=1)
    partition.check_append(is_acks_all=True)


def test_copies_need_as_many_replicas_as_acknowledged_records(world: Replicas) -> None:
    partition = world.lead(min_insync_replicas=2, import_from="there/orders")
    partition.check_copies()
    with pytest.raises(KafkaError) as caught:
        partition.check_append(is_acks_all=True)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    world.tell(state(isr=(ONE,), partition_epoch=1), min_insync_replicas=2)
    with pytest.raises(KafkaError) as caught:
        partition.check_copies()
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_copy_that_begins_later_is_committed_when_its_followers_begin_there_too(
    world: Replicas,
) -> None:
    partition = world.lead()
    world.append(partition)
    for replica in (TWO, THREE):
        world.fetch(partition, replica, 1)
    partition.restart_at(100)
    told = world.await_committed(partition)
    # What a follower has is older than anything here: it cuts all of it, and then it is told where to begin.
    assert isinstance(world.fetch(partition, TWO, 1), Diverged)
    assert world.fetch(partition, TWO, 0) == FetchRefused(ErrorCode.OFFSET_OUT_OF_RANGE)
    for replica in (TWO, THREE):
        assert told == []
        ask = ReplicaFetch(replica, EPOCHS[replica], 1, 100, -1, NO_ANSWER)
        now_ms = world.scheduler.monotonic_ms()
        assert partition.on_replica_fetch(ask, 100, EPOCHS, now_ms, None) == Accepted(100)
    assert (partition.high_watermark, told) == (100, [{}])


def test_acks_1_and_coordinators_need_the_lease(world: Replicas) -> None:
    partition = world.lead()
    world.scheduler.advance(10_000)
    sent_ms = world.scheduler.monotonic_ms()
    for replica in (TWO, THREE):
        assert not partition.may_coordinate
        world.fetch(partition, replica, 0)
        world.fetch(partition, replica, 0, sent_ms=sent_ms)
    partition.check_append(is_acks_all=False)
    partition.check_lease()
    assert partition.may_coordinate
    world.scheduler.advance(3_000)
    assert not partition.may_coordinate
    for ask in (partition.check_lease, lambda: partition.check_append(is_acks_all=False)):
        with pytest.raises(KafkaError) as caught:
            ask()
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.check_append(is_acks_all=True)


def test_a_new_leader_tells_consumers_nothing_before_its_high_watermark_is_sure(
    world: Replicas,
) -> None:
    first = world.lead()
    world.append(first)
    assert first.readable_end(is_read_committed=False) == 0
    second = world.lead(state(epoch=2))
    assert first.close_reason is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as caught:
        second.readable_end(is_read_committed=False)
    assert caught.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    for replica in (TWO, THREE):
        world.fetch(second, replica, 1, epoch=2)
    assert second.readable_end(is_read_committed=False) == 1


def test_who_waits_is_told_when_another_leads_and_its_records_are_fetched(
    world: Replicas,
) -> None:
    partition = world.lead()
    world.append(partition)
    told = world.await_committed(partition)
    world.tell(state(TWO, 2, (TWO, THREE), 1))
    assert told == [{partition: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
    assert code_of(world) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    (followed,) = world.followed
    assert (followed.leader_id, followed.log) == (TWO, partition.log)
    fetch = followed.next_fetch(EPOCHS[ONE], 0)
    assert fetch == ReplicaFetch(ONE, EPOCHS[ONE], 2, 1, 1, NO_ANSWER)


def test_what_was_followed_is_led_with_its_records_and_its_high_watermark(world: Replicas) -> None:
    world.tell(state(TWO))
    (followed,) = world.followed
    fetch = followed.next_fetch(EPOCHS[ONE], 0)
    assert fetch is not None
    records = bytearray(batch(size=10))
    answer = FetchAnswer(1, NO_ANSWER, Accepted(0), records, 0, 0)  # type: ignore[arg-type]
    result = followed.machine.on_answer(fetch, answer, 0)
    assert result.appended is not None
    world.replicas.after_follower_append(followed, result.appended)
    partition = world.lead(state(ONE, 2, partition_epoch=1))
    assert followed.is_closed
    assert followed.next_fetch(EPOCHS[ONE], 0) is None
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)
    assert world.isr_wanted == [partition]


def test_consumers_read_what_is_followed_up_to_the_high_watermark(world: Replicas) -> None:
    world.tell(state(TWO))
    (followed,) = world.followed
    reader = world.replicas.find_reader(ORDERS, 0)
    assert world.replicas.find_reader(TOPIC_ID, 0) is reader
    assert reader.leader_epoch == 1
    version = reader.version
    records = bytearray(batch(size=10))
    for high_watermark in (0, 1):
        fetch = followed.next_fetch(EPOCHS[ONE], 0)
        assert fetch is not None
        answer = FetchAnswer(1, NO_ANSWER, Accepted(fetch.fetch_offset), records, high_watermark, 0)  # type: ignore[arg-type]
        followed.machine.on_answer(fetch, answer, 0)
        reader.advance_high_watermark()
        assert reader.readable_end(False) == reader.readable_end(True) == high_watermark
        assert reader.version == version + high_watermark
        records = bytearray()
    assert code_of(world) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError):
        reader.check_append(is_acks_all=False)
    world.lead(state(ONE, 2, partition_epoch=1))
    assert reader.close_reason is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError):
        world.replicas.find_reader(ORDERS, 0)


def test_a_follower_is_preferred_only_in_sync_and_with_the_offset(world: Replicas) -> None:
    partition = world.lead(state(isr=(ONE, TWO)))
    racks = {ONE: "a", TWO: "b", THREE: "c"}
    world.append(partition)
    assert partition.preferred_reader("b", 0, racks) == -1  # it has not fetched yet
    world.fetch(partition, TWO, 0)
    world.fetch(partition, THREE, 1)
    assert partition.preferred_reader("b", 0, racks) == TWO
    assert partition.preferred_reader("b", 1, racks) == -1
    assert partition.preferred_reader("c", 0, racks) == -1  # not in sync
    assert partition.preferred_reader("b", 0, {ONE: "a"}) == -1  # not there


def test_a_follower_flushed_before_it_acknowledges_may_fetch_on_when_that_is_done(
    world: Replicas,
) -> None:
    world.tell(state(TWO), flush_messages=1)
    (followed,) = world.followed
    caught_up: list[bool] = []
    followed.on_disk_caught_up = lambda: caught_up.append(True)
    fetch = followed.next_fetch(EPOCHS[ONE], 0)
    assert fetch is not None
    records = bytearray(batch(size=10))
    answer = FetchAnswer(1, NO_ANSWER, Accepted(0), records, 0, 0)  # type: ignore[arg-type]
    result = followed.machine.on_answer(fetch, answer, 0)
    assert result.appended is not None
    world.replicas.after_follower_append(followed, result.appended)
    assert followed.next_fetch(EPOCHS[ONE], 0) is None
    world.threads.run()
    assert caught_up == [True]
    assert followed.next_fetch(EPOCHS[ONE], 0) is not None


def test_a_sync_under_way_when_the_role_changes_counts_for_the_next_one(world: Replicas) -> None:
    first = world.lead(state(isr=(ONE,)), flush_messages=1)
    world.append(first)
    second = world.lead(state(ONE, 2, (ONE,), 1), flush_messages=1)
    world.append(second)
    assert (first.is_closed, second.high_watermark) == (True, 0)
    while world.threads.run():
        pass
    assert second.high_watermark == 2


def test_a_lone_partition_that_gets_replicas_is_another_partition(world: Replicas) -> None:
    alone = world.host()
    world.append(alone)
    told = LeaderAndIsr(ONE, 0, 1, REPLICAS, frozenset({ONE}))
    partition = world.lead(told)
    assert alone.close_reason is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.log, partition.high_watermark) == (alone.log, 1)
    assert isinstance(world.fetch(partition, TWO, 0, epoch=0), Accepted)
    assert world.isr_wanted[-1] is partition


def test_a_partition_that_has_no_replica_here_any_more_is_given_up(world: Replicas) -> None:
    partition = world.lead()
    elsewhere = LeaderAndIsr(TWO, 2, 1, (TWO, THREE), frozenset({TWO}))
    world.replicas.host_topic(
        ORDERS, TOPIC_ID, [elsewhere], partition.log.config, rules_of(partition.log.config)
    )
    assert partition.is_closed
    assert code_of(world) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert list(world.replicas.replicated_partitions()) == []
    assert world.followed == []


def test_a_follower_that_registers_anew_has_acknowledged_nothing(world: Replicas) -> None:
    partition = world.lead()
    world.append(partition)
    told = world.await_committed(partition)
    world.fetch(partition, TWO, 1)
    world.replicas.on_brokers({**EPOCHS, TWO: 202})
    world.fetch(partition, THREE, 1)
    assert told == []
    stale = ReplicaFetch(TWO, EPOCHS[TWO], 1, 1, 1, NO_ANSWER)
    verdict = partition.on_replica_fetch(stale, 0, world.replicas.broker_epochs, 0, None)
    assert verdict == FetchRefused(ErrorCode.STALE_BROKER_EPOCH)


def test_a_dropped_topic_ends_what_was_led_and_followed(world: Replicas) -> None:
    world.tell(state(TWO))
    (followed,) = world.followed
    world.replicas.drop_topic(ORDERS)
    assert followed.is_closed
    assert list(world.replicas.followed_partitions()) == []


def test_partitions_elsewhere_have_no_log_here(world: Replicas) -> None:
    topic_config = config()
    world.replicas.host_topic(
        ORDERS, TOPIC_ID, [lone(leader_id=TWO)], topic_config, rules_of(topic_config)
    )
    assert code_of(world) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert TopicPartition(ORDERS, 0) not in world.logs.logs


def test_the_low_watermark_is_that_of_the_slowest_replica_that_is_there(world: Replicas) -> None:
    partition = world.lead()
    world.append(partition)
    for replica in (TWO, THREE):
        world.fetch(partition, replica, 1)
    told: list[int] = []
    partition.start_waiters.add(lambda: told.append(partition.low_watermark(EPOCHS)))
    assert partition.delete_records(1) == 1
    assert partition.low_watermark(EPOCHS) == 0
    for replica in (TWO, THREE):
        fetch = ReplicaFetch(replica, EPOCHS[replica], 1, 1, 1, NO_ANSWER)
        partition.on_replica_fetch(fetch, 1, EPOCHS, world.scheduler.monotonic_ms(), None)
    assert told == [0, 1]
    assert partition.low_watermark({ONE: EPOCHS[ONE]}) == 1
