"""Frames and counters of one viewer, without sockets, brokers and clocks."""

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Any

from dashboard.cluster import Record
from dashboard.gateway.tail_reader import ReadSlice
from dashboard.tail_feed import PENDING_RECORDS, RING_RECORDS, Feed
from dashboard.tail_filters import FilterTrouble, Verdicts
from dashboard.tail_viewer import FRAME_BYTES, Subscription, Viewer

arrivals = itertools.count()


def record(offset: int, value: bytes | None = b"v", **fields: Any) -> Record:
    return Record(
        **{
            "topic": "t", "partition": 0, "offset": offset, "timestamp_type": 1,
            "timestamp_ms": 1_700_000_000_000, "key": None, "value": value, "headers": [], **fields,
        }
    )  # fmt: skip


async def no_filter(text: str, records: Sequence[Record]) -> Verdicts:
    raise AssertionError("there is no filter")


class Watched:
    """A feed with one viewer; time moves by the call."""

    def __init__(self, filter_text: str = "", evaluate: Any = no_filter) -> None:
        self.feed = Feed("t", evaluate)
        self.feed.become("live")
        self.viewer = Viewer()
        channel = self.feed.join(filter_text)
        self.viewer.subscribe([Subscription(channel, self.feed.point())])
        self.now_ms = 0
        self.next_offset = 0

    def read(
        self, count: int, *, holes: int = 0, is_jump: bool = False, value: bytes = b"v"
    ) -> None:
        start = self.next_offset
        records = [] if is_jump else [record(start + n, value) for n in range(count)]
        self.next_offset = start + count + holes
        piece = ReadSlice(0, start, records, self.next_offset, is_jump)
        self.feed.take([piece], lambda: next(arrivals))

    def frame(self, *, answer: bool = True, after_ms: int = 100) -> Any:
        self.now_ms += after_ms
        text = self.viewer.frame(self.now_ms, 1)
        if text is None:
            return None
        assert len(text) <= FRAME_BYTES
        frame = json.loads(text)
        if answer:
            self.viewer.acknowledge(frame["seq"])
        return frame


def counted(frame: Any) -> tuple[str, str, str]:
    counters = frame["counters"]
    return counters["received"], counters["shown"], counters["skipped"]


def test_a_frame_carries_a_hundred_rows_and_the_next_one_goes_on() -> None:
    watched = Watched()
    watched.read(150)
    first, second = watched.frame(), watched.frame()

    assert [row["offset"] for row in first["rows"]] == [str(n) for n in range(100)]
    assert [row["offset"] for row in second["rows"]] == [str(n) for n in range(100, 150)]
    assert counted(first) == ("100", "100", "0")
    assert counted(second) == ("150", "150", "0")


def test_frames_are_at_least_a_tenth_of_a_second_apart() -> None:
    watched = Watched()
    watched.read(300)
    assert watched.frame() is not None
    assert watched.frame(after_ms=99) is None
    assert watched.frame(after_ms=1) is not None


def test_two_frames_may_be_on_their_way_and_an_answer_covers_those_before_it() -> None:
    watched = Watched()
    watched.read(500)
    first, second = watched.frame(answer=False), watched.frame(answer=False)
    assert first is not None
    assert watched.frame() is None
    watched.viewer.acknowledge(second["seq"])
    assert watched.frame(answer=False) is not None
    assert watched.frame(answer=False) is not None
    assert watched.frame() is None


def test_large_values_are_cut_and_a_frame_of_many_keeps_its_size() -> None:
    watched = Watched()
    # Every byte becomes six characters of JSON.
    watched.read(100, value=b"\x01" * 1_000_000)
    rows: list[Any] = []
    while frame := watched.frame():
        rows += frame["rows"]

    assert len(rows) == 100
    assert rows[0]["value"] == {"size": 1_000_000, "is_cut": True, "text": "\x01" * 2048}


def test_what_left_the_ring_is_skipped() -> None:
    watched = Watched()
    watched.read(RING_RECORDS + 700)
    frame = watched.frame()

    assert frame["rows"][0]["offset"] == "700"
    assert counted(frame) == ("800", "100", "700")


def test_holes_are_passed_and_jumps_are_skipped() -> None:
    watched = Watched()
    watched.read(10, holes=3)
    watched.read(40, is_jump=True)
    watched.read(1)
    frame = watched.frame()

    assert counted(frame) == ("51", "11", "40")
    assert frame["counters"]["holes"] == "3"
    assert frame["counters"]["offsets"] == {"t": {"0": "54"}}


def test_a_quiet_frame_comes_once_and_not_more_than_once_a_second() -> None:
    watched = Watched()
    assert watched.frame()["rows"] == []
    assert watched.frame(after_ms=5_000) is None
    watched.viewer.is_paused = True
    watched.read(1)
    assert watched.frame(after_ms=1_000)["counters"]["waiting"] == 1
    watched.read(1)
    assert watched.frame(after_ms=500) is None
    assert watched.frame(after_ms=500)["counters"]["waiting"] == 2


async def test_a_filter_that_is_slow_loses_the_oldest_and_they_count_as_skipped() -> None:
    gate = asyncio.Event()

    async def slow(text: str, records: Sequence[Record]) -> Verdicts:
        await gate.wait()
        return Verdicts(b"\x01" * len(records))

    watched = Watched("true", slow)
    watched.read(10)
    await asyncio.sleep(0)
    watched.read(PENDING_RECORDS)
    watched.read(300)
    gate.set()
    channel = watched.feed.channels["true"]
    async with asyncio.timeout(10):
        while channel.through < watched.feed.number:
            await asyncio.sleep(0)
    while frame := watched.frame():
        last = frame

    assert channel.total == 10 + PENDING_RECORDS
    received, shown, skipped = map(int, counted(last))
    assert (received, shown, skipped) == (PENDING_RECORDS + 310, 1_000, PENDING_RECORDS - 690)


async def test_a_filter_that_cannot_be_evaluated_shows_nothing_and_says_why() -> None:
    async def broken(text: str, records: Sequence[Record]) -> Verdicts:
        raise FilterTrouble("too slow")

    watched = Watched("x", broken)
    watched.read(3)
    async with asyncio.timeout(10):
        while watched.feed.channels["x"].through < 3:
            await asyncio.sleep(0)
    frame = watched.frame()

    assert counted(frame) == ("3", "0", "3")
    assert frame["filter_trouble"] == "too slow"


def test_text_that_a_cut_would_split_loses_the_split_character_and_bytes_stay_bytes() -> None:
    watched = Watched()
    watched.read(1, value="é".encode() * 1024 + b"x" + "é".encode())
    watched.read(1, value=b"x" + "é".encode() * 2048)
    watched.read(1, value=b"\xc3")
    watched.read(1, value=b"\xff" * 3000)
    rows = [row["value"] for row in watched.frame()["rows"]]

    assert rows[0]["text"] == "é" * 1024
    assert rows[1]["text"] == "x" + "é" * 1023
    assert rows[2]["base64"] == "ww=="
    assert "base64" in rows[3]
