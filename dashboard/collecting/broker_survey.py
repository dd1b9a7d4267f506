"""One broker, asked by the Kafka protocol for the ends, beginnings and sizes of its logs.

In pieces of ``PARTITIONS_PER_PIECE``, with a rest after each that is as long as the piece took: the
broker answers its clients meanwhile. Ends are asked at each tick, beginnings and sizes, which
move seldom, at every ``SELDOM`` of them and after a change. A broker that falls silent costs one
timeout; what it told before stays, stale.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from broker.clock import Clock
from dashboard import survey_wire
from dashboard.cluster import BrokerView
from dashboard.collecting.facts import BrokerFacts, TopicFacts
from dashboard.quorum_wire import ask_followers
from dashboard.wire import WireConnection

PARTITIONS_PER_PIECE: Final = 200
REST_S: Final = 0.002
SELDOM: Final = 3

Leads = Sequence[tuple[str, Sequence[int]]]


@dataclass(slots=True)
class BrokerSurvey:
    view: BrokerView
    clock: Clock
    timeout_s: float
    with_volumes: bool
    facts: BrokerFacts
    _connection: WireConnection | None = None
    _looks: int = 0
    _ends_ms: int | None = None
    _sizes_ms: int | None = None

    def look(self, leads: Leads, *, is_complete: bool) -> None:
        """Bring ``facts`` up to date. Raises OSError."""
        self._by_connection(lambda connection: self._ask(connection, leads, is_complete))
        self._looks += 1

    def look_at_followers(self, short: Leads) -> None:
        """Of partitions that it leads and that are short of replicas. Raises OSError."""

        def ask(connection: WireConnection) -> None:
            self.facts.followers = ask_followers(connection, short)

        self._by_connection(ask)

    def _by_connection(self, ask: Callable[[WireConnection], None]) -> None:
        was_open = self._connection is not None
        try:
            ask(self._connect())
        except OSError as error:
            self.close()
            if not was_open or isinstance(error, TimeoutError):
                raise
            # Closed since the last tick: idle for too long, or the broker was started anew.
            ask(self._connect())

    def _connect(self) -> WireConnection:
        if self._connection is None:
            self._connection = WireConnection((self.view.host, self.view.port), self.timeout_s)
        return self._connection

    def _ask(self, connection: WireConnection, leads: Leads, is_complete: bool) -> None:
        is_seldom = is_complete or self._looks % SELDOM == 0
        if is_seldom:
            self._take_starts(connection, leads)
        self._take_ends(connection, leads)
        if is_seldom:
            self._take_sizes(connection)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _take_starts(self, connection: WireConnection, leads: Leads) -> None:
        for name, index, offset in self._offsets(connection, leads, survey_wire.EARLIEST):
            starts = self.facts.of(name).starts
            if starts.get(index) != offset:
                starts[index] = offset
                self.facts.changed.add(name)

    def _take_ends(self, connection: WireConnection, leads: Leads) -> None:
        now_ms = self.clock.monotonic_ms()
        elapsed_s = None if self._ends_ms is None else max(now_ms - self._ends_ms, 1) / 1000
        moved: dict[str, int] = {}
        for name, index, offset in self._offsets(connection, leads, survey_wire.LATEST):
            ends = self.facts.of(name).ends
            before = ends.get(index)
            if before != offset:
                ends[index] = offset
                self.facts.changed.add(name)
                moved[name] = moved.get(name, 0) + max(0, offset - (before or 0))
        if elapsed_s is not None:
            for name, _ in leads:
                topic = self.facts.of(name)
                rate = moved.get(name, 0) / elapsed_s
                if topic.records_rate != rate:
                    self.facts.changed.add(name)
                topic.records_rate = rate
        self._ends_ms = now_ms

    def _offsets(
        self, connection: WireConnection, leads: Leads, timestamp: int
    ) -> Iterator[tuple[str, int, int]]:
        for piece in pieces(leads):
            began_ns = time.perf_counter_ns()
            for name, index, error, offset in survey_wire.ask_offsets(connection, piece, timestamp):
                if not error:
                    yield name, index, offset
            time.sleep(REST_S + (time.perf_counter_ns() - began_ns) / 1e9)

    def _take_sizes(self, connection: WireConnection) -> None:
        now_ms = self.clock.monotonic_ms()
        elapsed_s = None if self._sizes_ms is None else max(now_ms - self._sizes_ms, 1) / 1000
        found = survey_wire.ask_log_sizes(connection, with_volumes=self.with_volumes)
        for name, sizes in found.sizes.items():
            topic = self.facts.of(name)
            if topic.sizes != sizes or topic.bytes_in_rate:
                self.facts.changed.add(name)
            topic.bytes_in_rate = _growth(topic, sizes, elapsed_s)
            topic.sizes = sizes
        for name in self.facts.topics.keys() - found.sizes.keys():
            self.facts.topics[name].sizes = {}
        self.facts.lags = found.lags
        self.facts.size_bytes = found.total
        self.facts.offline_directories = tuple(
            one.path for one in found.directories if one.is_offline
        )
        volumes = {
            (one.total_bytes, one.free_bytes)
            for one in found.directories
            if one.total_bytes is not None
        }
        self.facts.disk_total_bytes = sum(total or 0 for total, _ in volumes) if volumes else None
        self.facts.disk_free_bytes = sum(free or 0 for _, free in volumes) if volumes else None
        self._sizes_ms = now_ms


def pieces(leads: Leads) -> Iterator[list[tuple[str, Sequence[int]]]]:
    """Topics with about ``PARTITIONS_PER_PIECE`` partitions; a large topic is parted."""
    piece: list[tuple[str, Sequence[int]]] = []
    left = PARTITIONS_PER_PIECE
    for name, indexes in leads:
        place = 0
        while place < len(indexes):
            taken = indexes[place : place + left]
            piece.append((name, taken))
            place += len(taken)
            left -= len(taken)
            if left <= 0:
                yield piece
                piece, left = [], PARTITIONS_PER_PIECE
    if piece:
        yield piece


def _growth(topic: TopicFacts, sizes: dict[int, int], elapsed_s: float | None) -> float | None:
    """Bytes in, from logs that have grown; None where one has shrunk (retention took from it)."""
    if elapsed_s is None:
        return None
    grown = 0
    for index, size in sizes.items():
        before = topic.sizes.get(index, 0)
        if size < before:
            return None
        grown += size - before
    return grown / elapsed_s
