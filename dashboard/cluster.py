"""What a Kafka cluster looks like from outside: plain values that the gateway returns.

Shared by the command line and (later) the dashboard. Nothing here knows a client library, so
these names stay when the library below changes. A failed item is a value (``KafkaFailure`` in
place of its result): one leaderless partition must not take the rest of an answer with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from broker.model.ids import TopicPartition
from dashboard.probe import join_address

DEFAULT_BROKER = ""
"""Name of the resource that holds the cluster-wide defaults of dynamic broker settings."""


class KafkaFailure(Exception):
    """What a broker (or the way to it) refused, under Kafka's own name of the error.

    ``is_transport`` tells that no broker gave this answer: it could not be reached in time.
    """

    def __init__(self, code: str, message: str, *, is_transport: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.is_transport = is_transport


@dataclass(frozen=True, slots=True)
class BrokerView:
    broker_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        return join_address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """``None`` stands for what the cluster did not tell."""

    index: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_eligible_leader_replicas: tuple[int, ...] | None = None

    @property
    def is_leaderless(self) -> bool:
        return self.leader is None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionView, ...]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0

    @property
    def keys(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition.index) for partition in self.partitions]


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[BrokerView, ...]
    topics: tuple[TopicView, ...]


class ConfigSource(IntEnum):
    """Where a setting's value comes from, by the numbers of the wire."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def of(cls, number: int) -> ConfigSource:
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigView:
    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def config_view(
    entry: Any, source: int, *, is_read_only: bool, synonyms: Iterable[Any]
) -> ConfigView:
    """From what is told of a setting, by whomever; they differ in what they call two fields."""
    return ConfigView(
        name=entry.name,
        value=entry.value,
        source=ConfigSource.of(source),
        is_read_only=is_read_only,
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            ConfigSynonym(synonym.name, synonym.value, ConfigSource.of(synonym.source))
            for synonym in synonyms
        ),
    )


class ConfigOperation(IntEnum):
    """What to do with a key, by the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: ConfigOperation
    value: str | None = None


class OffsetView(NamedTuple):
    """An answer of ListOffsets. ``offset`` -1: no record fits."""

    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class Record:
    """One record as it is read. ``timestamp_type``: 0 none, 1 create time, 2 log append time."""

    topic: str
    partition: int
    offset: int
    timestamp_type: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class PartitionEnd(NamedTuple):
    """Said once each time that a reader has reached the end of a partition."""

    topic: str
    partition: int


@dataclass(slots=True)
class PartitionTally:
    """What a writer got acknowledged in one partition; no offsets when acks=0 asked for none."""

    count: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
