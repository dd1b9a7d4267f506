"""Counters of what went in and out, by topic and in all; plain sums since the broker started.

Hot path: one call per appended batch and per answered partition, integer additions only; never per
record. Whoever wants rates takes differences. A topic that is deleted takes its counters along, so
a topic of the same name begins at zero; ``BrokerTraffic`` keeps what it has counted.
"""

from __future__ import annotations


class Counters:
    """What both levels count."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "produce_requests",
        "records_in",
        "records_out",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        #: Offsets that were passed in answers; compaction and transactions leave holes among them.
        self.records_out = 0
        #: Partitions of Produce requests, as Kafka counts them; those that failed among them.
        self.produce_requests = 0
        self.failed_produce_requests = 0
        #: Partitions told of in Fetch answers: those of a session without news cost, and count, nothing.
        self.fetch_requests = 0
        self.failed_fetch_requests = 0


class BrokerTraffic(Counters):
    """All topics together, and requests for topics that do not exist."""

    __slots__ = ("deleted_topics", "now")

    def __init__(self) -> None:
        super().__init__()
        #: A clock that goes on once a second: ``TopicTraffic.changed`` is told in it.
        self.now = 1
        #: Whoever walks over all topics and finds it changed may have missed one.
        self.deleted_topics = 0


class TopicTraffic(Counters):
    """Of one topic; counts into ``total`` as well."""

    __slots__ = ("changed", "total")

    def __init__(self, total: BrokerTraffic) -> None:
        super().__init__()
        self.total = total
        #: When anything that is told of the topic changed last: counters, offsets, sizes.
        self.changed = total.now

    def touch(self) -> None:
        self.changed = self.total.now

    def on_appended(self, size: int, record_count: int) -> None:
        total = self.total
        self.bytes_in += size
        self.records_in += record_count
        total.bytes_in += size
        total.records_in += record_count

    def on_produced(self) -> None:
        self.produce_requests += 1
        self.total.produce_requests += 1

    def on_produce_failed(self) -> None:
        self.failed_produce_requests += 1
        self.total.failed_produce_requests += 1
        self.changed = self.total.now

    def on_fetched(self, size: int, record_count: int, has_failed: bool) -> None:
        total = self.total
        self.fetch_requests += 1
        total.fetch_requests += 1
        if size:
            self.bytes_out += size
            self.records_out += record_count
            total.bytes_out += size
            total.records_out += record_count
            self.changed = total.now
        if has_failed:
            self.failed_fetch_requests += 1
            total.failed_fetch_requests += 1
            self.changed = total.now
