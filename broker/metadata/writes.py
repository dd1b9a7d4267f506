"""Changes of the image as operations on the store's tree. Pure; the reverse is ``load``.

Nodes that hold nothing are not kept: a config node exists while there is an override. So what an
operation must be (create, set or delete) can be told from the image before the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from broker.metadata import znodes
from broker.metadata.changes import (
    BrokerConfigsChanged,
    BrokerGone,
    BrokerRegistered,
    Change,
    ClusterChange,
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
from broker.metadata.image import ClusterImage, PartitionImage, TopicImage
from broker.metadata.store import Create, Delete, Operation, SetData
from broker.model.ids import BrokerId


def operations_for(
    before: ClusterImage, changes: Sequence[Change], controller_id: BrokerId
) -> Iterator[Operation]:
    """What to submit so that the store holds ``before.apply(changes)``: made one by one, because
    one topic may need tens of thousands.

    At most one change a topic and kind: each is seen against ``before``.
    """
    for change in changes:
        yield from _operations(before, change, controller_id)
    if any(isinstance(change, BrokerRegistered | BrokerGone) for change in changes):
        yield SetData(znodes.BROKER_EPOCHS, _broker_epochs(before, changes))


def _operations(
    before: ClusterImage, change: Change, controller_id: BrokerId
) -> Iterator[Operation]:
    if isinstance(change, TopicCreated):
        yield from _create_topic(change.topic, before.controller_epoch)
    elif isinstance(change, TopicDeleted):
        yield from _delete_topic(change.topic)
    elif isinstance(change, PartitionsAdded):
        topic = before.topics[change.topic]
        yield SetData(
            znodes.topic_path(topic.name), _assignment(topic, topic.partitions + change.partitions)
        )
        yield from _create_partitions(topic.name, change.partitions, before.controller_epoch)
    elif isinstance(change, PartitionsChanged):
        yield from _reassign(before.topics[change.topic], change.partitions)
        for partition in change.partitions:
            # The node's version is the partition epoch: nobody else may have moved it.
            yield SetData(
                znodes.partition_state_path(change.topic, partition.index),
                _state(partition, before.controller_epoch),
                partition.partition_epoch - 1,
            )
    elif isinstance(change, TopicConfigsChanged):
        path = znodes.topic_config_path(change.topic)
        yield from _configs(path, before.topics[change.topic].configs, change.configs)
    else:
        yield from _cluster_operations(before, change, controller_id)


def _cluster_operations(
    before: ClusterImage, change: ClusterChange, controller_id: BrokerId
) -> Iterator[Operation]:
    if isinstance(change, BrokerConfigsChanged):
        if change.broker_id is None:
            known = before.default_broker_configs
        else:
            known = before.broker_configs.get(change.broker_id, {})
        yield from _configs(znodes.broker_config_path(change.broker_id), known, change.configs)
    elif isinstance(change, GroupConfigsChanged):
        known = before.group_configs.get(change.group_id, {})
        yield from _configs(znodes.group_config_path(change.group_id), known, change.configs)
    elif isinstance(change, ProducerIdsAllocated):
        yield _producer_ids(before.next_producer_id, change.next_producer_id, controller_id)
    elif isinstance(change, FeaturesChanged):
        data = znodes.encode_features(change.levels, change.epoch)
        if before.features_epoch < 0:
            yield Create(znodes.FEATURES, data)
        else:
            yield SetData(znodes.FEATURES, data)
    elif isinstance(change, BrokerRegistered | BrokerGone | ControllerElected):
        # Read from the store; of brokers only the epochs are written, once for all.
        return
    else:
        assert_never(change)


def _broker_epochs(before: ClusterImage, changes: Sequence[Change]) -> bytes:
    epochs = {broker_id: broker.broker_epoch for broker_id, broker in before.brokers.items()}
    for change in changes:
        if isinstance(change, BrokerRegistered):
            epochs[change.broker.broker_id] = change.broker.broker_epoch
        elif isinstance(change, BrokerGone):
            epochs.pop(change.broker_id, None)
    return znodes.encode_broker_epochs(epochs)


def _reassign(topic: TopicImage, changed: Sequence[PartitionImage]) -> Iterator[Operation]:
    """The topic's node, where replicas have changed: it holds those of all partitions."""
    if all(_placement(topic.partitions[after.index]) == _placement(after) for after in changed):
        return
    partitions = list(topic.partitions)
    for after in changed:
        partitions[after.index] = after
    yield SetData(znodes.topic_path(topic.name), _assignment(topic, partitions))


def _placement(partition: PartitionImage) -> tuple[tuple[BrokerId, ...], ...]:
    return partition.replicas, partition.adding, partition.removing


def _create_topic(topic: TopicImage, controller_epoch: int) -> Iterator[Operation]:
    yield from _configs(znodes.topic_config_path(topic.name), {}, topic.configs)
    yield Create(znodes.topic_path(topic.name), _assignment(topic, topic.partitions))
    yield Create(znodes.partitions_path(topic.name))
    yield from _create_partitions(topic.name, topic.partitions, controller_epoch)


def _create_partitions(
    topic: str, partitions: Sequence[PartitionImage], controller_epoch: int
) -> Iterator[Operation]:
    for partition in partitions:
        path = znodes.partition_path(topic, partition.index)
        yield Create(path)
        yield Create(f"{path}/state", _state(partition, controller_epoch))


def _delete_topic(topic: TopicImage) -> Iterator[Operation]:
    for partition in topic.partitions:
        path = znodes.partition_path(topic.name, partition.index)
        yield Delete(f"{path}/state")
        yield Delete(path)
    yield Delete(znodes.partitions_path(topic.name))
    yield Delete(znodes.topic_path(topic.name))
    yield from _configs(znodes.topic_config_path(topic.name), topic.configs, {})


def _configs(
    path: str, known: Mapping[str, str], configs: Mapping[str, str]
) -> Iterator[Operation]:
    if not configs:
        if known:
            yield Delete(path)
    elif known:
        yield SetData(path, znodes.encode_configs(configs))
    else:
        yield Create(path, znodes.encode_configs(configs))


def _producer_ids(known: int, next_producer_id: int, controller_id: BrokerId) -> Operation:
    block = znodes.ProducerIdBlock(controller_id, known, next_producer_id - 1)
    data = znodes.encode_producer_ids(block)
    if known == 0:
        return Create(znodes.PRODUCER_IDS, data)
    return SetData(znodes.PRODUCER_IDS, data)


def _assignment(topic: TopicImage, partitions: Sequence[PartitionImage]) -> bytes:
    replicas = {partition.index: partition.replicas for partition in partitions}
    adding = {p.index: p.adding for p in partitions if p.adding}
    removing = {p.index: p.removing for p in partitions if p.removing}
    return znodes.encode_topic(znodes.TopicAssignment(topic.topic_id, replicas, adding, removing))


def _state(partition: PartitionImage, controller_epoch: int) -> bytes:
    return znodes.encode_partition_state(
        znodes.PartitionState(
            partition.leader_id,
            partition.leader_epoch,
            controller_epoch,
            tuple(sorted(partition.isr)),
        )
    )
