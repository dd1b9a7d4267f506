"""The small files, in Kafka's formats; damaged ones count as absent."""

from __future__ import annotations

import uuid

import pytest

from broker.model.ids import TopicPartition
from broker.storage.checkpoints import (
    MetaProperties,
    encode_clean_shutdown,
    encode_epochs,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
    parse_epochs,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)

OFFSETS = [(TopicPartition("a-b.c", 0), 12), (TopicPartition("z", 11), 0)]


def test_offsets_are_lines_behind_a_version_and_a_count() -> None:
    data = encode_offsets(OFFSETS)
    assert data == b"0\n2\na-b.c 0 12\nz 11 0\n"
    assert parse_offsets(data) == dict(OFFSETS)
    assert parse_offsets(b"0\n0\n") == {}


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", bytes(50)]
)
def test_damaged_offsets_count_as_absent(data: bytes) -> None:
    assert parse_offsets(data) is None
    assert parse_epochs(data) is None


def test_leader_epochs_are_lines_of_epoch_and_start() -> None:
    assert encode_epochs([(0, 0), (4, 17)]) == b"0\n2\n0 0\n4 17\n"
    assert parse_epochs(b"0\n2\n0 0\n4 17\n") == [(0, 0), (4, 17)]


def test_partition_metadata_holds_the_topic_id() -> None:
    topic_id = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
    data = encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w"
    assert parse_partition_metadata(data) == topic_id
    assert parse_partition_metadata(b"version: 0\n") is None
    assert parse_partition_metadata(b"topic_id: ?") is None


def test_meta_properties_name_cluster_node_and_directory() -> None:
    meta = MetaProperties("IeLgZ0pLQ9OwXUKmIJ3uKw", 7, uuid.UUID(int=3))
    assert parse_meta_properties(encode_meta_properties(meta)) == meta
    assert parse_meta_properties(b"version=0\nbroker.id=2\ncluster.id=abc\\=\\=\n") == (
        "abc==", 2, uuid.UUID(int=0),
    )  # fmt: skip
    assert parse_meta_properties(b"version=1\nnode.id=x\n") is None


def test_the_clean_mark_is_json() -> None:
    assert encode_clean_shutdown(5) == b'{"version":0,"brokerEpoch":5}'
