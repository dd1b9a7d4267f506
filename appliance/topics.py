"""What several topic commands need: choosing topics by name or pattern, and their figures."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import click

from appliance.failure import ItemError
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, OffsetView, TopicView
from dashboard.gateway import Gateway, OffsetAt

T = TypeVar("T")


def compile_pattern(text: str) -> re.Pattern[str]:
    """A pattern for whole topic names.

    Python's own engine is good enough here: names have 249 characters at most, and a pattern that
    takes for ever holds up nobody but the person who typed it.
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is not a regular expression: {error}") from None


def matching_names(names: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    return [name for name in names if pattern.fullmatch(name)]


def choose_names(
    gateway: Gateway, names: Sequence[str], pattern: str | None, *, internal: bool = False
) -> list[str]:
    """Named topics and those that match, each once; a pattern spares internal ones by default."""
    chosen = list(names)
    if pattern is not None:
        compiled = compile_pattern(pattern)
        topics = gateway.cluster().topics
        existing = [topic.name for topic in topics if internal or not topic.is_internal]
        chosen += matching_names(existing, compiled)
    return list(dict.fromkeys(chosen))


def require_names(names: Sequence[str], pattern: str | None) -> None:
    """Before anything is asked of a cluster."""
    if not names and pattern is None:
        raise click.UsageError("name a topic, or choose some with -r REGEX")
    if pattern is not None:
        compile_pattern(pattern)


def split_failures(
    found: dict[str, T | KafkaFailure],
) -> tuple[dict[str, T], list[ItemError]]:
    """What was found, and errors by topic for the rest."""
    good = {name: value for name, value in found.items() if not isinstance(value, KafkaFailure)}
    errors = [
        ItemError.of(failure, topic=name)
        for name, failure in found.items()
        if isinstance(failure, KafkaFailure)
    ]
    return good, errors


def choose_partitions(
    topic: TopicView, wanted: frozenset[int] | None
) -> tuple[list[TopicPartition], list[ItemError]]:
    """The topic's partitions, or those asked for; an error for each that does not exist."""
    if wanted is None:
        return topic.keys, []
    existing = {key.partition: key for key in topic.keys}
    errors = [
        ItemError(
            "UNKNOWN_TOPIC_OR_PARTITION",
            f"{topic.name} has {len(existing)} partitions",
            {"topic": topic.name, "partition": index},
            f"`odradek topic describe {topic.name} -p` lists them.",
        )
        for index in sorted(wanted - existing.keys())
    ]
    return [existing[index] for index in sorted(wanted & existing.keys())], errors


class LogFigures:
    """Offsets and sizes of many partitions, asked once for all of them."""

    def __init__(
        self, gateway: Gateway, topics: Collection[TopicView], *, last_records: bool = False
    ) -> None:
        keys = [
            key
            for topic in topics
            for key, partition in zip(topic.keys, topic.partitions, strict=True)
            if not partition.is_leaderless
        ]
        self.starts = known_offsets(gateway.offsets(keys, OffsetAt.EARLIEST))
        self.ends = known_offsets(gateway.offsets(keys, OffsetAt.LATEST))
        self.sizes = gateway.log_sizes()
        self.last: dict[TopicPartition, OffsetView] = {}
        if last_records:
            self.last = known_offsets(gateway.offsets(keys, OffsetAt.MAX_TIMESTAMP))

    def message_count(self, topic: TopicView) -> int | None:
        """Offsets between start and end: compaction and markers leave fewer records."""
        counts = [
            self.ends[key].offset - self.starts[key].offset
            for key in topic.keys
            if key in self.ends and key in self.starts
        ]
        return sum(counts) if counts else None

    def size(self, topic: TopicView) -> int | None:
        if self.sizes is None:
            return None
        known = [self.sizes[key] for key in topic.keys if key in self.sizes]
        return sum(known) if known else None

    def last_record_ms(self, topic: TopicView) -> int | None:
        """Time of the youngest record that is still there.

        Brokers tell the newest time of the segments, also when that record was trimmed away.
        """
        known = [
            self.last[key].timestamp_ms
            for key in topic.keys
            if key in self.last and key in self.starts
            if self.last[key].offset >= self.starts[key].offset
        ]
        newest = max(known, default=-1)
        return newest if newest >= 0 else None


def known_offsets(
    found: dict[TopicPartition, OffsetView | KafkaFailure],
) -> dict[TopicPartition, OffsetView]:
    return {key: view for key, view in found.items() if not isinstance(view, KafkaFailure)}
