"""Reads a fixed range of offsets through Spark's own Kafka connector."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from spark_tasks.job import PartitionRange

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
GROUP_PREFIX: Final = "odradek-report"
SAMPLE_RECORDS: Final = 1_000
"""Of each partition, from the start of its range: a repeated run infers the same schema."""


def options(
    bootstrap: str,
    properties: Mapping[str, str],
    ranges: Sequence[PartitionRange],
    *,
    min_partitions: int = 0,
) -> dict[str, str]:
    """What Spark's ``kafka`` source is told.

    Offsets that are gone do not fail the run: whoever asked compares the start of the log before
    and after, and says which are missing.
    """
    by_topic: dict[str, list[int]] = {}
    for each in ranges:
        by_topic.setdefault(each.topic, []).append(each.partition)
    found = {f"kafka.{name}": value for name, value in properties.items()}
    found |= {
        "kafka.bootstrap.servers": bootstrap,
        "assign": json.dumps(by_topic),
        "startingOffsets": _offsets((each, each.start) for each in ranges),
        "endingOffsets": _offsets((each, each.end) for each in ranges),
        "failOnDataLoss": "false",
        "groupIdPrefix": GROUP_PREFIX,
    }
    if min_partitions > len(ranges):
        found["minPartitions"] = str(min_partitions)
    return found


def read(
    session: Any, bootstrap: str, properties: Mapping[str, str], ranges: Sequence[PartitionRange]
) -> Any:
    """``COLUMNS`` of every record in the ranges; an empty range needs no broker."""
    wanted = [each for each in ranges if each.start < each.end]
    if not wanted:
        return session.createDataFrame(
            [],
            "topic string, partition int, offset long, timestamp timestamp, key binary, value binary",
        )
    cores = session.sparkContext.defaultParallelism
    reader = session.read.format("kafka")
    return (
        reader.options(**options(bootstrap, properties, wanted, min_partitions=cores))
        .load()
        .select(*COLUMNS)
    )


def sample_of(ranges: Iterable[PartitionRange]) -> list[PartitionRange]:
    return [replace(each, end=min(each.end, each.start + SAMPLE_RECORDS)) for each in ranges]


def _offsets(places: Iterable[tuple[PartitionRange, int]]) -> str:
    found: dict[str, dict[str, int]] = {}
    for each, offset in places:
        found.setdefault(each.topic, {})[str(each.partition)] = offset
    return json.dumps(found)
