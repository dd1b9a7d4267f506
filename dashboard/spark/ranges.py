"""The fixed range of offsets that a run reads, and what of it was gone when it had read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway, OffsetAt
from dashboard.offset_range import Anchor, Bound, OffsetRange
from spark_tasks.job import PartitionRange

Position = Mapping[str, Mapping[str, int]]
"""``{topic: {partition: next offset}}``, numbers of partitions as text: JSON has no others."""


class RangeError(Exception):
    """The range cannot be told; said to a person."""


class Gap(NamedTuple):
    """Offsets ``[start, end)`` that were to be read and are gone."""

    topic: str
    partition: int
    start: int
    end: int


def find_ranges(
    gateway: Gateway,
    topics: Sequence[str],
    chosen: OffsetRange,
    position: Position | None = None,
) -> list[PartitionRange]:
    """Of every partition. ``position``: go on from there, where there is a place. Raises RangeError."""
    keys: list[TopicPartition] = []
    for name, view in gateway.topics(topics).items():
        if isinstance(view, KafkaFailure):
            raise RangeError(f"{name}: {view.message}")
        keys += view.keys
    starts, ends = (_asked(gateway, keys, at) for at in (OffsetAt.EARLIEST, OffsetAt.LATEST))
    at_start = _at_time(gateway, keys, chosen.start)
    at_end = _at_time(gateway, keys, chosen.end)
    found = []
    for key in keys:
        log_start, log_end = starts[key], ends[key]
        start = chosen.start.resolve(log_start, log_end, at_start.get(key, -1))
        end = log_end
        if chosen.end is not None:
            end = chosen.end.resolve(log_start, log_end, at_end.get(key, -1))
        place = (position or {}).get(key.topic, {}).get(str(key.partition))
        if place is not None:
            # A place behind the end is of a topic that was made anew.
            start = place if place <= log_end else log_start
        found.append(
            PartitionRange(key.topic, key.partition, start, max(start, end), log_start, log_end)
        )
    return sorted(found, key=lambda each: (each.topic, each.partition))


def _at_time(
    gateway: Gateway, keys: Sequence[TopicPartition], bound: Bound | None
) -> dict[TopicPartition, int]:
    if bound is None or bound.anchor is not Anchor.TIME:
        return {}
    return _asked(gateway, keys, bound.number)


def _asked(
    gateway: Gateway, keys: Sequence[TopicPartition], at: OffsetAt | int
) -> dict[TopicPartition, int]:
    found = {}
    for key, answer in gateway.offsets(keys, at).items():
        if isinstance(answer, KafkaFailure):
            raise RangeError(f"{key.topic}-{key.partition}: {answer.message}")
        found[key] = answer.offset
    return found


def find_gaps(gateway: Gateway, ranges: Sequence[PartitionRange]) -> list[Gap]:
    """Of what was to be read: offsets before the start that the logs have now. Raises RangeError."""
    keys = [TopicPartition(each.topic, each.partition) for each in ranges if each.start < each.end]
    starts = _asked(gateway, keys, OffsetAt.EARLIEST)
    found = []
    for each in ranges:
        start = starts.get(TopicPartition(each.topic, each.partition), each.start)
        if each.start < each.end and start > each.start:
            found.append(Gap(each.topic, each.partition, each.start, min(start, each.end)))
    return found


def compacted_topics(gateway: Gateway, topics: Sequence[str]) -> list[str]:
    """Those whose records may go by compaction; a cluster that does not tell has none."""
    found = []
    for name, views in gateway.topic_configs(topics, ["cleanup.policy"]).items():
        if isinstance(views, KafkaFailure):
            continue
        if any("compact" in (view.value or "") for view in views):
            found.append(name)
    return sorted(found)


def position_after(ranges: Sequence[PartitionRange]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for each in ranges:
        found.setdefault(each.topic, {})[str(each.partition)] = each.end
    return found


def as_json(ranges: Sequence[PartitionRange]) -> list[list[Any]]:
    """Short, for a run's row."""
    return [
        [each.topic, each.partition, each.start, each.end, each.log_start, each.log_end]
        for each in ranges
    ]


def from_json(rows: Sequence[Sequence[Any]]) -> list[PartitionRange]:
    return [PartitionRange(*row) for row in rows]
