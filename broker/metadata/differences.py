"""What changed between two images that were not made from each other.

For the controller that read the store anew after a doubtful write: its listener is told of changes
as always, and what did not change stays the same object.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.metadata.changes import (
    BrokerConfigsChanged,
    BrokerGone,
    BrokerRegistered,
    Change,
    ControllerElected,
    FeaturesChanged,
    GroupConfigsChanged,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.image import NO_CONFIGS, ClusterImage, TopicImage


def differences(old: ClusterImage, new: ClusterImage) -> list[Change]:
    """``old.apply(differences(old, new))`` says the same as ``new``."""
    return [*_topics(old, new), *_brokers(old, new), *_cluster(old, new)]


def _topics(old: ClusterImage, new: ClusterImage) -> Iterator[Change]:
    for name, topic in old.topics.items():
        after = new.topics.get(name)
        if after is None or after.topic_id != topic.topic_id:
            yield TopicDeleted(topic)
    for name, topic in new.topics.items():
        before = old.topics.get(name)
        if before is None or before.topic_id != topic.topic_id:
            yield TopicCreated(topic)
        else:
            yield from _topic(before, topic)


def _topic(old: TopicImage, new: TopicImage) -> Iterator[Change]:
    known = len(old.partitions)
    assert len(new.partitions) >= known, f"{old.name} has fewer partitions than before"
    changed = tuple(
        after
        for before, after in zip(old.partitions, new.partitions, strict=False)
        if before != after
    )
    if changed:
        yield PartitionsChanged(new.name, changed)
    if len(new.partitions) > known:
        yield PartitionsAdded(new.name, new.partitions[known:])
    if old.configs != new.configs:
        yield TopicConfigsChanged(new.name, new.configs)


def _brokers(old: ClusterImage, new: ClusterImage) -> Iterator[Change]:
    for broker_id in old.brokers.keys() - new.brokers.keys():
        yield BrokerGone(broker_id)
    for broker_id, broker in new.brokers.items():
        if old.brokers.get(broker_id) != broker:
            yield BrokerRegistered(broker)
    for broker_id in old.broker_configs.keys() | new.broker_configs.keys():
        configs = new.broker_configs.get(broker_id, NO_CONFIGS)
        if old.broker_configs.get(broker_id, NO_CONFIGS) != configs:
            yield BrokerConfigsChanged(broker_id, configs)
    for group_id in old.group_configs.keys() | new.group_configs.keys():
        configs = new.group_configs.get(group_id, NO_CONFIGS)
        if old.group_configs.get(group_id, NO_CONFIGS) != configs:
            yield GroupConfigsChanged(group_id, configs)
    if old.default_broker_configs != new.default_broker_configs:
        yield BrokerConfigsChanged(None, new.default_broker_configs)


def _cluster(old: ClusterImage, new: ClusterImage) -> Iterator[Change]:
    if old.next_producer_id != new.next_producer_id:
        yield ProducerIdsAllocated(new.next_producer_id)
    if old.features_epoch != new.features_epoch or old.features != new.features:
        yield FeaturesChanged(new.features, new.features_epoch)
    controller = (new.controller_id, new.controller_epoch)
    if (old.controller_id, old.controller_epoch) != controller:
        yield ControllerElected(*controller)
