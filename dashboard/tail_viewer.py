"""One viewer of the live tail: its cursors, its credits, and the frames made of them.

At most two frames are on their way without an answer, and everything to a browser travels in
frames: a browser that does not read costs nothing more. Frames take the oldest rows that it has not
seen; what has left the ring meanwhile is skipped. A pause is a time without rows; what the
ring still holds at its end comes then. No sockets and no clock here: ``frame`` is told the time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from heapq import merge
from typing import Final

from dashboard.payloads import Counters, FilterCheck, TopicStatus
from dashboard.tail_feed import Channel, Feed, FeedPoint
from dashboard.tail_records import TailRecord

MAX_UNACKNOWLEDGED: Final = 2
FRAME_ROWS: Final = 100
FRAME_BYTES: Final = 256 * 1024
ENVELOPE_BYTES: Final = 16 * 1024
"""Left for everything in a frame but its rows."""
SHARED_BODIES: Final = 8
FRAME_PAUSE_MS: Final = 100
MAX_TOLD_PARTITIONS: Final = 300
"""Offsets of topics with more of them are not told: they would not fit beside the rows."""
QUIET_PAUSE_MS: Final = 1_000
"""Between frames without rows, which only move the counters."""


class Subscription:
    """A viewer on a channel."""

    def __init__(self, channel: Channel, start: FeedPoint) -> None:
        self.channel = channel
        self.cursor = channel.total
        self.starts = start.positions
        self.shown = 0
        self.extra_skipped = 0
        """Of the records before the start that were read for a first page."""
        self.extra_unmatched = 0
        self.extra_holes = 0
        self._base_number = start.number
        self._base_holes = start.holes
        self._base_failed = channel.failed
        self._base_unmatched = channel.unmatched
        self.extra_received = 0

    @property
    def waiting(self) -> int:
        return self.channel.total - self.cursor

    @property
    def received(self) -> int:
        channel = self.channel
        unseen, _ = channel.after(self.cursor, 1)
        through = unseen[0].number - 1 if unseen else channel.through
        return through - self._base_number + self.extra_received

    @property
    def unmatched(self) -> int:
        return self.channel.unmatched - self._base_unmatched + self.extra_unmatched

    @property
    def failed(self) -> int:
        return self.channel.failed - self._base_failed

    @property
    def holes(self) -> int:
        return self.channel.feed.holes - self._base_holes + self.extra_holes

    @property
    def is_complete(self) -> bool:
        """Whether the counters speak of everything that the feed has passed."""
        return not self.waiting and self.channel.through == self.channel.feed.number

    def take(self, most: int, most_bytes: int = FRAME_BYTES) -> list[TailRecord]:
        """The oldest rows that were not seen, as many as fit."""
        rows, dropped = self.channel.after(self.cursor, most)
        del rows[_fitting(rows, most_bytes) :]
        self._pass(dropped, len(rows))
        return rows

    def take_body(self, most: int) -> str:
        """The same as JSON, which viewers who stand at the same place share."""
        rows, dropped = self.channel.after(self.cursor, most)
        key = (rows[0].number, rows[-1].number)
        bodies = self.channel.bodies
        if key not in bodies:
            fitting = _fitting(rows, FRAME_BYTES)
            if len(bodies) >= SHARED_BODIES:
                bodies.clear()
            bodies[key] = ",".join(row.encoded() for row in rows[:fitting]), fitting
        body, count = bodies[key]
        self._pass(dropped, count)
        return body

    def _pass(self, dropped: int, shown: int) -> None:
        self.cursor += dropped + shown
        self.shown += shown


class Viewer:
    """What a socket is sent next. ``subscribe`` begins a new run with counters at zero."""

    def __init__(self) -> None:
        self.subscriptions: list[Subscription] = []
        self.feeds: list[Feed] = []
        """Of which the state is told, also before there is a subscription."""
        self.run = 0
        self.is_paused = False
        self.check: FilterCheck | None = None
        self.unacknowledged: deque[int] = deque()
        self._backlog: deque[TailRecord] = deque()
        self._sequence = 0
        self._last_frame_ms: int | None = None
        self._told: tuple[object, ...] = ()
        self._starts_due = False
        self._statuses: list[TopicStatus] | None = None

    def subscribe(
        self, subscriptions: list[Subscription], backlog: Sequence[TailRecord] = ()
    ) -> None:
        self.subscriptions = subscriptions
        self.feeds = [one.channel.feed for one in subscriptions]
        self._backlog = deque(backlog)
        self.run += 1
        self._starts_due = True
        self._statuses = None
        self._told = ()

    def acknowledge(self, sequence: int) -> None:
        """This frame, and those before it, have been dealt with."""
        while self.unacknowledged and self.unacknowledged[0] <= sequence:
            self.unacknowledged.popleft()

    def frame(self, now_ms: int, wall_ms: int) -> str | None:
        """The next frame's text, if there is something to say and it may be said now."""
        is_begun = self.feeds or self.run or self.check is not None
        if not is_begun or len(self.unacknowledged) >= MAX_UNACKNOWLEDGED:
            return None
        since_ms = QUIET_PAUSE_MS if self._last_frame_ms is None else now_ms - self._last_frame_ms
        if since_ms < FRAME_PAUSE_MS:
            return None
        bodies = [] if self.is_paused else self._take_rows()
        parts = self._news(is_due=bool(bodies) or since_ms >= QUIET_PAUSE_MS)
        if not bodies and not parts:
            return None
        self._sequence += 1
        self._last_frame_ms = now_ms
        self.unacknowledged.append(self._sequence)
        head = f'{{"type":"frame","seq":{self._sequence},"run":{self.run},"sent":"{wall_ms}"'
        return f'{head}{"".join(parts)},"rows":[{",".join(bodies)}]}}'

    def _take_rows(self) -> list[str]:
        if self._backlog:
            rows = [self._backlog.popleft() for _ in range(min(FRAME_ROWS, len(self._backlog)))]
            fitting = _fitting(rows, FRAME_BYTES)
            self._backlog.extendleft(reversed(rows[fitting:]))
            return [row.encoded() for row in rows[:fitting]]
        busy = [one for one in self.subscriptions if one.waiting]
        if not busy:
            return []
        share = FRAME_ROWS // len(busy)
        if len(busy) == 1:
            (one,) = busy
            return [one.take_body(share)]
        taken = []
        for one in busy:
            taken.append(one.take(share, FRAME_BYTES // len(busy)))
        merged = merge(*taken, key=lambda row: row.arrival)
        return [row.encoded() for row in merged]

    def _news(self, *, is_due: bool) -> list[str]:
        """Everything but rows that is new; counters only when it is their time."""
        parts = []
        if self._starts_due:
            self._starts_due = False
            starts = {one.channel.feed.topic: _texts(one.starts) for one in self.subscriptions}
            if sum(map(len, starts.values())) <= MAX_TOLD_PARTITIONS:
                parts.append(f',"starts":{json.dumps(starts)}')
        statuses = [feed.status() for feed in self.feeds]
        if statuses != self._statuses:
            self._statuses = statuses
            parts.append(f',"topics":{json.dumps(statuses)}')
        if self.check is not None:
            parts.append(f',"check":{json.dumps(self.check)}')
            self.check = None
        if is_due or parts:
            trouble = next((one.channel.trouble for one in self.subscriptions), "")
            counters = self._counters()
            told = (tuple(counters.items()), trouble, self.is_paused)
            if repr(told) != repr(self._told):
                self._told = told
                parts.append(f',"counters":{json.dumps(counters)}')
                parts.append(f',"filter_trouble":{json.dumps(trouble)}')
                parts.append(f',"is_paused":{json.dumps(self.is_paused)}')
        return parts

    def _counters(self) -> Counters:
        waiting_before = len(self._backlog)
        received = sum(one.received for one in self.subscriptions) - waiting_before
        shown = sum(one.shown for one in self.subscriptions) - waiting_before
        counters: Counters = {
            "received": str(received),
            "shown": str(shown),
            "skipped": str(received - shown),
            "unmatched": str(sum(one.unmatched for one in self.subscriptions)),
            "failed": str(sum(one.failed for one in self.subscriptions)),
            "waiting": waiting_before + sum(one.waiting for one in self.subscriptions),
            "holes": str(sum(one.holes for one in self.subscriptions)),
        }
        partitions = sum(len(feed.positions) for feed in self.feeds)
        is_complete = not waiting_before and all(one.is_complete for one in self.subscriptions)
        if is_complete and partitions <= MAX_TOLD_PARTITIONS:
            counters["offsets"] = {
                one.channel.feed.topic: _texts(one.channel.feed.positions)
                for one in self.subscriptions
            }
        return counters


def _fitting(rows: Sequence[TailRecord], most_bytes: int) -> int:
    """How many rows fit into a frame; at least one, which is far smaller."""
    left = most_bytes - ENVELOPE_BYTES
    for index, row in enumerate(rows):
        left -= len(row.encoded()) + 1
        if left < 0:
            return max(index, 1)
    return len(rows)


def _texts(offsets: dict[int, int]) -> dict[str, str]:
    return {str(partition): str(offset) for partition, offset in offsets.items()}
