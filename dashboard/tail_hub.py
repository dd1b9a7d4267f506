"""The live tail of this process: one reader a topic feeds all who watch it.

A reader starts with a topic's first viewer and stops with the last. Its topic is looked at every two
seconds: deleted, created anew, more partitions, no broker; the reader goes on accordingly, and a
reader that dies is followed by one that goes on where it was. One task sends all frames, in slices
that leave the loop to others. Belongs to one event loop; nothing here waits for a browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from broker.clock import Clock
from dashboard import tasks
from dashboard.cluster import KafkaFailure, TopicView
from dashboard.gateway.tail_reader import ReadSlice
from dashboard.payloads import FilterCheck
from dashboard.tail_backlog import read_backlog
from dashboard.tail_feed import Channel, Feed
from dashboard.tail_filters import FAILED, MATCHED, UNLOOKED, FilterProcess, FilterTrouble
from dashboard.tail_records import TailRecord
from dashboard.tail_viewer import FRAME_PAUSE_MS, Subscription, Viewer

logger = logging.getLogger(__name__)

MAX_FEEDS: Final = 50
MAX_FILTERS: Final = 40
"""Distinct ones, over all topics."""
CHECKED_RECORDS: Final = 200
"""What a filter is tried on while it is typed."""
READ_RECORDS: Final = 500
READ_WAIT_MS: Final = 250
READ_PAUSE_S: Final = 0.05
MAX_BEHIND: Final = 20_000
"""A reader that is further behind jumps: a tail shows what comes now."""
KEPT_BEHIND: Final = 2_000
WATCH_PAUSE_S: Final = 2.0
STARTING_LIMIT_S: Final = 15.0
MIN_PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 10.0
SLICE_MS: Final = 5
"""Nobody keeps the loop for longer."""
ROUND_MS: Final = FRAME_PAUSE_MS + 15
"""A little more than the pause of each viewer: a turn that comes early would be one for nothing."""
LEAST_PAUSE_MS: Final = 20
"""Between two rounds of frames, however long one takes."""
UNACKNOWLEDGED_LIMIT_MS: Final = 60_000
IDLE_LIMIT_MS: Final = 15 * 60_000


class Reader(Protocol):
    """What is needed of ``gateway.tail_reader.TailReader``."""

    positions: dict[int, int]

    async def start(self, positions: Mapping[int, int | None]) -> None: ...
    async def first_offsets(self, partitions: Sequence[int]) -> dict[int, int]: ...
    async def read(self, timeout_ms: int, max_records: int) -> list[ReadSlice]: ...
    def behind(self) -> dict[int, int]: ...
    def skip(self, partition: int, count: int) -> ReadSlice: ...
    async def close(self) -> None: ...


OpenReader = Callable[[str], Reader]
Describe = Callable[[Sequence[str]], Awaitable[dict[str, TopicView | KafkaFailure]]]


class TailFull(Exception):
    """A limit of the whole process, in words."""


@dataclass(eq=False, slots=True)
class Connection:
    """A socket as the hub sees it. ``send`` must not wait for the browser."""

    send: Callable[[str], Awaitable[None]]
    close: Callable[[int, str], Coroutine[Any, Any, None]]
    heard_ms: int
    viewer: Viewer = field(default_factory=Viewer)
    joined: list[Channel] = field(default_factory=list)
    """What the viewer counts for, from its asking on."""
    beginning: asyncio.Task[None] | None = None
    checking: asyncio.Task[None] | None = None
    check_due: tuple[int, str] | None = None
    """The newest filter to be tried; those before it nobody waits for any more."""


@dataclass(eq=False, slots=True)
class _Running:
    """A feed with its reader task."""

    feed: Feed
    task: asyncio.Task[None] | None = None
    shape: tuple[str | None, frozenset[int]] | None = None
    """Topic id and readable partitions, as the reader knows them."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class TailHub:
    def __init__(self, open_reader: OpenReader, describe: Describe, clock: Clock) -> None:
        self._open_reader = open_reader
        self._describe = describe
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._connections: dict[Connection, None] = {}
        self._filters = FilterProcess(clock)
        self._arrivals = itertools.count()
        self._pump: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    # Sockets

    @property
    def feed_count(self) -> int:
        return len(self._running)

    @property
    def filter_pid(self) -> int | None:
        return self._filters.pid

    def connect(self, connection: Connection) -> None:
        self._connections[connection] = None
        if self._pump is None:
            self._pump = tasks.keep(self._send_frames, "live tail frames")
            self._watch = tasks.start(self._watch_topics(), "live tail topics")

    async def disconnect(self, connection: Connection) -> None:
        """Also what nobody else watches ends now."""
        self._connections.pop(connection, None)
        await tasks.end(connection.beginning)
        await tasks.end(connection.checking)
        self._leave(connection)
        if not self._connections:
            pump, watch, self._pump, self._watch = self._pump, self._watch, None, None
            await tasks.end(pump)
            await tasks.end(watch)
        await self._end_unwatched()

    async def begin(
        self, connection: Connection, topics: Sequence[str], filter_text: str, last: int
    ) -> None:
        """Show these topics from now on, after the last records there are. Raises TailFull."""
        self._check_room(topics, filter_text)
        await tasks.end(connection.beginning)
        feeds = [self._join(topic).feed for topic in topics]
        # Joined before the old ones are left: a reader that both need goes on.
        joined = [feed.join(filter_text) for feed in feeds]
        self._leave(connection)
        connection.joined = joined
        connection.viewer.feeds = feeds
        connection.beginning = tasks.start(
            self._begin(connection.viewer, joined, filter_text, last), "begin of a live tail"
        )
        await self._end_unwatched()

    def check(self, connection: Connection, check_id: int, text: str) -> None:
        """Try a filter on the latest records; the answer comes with a frame."""
        connection.check_due = check_id, text
        if connection.checking is None or connection.checking.done():
            connection.checking = tasks.start(self._check(connection), "check of a filter")

    async def _check(self, connection: Connection) -> None:
        while connection.check_due is not None:
            (check_id, text), connection.check_due = connection.check_due, None
            connection.viewer.check = await self._try(connection.viewer, check_id, text)

    async def _try(self, viewer: Viewer, check_id: int, text: str) -> FilterCheck:
        records = [record for feed in viewer.feeds for record in feed.sample][-CHECKED_RECORDS:]
        answer: FilterCheck = {"id": check_id}
        try:
            verdicts = await self._filters.evaluate(text, records)
        except FilterTrouble as trouble:
            answer["error"] = str(trouble)[:500]
        else:
            answer["matched"] = verdicts.each.count(MATCHED)
            answer["failed"] = verdicts.each.count(FAILED)
            answer["looked_at"] = len(records) - verdicts.each.count(UNLOOKED)
        return answer

    # Who watches what

    def _check_room(self, topics: Sequence[str], filter_text: str) -> None:
        new = sum(topic not in self._running for topic in topics)
        if len(self._running) + new > MAX_FEEDS:
            raise TailFull(f"{MAX_FEEDS} topics are being watched, there is no room for another")
        texts = self._filter_texts()
        if filter_text and filter_text not in texts and len(texts) >= MAX_FILTERS:
            raise TailFull(f"{MAX_FILTERS} filters are in use, there is no room for another")

    def _join(self, topic: str) -> _Running:
        running = self._running.get(topic)
        if running is None:
            running = self._running[topic] = _Running(Feed(topic, self._filters.evaluate))
            running.task = tasks.start(self._keep_reading(running), f"live tail of {topic}")
        return running

    def _leave(self, connection: Connection) -> None:
        left, connection.joined = connection.joined, []
        connection.viewer.subscriptions, connection.viewer.feeds = [], []
        for channel in left:
            channel.feed.leave(channel)

    async def _end_unwatched(self) -> None:
        ended = [topic for topic, one in self._running.items() if not one.feed.viewer_count]
        for running in [self._running.pop(topic) for topic in ended]:
            await tasks.end(running.task)
        if not self._filter_texts():
            await self._filters.close()

    def _filter_texts(self) -> set[str]:
        return {text for one in self._running.values() for text in one.feed.channels if text}

    async def _begin(
        self, viewer: Viewer, joined: list[Channel], filter_text: str, last: int
    ) -> None:
        feeds = [channel.feed for channel in joined]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTING_LIMIT_S):
                for feed in feeds:
                    await feed.ready.wait()
        # From here on nothing is missed: what arrives while older records are read waits.
        subscriptions = [Subscription(channel, channel.feed.point()) for channel in joined]
        rows: list[TailRecord] = []
        if last:
            live = [one for one in subscriptions if one.channel.feed.state == "live"]
            rows = await read_backlog(
                live, last, filter_text, self._open_reader, self._filters.evaluate
            )
        viewer.subscribe(subscriptions, rows)

    # Reading

    async def _keep_reading(self, running: _Running) -> None:
        feed, pause_s = running.feed, MIN_PAUSE_S
        while True:
            before = feed.number
            try:
                await self._read(running)
                pause_s = 0.0
            except KafkaFailure as failure:
                if feed.state != "missing":
                    feed.become("waiting", failure.message)
            except Exception as error:
                logger.exception("the live tail of %s failed", feed.topic)
                feed.become("waiting", f"{type(error).__name__}: {error}")
            if feed.number > before:
                pause_s = 0.0
            running.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await running.changed.wait()
            pause_s = min(max(pause_s * 2, MIN_PAUSE_S), MAX_PAUSE_S)

    async def _read(self, running: _Running) -> None:
        """Until the topic changes its shape. Raises KafkaFailure."""
        feed = running.feed
        view = (await self._describe([feed.topic]))[feed.topic]
        if isinstance(view, KafkaFailure):
            self._note_failure(feed, view)
            raise view
        positions = _starts(running, view)
        running.shape = _shape(view)
        if not positions:
            raise KafkaFailure("LEADER_NOT_AVAILABLE", "no partition has a leader")
        reader = self._open_reader(feed.topic)
        try:
            await reader.start(positions)
            feed.positions = {**feed.positions, **reader.positions}
            feed.become("live")
            running.changed.clear()
            turn_ms = self._clock.monotonic_ms()
            while not running.changed.is_set():
                slices = await reader.read(READ_WAIT_MS, READ_RECORDS)
                feed.take(slices, self._next_arrival)
                self._jump(reader, feed)
                is_full = sum(len(piece.records) for piece in slices) >= READ_RECORDS
                if is_full and self._clock.monotonic_ms() - turn_ms < SLICE_MS:
                    continue
                # What comes meanwhile is fetched at once: fewer and larger requests.
                await asyncio.sleep(0 if is_full else READ_PAUSE_S)
                turn_ms = self._clock.monotonic_ms()
        finally:
            await reader.close()

    def _jump(self, reader: Reader, feed: Feed) -> None:
        behind = reader.behind()
        if (total := sum(behind.values())) <= MAX_BEHIND:
            return
        slices = [
            reader.skip(index, count - count * KEPT_BEHIND // total)
            for index, count in behind.items()
        ]
        feed.take(slices, self._next_arrival)

    def _next_arrival(self) -> int:
        return next(self._arrivals)

    @staticmethod
    def _note_failure(feed: Feed, failure: KafkaFailure) -> None:
        if failure.code == "UNKNOWN_TOPIC_OR_PARTITION":
            feed.become("missing", "there is no such topic (any more)")
        else:
            feed.become("waiting", failure.message)

    # Watching

    async def _watch_topics(self) -> None:
        while True:
            await asyncio.sleep(WATCH_PAUSE_S)
            if not (names := list(self._running)):
                continue
            try:
                views = await self._describe(names)
            except KafkaFailure as failure:
                views = dict.fromkeys(names, failure)
            for topic, view in views.items():
                if (running := self._running.get(topic)) is not None:
                    self._compare(running, view)

    def _compare(self, running: _Running, view: TopicView | KafkaFailure) -> None:
        feed = running.feed
        if isinstance(view, KafkaFailure):
            if feed.state != "starting":
                self._note_failure(feed, view)
            if feed.state == "missing":
                running.changed.set()
        elif running.shape != _shape(view) or feed.state in ("missing", "waiting"):
            running.changed.set()

    # Sending

    async def _send_frames(self) -> None:
        clock = self._clock
        while True:
            started_ms = slice_ms = clock.monotonic_ms()
            for connection in list(self._connections):
                await self._send_frame(connection)
                if clock.monotonic_ms() - slice_ms >= SLICE_MS:
                    await asyncio.sleep(0)
                    slice_ms = clock.monotonic_ms()
            took_ms = clock.monotonic_ms() - started_ms
            await asyncio.sleep(max(ROUND_MS - took_ms, LEAST_PAUSE_MS) / 1000)

    async def _send_frame(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        now_ms = self._clock.monotonic_ms()
        viewer = connection.viewer
        unheard_ms = now_ms - connection.heard_ms
        if viewer.unacknowledged and unheard_ms > UNACKNOWLEDGED_LIMIT_MS:
            self._close(connection, 4409, "nobody reads")
        elif unheard_ms > IDLE_LIMIT_MS:
            self._close(connection, 4408, "idle")
        elif (text := viewer.frame(now_ms, self._clock.wall_ms())) is not None:
            await connection.send(text)

    def _close(self, connection: Connection, code: int, reason: str) -> None:
        # A task of its own: the last socket that leaves ends the one that sends.
        self._connections.pop(connection, None)
        tasks.start(connection.close(code, reason), "end of a live tail")


def _shape(view: TopicView) -> tuple[str | None, frozenset[int]]:
    return view.topic_id, frozenset(one.index for one in view.partitions if not one.is_leaderless)


def _starts(running: _Running, view: TopicView) -> dict[int, int | None]:
    """Where to read on: where we were, at the end at first, new partitions from their beginning."""
    feed = running.feed
    topic_id, partitions = _shape(view)
    is_first = running.shape is None and feed.state != "missing"
    is_other = running.shape is not None and running.shape[0] != topic_id
    if is_other or feed.state == "missing":
        feed.positions.clear()
    return {
        index: feed.positions.get(index, None if is_first else 0) for index in sorted(partitions)
    }
