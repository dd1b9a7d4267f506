"""What records add up to; the golden log is one that Kafka wrote."""

import uuid

import pytest

from broker.adopt.kafka_metadata import InconsistentMetadata, KafkaMetadata
from broker.adopt.metadata_log import read_metadata
from tests.broker.adopt.kafka_directory import (
    ABORT,
    BEGIN,
    END,
    config_record,
    frame,
    int32,
    leader_record,
    partition_record,
    remove_record,
    topic_record,
)
from tests.broker.adopt.test_metadata_record import GOLDEN

TOPIC = uuid.UUID(int=1000)


def partition(leader_epoch: int = 4) -> bytes:
    return partition_record(TOPIC, 0, leader_epoch=leader_epoch)


def change(leader: int | None = None) -> bytes:
    if leader is None:
        return frame(5, 0, int32(0) + TOPIC.bytes + b"\0")
    return leader_record(TOPIC, 0, leader)


def names(*payloads: bytes) -> list[str]:
    return sorted(topic.name for topic in KafkaMetadata.replay(payloads).topics.values())


def test_the_golden_log() -> None:
    metadata = KafkaMetadata.replay(read_metadata(GOLDEN).payloads)
    assert {t.name: len(t.partitions) for t in metadata.topics.values()} == {
        "first": 4,
        "second": 2,
    }
    assert metadata.topic_configs == {
        "first": {"retention.ms": "1000000000", "max.message.bytes": "777777"}
    }
    assert metadata.broker_configs == {
        "": {"log.retention.ms": "99999999", "message.max.bytes": "2000000"},
        "1": {"log.cleaner.threads": "2"},
    }
    assert metadata.next_producer_id == 1000
    assert metadata.features["metadata.version"] > 0
    assert {kind: len(keys) for kind, keys in metadata.others.items()} == {
        "access control entry": 1,
        "SCRAM credential": 1,
        "client quota": 1,
    }
    # Stopped cleanly: every leader has gone.
    assert {p.leader_id for t in metadata.topics.values() for p in t.partitions.values()} == {-1}
    assert list(metadata.brokers) == [1]


def test_naming_a_leader_raises_the_epoch_also_for_the_same_one() -> None:
    metadata = KafkaMetadata.replay(
        [topic_record("t", TOPIC), partition(), change(leader=1), change()]
    )
    found = metadata.topics[TOPIC].partitions[0]
    assert (found.leader_id, found.leader_epoch, found.partition_epoch) == (1, 5, 2)


def test_a_removed_topic_takes_its_settings_with_it() -> None:
    removed = remove_record(TOPIC)
    metadata = KafkaMetadata.replay(
        [topic_record("t", TOPIC), config_record(2, "t", "retention.ms", "1"), removed]
    )
    assert (metadata.topics, metadata.topic_configs) == ({}, {})


def test_settings_are_set_and_taken_away() -> None:
    metadata = KafkaMetadata.replay(
        [
            config_record(2, "t", "a", "1"),
            config_record(2, "t", "b", "2"),
            config_record(2, "t", "a", None),
            config_record(4, "", "c", "3"),
            config_record(4, "1", "d", "4"),
            config_record(4, "1", "d", None),
            config_record(32, "group", "e", "5"),
        ]
    )
    assert metadata.topic_configs == {"t": {"b": "2"}}
    assert metadata.broker_configs == {"": {"c": "3"}}
    assert metadata.others == {"group setting": {("group", "e")}}


@pytest.mark.parametrize(
    ("payloads", "found"),
    [
        ([BEGIN, topic_record("in", TOPIC), END, topic_record("out", TOPIC)], ["in", "out"]),
        ([BEGIN, topic_record("in", TOPIC), ABORT, topic_record("out", TOPIC)], ["out"]),
        ([topic_record("out", TOPIC), BEGIN, topic_record("in", TOPIC)], ["out"]),
        (
            [BEGIN, topic_record("in", TOPIC), ABORT, BEGIN, topic_record("again", TOPIC), END],
            ["again"],
        ),
    ],
    ids=["committed", "aborted", "left open", "tried again"],
)
def test_a_transaction_counts_when_it_ends_well(payloads: list[bytes], found: list[str]) -> None:
    ids = iter(range(1000, 2000))
    fresh = [
        payload[:-17] + uuid.UUID(int=next(ids)).bytes + b"\0" if payload[1] == 2 else payload
        for payload in payloads
    ]
    assert names(*fresh) == found


@pytest.mark.parametrize("payloads", [[partition()], [topic_record("t", TOPIC), change()]])
def test_a_record_about_nothing_is_refused(payloads: list[bytes]) -> None:
    with pytest.raises(InconsistentMetadata):
        KafkaMetadata.replay(payloads)
