"""What Kafka's metadata records add up to: topics, partitions, configs, features, producer ids.

Records are replayed in order with Kafka's own rules (``TopicsDelta``, ``PartitionRegistration``,
``ConfigurationsDelta``). What stands between the begin and the end of a metadata transaction
counts when it ends, and never if it is aborted or left open at the end of the log. What Odradek has
no place for (access control entries, credentials, quotas, tokens) is counted, so that it can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker.adopt.metadata_record import MalformedRecord, MetadataRecord, decode_record
from broker.model.ids import TopicId

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
_RESOURCE_NAMES: Final = {8: "logger", 16: "client metrics", 32: "group"}

NO_LEADER: Final = -1
_LEADER_UNCHANGED: Final = -2

Uuids = tuple[TopicId, ...]


class InconsistentMetadata(Exception):
    """A record speaks of something that no record before it made."""


@dataclass(frozen=True, slots=True)
class KafkaPartition:
    """``directories[i]`` is the log directory of ``replicas[i]``; empty where Kafka did not say."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    directories: Uuids = ()
    #: Replicas that may lead without loss although they are not in the ISR (KIP-966).
    eligible: tuple[int, ...] = ()


@dataclass(slots=True)
class KafkaTopic:
    name: str
    topic_id: TopicId
    partitions: dict[int, KafkaPartition] = field(default_factory=dict)


@dataclass(slots=True)
class KafkaMetadata:
    """See the module's docstring."""

    topics: dict[TopicId, KafkaTopic] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    #: By broker id as text; "" for all brokers.
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    #: First producer id that was never given to a broker.
    next_producer_id: int = 0
    #: Broker id to the ids of its log directories, as it registered them.
    brokers: dict[int, Uuids] = field(default_factory=dict)
    #: What there is no place for: kind to the keys of what exists.
    others: dict[str, set[Any]] = field(default_factory=dict)

    @classmethod
    def replay(cls, payloads: Iterable[bytes]) -> KafkaMetadata:
        """Raises ``InconsistentMetadata`` or ``MalformedRecord``."""
        metadata = cls()
        for record in _committed(payloads):
            _APPLY.get(record.name, _ignore)(metadata, record.values)
        return metadata

    def topic_named(self, name: str) -> KafkaTopic | None:
        return next((topic for topic in self.topics.values() if topic.name == name), None)


def _committed(payloads: Iterable[bytes]) -> Iterable[MetadataRecord]:
    """The records without transactions, and those of transactions that ended well."""
    held: list[MetadataRecord] | None = None
    for number, payload in enumerate(payloads):
        try:
            record = decode_record(payload)
        except MalformedRecord as error:
            raise MalformedRecord(f"metadata record {number}: {error}") from error
        if record is None:
            continue
        if record.name == "BeginTransactionRecord":
            held = []
        elif record.name == "AbortTransactionRecord":
            held = None
        elif record.name == "EndTransactionRecord":
            yield from held or ()
            held = None
        elif held is not None:
            held.append(record)
        else:
            yield record


Values = Mapping[str, Any]


def _ignore(metadata: KafkaMetadata, values: Values) -> None:
    """A record that says nothing an adoption needs."""


def _topic(metadata: KafkaMetadata, values: Values) -> None:
    topic = KafkaTopic(values["Name"], values["TopicId"])
    metadata.topics[topic.topic_id] = topic


def _remove_topic(metadata: KafkaMetadata, values: Values) -> None:
    topic = metadata.topics.pop(values["TopicId"], None)
    if topic is None:
        raise InconsistentMetadata(f"topic {values['TopicId']} is removed, but was never made")
    metadata.topic_configs.pop(topic.name, None)


def _topic_of(metadata: KafkaMetadata, values: Values) -> KafkaTopic:
    topic = metadata.topics.get(values["TopicId"])
    if topic is None:
        raise InconsistentMetadata(f"a partition of topic {values['TopicId']}, which nobody made")
    return topic


def _partition(metadata: KafkaMetadata, values: Values) -> None:
    _topic_of(metadata, values).partitions[values["PartitionId"]] = KafkaPartition(
        values["Replicas"],
        values["Isr"],
        values["Leader"],
        values["LeaderEpoch"],
        values["PartitionEpoch"],
        values["Directories"],
        _eligible(values, ()),
    )


def _change_partition(metadata: KafkaMetadata, values: Values) -> None:
    topic = _topic_of(metadata, values)
    index = values["PartitionId"]
    before = topic.partitions.get(index)
    if before is None:
        raise InconsistentMetadata(f"{topic.name}-{index} is changed, but was never made")
    after = replace(
        before,
        replicas=_new(values["Replicas"], before.replicas),
        isr=_new(values["Isr"], before.isr),
        directories=_new(values["Directories"], before.directories),
        eligible=_eligible(values, before.eligible),
        partition_epoch=before.partition_epoch + 1,
    )
    if values["Leader"] != _LEADER_UNCHANGED:
        # Each time that a leader is named the epoch rises, also for the same one.
        after = replace(after, leader_id=values["Leader"], leader_epoch=before.leader_epoch + 1)
    topic.partitions[index] = after


def _new(given: tuple[Any, ...] | None, before: tuple[Any, ...]) -> tuple[Any, ...]:
    return before if given is None else given


def _eligible(values: Values, before: tuple[int, ...]) -> tuple[int, ...]:
    given = values["EligibleLeaderReplicas"]
    return before if given is None else given


def _config(metadata: KafkaMetadata, values: Values) -> None:
    kind, resource = values["ResourceType"], values["ResourceName"]
    name, value = values["Name"], values["Value"]
    if kind == TOPIC_RESOURCE:
        target = metadata.topic_configs
    elif kind == BROKER_RESOURCE:
        target = metadata.broker_configs
    else:
        what = f"{_RESOURCE_NAMES.get(kind, f'type {kind}')} setting"
        _keep(metadata, what, (resource, name), is_there=value is not None)
        return
    configs = target.setdefault(resource, {})
    if value is None:
        configs.pop(name, None)
    else:
        configs[name] = value
    if not configs:
        del target[resource]


def _feature(metadata: KafkaMetadata, values: Values) -> None:
    if values["FeatureLevel"]:
        metadata.features[values["Name"]] = values["FeatureLevel"]
    else:
        metadata.features.pop(values["Name"], None)


def _producer_ids(metadata: KafkaMetadata, values: Values) -> None:
    metadata.next_producer_id = max(metadata.next_producer_id, values["NextProducerId"])


def _register_broker(metadata: KafkaMetadata, values: Values) -> None:
    metadata.brokers[values["BrokerId"]] = values["LogDirs"]


def _change_broker(metadata: KafkaMetadata, values: Values) -> None:
    if values["LogDirs"]:
        metadata.brokers[values["BrokerId"]] = values["LogDirs"]


def _unregister_broker(metadata: KafkaMetadata, values: Values) -> None:
    metadata.brokers.pop(values["BrokerId"], None)


def _keep(metadata: KafkaMetadata, kind: str, key: object, *, is_there: bool) -> None:
    keys = metadata.others.setdefault(kind, set())
    if is_there:
        keys.add(key)
    else:
        keys.discard(key)
    if not keys:
        del metadata.others[kind]


def _counted(kind: str, *names: str, is_there: bool) -> Callable[[KafkaMetadata, Values], None]:
    def apply(metadata: KafkaMetadata, values: Values) -> None:
        _keep(metadata, kind, tuple(values[name] for name in names), is_there=is_there)

    return apply


def _quota(metadata: KafkaMetadata, values: Values) -> None:
    entity = tuple(sorted((e["EntityType"], e["EntityName"] or "") for e in values["Entity"]))
    _keep(metadata, "client quota", (entity, values["Key"]), is_there=not values["Remove"])


_ACL, _SCRAM, _TOKEN = "access control entry", "SCRAM credential", "delegation token"

_APPLY: Final[Mapping[str, Callable[[KafkaMetadata, Values], None]]] = {
    "TopicRecord": _topic,
    "RemoveTopicRecord": _remove_topic,
    "PartitionRecord": _partition,
    "PartitionChangeRecord": _change_partition,
    "ConfigRecord": _config,
    "FeatureLevelRecord": _feature,
    "ProducerIdsRecord": _producer_ids,
    "RegisterBrokerRecord": _register_broker,
    "BrokerRegistrationChangeRecord": _change_broker,
    "UnregisterBrokerRecord": _unregister_broker,
    "AccessControlEntryRecord": _counted(_ACL, "Id", is_there=True),
    "RemoveAccessControlEntryRecord": _counted(_ACL, "Id", is_there=False),
    "UserScramCredentialRecord": _counted(_SCRAM, "Name", "Mechanism", is_there=True),
    "RemoveUserScramCredentialRecord": _counted(_SCRAM, "Name", "Mechanism", is_there=False),
    "DelegationTokenRecord": _counted(_TOKEN, "TokenId", is_there=True),
    "RemoveDelegationTokenRecord": _counted(_TOKEN, "TokenId", is_there=False),
    "ClientQuotaRecord": _quota,
}
