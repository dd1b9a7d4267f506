"""The grammar of ``-o``: where reading starts and where it ends.

    start  end  :end  +n  -n  n  n:m  n:  :m  @time  @t1:t2

``+n`` counts from the first record, ``-n`` from the end, each per partition. A time is epoch
seconds or milliseconds, a date, RFC 3339 (UTC unless it says otherwise), ``-1h30m`` (ago) or
``end``; the second time of a range may also be ``1h``, counted from the first. Ends are
exclusive. Pure: the caller brings the clock and the offsets of the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

GRAMMAR = "start, end, :end, +N, -N, N, N:M, @TIME, @T1:T2, @-1h"

_START_WORDS = frozenset({"start", "beginning", "earliest", "oldest"})
_END_WORDS = frozenset({"end", "latest", "newest"})
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS_DIGITS = range(9, 11)
_MILLISECONDS_DIGITS = range(12, 14)


class Anchor(Enum):
    START = "start"
    END = "end"
    FROM_START = "from start"
    FROM_END = "from end"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range. ``number``: an offset, a count, or a time in milliseconds."""

    anchor: Anchor
    number: int = 0

    def resolve(self, log_start: int, log_end: int, offset_at_time: int = -1) -> int:
        """The offset meant, inside the log.

        ``offset_at_time``: the first offset at or after this bound's time, -1 when there is none.
        """
        match self.anchor:
            case Anchor.START:
                found = log_start
            case Anchor.END:
                found = log_end
            case Anchor.FROM_START:
                found = log_start + self.number
            case Anchor.FROM_END:
                found = log_end - self.number
            case Anchor.OFFSET:
                found = self.number
            case Anchor.TIME:
                found = log_end if offset_at_time < 0 else offset_at_time
        return min(max(found, log_start), log_end)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """``end`` None: read on as records arrive."""

    start: Bound
    end: Bound | None = None


def parse_offset_range(text: str, now_ms: int) -> OffsetRange:
    """Raises ValueError with a sentence that tells the grammar."""
    text = text.strip()
    if text.startswith("@"):
        return _parse_times(text[1:], now_ms)
    first, separator, second = text.partition(":")
    try:
        start = Bound(Anchor.START) if separator and not first else _parse_bound(first)
        end = _parse_bound(second) if separator and second else None
        if separator and not first and not second:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not an offset; write one of {GRAMMAR}") from None
    _check_order(start, end, text)
    return OffsetRange(start, end)


def parse_bound(text: str, now_ms: int) -> Bound:
    """A single place in a log: the same grammar without ranges."""
    found = parse_offset_range(text, now_ms)
    if found.end is not None:
        raise ValueError(f"{text!r} is a range; one place is asked for, such as end, 42, -10, @-1h")
    return found.start


def parse_duration_ms(text: str) -> int:
    """``10s``, ``1h30m``, ``250ms``, ``2d``. Raises ValueError."""
    if not text or _DURATION.sub("", text):
        raise ValueError(f"{text!r} is not a duration; write 250ms, 10s, 5m, 1h30m or 2d")
    total = sum(float(number) * _UNITS_MS[unit] for number, unit in _DURATION.findall(text))
    return int(total)


def parse_time_ms(text: str, now_ms: int) -> int:
    """A point in time in milliseconds since the epoch. Raises ValueError."""
    if text == "now":
        return now_ms
    if text.startswith("-"):
        return now_ms - parse_duration_ms(text[1:])
    if text.isdigit():
        if len(text) in _MILLISECONDS_DIGITS:
            return int(text)
        if len(text) in _SECONDS_DIGITS:
            return int(text) * 1000
        raise ValueError(f"{text!r}: a time in digits has 10 (seconds) or 13 (milliseconds)")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _parse_bound(text: str) -> Bound:
    if text in _START_WORDS:
        return Bound(Anchor.START)
    if text in _END_WORDS:
        return Bound(Anchor.END)
    if text.startswith("+"):
        return Bound(Anchor.FROM_START, _digits(text[1:]))
    if text.startswith("-"):
        return Bound(Anchor.FROM_END, _digits(text[1:]))
    return Bound(Anchor.OFFSET, _digits(text))


def _digits(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise ValueError
    return int(text)


def _check_order(start: Bound, end: Bound | None, text: str) -> None:
    if (
        end is not None
        and start.anchor is Anchor.OFFSET
        and end.anchor is Anchor.OFFSET
        and end.number < start.number
    ):
        raise ValueError(f"{text!r} ends before it starts")


def _parse_times(text: str, now_ms: int) -> OffsetRange:
    """Times hold colons themselves: the split is the one whose two sides both are times."""
    try:
        return OffsetRange(_time_bound(text, now_ms))
    except ValueError:
        pass
    for position, character in enumerate(text):
        if character != ":":
            continue
        try:
            start, end = _time_pair(text[:position], text[position + 1 :], now_ms)
        except ValueError:
            continue
        if start.number > end.number and Anchor.END not in (start.anchor, end.anchor):
            raise ValueError(f"'@{text}' ends before it starts")
        return OffsetRange(start, end)
    raise ValueError(
        f"'@{text}' is not a time or a range of times; write @1700000000000, @2026-01-31, "
        "@2026-01-31T10:00:00Z, @-1h or two of them joined by a colon"
    )


def _time_pair(first: str, second: str, now_ms: int) -> tuple[Bound, Bound]:
    start = Bound(Anchor.TIME, 0) if not first else _time_bound(first, now_ms)
    if not second:
        raise ValueError
    if start.anchor is Anchor.TIME and first and _DURATION.match(second):
        return start, Bound(Anchor.TIME, start.number + parse_duration_ms(second))
    return start, _time_bound(second, now_ms)


def _time_bound(text: str, now_ms: int) -> Bound:
    if text in _END_WORDS:
        return Bound(Anchor.END)
    return Bound(Anchor.TIME, parse_time_ms(text, now_ms))
