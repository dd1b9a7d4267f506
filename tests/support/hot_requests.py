"""What a hot request decoder returns, compared with the same request as a kio message."""

from __future__ import annotations

from typing import Any

from broker.model.ids import ZERO_TOPIC_ID
from broker.protocol.hot import fetch, list_offsets, metadata, produce


def milliseconds(duration: Any) -> int:
    return round(duration.total_seconds() * 1000)


def same_produce(version: int, request: produce.ProduceRequest, message: Any) -> None:
    assert request.transactional_id == message.transactional_id
    assert request.acks == message.acks
    assert request.timeout_ms == milliseconds(message.timeout)
    assert [
        (key, [(index, None if records is None else bytes(records)) for index, records in parts])
        for key, parts in request.topics
    ] == [
        (
            topic_key(version >= 13, topic, "name"),
            [(p.index, p.records) for p in topic.partition_data],
        )
        for topic in message.topic_data
    ]
    assert all(
        records is None or not records.readonly
        for _, parts in request.topics
        for _, records in parts
    )


def topic_key(by_id: bool, topic: Any, name: str) -> Any:
    return (topic.topic_id or ZERO_TOPIC_ID) if by_id else getattr(topic, name)


def same_fetch(version: int, request: fetch.FetchRequest, message: Any) -> None:
    if version >= 15:
        replica = (message.replica_state.replica_id, message.replica_state.replica_epoch)
    else:
        replica = (message.replica_id, -1)
    assert (request.replica_id, request.replica_epoch) == replica
    assert request.max_wait_ms == milliseconds(message.max_wait)
    assert request.min_bytes == message.min_bytes
    assert request.max_bytes == message.max_bytes
    assert request.isolation_level == message.isolation_level
    assert request.session_id == getattr(message, "session_id", 0)
    assert request.session_epoch == getattr(message, "session_epoch", -1)
    assert request.rack_id == getattr(message, "rack_id", "")
    assert [
        (key, [fetch_partition(p, "max_bytes") for p in partitions])
        for key, partitions in request.topics
    ] == [
        (
            topic_key(version >= 13, topic, "topic"),
            [fetch_partition(p, "partition_max_bytes") for p in topic.partitions],
        )
        for topic in message.topics
    ]
    forgotten = getattr(message, "forgotten_topics_data", ())
    assert request.forgotten == [
        (topic_key(version >= 13, topic, "topic"), list(topic.partitions)) for topic in forgotten
    ]


def fetch_partition(partition: Any, max_bytes_name: str) -> tuple[int, ...]:
    return (
        partition.partition,
        getattr(partition, "current_leader_epoch", -1),
        partition.fetch_offset,
        getattr(partition, "last_fetched_epoch", -1),
        getattr(partition, "log_start_offset", -1),
        getattr(partition, max_bytes_name),
    )


def same_list_offsets(version: int, request: list_offsets.ListOffsetsRequest, message: Any) -> None:
    assert request.replica_id == message.replica_id
    assert request.isolation_level == getattr(message, "isolation_level", 0)
    assert request.timeout_ms == (milliseconds(message.timeout) if version >= 10 else 0)
    assert request.topics == [
        (
            topic.name,
            [
                (p.partition_index, getattr(p, "current_leader_epoch", -1), wire_timestamp(p))
                for p in topic.partitions
            ],
        )
        for topic in message.topics
    ]


def wire_timestamp(partition: Any) -> int:
    value = partition.timestamp
    if value is None:
        return -1
    return value if isinstance(value, int) else round(value.timestamp() * 1000)


def same_metadata(version: int, request: metadata.MetadataRequest, message: Any) -> None:
    topics = message.topics
    if version == 0 and not topics:
        topics = None
    assert request.topics == (
        None
        if topics is None
        else [(getattr(topic, "topic_id", None), topic.name) for topic in topics]
    )
    for flag, otherwise in (
        ("allow_auto_topic_creation", True),
        ("include_cluster_authorized_operations", False),
        ("include_topic_authorized_operations", False),
    ):
        assert getattr(request, flag) == getattr(message, flag, otherwise)
