"""Says how a group is doing in one partition, without thresholds on lag. Pure.

The rules are Burrow's, over a window of samples, with one difference that settles its oldest
complaints: a sample holds the end of the log as it was seen at that tick, not as it was at the last
commit. So the lag of a consumer that stopped goes on growing here, and a topic that nobody writes
to is as fine as it looks. In this order:

- nothing is left to read: ``ok``, however long ago the last commit was;
- the committed offset went back and has not come to its old place again: ``rewind``;
- it has not moved for a while, although there was something to read all the time: ``stop`` when no
  member has the partition, ``stall`` when one has;
- it moves, and yet the lag grew at each sample: ``warn``;
- everything else is ``ok``.

The Kafka protocol does not tell when an offset was committed. A commit of the same offset again is
therefore not seen, and what parts ``stop`` from ``stall`` is whether anybody is there to read.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

STOP_AFTER_MS: Final = 60_000
"""Longer than a deployment takes to bring the members back."""
STALL_AFTER_MS: Final = 120_000
"""Longer than consumers wait between two commits, and than one batch should take."""
GROWTH_SPAN_MS: Final = 120_000
GROWTH_SAMPLES: Final = 5
TREND_SPAN_MS: Final = 180_000
WINDOW_SAMPLES: Final = 20
SPACING_MS: Final = 20_000
"""Samples that come faster replace the newest one: a window spans at least 6 minutes."""
_FIELDS: Final = 3


class LagStatus(StrEnum):
    """In order of severity: the last is the worst."""

    OK = "ok"
    WARN = "warn"
    REWIND = "rewind"
    STALL = "stall"
    STOP = "stop"


_SEVERITY: Final = {status: place for place, status in enumerate(LagStatus)}


class Sample(NamedTuple):
    at_ms: int
    committed_offset: int
    log_end_offset: int

    @property
    def lag(self) -> int:
        """Never below zero: ends are read before commits, so a fast consumer may seem ahead."""
        return max(0, self.log_end_offset - self.committed_offset)


class Window:
    """The newest samples of one partition of one group, oldest first; a few hundred bytes."""

    __slots__ = ("_numbers",)

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._numbers = array("q")
        for sample in samples:
            self.add(sample)

    def __len__(self) -> int:
        return len(self._numbers) // _FIELDS

    def __iter__(self) -> Iterator[Sample]:
        numbers = self._numbers
        for start in range(0, len(numbers), _FIELDS):
            yield Sample(*numbers[start : start + _FIELDS])

    def add(self, sample: Sample) -> None:
        """Time only goes forward: after a step of the clock the window begins anew."""
        numbers = self._numbers
        if numbers and sample.at_ms < numbers[-_FIELDS]:
            del numbers[:]
        is_close = len(self) > 1 and numbers[-_FIELDS] - numbers[-2 * _FIELDS] < SPACING_MS
        if is_close:
            del numbers[-_FIELDS:]
        numbers.extend(sample)
        if len(self) > WINDOW_SAMPLES:
            del numbers[:_FIELDS]

    @property
    def newest(self) -> Sample | None:
        return Sample(*self._numbers[-_FIELDS:]) if self._numbers else None

    def trend(self) -> float | None:
        """Change of lag in records a second over the last minutes; None from one sample alone."""
        # Asked of every partition of every group at each tick: no samples are made of the numbers.
        numbers = self._numbers
        newest = len(numbers) - _FIELDS
        if newest < _FIELDS:
            return None
        now_ms = numbers[newest]
        oldest = newest - _FIELDS
        while oldest and now_ms - numbers[oldest - _FIELDS] <= TREND_SPAN_MS:
            oldest -= _FIELDS
        span_ms = now_ms - numbers[oldest]
        grown = self._lag_at(newest) - self._lag_at(oldest)
        return grown * 1000 / span_ms if span_ms > 0 else None

    def _lag_at(self, place: int) -> int:
        return max(0, self._numbers[place + 2] - self._numbers[place + 1])


class Verdict(NamedTuple):
    """``reason`` says why in words; empty when there is nothing to say."""

    status: LagStatus
    reason: str = ""


OK: Final = Verdict(LagStatus.OK)


def judge(window: Window, *, has_owner: bool) -> Verdict:
    """``has_owner``: whether a member of the group has this partition now."""
    newest = window.newest
    if newest is None or newest.lag == 0:
        return OK
    samples = list(window)
    went_back = _went_back(samples)
    if went_back is not None:
        return Verdict(
            LagStatus.REWIND,
            f"the committed offset went back from {went_back} to {newest.committed_offset}",
        )
    still_ms = newest.at_ms - _last_progress_ms(samples)
    limit_ms = STALL_AFTER_MS if has_owner else STOP_AFTER_MS
    if still_ms >= limit_ms:
        waiting = f"{_records(newest.lag)} wait" + ("s" if newest.lag == 1 else "")
        if has_owner:
            return Verdict(
                LagStatus.STALL,
                f"a member has the partition and has committed nothing new for "
                f"{_span(still_ms)} while {waiting}",
            )
        return Verdict(
            LagStatus.STOP,
            f"no member reads the partition, nothing new was committed for {_span(still_ms)} "
            f"while {waiting}",
        )
    if _only_grows(samples):
        grown = _records(newest.lag - samples[0].lag)
        return Verdict(
            LagStatus.WARN,
            f"it reads, but more slowly than records come: {grown} further behind than "
            f"{_span(newest.at_ms - samples[0].at_ms)} ago",
        )
    return OK


def worst(statuses: Iterable[str | None]) -> LagStatus | None:
    """Of a group: the status of its worst partition. None when no partition has one."""
    known = [LagStatus(status) for status in statuses if status is not None]
    return max(known, key=_SEVERITY.__getitem__, default=None)


def severity(status: str | None) -> int:
    """For sorting; unknown is below ok."""
    return -1 if status is None else _SEVERITY[LagStatus(status)]


def _went_back(samples: list[Sample]) -> int | None:
    """From where, unless it has come there again. A log that was cut below it (a topic made anew)
    leaves nothing to come back to."""
    newest = samples[-1]
    highest = max(sample.committed_offset for sample in samples)
    if newest.committed_offset < highest <= newest.log_end_offset:
        return highest
    return None


def _last_progress_ms(samples: list[Sample]) -> int:
    """When it was last seen to read, or to have had nothing to read; at most the window's start.
    What came between two samples may have come just before the second."""
    last_ms = samples[0].at_ms
    for before, sample in itertools.pairwise(samples):
        has_moved = sample.committed_offset != before.committed_offset
        if has_moved or before.lag == 0 or sample.lag == 0:
            last_ms = sample.at_ms
    return last_ms


def _only_grows(samples: list[Sample]) -> bool:
    if len(samples) < GROWTH_SAMPLES or samples[-1].at_ms - samples[0].at_ms < GROWTH_SPAN_MS:
        return False
    lags = [sample.lag for sample in samples]
    never_falls = all(after >= before for before, after in itertools.pairwise(lags))
    return never_falls and min(lags) > 0 and lags[-1] > lags[0]


def _records(count: int) -> str:
    return f"{count:,} record".replace(",", "\u202f") + ("" if count == 1 else "s")


def _span(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
