"""Names of directories and files, as Kafka has them."""

from __future__ import annotations

import uuid

import pytest

from broker.model.ids import TopicPartition
from broker.storage.layout import (
    MAX_NAME_LENGTH,
    is_marked_for_deletion,
    marked_directory_name,
    parse_partition_directory_name,
    parse_segment_file_name,
    partition_directory_name,
    segment_file_name,
)


def test_segment_files_are_named_by_twenty_digits() -> None:
    assert segment_file_name(42, ".log") == "00000000000000000042.log"
    assert parse_segment_file_name("00000000000000000042.log") == (42, ".log")
    assert parse_segment_file_name("00000000000000000042.log.deleted") == (42, ".log.deleted")


@pytest.mark.parametrize(
    "name",
    ["42.log", "leader-epoch-checkpoint", "0000000000000000004x.log", "00000000000000000042"],
)
def test_other_names_are_no_segment_files(name: str) -> None:
    assert parse_segment_file_name(name) is None


@pytest.mark.parametrize("topic", ["orders", "a-b", "a.b_c-9", "-"])
def test_partition_directories_are_parsed_back(topic: str) -> None:
    topic_partition = TopicPartition(topic, 12)
    assert (
        parse_partition_directory_name(partition_directory_name(topic_partition)) == topic_partition
    )


@pytest.mark.parametrize("name", ["metadata", "t-", "-3", "t-0-stray", "t-0.abc-delete", "t-x"])
def test_other_directories_hold_no_partition(name: str) -> None:
    assert parse_partition_directory_name(name) is None


def test_a_marked_directory_fits_into_a_name_and_is_known_again() -> None:
    name = marked_directory_name(TopicPartition("t" * 249, 9999), uuid.uuid4(), "-delete")
    assert len(name) <= MAX_NAME_LENGTH
    assert is_marked_for_deletion(name)
    assert parse_partition_directory_name(name) is None
