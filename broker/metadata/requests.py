"""What the controller is asked and what it answers: plain values, free of any wire format.

Every result has an ``error`` (``ErrorCode.NONE`` on success) and a ``message`` for the client
(None on success).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from broker.model.error_code import ErrorCode
from broker.model.ids import ZERO_TOPIC_ID, BrokerId, TopicId

#: In a new topic: whatever the broker's config says.
BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
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


@dataclass(frozen=True, slots=True)
class TopicReference:
    """A topic to delete: by name or by id, not by both."""

    name: str | None = None
    topic_id: TopicId = ZERO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class DeletedTopic(Result):
    name: str | None
    topic_id: TopicId = ZERO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """``partition_count`` is the new total; ``assignments`` are the replicas of the added ones."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class GrownTopic(Result):
    name: str


#: Kinds of resources that have settings, by their numbers in the protocol.
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """IncrementalAlterConfigs of one resource. ``changes``: (name, operation's number, value).

    ``resource_name`` of a broker is its id, or empty for the settings of all brokers.
    """

    resource_type: int
    resource_name: str
    changes: Sequence[tuple[str, int, str | None]]


@dataclass(frozen=True, slots=True)
class ConfigReplacement:
    """AlterConfigs of one resource: ``configs`` are all of its overrides from now on."""

    resource_type: int
    resource_name: str
    configs: Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class AlteredConfig(Result):
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
class RegisteredBroker(Result):
    broker_id: BrokerId
    broker_epoch: int = -1
