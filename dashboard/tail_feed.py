"""What arrives in one topic, for all who watch it: a bounded ring for each distinct filter.

A feed numbers the records of its topic, so that every viewer's counters come from offsets:
``number`` moves by the offsets that were passed, less those that hold no record. A channel holds
the last records that match one filter. It never waits for a filter and never queues without bound:
what a filter could not look at in time is skipped, and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

from dashboard import tasks
from dashboard.cluster import Record
from dashboard.gateway.tail_reader import ReadSlice
from dashboard.payloads import TopicStatus
from dashboard.tail_filters import FAILED, MATCHED, UNMATCHED, FilterTrouble, Verdicts
from dashboard.tail_records import TailRecord

logger = logging.getLogger(__name__)

RING_RECORDS: Final = 1_000
"""Of a channel: what a burst, or a viewer that comes back from a pause, still gets."""
PENDING_RECORDS: Final = 2_000
PENDING_BYTES: Final = 4 * 1024 * 1024
"""What may wait for a filter."""
SAMPLE_RECORDS: Final = 100
SAMPLE_BYTES: Final = 64 * 1024
"""Of one record that a filter is tried on while it is typed."""

State = Literal["starting", "live", "waiting", "missing"]
Evaluate = Callable[[str, Sequence[Record]], Awaitable[Verdicts]]


class Channel:
    """The records of a feed that match one filter; an empty filter matches all."""

    def __init__(self, feed: Feed, filter_text: str, evaluate: Evaluate) -> None:
        self.feed = feed
        self.filter_text = filter_text
        self.rows: deque[TailRecord] = deque(maxlen=RING_RECORDS)
        self.total = 0
        """Rows ever; the ring holds the last of them."""
        self.through = feed.number
        """Every record up to this number is decided."""
        self.failed = 0
        self.unmatched = 0
        self.trouble = ""
        """Why the filter does not work, in words."""
        self.viewer_count = 0
        self._evaluate = evaluate
        self._pending: deque[tuple[TailRecord, Record]] = deque()
        self._pending_bytes = 0
        self._is_evaluating = False
        self.bodies: dict[tuple[int, int], tuple[str, int]] = {}
        """Rows as JSON and how many they are, by the numbers of the first and the last."""

    def offer(self, records: Sequence[tuple[TailRecord, Record]], through: int) -> None:
        if not self.filter_text:
            self.rows.extend(kept for kept, _ in records)
            self.total += len(records)
            self.through = through
            return
        self._pending.extend(records)
        self._pending_bytes += sum(_size(record) for _, record in records)
        while self._pending and (
            len(self._pending) > PENDING_RECORDS or self._pending_bytes > PENDING_BYTES
        ):
            self._pending_bytes -= _size(self._pending.popleft()[1])
        if not self._is_evaluating:
            if self._pending:
                self._is_evaluating = True
                tasks.start(self._look(), f"filter of {self.feed.topic}")
            else:
                self.through = through

    async def _look(self) -> None:
        try:
            while self._pending:
                batch = list(islice(self._pending, 500))
                for _, record in batch:
                    self._pending.popleft()
                    self._pending_bytes -= _size(record)
                await self._look_at(batch)
        finally:
            self._is_evaluating = False
        self.through = self.feed.number

    async def _look_at(self, batch: list[tuple[TailRecord, Record]]) -> None:
        try:
            verdicts = await self._evaluate(self.filter_text, [record for _, record in batch])
        except FilterTrouble as trouble:
            self.trouble = str(trouble)
        else:
            matched = [
                kept
                for (kept, _), verdict in zip(batch, verdicts.each, strict=True)
                if verdict == MATCHED
            ]
            self.rows.extend(matched)
            self.total += len(matched)
            self.failed += verdicts.each.count(FAILED)
            self.unmatched += verdicts.each.count(UNMATCHED)
            self.trouble = verdicts.first_error
        self.through = batch[-1][0].number

    def after(self, position: int, most: int) -> tuple[list[TailRecord], int]:
        """Rows after the first `position` ones, and how many of those have left the ring."""
        held_from = self.total - len(self.rows)
        first = max(position, held_from)
        skip = first - held_from
        return list(islice(self.rows, skip, skip + most)), first - position


class FeedPoint(NamedTuple):
    """Where a feed stands, for a viewer who begins here."""

    number: int
    holes: int
    positions: dict[int, int]


class Feed:
    """One topic: its channels, and where its reader stands. Filled by the hub's reader task."""

    def __init__(self, topic: str, evaluate: Evaluate) -> None:
        self.topic = topic
        self.state: State = "starting"
        self.text = ""
        self.number = 0
        self.holes = 0
        self.positions: dict[int, int] = {}
        self.ready = asyncio.Event()
        """Known to be live, or not to be: no longer starting."""
        self.channels: dict[str, Channel] = {}
        self.sample: deque[Record] = deque(maxlen=SAMPLE_RECORDS)
        self._evaluate = evaluate

    @property
    def viewer_count(self) -> int:
        return sum(channel.viewer_count for channel in self.channels.values())

    def become(self, state: State, text: str = "") -> None:
        if state != self.state:
            logger.info("live tail of %s: %s %s", self.topic, state, text)
        self.state, self.text = state, text
        if state != "starting":
            self.ready.set()

    def status(self) -> TopicStatus:
        return {"topic": self.topic, "state": self.state, "text": self.text}

    def point(self) -> FeedPoint:
        return FeedPoint(self.number, self.holes, dict(self.positions))

    def join(self, filter_text: str) -> Channel:
        channel = self.channels.get(filter_text)
        if channel is None:
            channel = self.channels[filter_text] = Channel(self, filter_text, self._evaluate)
        channel.viewer_count += 1
        return channel

    def leave(self, channel: Channel) -> None:
        channel.viewer_count -= 1
        if not channel.viewer_count:
            del self.channels[channel.filter_text]

    def offer_sample(self, older: Sequence[Record]) -> None:
        """The newest records before all that were read here: better than none to try a filter on."""
        if not self.number:
            self.sample.clear()  # another viewer may have begun with the same ones
            self.sample.extend(record for record in older if _size(record) <= SAMPLE_BYTES)

    def take(self, slices: Iterable[ReadSlice], next_arrival: Callable[[], int]) -> None:
        """Number what was read, and give it to each channel."""
        taken: list[tuple[TailRecord, Record]] = []
        for piece in slices:
            passed = piece.next_offset - piece.start
            for record in piece.records:
                self.number += 1
                taken.append((TailRecord(record, self.number, next_arrival()), record))
                if _size(record) <= SAMPLE_BYTES:
                    self.sample.append(record)
            if piece.is_jump:
                self.number += passed
            else:
                self.holes += passed - len(piece.records)
            self.positions[piece.partition] = piece.next_offset
        for channel in self.channels.values():
            channel.offer(taken, self.number)


def _size(record: Record) -> int:
    return 100 + len(record.key or b"") + len(record.value or b"")
