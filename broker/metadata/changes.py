"""The steps from one cluster image to the next. Values; ``ClusterImage.apply`` knows what they do.

The server's listener gets them with each new image (``ClusterImage.changes``), so that it need not
compare 10,000 topics to find the one that is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.model.ids import BrokerId

if TYPE_CHECKING:
    from broker.metadata.image import BrokerImage, PartitionImage, TopicImage


class TopicCreated(NamedTuple):
    topic: TopicImage


class TopicDeleted(NamedTuple):
    """The topic as it was. Its directories are now strays: see ``controller.delete_topics``."""

    topic: TopicImage


class PartitionsAdded(NamedTuple):
    topic: str
    partitions: tuple[PartitionImage, ...]


class PartitionsChanged(NamedTuple):
    """New leader, ISR or epochs. Only the partitions that changed."""

    topic: str
    partitions: tuple[PartitionImage, ...]


class TopicConfigsChanged(NamedTuple):
    """All overrides of the topic as they are now."""

    topic: str
    configs: Mapping[str, str]


class BrokerConfigsChanged(NamedTuple):
    """All dynamic configs of one broker, or of all (``broker_id`` None), as they are now."""

    broker_id: BrokerId | None
    configs: Mapping[str, str]


class GroupConfigsChanged(NamedTuple):
    """All settings of one group as they are now."""

    group_id: str
    configs: Mapping[str, str]


class BrokerRegistered(NamedTuple):
    broker: BrokerImage


class BrokerGone(NamedTuple):
    broker_id: BrokerId


class ProducerIdsAllocated(NamedTuple):
    next_producer_id: int


class FeaturesChanged(NamedTuple):
    """All finalised levels above 0 as they are now, and how often they were changed before."""

    levels: Mapping[str, int]
    epoch: int


class ControllerElected(NamedTuple):
    controller_id: BrokerId
    controller_epoch: int


#: Of no topic.
ClusterChange: TypeAlias = (
    BrokerConfigsChanged
    | GroupConfigsChanged
    | BrokerRegistered
    | BrokerGone
    | ProducerIdsAllocated
    | FeaturesChanged
    | ControllerElected
)

Change: TypeAlias = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | PartitionsChanged
    | TopicConfigsChanged
    | ClusterChange
)
