"""Immutable picture of the cluster: what every reader of metadata holds.

Only the controller makes new images, by ``apply``; readers keep the one they started with. An
image is never changed, so a reference to it (or to a topic of it) may be kept and compared by
identity: a topic that did not change is the same object in the next image.

Cost: ``apply`` copies a dictionary only if something in it changed, once for all changes passed
together (10,000 topics: 0.1 ms for both topic maps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, assert_never

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
from broker.model.features import SupportedFeature
from broker.model.ids import NO_BROKER, BrokerId, TopicId
from broker.model.leadership import LeaderAndIsr

NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


def no_configs() -> Mapping[str, str]:
    """One object for all that have none."""
    return NO_CONFIGS


class PartitionImage(NamedTuple):
    """Who leads a partition. ``replicas[0]`` is the preferred leader; ISR is part of replicas."""

    index: int  # type: ignore[assignment]  # hides a method that nobody calls
    leader_id: BrokerId
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: frozenset[BrokerId]
    #: While it is being reassigned: new ones of ``replicas``, and those that are to go.
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def leadership(self) -> LeaderAndIsr:
        return LeaderAndIsr(*self[1:6])


@dataclass(frozen=True, slots=True)
class TopicImage:
    """``partitions[i].index == i``; ``configs`` are the overrides only."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=no_configs)


class Endpoint(NamedTuple):
    """Where clients (or brokers) reach a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker. ``broker_epoch`` grows with every registration."""

    broker_id: BrokerId
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[SupportedFeature, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """See the module's docstring. ``version`` grows by one with every image."""

    cluster_id: str = ""
    version: int = 0
    controller_id: BrokerId = NO_BROKER
    controller_epoch: int = 0
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    #: Dynamic configs of all brokers, and of single ones on top of them.
    default_broker_configs: Mapping[str, str] = field(default_factory=no_configs)
    broker_configs: Mapping[BrokerId, Mapping[str, str]] = field(default_factory=dict)
    #: Settings of single groups, for those that have any.
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    #: Finalised levels above 0, and how often they were changed; -1: none were ever finalised.
    features: Mapping[str, int] = field(default_factory=dict)
    features_epoch: int = -1
    #: What made this image out of the one before.
    changes: tuple[Change, ...] = ()

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def apply(self, changes: Sequence[Change]) -> ClusterImage:
        """The next image. The changes must fit: they come from verdicts on this one."""
        builder = _Builder(self)
        for change in changes:
            builder.apply(change)
        return builder.build(tuple(changes))


class _Builder:
    """Copies what is touched, when it is first touched."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics: dict[str, TopicImage] | None = None
        self._topics_by_id: dict[TopicId, TopicImage] | None = None
        self._fields: dict[str, object] = {}

    def build(self, changes: tuple[Change, ...]) -> ClusterImage:
        fields = self._fields
        if self._topics is not None:
            fields["topics"] = self._topics
            fields["topics_by_id"] = self._topics_by_id
        return replace(
            self._image,
            version=self._image.version + 1,
            changes=changes,
            **fields,  # type: ignore[arg-type]
        )

    def apply(self, change: Change) -> None:
        if isinstance(change, TopicCreated):
            assert change.topic.name not in self._open_topics()
            self._put_topic(change.topic)
        elif isinstance(change, TopicDeleted):
            del self._open_topics()[change.topic.name]
            assert self._topics_by_id is not None
            del self._topics_by_id[change.topic.topic_id]
        elif isinstance(change, PartitionsAdded):
            topic = self._open_topics()[change.topic]
            assert change.partitions[0].index == len(topic.partitions)
            self._put_topic(replace(topic, partitions=topic.partitions + change.partitions))
        elif isinstance(change, PartitionsChanged):
            topic = self._open_topics()[change.topic]
            partitions = list(topic.partitions)
            for partition in change.partitions:
                partitions[partition.index] = partition
            self._put_topic(replace(topic, partitions=tuple(partitions)))
        elif isinstance(change, TopicConfigsChanged):
            topic = self._open_topics()[change.topic]
            self._put_topic(replace(topic, configs=change.configs))
        else:
            self._apply_to_cluster(change)

    def _apply_to_cluster(self, change: ClusterChange) -> None:
        fields = self._fields
        if isinstance(change, BrokerRegistered):
            self._open("brokers")[change.broker.broker_id] = change.broker
        elif isinstance(change, BrokerGone):
            del self._open("brokers")[change.broker_id]
        elif isinstance(change, BrokerConfigsChanged):
            if change.broker_id is None:
                fields["default_broker_configs"] = change.configs
            else:
                self._open("broker_configs")[change.broker_id] = change.configs
        elif isinstance(change, GroupConfigsChanged):
            if change.configs:
                self._open("group_configs")[change.group_id] = change.configs
            else:
                self._open("group_configs").pop(change.group_id, None)
        elif isinstance(change, ProducerIdsAllocated):
            fields["next_producer_id"] = change.next_producer_id
        elif isinstance(change, FeaturesChanged):
            fields["features"] = change.levels
            fields["features_epoch"] = change.epoch
        elif isinstance(change, ControllerElected):
            fields["controller_id"] = change.controller_id
            fields["controller_epoch"] = change.controller_epoch
        else:
            assert_never(change)

    def _open(self, name: str) -> dict[Any, Any]:
        """A small map of the image, to be changed."""
        found = self._fields.setdefault(name, dict(getattr(self._image, name)))
        assert isinstance(found, dict)
        return found

    def _open_topics(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._image.topics)
            self._topics_by_id = dict(self._image.topics_by_id)
        return self._topics

    def _put_topic(self, topic: TopicImage) -> None:
        self._open_topics()[topic.name] = topic
        assert self._topics_by_id is not None
        self._topics_by_id[topic.topic_id] = topic
