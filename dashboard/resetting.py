"""Where a reset moves committed offsets to; of ``group seek`` and of the dashboard alike.

Pure: the caller brings clock and offsets. The places that the command line takes:

    start  end  current  N  +N  -N  @TIME  -1h  PT1H

``+N`` counts from the start of each log, ``-N`` from its end, a duration back from now. Offsets
outside a log become its start or end, with a remark; so does a time after its last record.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from broker.model.ids import TopicPartition
from dashboard.offset_range import Anchor, Bound, parse_bound, parse_duration_ms

GRAMMAR = "start, end, current, N, +N, -N, @TIME, -1h, PT1H"
_ISO_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_ISO_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}
_LIKELY_TIMES = range(10**9, 10**14)
"""Numbers that look like seconds or milliseconds since 1970."""


class Kind(Enum):
    PLACE = "place"
    CURRENT = "current"
    SHIFT = "shift"
    GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to. PLACE: ``place`` in each log; SHIFT: ``count`` from the committed offset; GIVEN: an
    offset for each partition, from a file or another group."""

    kind: Kind
    place: Bound | None = None
    count: int = 0

    @property
    def time_ms(self) -> int | None:
        """The time whose offsets have to be looked up."""
        if self.place is None or self.place.anchor is not Anchor.TIME:
            return None
        return self.place.number


def parse_target(text: str, now_ms: int) -> Target:
    """Raises ValueError with a sentence that tells the grammar."""
    text = text.strip()
    if text == "current":
        return Target(Kind.CURRENT)
    try:
        if _ISO_DURATION.fullmatch(text) or (text.startswith("-") and not text[1:].isdigit()):
            return Target(Kind.PLACE, Bound(Anchor.TIME, now_ms - _duration_ms(text)))
        return Target(Kind.PLACE, parse_bound(text, now_ms))
    except ValueError:
        if text.startswith("@"):
            raise
        raise ValueError(f"{text!r} is no place to go to; write one of {GRAMMAR}") from None


def _duration_ms(text: str) -> int:
    if _ISO_DURATION.fullmatch(text):
        return parse_iso_duration_ms(text)
    return parse_duration_ms(text[1:])


def parse_iso_duration_ms(text: str) -> int:
    """``PnDTnHnMnS``, as Kafka's tool takes it. Raises ValueError."""
    found = _ISO_DURATION.fullmatch(text)
    parts = {} if found is None else found.groupdict()
    sign = parts.pop("sign", "")
    if not any(parts.values()):
        raise ValueError(f"{text!r} is not a duration such as PT1H30M or P7D")
    total = sum(float(parts[unit] or 0) * each for unit, each in _ISO_UNITS_MS.items())
    return int(-total if sign == "-" else total)


class PlanLine(NamedTuple):
    """One line of a plan: an offset to set. ``group`` None: of the one group that was named."""

    group: str | None
    key: TopicPartition
    offset: int


def parse_plan(text: str) -> list[PlanLine]:
    """A file of ``topic,partition,offset`` or ``group,topic,partition,offset`` lines; blanks in
    place of commas, as rpk takes them, will do. Raises ValueError that names the line."""
    found: dict[tuple[str | None, TopicPartition], PlanLine] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = next(csv.reader([line])) if "," in line else line.split()
        if not fields:
            continue
        try:
            *group, topic, partition, offset = (field.strip() for field in fields)
            key = TopicPartition(topic, _natural(partition))
            made = PlanLine(group[0] if group else None, key, _natural(offset))
            if len(group) > 1 or not topic:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"line {number} is neither topic,partition,offset nor "
                f"group,topic,partition,offset: {line!r}"
            ) from None
        if (made.group, key) in found:
            raise ValueError(f"line {number} names {key} a second time")
        found[made.group, key] = made
    return list(found.values())


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise ValueError
    return int(text)


def render_plan(moves: Iterable[tuple[str, Move]], *, with_group: bool) -> str:
    """The file that ``parse_plan`` and Kafka's tool take."""
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, move in moves:
        line = [move.key.topic, move.key.partition, move.new]
        writer.writerow([group, *line] if with_group else line)
    return out.getvalue()


@dataclass(frozen=True, slots=True)
class LogAt:
    """A partition's log. ``at_time``: what was found for the target's time; -1: nothing."""

    start: int
    end: int
    at_time: int = -1


@dataclass(frozen=True, slots=True)
class Move:
    key: TopicPartition
    prior: int | None
    new: int

    @property
    def delta(self) -> int | None:
        return None if self.prior is None else self.new - self.prior


@dataclass(slots=True)
class GroupPlan:
    """What is to be done with one group. ``unshiftable``: nothing is committed there, so there is
    nothing to shift; a group that has such partitions is to be left alone altogether."""

    group: str
    moves: list[Move]
    unshiftable: list[TopicPartition]
    remarks: list[str]


def plan_group(
    group: str,
    target: Target,
    logs: Mapping[TopicPartition, LogAt],
    committed: Mapping[TopicPartition, int],
    given: Mapping[TopicPartition, int] | None = None,
) -> GroupPlan:
    """``logs`` are the partitions meant; ``given`` has the offsets of a GIVEN target."""
    plan = GroupPlan(group, [], [], [])
    for key, log in sorted(logs.items()):
        prior = committed.get(key)
        if target.kind is Kind.SHIFT and prior is None:
            plan.unshiftable.append(key)
            continue
        wanted = _wanted(key, target, log, prior, given or {})
        new = min(max(wanted, log.start), log.end)
        remark = _remark(key, target, log, wanted)
        if remark is not None:
            plan.remarks.append(remark)
        plan.moves.append(Move(key, prior, new))
    return plan


def _wanted(
    key: TopicPartition,
    target: Target,
    log: LogAt,
    prior: int | None,
    given: Mapping[TopicPartition, int],
) -> int:
    match target.kind:
        case Kind.GIVEN:
            return given[key]
        case Kind.SHIFT:
            assert prior is not None
            return prior + target.count
        case Kind.CURRENT:
            return log.end if prior is None else prior
        case Kind.PLACE:
            assert target.place is not None
            if target.place.anchor is Anchor.OFFSET:
                return target.place.number
            return target.place.resolve(log.start, log.end, log.at_time)


def _remark(key: TopicPartition, target: Target, log: LogAt, wanted: int) -> str | None:
    if target.time_ms is not None and log.at_time < 0:
        return f"{key}: no record is as new as that, so its end {log.end} is taken"
    if wanted > log.end:
        hint = f"; for a time write @{wanted}" if wanted in _LIKELY_TIMES else ""
        return f"{key}: {wanted} lies beyond the end {log.end}, which is taken{hint}"
    if wanted < log.start:
        return f"{key}: {wanted} lies before the start {log.start}, which is taken"
    return None
