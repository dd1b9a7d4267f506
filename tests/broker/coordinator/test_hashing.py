"""Java's string hash: values as a Java virtual machine gives them."""

from __future__ import annotations

import pytest

from broker.coordinator.hashing import hash_map_order, java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("polygenelubricants", 0x80000000),  # Integer.MIN_VALUE
        ("Grüße", 69215351),
        ("\U0001f600", 1772899),
    ],
)
def test_java_hash(text: str, number: int) -> None:
    assert java_hash(text) == number


def test_a_hash_without_an_absolute_value_has_a_partition() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@pytest.mark.parametrize(
    ("group_id", "index"),
    # As Apache Kafka 4.4 placed them among 4 partitions; the first two hashes are negative.
    [("modern", 1), ("aborted", 1), ("mixed", 3), ("left", 3), ("readers", 0)],
)
def test_partitions_of_groups(group_id: str, index: int) -> None:
    assert partition_for(group_id, 4) == index


def test_order_of_a_small_hash_map() -> None:
    assert hash_map_order(["roundrobin", "range", "sticky"]) == ["sticky", "range", "roundrobin"]
