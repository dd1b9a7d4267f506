"""Images and changes as JSON, as brokers pull them from the controller.

Version 0. Objects have short keys; a partition is a list, because there are many of them. Kinds of changes
that came later stand apart from the steps ("later"), so that an older broker in the cluster reads the rest. What
is not JSON, or lacks something, raises ``ValueError``: the other side is not one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from broker.metadata import znodes
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
from broker.metadata.image import (
    NO_CONFIGS,
    BrokerImage,
    ClusterImage,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from broker.metadata.image_feed import ImageUpdate
from broker.model.features import LevelRange, SupportedFeature
from broker.model.ids import BrokerId

VERSION = 0
#: Kinds of changes that brokers of the first release cannot read.
LATER = (FeaturesChanged, GroupConfigsChanged)


def encode_update(update: ImageUpdate) -> bytes:
    value: dict[str, object] = {"epoch": update.controller_epoch, "version": update.version}
    if update.image is not None:
        value["image"] = _image(update.image)
    else:
        value["base"] = update.base
        value["steps"] = [
            [_change(change) for change in step if not isinstance(change, LATER)]
            for step in update.steps
        ]
        value["later"] = [
            [_later_change(change) for change in step if isinstance(change, LATER)]
            for step in update.steps
        ]
    return json.dumps(value, separators=(",", ":")).encode()


def decode_update(data: bytes | memoryview) -> ImageUpdate:
    """Raises ``ValueError``."""
    try:
        value = json.loads(bytes(data))
        version = (int(value["epoch"]), int(value["version"]))
        if "image" in value:
            return ImageUpdate(*version, image=_read_image(value["image"], *version))
        later = value.get("later") or [()] * len(value["steps"])
        steps = [
            (*map(_read_change, step), *_read_later(more))
            for step, more in zip(value["steps"], later, strict=True)
        ]
        return ImageUpdate(*version, int(value["base"]), steps)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"this is no image: {error!r}") from error


# The whole


def _image(image: ClusterImage) -> dict[str, object]:
    return {
        "cluster": image.cluster_id,
        "controller": image.controller_id,
        "topics": [_topic(topic) for topic in image.topics.values()],
        "brokers": [_broker(broker) for broker in image.brokers.values()],
        "defaults": dict(image.default_broker_configs),
        "configs": {str(broker): dict(of) for broker, of in image.broker_configs.items()},
        "producer_id": image.next_producer_id,
        "groups": {group_id: dict(of) for group_id, of in image.group_configs.items()},
        "features": dict(image.features),
        "features_epoch": image.features_epoch,
    }


def _read_image(value: Mapping[str, Any], controller_epoch: int, version: int) -> ClusterImage:
    topics = [_read_topic(topic) for topic in value["topics"]]
    brokers = [_read_broker(broker) for broker in value["brokers"]]
    return ClusterImage(
        cluster_id=str(value["cluster"]),
        version=version,
        controller_id=BrokerId(value["controller"]),
        controller_epoch=controller_epoch,
        topics={topic.name: topic for topic in topics},
        topics_by_id={topic.topic_id: topic for topic in topics},
        brokers={broker.broker_id: broker for broker in brokers},
        default_broker_configs=_read_configs(value["defaults"]),
        broker_configs={
            BrokerId(int(broker)): _read_configs(of) for broker, of in value["configs"].items()
        },
        next_producer_id=int(value["producer_id"]),
        group_configs={
            str(group_id): _read_configs(of) for group_id, of in value.get("groups", {}).items()
        },
        features=dict(value.get("features", {})),
        features_epoch=int(value.get("features_epoch", -1)),
    )


# Parts


def _partition(partition: PartitionImage) -> list[object]:
    shown: list[object] = [
        partition.index,
        partition.leader_id,
        partition.leader_epoch,
        partition.partition_epoch,
        list(partition.replicas),
        sorted(partition.isr),
    ]
    if partition.adding or partition.removing:
        shown += [list(partition.adding), list(partition.removing)]
    return shown


def _read_partition(value: Sequence[Any]) -> PartitionImage:
    index, leader_id, leader_epoch, partition_epoch, replicas, isr, *moving = value
    adding, removing = moving or ((), ())
    return PartitionImage(
        index,
        leader_id,
        leader_epoch,
        partition_epoch,
        tuple(replicas),
        frozenset(isr),
        tuple(adding),
        tuple(removing),
    )


def _topic(topic: TopicImage) -> dict[str, object]:
    shown: dict[str, object] = {
        "name": topic.name,
        "id": znodes.topic_id_text(topic.topic_id),
        "partitions": [_partition(partition) for partition in topic.partitions],
    }
    if topic.configs:
        shown["configs"] = dict(topic.configs)
    return shown


def _read_topic(value: Mapping[str, Any]) -> TopicImage:
    return TopicImage(
        str(value["name"]),
        znodes.parse_topic_id(value["id"]),
        tuple(_read_partition(partition) for partition in value["partitions"]),
        _read_configs(value.get("configs", {})),
    )


def _broker(broker: BrokerImage) -> dict[str, object]:
    return {
        "id": broker.broker_id,
        "epoch": broker.broker_epoch,
        "endpoints": [list(endpoint) for endpoint in broker.endpoints],
        "rack": broker.rack,
        "features": [[name, *levels] for name, levels in broker.features],
    }


def _read_broker(value: Mapping[str, Any]) -> BrokerImage:
    return BrokerImage(
        BrokerId(value["id"]),
        int(value["epoch"]),
        tuple(Endpoint(*endpoint) for endpoint in value["endpoints"]),
        value["rack"],
        tuple(
            SupportedFeature(name, LevelRange(low, high))
            for name, low, high in value.get("features", ())
        ),
    )


def _read_configs(value: Mapping[str, str]) -> Mapping[str, str]:
    return dict(value) if value else NO_CONFIGS


# Changes


def _change(change: Change) -> list[object]:
    """Its kind, then what it says."""
    if isinstance(change, TopicCreated):
        return ["created", _topic(change.topic)]
    if isinstance(change, TopicDeleted):
        return ["deleted", _topic(change.topic)]
    if isinstance(change, PartitionsAdded):
        return ["added", change.topic, [_partition(each) for each in change.partitions]]
    if isinstance(change, PartitionsChanged):
        return ["changed", change.topic, [_partition(each) for each in change.partitions]]
    if isinstance(change, TopicConfigsChanged):
        return ["topic_configs", change.topic, dict(change.configs)]
    assert not isinstance(change, LATER)
    return _cluster_change(change)


def _cluster_change(
    change: BrokerConfigsChanged
    | BrokerRegistered
    | BrokerGone
    | ProducerIdsAllocated
    | ControllerElected,
) -> list[object]:
    if isinstance(change, BrokerConfigsChanged):
        return ["broker_configs", change.broker_id, dict(change.configs)]
    if isinstance(change, BrokerRegistered):
        return ["registered", _broker(change.broker)]
    if isinstance(change, BrokerGone):
        return ["gone", change.broker_id]
    if isinstance(change, ProducerIdsAllocated):
        return ["producer_ids", change.next_producer_id]
    if isinstance(change, ControllerElected):
        return ["elected", change.controller_id, change.controller_epoch]
    assert_never(change)


def _later_change(change: FeaturesChanged | GroupConfigsChanged) -> list[object]:
    if isinstance(change, GroupConfigsChanged):
        return ["group_configs", change.group_id, dict(change.configs)]
    return ["features", dict(change.levels), change.epoch]


def _read_partitions(value: Sequence[Sequence[Any]]) -> tuple[PartitionImage, ...]:
    return tuple(_read_partition(partition) for partition in value)


_READERS: Mapping[str, Callable[..., Change]] = {
    "created": lambda topic: TopicCreated(_read_topic(topic)),
    "deleted": lambda topic: TopicDeleted(_read_topic(topic)),
    "added": lambda topic, partitions: PartitionsAdded(topic, _read_partitions(partitions)),
    "changed": lambda topic, partitions: PartitionsChanged(topic, _read_partitions(partitions)),
    "topic_configs": lambda topic, configs: TopicConfigsChanged(topic, _read_configs(configs)),
    "broker_configs": lambda broker_id, configs: BrokerConfigsChanged(
        broker_id, _read_configs(configs)
    ),
    "registered": lambda broker: BrokerRegistered(_read_broker(broker)),
    "gone": BrokerGone,
    "producer_ids": ProducerIdsAllocated,
    "elected": ControllerElected,
}


_LATER_READERS: Mapping[str, Callable[..., Change]] = {
    "group_configs": lambda group_id, configs: GroupConfigsChanged(
        group_id, _read_configs(configs)
    ),
    "features": lambda levels, epoch: FeaturesChanged(dict(levels), epoch),
}


def _read_later(value: Sequence[Sequence[Any]]) -> list[Change]:
    """Those that are later still say nothing to us."""
    return [_LATER_READERS[kind](*says) for kind, *says in value if kind in _LATER_READERS]


def _read_change(value: Sequence[Any]) -> Change:
    kind, *says = value
    return _READERS[kind](*says)
