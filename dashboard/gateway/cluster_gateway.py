"""What a cluster is asked and told, apart from records."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from broker.model.ids import TopicPartition
from dashboard import wire
from dashboard.cluster import (
    DEFAULT_BROKER,
    BrokerView,
    ClusterView,
    ConfigChange,
    ConfigOperation,
    ConfigView,
    KafkaFailure,
    OffsetView,
    Record,
    TopicView,
    config_view,
)
from dashboard.gateway.cluster_link import ClusterLink
from dashboard.gateway.first_records import first_records
from dashboard.gateway.group_gateway import GroupGateway
from dashboard.gateway.group_reader import Assigned, GroupReader, Revoked
from dashboard.gateway.group_survey import GroupSurvey
from dashboard.gateway.move_gateway import MoveGateway
from dashboard.gateway.record_reader import RecordReader
from dashboard.gateway.record_writer import RecordWriter
from dashboard.gateway.transaction_gateway import TransactionGateway
from dashboard.gateway.translate import (
    described_topic,
    library_failures,
    library_resource_type,
    no_default_broker,
    topic_view,
)

_OPERATIONS = {
    ConfigOperation.SET: AlterConfigOpType.SET,
    ConfigOperation.DELETE: AlterConfigOpType.DELETE,
    ConfigOperation.APPEND: AlterConfigOpType.APPEND,
    ConfigOperation.SUBTRACT: AlterConfigOpType.SUBTRACT,
}

T = TypeVar("T")

CONSUMER_GROUP_HEARTBEAT = (68, 0)
LEADER_ATTEMPTS = 5
LEADER_PAUSE_S = 0.2
LEASE_ATTEMPTS = 25
"""A leader that is there, but new, tells no latest offsets for 3.3 s: an old one might lead elsewhere."""
VISIBLE_ATTEMPTS = 40
VISIBLE_PAUSE_S = 0.05
_NOT_LEADING_YET = frozenset(
    {"NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE"}
)
_LEADER_IN_CHANGE = _NOT_LEADING_YET | {"LEADER_NOT_AVAILABLE"}

_UNKNOWN_HERE = frozenset({"Unknown partition", "Unknown topic"})
MOST_REFRESHED = 20
"""Topics that are looked at again one by one; with more, all of them at once."""


class OffsetAt(Enum):
    """The special timestamps of ListOffsets that every cluster knows."""

    EARLIEST = "earliest"
    LATEST = "latest"
    MAX_TIMESTAMP = "max_timestamp"


def library_version() -> str:
    """Version of the client library below."""
    return (
        f"confluent-kafka {confluent_kafka.version()}, librdkafka {confluent_kafka.libversion()[0]}"
    )


class Gateway:
    """What one cluster is asked and told; ``groups`` has what is about consumer groups,
    ``group_survey`` what is asked of all of them, ``transactions`` what is about those, ``moves`` where
    partitions lie."""

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 10.0,
        is_verbose: bool = False,
    ) -> None:
        self._link = ClusterLink(bootstrap, properties, timeout_s=timeout_s, is_verbose=is_verbose)
        self._cluster: ClusterView | None = None
        self.groups = GroupGateway(self._link)
        self.group_survey = GroupSurvey(self._link, self.groups)
        self.transactions = TransactionGateway(self._link)
        self.moves = MoveGateway(self._link)

    @property
    def is_plain(self) -> bool:
        return self._link.is_plain

    @property
    def bootstrap(self) -> str:
        return self._link.bootstrap

    def also_by(self, brokers: Iterable[BrokerView]) -> None:
        """Find the cluster by these, too, should the bootstrap servers be gone one day."""
        self._link.also_by(broker.address for broker in brokers)

    def check(self) -> None:
        """Raise a transport failure unless one of the bootstrap servers answers.

        Cheap enough to be asked first by every command.
        """
        self._link.check()

    # What exists

    def cluster(self) -> ClusterView:
        """Brokers and all topics, as one Metadata answer tells them (topic ids it leaves out)."""
        try:
            with library_failures():
                metadata: Any = self._link.admin().list_topics(timeout=self._link.timeout_s)
        except KafkaFailure as failure:
            raise self._link.reason_of(failure) from None
        self._cluster = ClusterView(
            cluster_id=metadata.cluster_id,
            controller_id=metadata.controller_id if metadata.controller_id >= 0 else None,
            brokers=tuple(
                BrokerView(broker.id, broker.host, broker.port)
                for _, broker in sorted(metadata.brokers.items())
            ),
            topics=tuple(topic_view(topic) for _, topic in sorted(metadata.topics.items())),
        )
        return self._cluster

    def brokers(self) -> tuple[BrokerView, ...]:
        """The brokers with their racks, which ``cluster`` does not know."""
        return self._link.brokers()

    def topics(self, names: Collection[str]) -> dict[str, TopicView | KafkaFailure]:
        """The named topics with all that the cluster tells of them; never creates one."""
        if self._link.serves(wire.DESCRIBE_TOPIC_PARTITIONS) and names:
            with contextlib.suppress(OSError), self._link.connect() as connection:
                return connection.topics(names)
        with library_failures():
            futures = self._link.admin().describe_topics(
                TopicCollection(list(names)), request_timeout=self._link.timeout_s
            )
        return {
            name: outcome if isinstance(outcome, KafkaFailure) else described_topic(outcome)
            for name, outcome in self._link.outcomes(futures).items()
        }

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        at: OffsetAt | int,
        *,
        read_committed: bool = False,
    ) -> dict[TopicPartition, OffsetView | KafkaFailure]:
        """ListOffsets of many partitions; ``at`` may be a timestamp in milliseconds."""
        spec: dict[OffsetAt, Callable[[], Any]] = {
            OffsetAt.EARLIEST: OffsetSpec.earliest,
            OffsetAt.LATEST: OffsetSpec.latest,
            OffsetAt.MAX_TIMESTAMP: OffsetSpec.max_timestamp,
        }
        wanted = OffsetSpec.for_timestamp(at) if isinstance(at, int) else spec[at]()
        isolation = IsolationLevel["READ_COMMITTED" if read_committed else "READ_UNCOMMITTED"]

        def ask(keys: Sequence[TopicPartition]) -> Mapping[Any, Future[Any]]:
            return self._link.admin().list_offsets(
                {ClientPartition(*key): wanted for key in keys},
                isolation_level=isolation,
                request_timeout=self._link.timeout_s,
            )

        return {
            key: (
                outcome
                if isinstance(outcome, KafkaFailure)
                else OffsetView(outcome.offset, outcome.timestamp)
            )
            for key, outcome in self._by_partition(list(partitions), ask).items()
        }

    def log_sizes(self) -> dict[TopicPartition, int] | None:
        """Bytes of each partition on its leader; None where the cluster cannot be asked."""
        if not self._link.serves(wire.DESCRIBE_LOG_DIRS):
            return None
        cluster = self._cluster or self.cluster()
        by_broker = self.broker_log_sizes(cluster.brokers)
        return {
            key: by_broker[partition.leader][key]
            for topic in cluster.topics
            for key, partition in zip(topic.keys, topic.partitions, strict=True)
            if partition.leader is not None and key in by_broker.get(partition.leader, {})
        }

    def broker_log_sizes(
        self, brokers: Iterable[BrokerView]
    ) -> dict[int, dict[TopicPartition, int]]:
        """Bytes of each partition by broker; brokers that cannot be asked are left out."""
        return self._of_directories(brokers, lambda connection: connection.log_sizes())

    def failed_directories(self, brokers: Iterable[BrokerView]) -> dict[int, tuple[str, ...]]:
        """Log directories that have failed, by broker; brokers that cannot be asked are left out."""
        return self._of_directories(brokers, lambda connection: connection.failed_directories())

    def _of_directories(
        self, brokers: Iterable[BrokerView], ask: Callable[[wire.WireConnection], T]
    ) -> dict[int, T]:
        found: dict[int, T] = {}
        if self._link.serves(wire.DESCRIBE_LOG_DIRS):
            for broker in brokers:
                with (
                    contextlib.suppress(OSError),
                    self._link.connect((broker.host, broker.port)) as connection,
                ):
                    found[broker.broker_id] = ask(connection)
        return found

    # Settings

    def topic_configs(
        self, names: Sequence[str], keys: Sequence[str] | None = None
    ) -> dict[str, list[ConfigView] | KafkaFailure]:
        """Settings of topics, sorted by name; only the named keys unless ``keys`` is None."""
        return self._describe_configs(wire.TOPIC_RESOURCE, names, keys)

    def broker_configs(
        self, names: Sequence[str], keys: Sequence[str] | None = None
    ) -> dict[str, list[ConfigView] | KafkaFailure]:
        """Settings of brokers by id as text; ``DEFAULT_BROKER`` holds the cluster's defaults."""
        found: dict[str, list[ConfigView] | KafkaFailure] = {}
        for name in names:
            # Settings of one broker are answered by that broker alone; the library routes them.
            if name == DEFAULT_BROKER:
                found.update(self._describe_configs(wire.BROKER_RESOURCE, [name], keys))
            elif (missing := self._missing_broker(name)) is not None:
                found[name] = missing
            else:
                found.update(self._describe_by_library(wire.BROKER_RESOURCE, [name], keys))
        return found

    def alter_topic_configs(
        self, changes: Mapping[str, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> dict[str, KafkaFailure | None]:
        return self._alter_by_library(wire.TOPIC_RESOURCE, changes, validate_only)

    def alter_broker_configs(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> KafkaFailure | None:
        if name != DEFAULT_BROKER:
            missing = self._missing_broker(name)
            if missing is not None:
                return missing
            outcome = self._alter_by_library(wire.BROKER_RESOURCE, {name: changes}, validate_only)
        elif self._link.serves(wire.INCREMENTAL_ALTER_CONFIGS):
            with library_failures(), self._link.connect() as connection:
                outcome = connection.alter_configs(
                    wire.BROKER_RESOURCE, {name: changes}, validate_only=validate_only
                )
        else:
            return no_default_broker()
        return outcome.get(name)

    # Changes

    def create_topics(
        self,
        names: Sequence[str],
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> dict[str, KafkaFailure | None]:
        """-1 leaves a count to the broker. Returns once the new topics can be seen, if they soon are:
        brokers learn of a topic from the controller a moment after it was accepted."""
        new = [
            NewTopic(name, partitions, replication_factor, config=dict(configs or {}))
            for name in names
        ]
        with library_failures():
            outcomes = self._link.done(
                self._link.admin().create_topics(
                    new, validate_only=validate_only, **self._link.timeouts()
                )
            )
        if not validate_only:
            self._await_topics([name for name, failure in outcomes.items() if failure is None])
        return outcomes

    def _await_topics(self, names: Collection[str]) -> None:
        for _ in range(VISIBLE_ATTEMPTS):
            found = self.topics(names) if names else {}
            if not any(isinstance(view, KafkaFailure) for view in found.values()):
                return
            time.sleep(VISIBLE_PAUSE_S)

    def delete_topics(self, names: Sequence[str]) -> dict[str, KafkaFailure | None]:
        with library_failures():
            return self._link.done(
                self._link.admin().delete_topics(list(names), **self._link.timeouts())
            )

    def create_partitions(
        self, name: str, total: int, *, validate_only: bool = False
    ) -> KafkaFailure | None:
        with library_failures():
            futures = self._link.admin().create_partitions(
                [NewPartitions(name, total)], validate_only=validate_only, **self._link.timeouts()
            )
            return self._link.done(futures)[name]

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaFailure]:
        """Forget what lies below these offsets; the new log start offset by partition."""

        def ask(keys: Sequence[TopicPartition]) -> Mapping[Any, Future[Any]]:
            asked = [ClientPartition(*key, before[key]) for key in keys]
            return self._link.admin().delete_records(asked, **self._link.timeouts())

        return {
            key: outcome if isinstance(outcome, KafkaFailure) else outcome.low_watermark
            for key, outcome in self._by_partition(list(before), ask).items()
        }

    # Records

    def reader(
        self,
        starts: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        **properties_of_library: Any,
    ) -> RecordReader:
        """Read from these offsets on. No group: nothing is committed, nobody is disturbed."""
        own: dict[str, Any] = {
            "group.id": "odradek-cli",
            "enable.auto.commit": False,
            **properties_of_library,
        }
        properties = self._reader_properties(own, read_committed=read_committed)
        with library_failures():
            return RecordReader(properties, starts, self._link.timeout_s)

    def first_records(
        self, starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Record | None]:
        """The first record at or after each offset; None where there is none."""
        own: dict[str, Any] = {"group.id": "odradek-cli", "enable.auto.commit": False}
        with library_failures():
            return first_records(
                self._reader_properties(own, read_committed=True), starts, self._link.timeout_s
            )

    def group_reader(
        self,
        group: str,
        topics: Sequence[str],
        *,
        from_end: bool,
        read_committed: bool,
        on_assigned: Assigned,
        on_revoked: Revoked,
    ) -> GroupReader:
        """Read as a member of a group, from where it is; ``from_end``: where it is nowhere yet."""
        properties = self._reader_properties(
            {"group.id": group}, from_end=from_end, read_committed=read_committed
        )
        is_newer = str(properties.get("group.protocol", "classic")).lower() == "consumer"
        if is_newer and self.is_plain and not self._link.serves(CONSUMER_GROUP_HEARTBEAT):
            # The library would try on for ever, without a word.
            raise KafkaFailure(
                "UNSUPPORTED_VERSION",
                "the cluster does not serve group.protocol=consumer, only classic",
            )
        with library_failures():
            return GroupReader(properties, topics, self._link.timeout_s, on_assigned, on_revoked)

    def _reader_properties(
        self, own: Mapping[str, Any], *, read_committed: bool, from_end: bool = False
    ) -> dict[str, Any]:
        return self._link.client_properties(
            **{
                "enable.partition.eof": True,
                "auto.offset.reset": "latest" if from_end else "earliest",
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                "fetch.wait.max.ms": 100,
                **own,
            },
        )

    def writer(self, topic: str, **properties: Any) -> RecordWriter:
        """Write to one topic. Keys find the partition that the Java client would choose."""
        defaults = {
            "partitioner": "murmur2_random",
            # The broker's max.message.bytes decides, not the library's copy of it.
            "message.max.bytes": 1_000_000_000,
            # How long a topic may be unknown before its records fail.
            "topic.metadata.propagation.max.ms": min(5_000, int(self._link.timeout_s * 1000)),
            "message.timeout.ms": max(30_000, int(self._link.timeout_s * 1000)),
        }
        with library_failures():
            return RecordWriter(topic, self._link.client_properties(**{**defaults, **properties}))

    # Below

    def _missing_broker(self, name: str) -> KafkaFailure | None:
        """The library waits its whole timeout for a broker that does not exist: ask first."""
        known = [str(broker.broker_id) for broker in (self._cluster or self.cluster()).brokers]
        if name in known:
            return None
        return KafkaFailure(
            "BROKER_NOT_AVAILABLE", f"no broker {name!r} in this cluster, only {', '.join(known)}"
        )

    def _describe_configs(
        self, resource_type: int, names: Sequence[str], keys: Sequence[str] | None
    ) -> dict[str, list[ConfigView] | KafkaFailure]:
        if self._link.serves(wire.DESCRIBE_CONFIGS):
            with contextlib.suppress(OSError), self._link.connect() as connection:
                found = connection.describe_configs(resource_type, names, keys)
                return {
                    name: sorted(views, key=lambda view: view.name)
                    if isinstance(views, list)
                    else views
                    for name, views in found.items()
                }
        return self._describe_by_library(resource_type, names, keys)

    def _describe_by_library(
        self, resource_type: int, names: Sequence[str], keys: Sequence[str] | None
    ) -> dict[str, list[ConfigView] | KafkaFailure]:
        if DEFAULT_BROKER in names:
            return {DEFAULT_BROKER: no_default_broker()}
        resources = [ConfigResource(library_resource_type(resource_type), name) for name in names]
        if not resources:
            return {}
        with library_failures():
            futures = self._link.admin().describe_configs(
                resources, request_timeout=self._link.timeout_s
            )
        return {
            resource.name: (
                outcome
                if isinstance(outcome, KafkaFailure)
                else [
                    config_view(
                        entry,
                        entry.source,
                        is_read_only=entry.is_read_only,
                        synonyms=entry.synonyms.values(),
                    )
                    for name, entry in sorted(outcome.items())
                    if keys is None or name in keys
                ]
            )
            for resource, outcome in self._link.outcomes(futures).items()
        }

    def _alter_by_library(
        self,
        resource_type: int,
        changes: Mapping[str, Sequence[ConfigChange]],
        validate_only: bool,
    ) -> dict[str, KafkaFailure | None]:
        resources = [
            ConfigResource(
                library_resource_type(resource_type),
                name,
                incremental_configs=[
                    ConfigEntry(
                        change.name,
                        change.value,
                        incremental_operation=_OPERATIONS[change.operation],
                    )
                    for change in of_name
                ],
            )
            for name, of_name in changes.items()
        ]
        with library_failures():
            futures = self._link.admin().incremental_alter_configs(
                resources, validate_only=validate_only, request_timeout=self._link.timeout_s
            )
            return {key.name: failure for key, failure in self._link.done(futures).items()}

    def _by_partition(
        self,
        keys: Sequence[TopicPartition],
        ask: Callable[[Sequence[TopicPartition]], Mapping[Any, Future[Any]]],
    ) -> dict[TopicPartition, Any]:
        """Outcomes by partition. A leader that is only just being found is asked again."""
        found: dict[TopicPartition, Any] = {}
        left = list(keys)
        for attempt in range(LEASE_ATTEMPTS):
            if attempt >= LEADER_ATTEMPTS:
                left = [key for key in left if _is_not_leading_yet(found.get(key))]
            if not left:
                break
            if attempt:
                time.sleep(LEADER_PAUSE_S)
            with library_failures():
                futures = ask(left)
            for key, outcome in self._link.outcomes(futures).items():
                found[TopicPartition(key.topic, key.partition)] = _answered(outcome)
            silent = [key for key in left if _is_silent(found.get(key))]
            unknown = [key for key in left if _is_unknown_here(found.get(key))]
            left = [key for key in left if _is_leader_in_change(found.get(key))]
            if attempt == 0:
                left += unknown
                silent += unknown
            self._refresh({key.topic for key in silent})
        return found

    def _refresh(self, names: Collection[str]) -> None:
        """Let the library look again: partitions that were added since are not known to it, and by itself it asks a
        leader that is gone for minutes."""
        asked: list[dict[str, str]] = [{"topic": name} for name in names]
        for one in asked if len(asked) <= MOST_REFRESHED else [{}]:
            with contextlib.suppress(KafkaFailure), library_failures():
                self._link.admin().list_topics(**one, timeout=self._link.timeout_s)


_NO_ANSWER = KafkaFailure("LEADER_NOT_AVAILABLE", "the partition's leader did not answer")


def _answered(outcome: Any) -> Any:
    """Of a leader that could not be reached the library tells an offset that it made up, and no error."""
    if getattr(outcome, "offset", None) == confluent_kafka.OFFSET_INVALID:
        return _NO_ANSWER
    return outcome


def _is_silent(outcome: object) -> bool:
    return outcome is _NO_ANSWER


def _is_unknown_here(outcome: object) -> bool:
    """The library alone says that it does not exist, from what it remembers; no broker was asked."""
    return isinstance(outcome, KafkaFailure) and outcome.message in _UNKNOWN_HERE


def _is_not_leading_yet(outcome: object) -> bool:
    return isinstance(outcome, KafkaFailure) and outcome.code in _NOT_LEADING_YET


def _is_leader_in_change(outcome: object) -> bool:
    return isinstance(outcome, KafkaFailure) and outcome.code in _LEADER_IN_CHANGE
