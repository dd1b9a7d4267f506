"""Reads one record of each of some partitions: the first at or after an offset.

Fetches as little as a broker sends (one batch a partition), and is read committed: what an aborted
transaction left behind is no record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.clock import Clock, SystemClock
from broker.model.ids import TopicPartition
from dashboard.cluster import PartitionEnd, Record
from dashboard.gateway.record_reader import RecordReader

PROPERTIES: Final[dict[str, Any]] = {
    "fetch.message.max.bytes": 1,
    "queued.max.messages.kbytes": 1,
}
POLL_S = 0.2


def first_records(
    properties: Mapping[str, Any],
    starts: Mapping[TopicPartition, int],
    timeout_s: float,
    clock: Clock | None = None,
) -> dict[TopicPartition, Record | None]:
    """None: the partition ends without one. What did not answer in time is left out."""
    clock = clock or SystemClock()
    found: dict[TopicPartition, Record | None] = {}
    deadline_ms = clock.monotonic_ms() + int(timeout_s * 1000)
    with RecordReader({**properties, **PROPERTIES}, starts, timeout_s) as reader:
        while len(found) < len(starts) and clock.monotonic_ms() < deadline_ms:
            for item in reader.read(POLL_S):
                key = TopicPartition(item.topic, item.partition)
                if key in found:
                    continue
                found[key] = None if isinstance(item, PartitionEnd) else item
                reader.stop_reading(key)
    return found
