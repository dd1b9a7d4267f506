"""Turns what the client library returns and raises into the values of ``dashboard.cluster``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
)

from broker.model.ids import TopicPartition
from dashboard import wire
from dashboard.cluster import (
    BrokerView,
    KafkaFailure,
    PartitionView,
    TopicView,
)
from dashboard.groups import GroupListing, GroupView, MemberView

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
TRANSPORT_CODES = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._MSG_TIMED_OUT,
    }
)
TURNED_AWAY_CODES = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_STATE_WORDS = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}
_MISSING_CODES = frozenset(
    {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError._NOENT}
)


@contextlib.contextmanager
def library_failures() -> Iterator[None]:
    """The library's exceptions, and a broken socket of ours, as one kind of failure."""
    try:
        yield
    except KafkaException as error:
        raise failure_of_exception(error) from None
    except OSError as error:
        raise KafkaFailure("NOT_CONNECTED", reason_of(error), is_transport=True) from None


def failure_of_exception(error: KafkaException) -> KafkaFailure:
    cause = error.args[0]
    return (
        failure_of_error(cause)
        if isinstance(cause, KafkaError)
        else KafkaFailure("UNKNOWN", str(error))
    )


def failure_of_error(error: KafkaError) -> KafkaFailure:
    code, text = error.code(), error.str()
    if code in _MISSING_CODES:
        return KafkaFailure("UNKNOWN_TOPIC_OR_PARTITION", text.removeprefix("Local: "))
    if code < -1:
        return KafkaFailure(error.name().lstrip("_"), text, is_transport=code in TRANSPORT_CODES)
    return wire.failure_of(code, text.removeprefix("Broker: "))


def no_default_broker() -> KafkaFailure:
    return KafkaFailure(
        "UNSUPPORTED_VERSION",
        "cluster-wide broker defaults can only be reached over an unencrypted listener for now",
    )


def reason_of(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error)


def library_resource_type(number: int) -> Any:
    return {
        wire.TOPIC_RESOURCE: RESOURCE_TOPIC,
        wire.BROKER_RESOURCE: RESOURCE_BROKER,
    }[number]


def topic_view(topic: Any) -> TopicView:
    partitions = tuple(
        PartitionView(
            index=index,
            leader=partition.leader if partition.leader >= 0 else None,
            leader_epoch=None,
            replicas=tuple(partition.replicas),
            isr=tuple(partition.isrs),
        )
        for index, partition in sorted(topic.partitions.items())
    )
    return TopicView(topic.topic, None, topic.topic in INTERNAL_TOPICS, partitions)


def described_topic(topic: Any) -> TopicView:
    partitions = tuple(
        PartitionView(
            index=partition.id,
            leader=partition.leader.id if partition.leader is not None else None,
            leader_epoch=None,
            replicas=tuple(node.id for node in partition.replicas),
            isr=tuple(node.id for node in partition.isr),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.id)
    )
    # The library writes ids in standard base64, Kafka in the URL-safe kind.
    topic_id = str(topic.topic_id).replace("+", "-").replace("/", "_").rstrip("=")
    return TopicView(topic.name, topic_id, topic.is_internal, partitions)


def listed_group(listing: Any) -> GroupListing:
    return GroupListing(listing.group_id, _state(listing.state), _group_type(listing.type))


def group_view(description: Any) -> GroupView:
    node = description.coordinator
    return GroupView(
        group=description.group_id,
        state=_state(description.state) or "",
        group_type=_group_type(description.type),
        coordinator=None if node is None else BrokerView(node.id, node.host, node.port),
        assignor=description.partition_assignor or None,
        members=tuple(
            MemberView(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.host,
                _assigned(member.assignment) or (),
                _assigned(member.target_assignment),
            )
            for member in description.members
        ),
    )


def _assigned(assignment: Any) -> tuple[TopicPartition, ...] | None:
    if assignment is None:
        return None
    return tuple(sorted(TopicPartition(p.topic, p.partition) for p in assignment.topic_partitions))


def _state(state: Any) -> str | None:
    """Kafka's word for a state; the library does not know those of newer groups."""
    if state is None or state.name == "UNKNOWN":
        return None
    return _STATE_WORDS.get(state.name, str(state.name).capitalize())


def _group_type(group_type: Any) -> str | None:
    if group_type is None or group_type.name == "UNKNOWN":
        return None
    return str(group_type.name).lower()
