"""Writes records that a person typed. What they hold is not audited, only how many went where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dashboard import clusters
from dashboard.cluster import KafkaFailure
from dashboard.services import audit
from dashboard.services.audit import Actor

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
FLUSH_S = 20.0
"""How long a page waits for acknowledgements; what has not come by then may still come."""
SHOWN_PLACES = 20


class NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(slots=True)
class Produced:
    count: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)
    """(partition, offset) of the first ``SHOWN_PLACES`` that were acknowledged."""
    ranges: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """By partition: how many, first and last offset."""
    failures: list[tuple[int, KafkaFailure]] = field(default_factory=list)
    """(number of the record, from 0, and why); the first of them."""
    failure_count: int = 0
    unanswered: int = 0


def produce(
    *,
    actor: Actor,
    topic: str,
    records: Sequence[NewRecord],
    partition: int | None = None,
    compression: str = "none",
) -> Produced:
    """Acknowledged by all in-sync replicas. Raises KafkaFailure when nothing could be sent at all;
    a topic that does not exist is not created."""
    with audit.change(actor, "topic.produce", topic) as change:
        change.after = {"records": len(records), "partition": partition}
        produced = _produce(topic, records, partition, compression)
        change.after = {
            "records": produced.count,
            "offsets": {
                str(index): [first, last]
                for index, (_, first, last) in sorted(produced.ranges.items())
            },
        }
        if produced.failures:
            change.failure = f"{produced.failure_count} refused: {produced.failures[0][1]}"
        elif produced.unanswered:
            change.failure = f"{produced.unanswered} not acknowledged in time"
    return produced


def _produce(
    topic: str, records: Sequence[NewRecord], partition: int | None, compression: str
) -> Produced:
    gateway = clusters.gateway()
    view = gateway.topics([topic])[topic]
    if isinstance(view, KafkaFailure):
        raise view
    produced = Produced()
    writer = gateway.writer(topic, **{"compression.type": compression, "acks": "all"})

    def delivered(index: int, offset: int) -> None:
        if len(produced.places) < SHOWN_PLACES:
            produced.places.append((index, offset))

    writer.on_delivered = delivered
    for number, record in enumerate(records):
        writer.send(number, record.value, record.key, record.headers, partition)
        writer.poll()
    produced.unanswered = writer.flush(FLUSH_S)
    for index, tally in writer.tallies.items():
        produced.count += tally.count
        if tally.first_offset is not None and tally.last_offset is not None:
            produced.ranges[index] = (tally.count, tally.first_offset, tally.last_offset)
    produced.failures, produced.failure_count = writer.failures, writer.failure_count
    return produced
