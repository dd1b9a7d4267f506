"""How far behind a group is in time: the age of the first record that it has not read.

Told by reading that record's timestamp, one record a partition; read committed, so that the markers
of transactions count as nothing. Bounded: ``MAX_READ`` records and the time of one answer a command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from broker.clock import Clock, SystemClock
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, Record
from dashboard.gateway import Gateway

MAX_READ: Final = 2_000
Unread = tuple[TopicPartition, int]
"""A partition and the offset where reading would go on."""


def ages_of(
    gateway: Gateway, unread: Iterable[Unread], timeout_s: float, clock: Clock | None = None
) -> dict[Unread, int]:
    """Seconds since the first record at or after each offset was stamped, 0 where none is left.

    What is not found out (no timestamp, too many, no answer in time, not allowed to read) is left
    out: an age is never worth the failure of a command.
    """
    clock = clock or SystemClock()
    ages: dict[Unread, int] = {}
    left = sorted(set(unread))[:MAX_READ]
    deadline_ms = clock.monotonic_ms() + int(timeout_s * 1000)
    # Several groups may stand at different offsets of one partition: each in its turn.
    while left and clock.monotonic_ms() < deadline_ms:
        turn: dict[TopicPartition, int] = {}
        for key, offset in left:
            turn.setdefault(key, offset)
        left = [one for one in left if turn[one[0]] != one[1]]
        try:
            found = gateway.first_records(turn)
        except KafkaFailure:
            continue
        ages |= _ages(turn, found, clock.wall_ms())
    return ages


def _ages(
    asked: Mapping[TopicPartition, int],
    found: Mapping[TopicPartition, Record | None],
    now_ms: int,
) -> dict[Unread, int]:
    ages: dict[Unread, int] = {}
    for key, record in found.items():
        if record is None:
            ages[key, asked[key]] = 0
        elif record.timestamp_ms >= 0:
            ages[key, asked[key]] = max(0, now_ms - record.timestamp_ms) // 1000
    return ages
