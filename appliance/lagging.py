"""Replicas that are not in sync, as commands tell of them: by how many records, and since when.

What is not known is told as such: a leader knows nothing from before it led, and clusters other than ours
do not tell since when.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, NamedTuple

from appliance.output import Column, moment_fields
from broker.model.ids import TopicPartition
from dashboard.durations import in_two_units
from dashboard.quorum_wire import Behind

COLUMNS = (
    Column("topic", is_wide=True),
    Column("partition", "count"),
    Column("lagging", "count"),
    Column("behind", "count"),
    Column("since"),
)


class Lagging(NamedTuple):
    """A replica that is not in sync; ``lag`` in records, None where nobody tells. ``since_ms``: when it was in
    sync last, or, if ``is_since_known`` is false, when its leader began to lead: it lasts at least so long."""

    topic: str
    partition: int
    broker: int
    lag: int | None
    since_ms: int | None = None
    is_since_known: bool = False

    def as_object(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "broker": self.broker,
            "lag": self.lag,
            **moment_fields("since", self.since_ms),
            "since_is_exact": self.is_since_known,
        }

    def as_row(self, now_ms: int) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "lagging": self.broker,
            "behind": self.lag,
            "since": self._since(now_ms),
        }

    def _since(self, now_ms: int) -> str | None:
        if self.since_ms is None:
            return None
        return since_words(self.since_ms, now_ms, is_exact=self.is_since_known)

    def as_words(self, now_ms: int) -> str:
        far = "by an unknown number" if self.lag is None else f"{self.lag:,} behind"
        since = self._since(now_ms)
        told = far if since is None else f"{far}, since {since}"
        return f"{self.topic}-{self.partition} on broker {self.broker} ({told})"


def since_words(since_ms: int, now_ms: int, *, is_exact: bool = True) -> str:
    """``14:03:12, 4 min ago``, by the clock of where the command runs, with the date of another day."""
    at = dt.datetime.fromtimestamp(since_ms / 1000, dt.UTC).astimezone()
    today = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC).astimezone().date()
    moment = at.strftime("%H:%M:%S" if at.date() == today else "%Y-%m-%d %H:%M:%S")
    age = in_two_units(max(0, now_ms - since_ms) // 1000)
    return f"{moment}, {age} ago" if is_exact else f"before {moment}, over {age} ago"


def lagging_of(behind: Mapping[TopicPartition, Mapping[int, Behind]]) -> tuple[Lagging, ...]:
    return tuple(
        Lagging(*key, broker, told.lag, told.since_ms, told.is_since_known)
        for key, replicas in sorted(behind.items())
        for broker, told in replicas.items()
    )
