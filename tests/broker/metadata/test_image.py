"""Images: what apply shares and copies, and that differences lead from any image to any other."""

import random
import uuid

import pytest

from broker.metadata.changes import (
    BrokerConfigsChanged,
    BrokerRegistered,
    Change,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.differences import differences
from broker.metadata.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from broker.model.ids import BrokerId

ONE = BrokerId(1)


def partition(index: int, leader_epoch: int = 0) -> PartitionImage:
    return PartitionImage(index, ONE, leader_epoch, leader_epoch, (ONE,), frozenset({ONE}))


def topic(name: str, partitions: int = 1, number: int = 1) -> TopicImage:
    return TopicImage(name, uuid.UUID(int=number), tuple(map(partition, range(partitions))))


def test_only_the_maps_that_change_are_copied() -> None:
    first = ClusterImage().apply([TopicCreated(topic("a"))])
    second = first.apply([ProducerIdsAllocated(1000)])
    assert second.topics is first.topics
    assert second.topics_by_id is first.topics_by_id
    third = second.apply([TopicCreated(topic("b", number=2))])
    assert third.brokers is second.brokers
    assert set(second.topics) == {"a"}
    assert set(third.topics) == {"a", "b"}
    assert (first.version, second.version, third.version) == (1, 2, 3)


def test_a_partition_is_found_by_topic_and_index() -> None:
    image = ClusterImage().apply([TopicCreated(topic("a", 2))])
    assert image.partition("a", 1) == partition(1)
    assert image.partition("a", 2) is None
    assert image.partition("a", -1) is None
    assert image.partition("b", 0) is None


def test_a_topic_may_be_deleted_and_created_in_one_step() -> None:
    before = ClusterImage().apply([TopicCreated(topic("a"))])
    after = before.apply([TopicDeleted(topic("a")), TopicCreated(topic("a", number=2))])
    assert after.topics["a"].topic_id == uuid.UUID(int=2)
    assert set(after.topics_by_id) == {uuid.UUID(int=2)}


def random_image(dice: random.Random) -> ClusterImage:
    changes: list[Change] = []
    for name in dice.sample("abcdef", dice.randrange(7)):
        number = ord(name) * 10 + dice.randrange(2)
        changes.append(TopicCreated(topic(name, dice.randrange(1, 4), number)))
        if dice.random() < 0.5:
            changes.append(PartitionsChanged(name, (partition(0, dice.randrange(3)),)))
        if dice.random() < 0.5:
            changes.append(TopicConfigsChanged(name, {"retention.ms": str(dice.randrange(3))}))
    for broker_id in map(BrokerId, dice.sample(range(3), dice.randrange(3))):
        endpoint = Endpoint("PLAINTEXT", "h", 1, "PLAINTEXT")
        changes.append(BrokerRegistered(BrokerImage(broker_id, dice.randrange(3), (endpoint,))))
        changes.append(BrokerConfigsChanged(broker_id, {"a": str(dice.randrange(2))}))
    if dice.random() < 0.5:
        changes.append(BrokerConfigsChanged(None, {"a": "b"}))
    changes.append(ProducerIdsAllocated(dice.randrange(3)))
    return ClusterImage().apply(changes)


@pytest.mark.parametrize("seed", range(30))
def test_differences_lead_from_any_image_to_any_other(seed: int) -> None:
    dice = random.Random(seed)
    old, new = random_image(dice), random_image(dice)
    for name in set(old.topics) & set(new.topics):
        # Topics only grow.
        missing = len(old.topics[name].partitions) - len(new.topics[name].partitions)
        if missing > 0 and old.topics[name].topic_id == new.topics[name].topic_id:
            known = len(new.topics[name].partitions)
            added = tuple(partition(known + i) for i in range(missing))
            new = new.apply([PartitionsAdded(name, added)])
    found = old.apply(differences(old, new))
    assert found.topics == new.topics
    assert found.topics_by_id == new.topics_by_id
    assert found.brokers == new.brokers
    assert found.next_producer_id == new.next_producer_id
    assert found.default_broker_configs == new.default_broker_configs
    for broker_id in map(BrokerId, range(3)):
        assert found.broker_configs.get(broker_id, {}) == new.broker_configs.get(broker_id, {})
    for name, before in old.topics.items():
        if new.topics.get(name) == before:
            assert found.topics[name] is before
    assert differences(new, new) == []
