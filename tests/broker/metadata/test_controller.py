"""The controller as a whole: order, restarts, failures, and that all of it survives a crash."""

from __future__ import annotations

import errno
import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.metadata import znodes
from broker.metadata.changes import (
    BrokerRegistered,
    FeaturesChanged,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.image import ClusterImage
from broker.metadata.pipeline import MAX_REQUESTS
from broker.metadata.requests import (
    TOPIC_RESOURCE,
    ConfigReplacement,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from broker.metadata.steps import PRODUCER_ID_BLOCK, SLICE_PARTITIONS
from broker.metadata.store import (
    Create,
    Delete,
    MetadataStore,
    Operation,
    Outcome,
    RefusalReason,
    Refused,
    SetData,
    Unknown,
)
from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId
from tests.support.memory_files import Crashed, MemoryDirectory
from tests.support.metadata import CLUSTER_ID, ENDPOINT, Cluster


def create(cluster: Cluster, *names: str, partitions: int = 1) -> Any:
    topics = [NewTopic(name, partitions) for name in names]
    return cluster.ask(cluster.controller.create_topics, topics, False)


def delete(cluster: Cluster, *names: str) -> Any:
    return cluster.ask(cluster.controller.delete_topics, [TopicReference(n) for n in names])


def restarted(cluster: Cluster, disk: MemoryDirectory) -> Cluster:
    cluster.stop()
    return Cluster(disk).start()


# Images


def test_every_image_says_what_made_it_out_of_the_one_before() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    create(cluster, "t", partitions=2)
    cluster.ask(cluster.controller.create_partitions, [MorePartitions("t", 3)], False)
    settings = [ConfigReplacement(TOPIC_RESOURCE, "t", [("retention.ms", "5")])]
    cluster.ask(cluster.controller.alter_configs, settings, False)
    cluster.ask(cluster.controller.allocate_producer_ids)
    cluster.ask(cluster.controller.raise_leader_epochs, BrokerId(1))
    delete(cluster, "t")
    assert [[type(change) for change in image.changes] for image in cluster.images] == [
        [BrokerRegistered],
        [FeaturesChanged],
        [TopicCreated],
        [PartitionsAdded],
        [TopicConfigsChanged],
        [ProducerIdsAllocated],
        [PartitionsChanged],
        [TopicDeleted],
    ]
    assert [image.version for image in cluster.images] == list(range(1, 9))


def test_a_topic_that_did_not_change_is_the_same_object_in_the_next_image() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    create(cluster, "a", "b")
    before = cluster.image.topics["a"]
    create(cluster, "c")
    delete(cluster, "b")
    assert cluster.image.topics["a"] is before
    assert cluster.image.topics_by_id[before.topic_id] is before


def test_a_result_is_told_after_its_image_was_published() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    seen: list[bool] = []
    cluster.controller.create_topics(
        [NewTopic("a")], False, lambda _: seen.append("a" in cluster.images[-1].topics)
    )
    assert seen == []
    cluster.turns.run()
    assert seen == [True]


def test_the_listener_may_ask_for_more() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    results: list[Any] = []

    def on_created(_: object) -> None:
        cluster.controller.delete_topics([TopicReference("a")], results.extend)

    cluster.controller.create_topics([NewTopic("a")], False, on_created)
    cluster.turns.run()
    assert [result.is_success for result in results] == [True]
    assert not cluster.image.topics


def test_requests_take_turns_slice_by_slice() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    order: list[str] = []
    many = [NewTopic(f"t{n}", SLICE_PARTITIONS // 2) for n in range(40)]
    cluster.controller.create_topics(many, False, lambda _: order.append("many"))
    cluster.controller.create_topics([NewTopic("one")], False, lambda _: order.append("one"))
    cluster.turns.run()
    assert order == ["one", "many"]
    most = max(len(image.changes) for image in cluster.images)
    assert most == 2
    assert len(cluster.image.topics) == 41


def test_verdicts_count_on_what_is_under_way() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    results: list[Any] = []
    for _ in range(3):
        cluster.controller.create_topics([NewTopic("a")], False, results.extend)
    cluster.controller.delete_topics([TopicReference("a")], results.extend)
    cluster.controller.create_topics([NewTopic("a")], False, results.extend)
    cluster.turns.run()
    assert [result.error.name for result in results] == [
        "NONE",
        "TOPIC_ALREADY_EXISTS",
        "TOPIC_ALREADY_EXISTS",
        "NONE",
        "NONE",
    ]
    assert cluster.image.topics["a"].topic_id == results[-1].topic_id != results[0].topic_id


def test_too_many_requests_are_told_to_come_back() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    results: list[Any] = []
    for n in range(MAX_REQUESTS + 5):
        cluster.controller.create_topics([NewTopic(f"t{n}")], False, results.extend)
    cluster.turns.run()
    assert len(results) == MAX_REQUESTS + 5
    refused = [result for result in results if not result.is_success]
    assert [result.error for result in refused] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 5
    assert len(cluster.image.topics) == MAX_REQUESTS


# Restarts


def test_a_restart_gives_the_same_image() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk).start()
    create(cluster, "a", partitions=3)
    create(cluster, "b.c", "d")
    cluster.ask(cluster.controller.create_partitions, [MorePartitions("a", 5)], False)
    settings = [ConfigReplacement(TOPIC_RESOURCE, "d", [("retention.ms", "5")])]
    cluster.ask(cluster.controller.alter_configs, settings, False)
    cluster.ask(cluster.controller.allocate_producer_ids)
    cluster.ask(cluster.controller.raise_leader_epochs, BrokerId(1))
    before = cluster.image
    after = restarted(cluster, disk).image
    assert after.topics == before.topics
    assert after.topics_by_id == before.topics_by_id
    assert after.next_producer_id == before.next_producer_id == PRODUCER_ID_BLOCK
    assert after.cluster_id == CLUSTER_ID
    assert after.controller_epoch == before.controller_epoch + 1
    assert after.brokers[BrokerId(1)].broker_epoch > before.brokers[BrokerId(1)].broker_epoch
    assert after.brokers[BrokerId(1)].endpoints == (ENDPOINT,)


def test_another_clusters_store_is_refused() -> None:
    disk = MemoryDirectory()
    Cluster(disk).start().stop()
    cluster = Cluster(disk)
    cluster.store.open()
    reason = cluster.ask(cluster.controller.start, "AnotherClusterOfSomeone")
    assert reason == (
        "The log directories belong to cluster AnotherClusterOfSomeone, "
        f"the metadata store to cluster {CLUSTER_ID}."
    )


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (znodes.CLUSTER_ID, b"{}"),
        (znodes.topic_path("a"), b'{"topic_id":"AAAAAAAAAAAAAAAAAAAAZA"}'),
        (znodes.partition_state_path("a", 0), b"rubbish"),
        (znodes.topic_config_path("a"), b"[]"),
    ],
)
def test_a_damaged_node_is_told_at_the_start(path: str, data: bytes) -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk).start()
    topic = NewTopic("a", configs=[("retention.ms", "5")])
    cluster.ask(cluster.controller.create_topics, [topic], False)
    cluster.ask(cluster.store.submit, [SetData(path, data)])
    cluster.stop()
    cluster = Cluster(disk)
    cluster.store.open()
    reason = cluster.ask(cluster.controller.start, CLUSTER_ID)
    assert reason.startswith("The metadata store is damaged: ")


def test_a_partition_without_a_state_is_told_at_the_start() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk).start()
    create(cluster, "a")
    cluster.ask(cluster.store.submit, [Delete(znodes.partition_state_path("a", 0))])
    cluster.stop()
    cluster = Cluster(disk)
    cluster.store.open()
    reason = cluster.ask(cluster.controller.start, CLUSTER_ID)
    assert reason == (
        "The metadata store is damaged: a-0: no replicas or no state in the metadata store"
    )


def test_producer_ids_are_never_given_twice() -> None:
    disk = MemoryDirectory()
    firsts = []
    for _ in range(3):
        cluster = Cluster(disk).start()
        firsts += [cluster.ask(cluster.controller.allocate_producer_ids).first for _ in range(2)]
        disk = MemoryDirectory(disk.contents())  # kill -9
    assert firsts == [n * PRODUCER_ID_BLOCK for n in range(6)]


def test_an_unclean_start_raises_every_leader_epoch_that_the_broker_holds() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk, broker_ids=(1, 2)).start()
    create(cluster, "a", partitions=2 * SLICE_PARTITIONS)
    create(cluster, "b")
    led = sum(p.leader_id == 1 for t in cluster.image.topics.values() for p in t.partitions)
    assert 0 < led < 2 * SLICE_PARTITIONS + 1
    result = cluster.ask(cluster.controller.raise_leader_epochs, BrokerId(1))
    assert (result.error, result.partition_count) == (ErrorCode.NONE, led)
    for image in (cluster.image, restarted(cluster, disk).image):
        for topic in image.topics.values():
            for partition in topic.partitions:
                raised = int(partition.leader_id == 1)
                assert partition.leader_epoch == partition.partition_epoch == raised


def test_a_broker_that_registers_again_has_a_greater_epoch() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    first = cluster.image.brokers[BrokerId(1)]
    again = cluster.ask(
        cluster.controller.register_broker, BrokerId(1), [ENDPOINT._replace(port=9093)], "rack"
    )
    now = cluster.image.brokers[BrokerId(1)]
    assert now.broker_epoch == again.broker_epoch > first.broker_epoch
    assert (now.rack, now.endpoints[0].port) == ("rack", 9093)


# Failures


def test_on_a_full_disk_a_request_is_refused_and_a_later_one_works() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk, reserve_bytes=256).start()
    create(cluster, "a")
    before = cluster.image
    disk.capacity = disk.used()
    (result,) = create(cluster, "b", partitions=100)
    assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert result.message == "The change could not be stored: disk full."
    assert cluster.image is before
    (result,) = delete(cluster, "b")
    assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    disk.capacity = None
    assert create(cluster, "b", partitions=100)[0].is_success
    assert set(restarted(cluster, disk).image.topics) == {"a", "b"}


def test_topics_are_deleted_on_a_full_disk() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk).start()
    create(cluster, *(f"t{n}" for n in range(50)))
    disk.capacity = disk.used()
    assert all(result.is_success for result in delete(cluster, *(f"t{n}" for n in range(50))))
    assert not restarted(cluster, disk).image.topics


def test_of_a_long_request_the_slices_before_the_failure_are_done() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk).start()
    writes: list[int] = []
    disk.fail_at = FailAtWrite(disk, 2, writes)
    results: list[Any] = []
    many = [NewTopic(f"t{n}", SLICE_PARTITIONS) for n in range(20)]
    cluster.controller.create_topics(many, False, results.extend)
    cluster.turns.run()
    done = [result.name for result in results if result.is_success]
    assert 0 < len(done) < 20
    assert len(results) == 20
    assert set(cluster.image.topics) == set(done)
    assert all(
        result.error in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR) for result in results
    )
    assert restarted(cluster, disk).image.topics == cluster.image.topics


class FailAtWrite(dict[int, int]):
    """A full disk at the n-th write of a frame from now on, and at no other."""

    def __init__(self, disk: MemoryDirectory, write: int, seen: list[int]) -> None:
        super().__init__()
        self._disk, self._write, self._seen = disk, write, seen

    def get(self, operation: int, default: Any = None) -> Any:
        # A frame takes two operations: write, datasync.
        self._seen.append(operation)
        is_it = len(self._seen) == 2 * self._write - 1
        return errno.ENOSPC if is_it else default


def test_after_a_failed_sync_the_image_stays_and_writes_are_refused() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk).start()
    create(cluster, "a")
    disk.fail_at[disk.operations + 2] = errno.EIO
    (result,) = create(cluster, "b")
    assert result.error is ErrorCode.REQUEST_TIMED_OUT
    assert set(cluster.image.topics) == {"a"}
    (result,) = create(cluster, "c")
    assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.failures


#: A write that means nothing, so that the answer takes its time as any other.
SLOW = [SetData("/admin", b"")]


class DoubtfulStore:
    """A store that answers as planned: ``"lost"`` requests, answers lost after they were
    ``"applied"``, and ones that are ``"refused"`` though later ones are not."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.plan: list[str] = []

    def submit(self, operations: Sequence[Operation], done: Callable[[Outcome], None]) -> None:
        fate = self.plan.pop(0) if self.plan else "answered"
        if fate == "lost":
            self._store.submit(SLOW, lambda _: done(Unknown("connection lost")))
        elif fate == "applied":
            self._store.submit(operations, lambda _: done(Unknown("connection lost")))
        elif fate == "refused":
            self._store.submit(SLOW, lambda _: done(Refused(RefusalReason.DISK_FULL, -1, "")))
        else:
            self._store.submit(operations, done)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("fate", ["lost", "applied"])
def test_after_a_lost_answer_the_image_is_what_the_store_holds(fate: str) -> None:
    cluster = Cluster(MemoryDirectory(), wrap=DoubtfulStore).start()
    create(cluster, "a", "b")
    before = cluster.image
    cluster.controller_store.plan = [fate]
    results: list[Any] = []
    cluster.controller.create_topics([NewTopic("c")], False, results.extend)
    cluster.controller.create_topics([NewTopic("d")], False, results.extend)
    cluster.controller.delete_topics([TopicReference("a")], results.extend)
    cluster.turns.run()
    assert results[0].error is ErrorCode.REQUEST_TIMED_OUT
    assert [result.is_success for result in results[1:]] == [True, True]
    expected = {"b", "d"} | ({"c"} if fate == "applied" else set())
    assert set(cluster.image.topics) == expected
    assert cluster.image.topics["b"] is before.topics["b"]
    told: set[str] = set(before.topics)
    for image in cluster.images[cluster.images.index(before) + 1 :]:
        for change in image.changes:
            if isinstance(change, TopicCreated):
                told.add(change.topic.name)
            elif isinstance(change, TopicDeleted):
                told.remove(change.topic.name)
    assert told == expected
    (again,) = create(cluster, "c")
    assert again.error is (ErrorCode.TOPIC_ALREADY_EXISTS if fate == "applied" else ErrorCode.NONE)


@pytest.mark.parametrize("fate", ["lost", "applied"])
def test_a_lost_answer_alone_is_cleared_up_too(fate: str) -> None:
    cluster = Cluster(MemoryDirectory(), wrap=DoubtfulStore).start()
    cluster.controller_store.plan = [fate]
    (result,) = create(cluster, "c")
    assert result.error is ErrorCode.REQUEST_TIMED_OUT
    assert ("c" in cluster.image.topics) == (fate == "applied")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("fate", ["lost", "applied", "refused"])
def test_whoever_is_told_of_a_success_sees_it_in_the_image(fate: str, seed: int) -> None:
    cluster = Cluster(MemoryDirectory(), wrap=DoubtfulStore, seed=seed).start()
    cluster.controller_store.plan = [fate]
    seen: list[Any] = []

    def told(results: list[Any]) -> None:
        for result in results:
            seen.append((result.is_success, result.name in cluster.image.topics))

    for name in ("a", "b"):
        cluster.controller.create_topics([NewTopic(name)], False, told)
    cluster.turns.run()
    assert seen == [(False, fate == "applied"), (True, True)]
    assert create(cluster, "c")[0].is_success


def test_a_partition_that_moved_on_in_the_store_is_not_overwritten() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    create(cluster, "a")
    path = znodes.partition_state_path("a", 0)
    moved = znodes.PartitionState(BrokerId(1), 7, 1, (BrokerId(1),))
    cluster.ask(cluster.store.submit, [SetData(path, znodes.encode_partition_state(moved))])
    result = cluster.ask(cluster.controller.raise_leader_epochs, BrokerId(1))
    assert result.error is ErrorCode.NOT_CONTROLLER
    partition = cluster.image.partition("a", 0)
    assert partition is not None
    assert (partition.leader_epoch, partition.partition_epoch) == (7, 1)
    assert cluster.ask(cluster.controller.raise_leader_epochs, BrokerId(1)).is_success
    partition = cluster.image.partition("a", 0)
    assert partition is not None
    assert (partition.leader_epoch, partition.partition_epoch) == (8, 2)


def test_a_controller_that_was_replaced_writes_nothing() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    create(cluster, "a")
    before = cluster.image
    cluster.ask(cluster.store.submit, [SetData(znodes.CONTROLLER_EPOCH, b"2")])
    for _ in range(2):
        (result,) = create(cluster, "b")
        assert result.error is ErrorCode.NOT_CONTROLLER
    assert cluster.image is before
    assert cluster.ask(cluster.store.get, znodes.topic_path("b")) is None


def test_a_change_behind_our_back_is_noticed() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    path = znodes.topic_config_path("a")
    cluster.ask(cluster.store.submit, [Create(path, b'{"version":1,"config":{}}')])
    topic = NewTopic("a", configs=[("retention.ms", "5")])
    (result,) = cluster.ask(cluster.controller.create_topics, [topic], False)
    assert result.error is ErrorCode.NOT_CONTROLLER
    assert create(cluster, "b")[0].is_success


# A plain model


def random_requests(cluster: Cluster, dice: random.Random, done: Callable[..., None]) -> None:
    """One request with a few things asked; ``done(kind, results)``."""
    names = [f"t{n}" for n in range(8)]
    controller = cluster.controller
    some = dice.sample(names, dice.randrange(1, 4))
    kind = dice.choice(["create", "create", "delete", "grow", "configs", "ids", "raise"])
    if kind == "create":
        topics = [NewTopic(n, dice.randrange(0, 4), configs=[("retention.ms", "7")]) for n in some]
        controller.create_topics(topics, dice.random() < 0.1, lambda r: done(kind, topics, r))
    elif kind == "delete":
        references = [TopicReference(n) for n in some]
        controller.delete_topics(references, lambda r: done(kind, references, r))
    elif kind == "grow":
        more = [MorePartitions(n, dice.randrange(1, 7)) for n in some]
        controller.create_partitions(more, False, lambda r: done(kind, more, r))
    elif kind == "configs":
        value = str(dice.randrange(-2, 100))
        resources = [ConfigReplacement(TOPIC_RESOURCE, n, [("retention.ms", value)]) for n in some]
        controller.alter_configs(resources, False, lambda r: done(kind, resources, r))
    elif kind == "ids":
        controller.allocate_producer_ids(lambda r: done(kind, [None], [r]))
    else:
        controller.raise_leader_epochs(BrokerId(1), lambda r: done(kind, [None], [r]))


class Model:
    """Topics as the answers tell them: name to (id, partition count, retention)."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[uuid.UUID, int, str]] = {}
        self.producer_ids: list[int] = []

    def done(self, kind: str, asked: list[Any], results: list[Any]) -> None:
        for request, result in zip(asked, results, strict=True):
            if not result.is_success or (kind == "create" and request.name in self.topics):
                continue
            if kind == "create":
                count = request.partition_count
                self.topics[request.name] = (result.topic_id, count, "7")
            elif kind == "delete":
                del self.topics[request.name]
            elif kind == "grow":
                topic_id, _, retention = self.topics[request.name]
                self.topics[request.name] = (topic_id, request.partition_count, retention)
            elif kind == "configs":
                topic_id, count, _ = self.topics[request.resource_name]
                value = request.configs[0][1]
                self.topics[request.resource_name] = (topic_id, count, value)
            elif kind == "ids":
                self.producer_ids.append(result.first)


def as_model(image: ClusterImage) -> dict[str, tuple[uuid.UUID, int, str]]:
    return {
        name: (topic.topic_id, len(topic.partitions), topic.configs["retention.ms"])
        for name, topic in image.topics.items()
    }


@pytest.mark.parametrize("seed", range(10))
def test_random_requests_give_what_their_answers_say(seed: int) -> None:
    dice = random.Random(seed)
    disk, model = MemoryDirectory(), Model()
    for _ in range(3):
        cluster = Cluster(disk, seed=dice.getrandbits(32), journal_bound_bytes=4000).start()
        assert as_model(cluster.image) == model.topics

        def done(kind: str, asked: list[Any], results: list[Any]) -> None:
            if kind == "create" and any(
                r.is_success and r.name not in cluster.image.topics for r in results
            ):
                return  # only validated
            model.done(kind, asked, results)

        for _ in range(40):
            random_requests(cluster, dice, done)
            for _ in range(dice.randrange(8)):
                cluster.turns.step()
        cluster.turns.run()
        assert as_model(cluster.image) == model.topics
        for topic in cluster.image.topics.values():
            assert [p.index for p in topic.partitions] == list(range(len(topic.partitions)))
            assert cluster.image.topics_by_id[topic.topic_id] is topic
        assert len(cluster.image.topics_by_id) == len(cluster.image.topics)
        cluster.stop()
    assert model.producer_ids == sorted(set(model.producer_ids))


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_before_any_operation_on_the_disk_keeps_every_answered_change(seed: int) -> None:
    is_over, crash_at = False, 3
    while not is_over:
        crash_at += 1
        dice = random.Random(seed)
        disk = MemoryDirectory()
        disk.crash_at = crash_at
        answered: list[tuple[dict[str, Any], int]] = [({}, 0)]
        try:
            cluster = Cluster(disk, seed=seed, journal_bound_bytes=3000, reserve_bytes=512)
            cluster.start()
            for _ in range(12):
                random_requests(
                    cluster,
                    dice,
                    lambda *_: answered.append(
                        (as_model(cluster.image), cluster.image.next_producer_id)
                    ),
                )
                for _ in range(dice.randrange(12)):
                    cluster.turns.step()
            cluster.turns.run()
            is_over = True
        except Crashed:
            pass
        possible = [as_model(image) for image in cluster.images] + [
            as_model(cluster.controller._pipeline.proposed)
        ]
        topics, producer_id = answered[-1]
        for left in (MemoryDirectory(disk.contents()), disk.after_crash(random.Random(crash_at))):
            again = Cluster(left, journal_bound_bytes=3000, reserve_bytes=512).start()
            found = as_model(again.image)
            if found != topics:
                # Not answered, but whole: a step that was under way.
                steps = [u.image for u in cluster.controller._pipeline._under_way]
                assert found in possible or found in [as_model(image) for image in steps]
            assert again.image.next_producer_id >= producer_id
    assert crash_at > 30
