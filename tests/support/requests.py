"""The requests that nearly every conformance test sends, over a raw connection."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support import processes, record_batches
from tests.support.record_batches import Record
from tests.support.wire import Struct, Wire

NO_ERROR = 0
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
MIB = 1 << 20


#: How the names of settings begin that Kafka 4 does not have: ours, and what early Kafka had.
NOT_KAFKAS = ("odradek.", "zookeeper.", "replica.lag.max.messages")


def now_ms() -> int:
    return int(time.time() * 1000)


def new_topic_name(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def create_topic(
    wire: Wire,
    name: str | None = None,
    *,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
) -> str:
    """Create a topic (a new name unless given), of as many replicas as its broker is set to, and wait for its leaders."""
    name = name or new_topic_name()
    answer = wire.request(
        "create_topics",
        7,
        timeout=30000,
        topics=[
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": -1,
                "configs": [
                    {"name": key, "value": value} for key, value in (configs or {}).items()
                ],
            }
        ],
    )
    (topic,) = answer.topics
    assert topic.error_code == NO_ERROR, topic
    wait_for_leaders(wire, name, partitions)
    return name


def wait_for_leaders(wire: Wire, name: str, partitions: int) -> None:
    def has_leaders() -> bool:
        topic = describe_topic(wire, name)
        return (
            topic.error_code == NO_ERROR
            and len(topic.partitions) >= partitions
            and all(p.error_code == NO_ERROR and p.leader_id >= 0 for p in topic.partitions)
            # Apache Kafka tells of a leader a moment before that leader is ready.
            and all(
                list_offset(wire, name, LATEST, partition=index).error_code == NO_ERROR
                for index in range(partitions)
            )
        )

    processes.wait_until(has_leaders, 30, f"leaders of {name}")


def describe_topic(wire: Wire, name: str, version: int = 12) -> Struct:
    answer = wire.request(
        "metadata", version, topics=[{"name": name}], allow_auto_topic_creation=False
    )
    (topic,) = answer.topics
    return topic


def topic_id(wire: Wire, name: str) -> uuid.UUID:
    found: uuid.UUID = describe_topic(wire, name).topic_id
    return found


def delete_topic(wire: Wire, name: str) -> None:
    answer = wire.request("delete_topics", 6, timeout=30000, topics=[{"name": name}])
    assert answer.responses[0].error_code == NO_ERROR, answer


def produce_fields(
    topic: str | uuid.UUID, partition: int, data: bytes | None, *, acks: int = -1
) -> dict[str, Any]:
    name = {"topic_id": topic} if isinstance(topic, uuid.UUID) else {"name": topic}
    return {
        "acks": acks,
        "timeout": 10000,
        "topic_data": [{**name, "partition_data": [{"index": partition, "records": data}]}],
    }


def try_produce(
    wire: Wire,
    topic: str | uuid.UUID,
    data: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int = 9,
) -> Struct:
    """The partition's part of the answer, whatever it says."""
    answer = wire.request("produce", version, **produce_fields(topic, partition, data, acks=acks))
    (entry,) = answer.responses
    (found,) = entry.partition_responses
    assert isinstance(found, Struct)
    return found


def produce(wire: Wire, topic: str | uuid.UUID, data: bytes, **options: Any) -> int:
    """The base offset that the batch got."""
    answer = try_produce(wire, topic, data, **options)
    assert answer.error_code == NO_ERROR, answer
    base_offset: int = answer.base_offset
    return base_offset


def produce_values(
    wire: Wire, topic: str, values: Sequence[bytes | None], *, partition: int = 0, codec: int = 0
) -> int:
    """One batch of records without keys, stamped with the present time."""
    data = record_batches.batch(values, codec=codec, timestamp=now_ms())
    return produce(wire, topic, data, partition=partition)


def fetch_fields(
    topic: str | uuid.UUID,
    offsets: Mapping[int, int],
    *,
    max_wait: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 * MIB,
    partition_max_bytes: int = MIB,
    isolation_level: int = 0,
    **more: Any,
) -> dict[str, Any]:
    name = {"topic_id": topic} if isinstance(topic, uuid.UUID) else {"topic": topic}
    partitions = [
        {
            "partition": index,
            "fetch_offset": offset,
            "partition_max_bytes": partition_max_bytes,
            "current_leader_epoch": more.pop("current_leader_epoch", -1),
        }
        for index, offset in offsets.items()
    ]
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "topics": [{**name, "partitions": partitions}],
        "forgotten_topics_data": [],
        **more,
    }


def fetch(
    wire: Wire,
    topic: str | uuid.UUID,
    offset: int,
    *,
    partition: int = 0,
    version: int = 11,
    **options: Any,
) -> Struct:
    """The partition's part of a sessionless fetch."""
    answer = wire.request("fetch", version, **fetch_fields(topic, {partition: offset}, **options))
    assert getattr(answer, "error_code", NO_ERROR) == NO_ERROR, answer
    (entry,) = answer.responses
    (found,) = entry.partitions
    assert isinstance(found, Struct)
    return found


def read_all(
    wire: Wire, topic: str, *, partition: int = 0, start: int = 0, **options: Any
) -> list[Record]:
    """Every data record from `start` to the high watermark, with contiguity of batches checked."""
    found: list[Record] = []
    offset = start
    while True:
        part = fetch(wire, topic, offset, partition=partition, max_wait=0, **options)
        assert part.error_code == NO_ERROR, part
        if offset >= part.high_watermark:
            return found
        before = offset
        for batch in record_batches.batches(part.records or b""):
            assert batch.is_crc_right, batch
            if not batch.is_control:
                found += [record for record in batch.records() if record.offset >= start]
            offset = batch.last_offset + 1
        assert offset > before, f"nothing at {before}, high watermark {part.high_watermark}"


def list_offset(
    wire: Wire,
    topic: str,
    timestamp: int,
    *,
    partition: int = 0,
    version: int = 7,
    isolation_level: int = 0,
) -> Struct:
    answer = wire.request(
        "list_offsets",
        version,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "timestamp": timestamp,
                        "current_leader_epoch": -1,
                    }
                ],
            }
        ],
    )
    (entry,) = answer.topics
    (found,) = entry.partitions
    assert isinstance(found, Struct)
    return found


def end_offset(wire: Wire, topic: str, *, partition: int = 0) -> int:
    found: int = list_offset(wire, topic, LATEST, partition=partition).offset
    return found


def start_offset(wire: Wire, topic: str, *, partition: int = 0) -> int:
    found: int = list_offset(wire, topic, EARLIEST, partition=partition).offset
    return found


def init_producer(wire: Wire, **fields: Any) -> tuple[int, int]:
    """(producer id, epoch); waits while the broker is still loading."""
    found: list[Struct] = []

    def is_answered() -> bool:
        answer = wire.request(
            "init_producer_id",
            4,
            **{"transactional_id": None, "transaction_timeout": 60000, **fields},
        )
        found[:] = [answer]
        return answer.error_code not in (14, 15, 16)

    processes.wait_until(is_answered, 30, "a producer id")
    assert found[0].error_code == NO_ERROR, found
    return found[0].producer_id, found[0].producer_epoch


def delete_records(wire: Wire, topic: str, offset: int, *, partition: int = 0) -> Struct:
    answer = wire.request(
        "delete_records",
        2,
        timeout=10000,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}],
    )
    (entry,) = answer.topics
    (found,) = entry.partitions
    assert isinstance(found, Struct)
    return found


TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE = 2, 4, 8
CLIENT_METRICS_RESOURCE, GROUP_RESOURCE = 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe_configs(
    wire: Wire,
    resource_type: int,
    name: str,
    keys: Sequence[str] | None = None,
    *,
    version: int = 4,
    **options: bool,
) -> Struct:
    answer = wire.request(
        "describe_configs",
        version,
        resources=[
            {
                "resource_type": resource_type,
                "resource_name": name,
                "configuration_keys": None if keys is None else list(keys),
            }
        ],
        **options,
    )
    (found,) = answer.results
    assert isinstance(found, Struct)
    return found


def topic_config(wire: Wire, name: str, key: str) -> Struct:
    (found,) = describe_configs(wire, TOPIC_RESOURCE, name, [key]).configs
    assert isinstance(found, Struct)
    return found


def alter_config(
    wire: Wire,
    name: str,
    key: str,
    value: str | None,
    *,
    operation: int = SET,
    resource_type: int = TOPIC_RESOURCE,
) -> Struct:
    answer = wire.request(
        "incremental_alter_configs",
        1,
        validate_only=False,
        resources=[
            {
                "resource_type": resource_type,
                "resource_name": name,
                "configs": [{"name": key, "config_operation": operation, "value": value}],
            }
        ],
    )
    (found,) = answer.responses
    assert isinstance(found, Struct)
    return found
