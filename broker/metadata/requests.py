"""What the controller is asked and what it answers: plain values, free of any wire format.

Every result has an ``error`` (``ErrorCode.NONE`` on success) and a ``message`` for the client
(None on success).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from broker.model.error_code import ErrorCode
from broker.model.ids import ZERO_TOPIC_ID, BrokerId, TopicId
from broker.model.leadership import LeaderAndIsr

#: In a new topic: whatever the broker's config says.
BROKER_DEFAULT = -1


class NewTopic(NamedTuple):
    """``assignments``: (partition index, replicas) pairs as the client sent them, duplicates too;
    both counts are then ``BROKER_DEFAULT``. ``configs``: (name, value) pairs likewise."""

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """Base of all results."""

    error: ErrorCode = field(default=ErrorCode.NONE, kw_only=True)
    message: str | None = field(default=None, kw_only=True)

    @property
    def is_success(self) -> bool:
        return self.error is ErrorCode.NONE


R = TypeVar("R", bound=Result)


def failed(result: R, error: ErrorCode, message: str | None) -> R:
    """The same result, turned into a failure (the write did not happen)."""
    return replace(result, error=error, message=message)


@dataclass(frozen=True, slots=True)
class CreatedTopic(Result):
    """``configs`` are the overrides that the topic has now (also in a validate-only answer)."""

    name: str
    topic_id: TopicId = ZERO_TOPIC_ID
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicReference(NamedTuple):
    """A topic to delete: by name or by id, not by both."""

    name: str | None = None
    topic_id: TopicId = ZERO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class DeletedTopic(Result):
    """``name`` is None for an id that no topic has."""

    name: str | None
    topic_id: TopicId = ZERO_TOPIC_ID


class MorePartitions(NamedTuple):
    """``partition_count`` is the new total; ``assignments`` are the replicas of the added ones."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class GrownTopic(Result):
    """A topic has the partitions that were asked for."""

    name: str


#: Kinds of resources that have settings, by their numbers in the protocol.
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32


class ConfigAlteration(NamedTuple):
    """IncrementalAlterConfigs of one resource. ``changes``: (name, operation's number, value).

    ``resource_name`` of a broker is its id, or empty for the settings of all brokers.
    """

    resource_type: int
    resource_name: str
    changes: Sequence[tuple[str, int, str | None]]


class ConfigReplacement(NamedTuple):
    """AlterConfigs of one resource: ``configs`` are all of its overrides from now on."""

    resource_type: int
    resource_name: str
    configs: Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class AlteredConfig(Result):
    """One resource's settings were changed."""

    resource_type: int
    resource_name: str


@dataclass(frozen=True, slots=True)
class ProducerIds(Result):
    """``count`` ids from ``first`` on belong to whoever asked."""

    first: int = -1
    count: int = 0


@dataclass(frozen=True, slots=True)
class RaisedEpochs(Result):
    """How many partitions got a new leader epoch."""

    partition_count: int = 0


@dataclass(frozen=True, slots=True)
class AlteredIsr(Result):
    """The partition's state as it was written; None for a proposal that was not."""

    state: LeaderAndIsr | None = None


class PartitionName(NamedTuple):
    topic: str
    index: int  # type: ignore[assignment]  # hides a method that nobody calls


class Reassignment(NamedTuple):
    """Where a partition is to go; None: a reassignment under way is cancelled."""

    topic: str
    index: int  # type: ignore[assignment]  # hides a method that nobody calls
    target: Sequence[BrokerId] | None


@dataclass(frozen=True, slots=True)
class Reassigned(Result):
    """One partition is on its way to other replicas, or there, or back."""

    topic: str
    index: int


@dataclass(frozen=True, slots=True)
class ElectedLeader(Result):
    """One partition is led by whom the election was to find."""

    topic: str
    index: int


class FeatureUpdate(NamedTuple):
    """A level to finalise; ``upgrade_type`` by its number in the protocol."""

    name: str
    level: int
    upgrade_type: int


@dataclass(frozen=True, slots=True)
class UpdatedFeatures(Result):
    """All levels of one request are finalised, or (validate-only) could be."""


@dataclass(frozen=True, slots=True)
class SettledBrokers(Result):
    """Brokers that came or went are in the image, and partitions led accordingly."""


@dataclass(frozen=True, slots=True)
class RegisteredBroker(Result):
    """``broker_epoch`` is that of the registration which holds from now on."""

    broker_id: BrokerId
    broker_epoch: int = -1
