"""The records before now that a live tail begins with: read once, aside from the shared reader.

Bounded in records, bytes and time; a tail whose backlog cannot be read in time begins with now.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace, merge
from typing import TYPE_CHECKING, Final

from dashboard.cluster import KafkaFailure, Record
from dashboard.tail_feed import SAMPLE_RECORDS
from dashboard.tail_filters import MATCHED, FilterTrouble, Verdicts
from dashboard.tail_records import TailRecord
from dashboard.tail_viewer import Subscription

if TYPE_CHECKING:
    from dashboard.tail_hub import OpenReader

logger = logging.getLogger(__name__)

LIMIT_S: Final = 10.0
MAX_BYTES: Final = 64 * 1024 * 1024
MANY_PARTITIONS: Final = 10
"""With more of them each is read back less far than the number of records asked for."""
Evaluate = Callable[[str, Sequence[Record]], Awaitable[Verdicts]]


@dataclass(frozen=True, slots=True)
class _Found:
    time_ms: int
    row: TailRecord
    is_match: bool


async def read_backlog(
    subscriptions: Sequence[Subscription],
    last: int,
    filter_text: str,
    open_reader: OpenReader,
    evaluate: Evaluate,
) -> list[TailRecord]:
    """In the order of time, and of offsets within a partition: the last records before each subscription's start, counted in its counters."""
    found: dict[tuple[Subscription, int], list[_Found]] = {}
    try:
        async with asyncio.timeout(LIMIT_S):
            for one in subscriptions:
                pieces = await _read(one, last, filter_text, open_reader, evaluate)
                found.update({(one, partition): rows for partition, rows in pieces.items()})
    except (KafkaFailure, FilterTrouble, TimeoutError) as error:
        logger.info("a live tail begins with now: %s", error)
        return []
    return [item.row for item in _count(_newest(found, last))]


async def _read(
    one: Subscription, last: int, filter_text: str, open_reader: OpenReader, evaluate: Evaluate
) -> dict[int, list[_Found]]:
    ends = one.starts
    share = last if len(ends) <= MANY_PARTITIONS else max(10, last * MANY_PARTITIONS // len(ends))
    reader = open_reader(one.channel.feed.topic)
    found: dict[int, list[_Found]] = {}
    newest: deque[Record] = deque(maxlen=SAMPLE_RECORDS)
    bytes_left = MAX_BYTES
    try:
        firsts = await reader.first_offsets(list(ends))
        starts = {index: max(firsts[index], end - share) for index, end in ends.items()}
        held = {index: at for index, at in starts.items() if at < ends[index]}
        if held:
            await reader.start(held)
        while any(reader.positions[index] < ends[index] for index in reader.positions):
            for piece in await reader.read(200, 500):
                records = [item for item in piece.records if item.offset < ends[piece.partition]]
                bytes_left -= sum(len(item.value or b"") for item in records)
                newest.extend(records)
                matches = await _matches(filter_text, records, evaluate)
                found.setdefault(piece.partition, []).extend(
                    _Found(item.timestamp_ms, TailRecord(item, 0, 0), is_match)
                    for item, is_match in zip(records, matches, strict=True)
                )
            if bytes_left < 0:
                raise KafkaFailure("TOO_MUCH", "the last records are too large to begin with")
        one.channel.feed.offer_sample(newest)
    finally:
        await reader.close()
    return found


async def _matches(
    filter_text: str, records: Sequence[Record], evaluate: Evaluate
) -> Sequence[bool]:
    if not filter_text or not records:
        return [True] * len(records)
    verdicts = await evaluate(filter_text, records)
    return [verdict == MATCHED for verdict in verdicts.each]


def _newest(
    found: dict[tuple[Subscription, int], list[_Found]], last: int
) -> dict[tuple[Subscription, int], list[_Found]]:
    """The newest of all: of each partition a whole end, so that its offsets leave no gap."""
    keys = [key for key, rows in found.items() if rows]
    # (time of the first that is left, which partition, how many are left out there)
    heap = [(found[key][0].time_ms, index, 0) for index, key in enumerate(keys)]
    heapify(heap)
    for _ in range(sum(len(found[key]) for key in keys) - last):
        _, index, out = heap[0]
        if out + 1 < len(found[keys[index]]):
            heapreplace(heap, (found[keys[index]][out + 1].time_ms, index, out + 1))
        else:
            heappop(heap)
    return {keys[index]: found[keys[index]][out:] for _, index, out in heap}


def _count(chosen: dict[tuple[Subscription, int], list[_Found]]) -> list[_Found]:
    """Move the starts of the subscriptions back to what was chosen; what matched, by time.

    A record that is stamped ahead holds up those behind it in its partition: offsets stay in order.
    """
    matched: list[list[_Found]] = []
    for (one, partition), rows in chosen.items():
        first = rows[0].row.offset
        shown = [item for item in rows if item.is_match]
        one.extra_received += len(rows)
        one.extra_unmatched += len(rows) - len(shown)
        one.extra_holes += one.starts[partition] - first - len(rows)
        one.shown += len(shown)
        one.starts = {**one.starts, partition: first}
        matched.append(shown)
    return list(merge(*matched, key=lambda item: item.time_ms))
