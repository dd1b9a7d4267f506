"""Which records a command reads, and when it has seen them all. The decisions are pure.

Ends are frozen when reading starts: ``min(what was asked, high watermark)`` (the last stable
offset for read_committed). Something that reads to an end stops at the record before it, at
whatever lies beyond it, or when the partition says that nothing follows: transaction markers and
holes left by compaction take up offsets that no record ever shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from appliance.failure import ItemError
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, OffsetView, Record
from dashboard.gateway import Gateway, OffsetAt
from dashboard.offset_range import Anchor, Bound, OffsetRange

if TYPE_CHECKING:
    from dashboard.expressions import Expression

Answers = Mapping[TopicPartition, OffsetView | KafkaFailure]


@dataclass(slots=True)
class Span:
    """What to read of one partition. ``end`` None: whatever comes."""

    key: TopicPartition
    start: int
    end: int | None
    skip_before: int = 0
    """Asked for an offset that does not exist yet: records below it are not shown."""


@dataclass(frozen=True, slots=True)
class LogState:
    """A partition's offsets when reading starts; times are offsets found for the range's times."""

    log_start: int
    log_end: int
    at_start_time: int = -1
    at_end_time: int = -1


def resolve_span(
    key: TopicPartition, wanted: OffsetRange, log: LogState, *, stops_at_end: bool
) -> tuple[Span, str | None]:
    """The span of one partition, and a remark where the log does not hold what was asked."""
    start = wanted.start.resolve(log.log_start, log.log_end, log.at_start_time)
    end = None
    if wanted.end is not None:
        end = wanted.end.resolve(log.log_start, log.log_end, log.at_end_time)
    elif stops_at_end:
        end = log.log_end
    span = Span(key, start, end)
    remark = None
    if wanted.start.anchor is Anchor.OFFSET:
        asked = wanted.start.number
        if asked < log.log_start:
            remark = f"{key}: offset {asked} is gone, the log starts at {log.log_start}"
        elif asked > log.log_end:
            span.skip_before = asked
            remark = f"{key}: offset {asked} is not there yet, the log ends at {log.log_end}"
    return span, remark


class Progress(Protocol):
    """Follows a reading to its end, if it has one."""

    @property
    def is_done(self) -> bool: ...

    def on_record(self, record: Record) -> bool:
        """Whether the record belongs to what was asked."""

    def on_partition_end(self, key: TopicPartition) -> None:
        """Nothing follows for now: what was to be read to an end has been read."""

    def take_closed(self) -> list[TopicPartition]:
        """Partitions that need not be fetched any more, each once."""

    def fraction(self) -> float | None:
        """How much is done, by offsets; None where there is no end."""


class ReadProgress:
    """Follows several spans to their ends."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = {span.key: span for span in spans}
        self._positions = {key: span.start for key, span in self._spans.items()}
        self._open = {
            key for key, span in self._spans.items() if span.end is None or span.start < span.end
        }
        self._just_closed: list[TopicPartition] = []

    @property
    def is_done(self) -> bool:
        return not self._open

    def starts(self) -> dict[TopicPartition, int]:
        """Where to begin, for the partitions that hold anything to read."""
        return {key: self._spans[key].start for key in self._open}

    def on_record(self, record: Record) -> bool:
        key = TopicPartition(record.topic, record.partition)
        span = self._spans[key]
        self._positions[key] = record.offset + 1
        if span.end is not None:
            if record.offset + 1 >= span.end:
                self._close(key)
            if record.offset >= span.end:
                return False
        return record.offset >= span.skip_before

    def on_partition_end(self, key: TopicPartition) -> None:
        if self._spans[key].end is not None:
            self._positions[key] = self._spans[key].end or 0
            self._close(key)

    def take_closed(self) -> list[TopicPartition]:
        closed, self._just_closed = self._just_closed, []
        return closed

    def fraction(self) -> float | None:
        total = done = 0
        for key, span in self._spans.items():
            if span.end is None:
                return None
            total += max(0, span.end - span.start)
            done += max(0, min(self._positions[key], span.end) - span.start)
        return done / total if total else 1.0

    def _close(self, key: TopicPartition) -> None:
        if key in self._open:
            self._open.discard(key)
            self._just_closed.append(key)


class GroupProgress:
    """Follows the partitions that a group gives us, and takes away again.

    ``stops_at_end``: each is read to the end that it had when we got it.
    """

    def __init__(self, *, stops_at_end: bool) -> None:
        self._stops_at_end = stops_at_end
        self._ends: dict[TopicPartition, int] = {}
        self._open: set[TopicPartition] = set()
        self._just_closed: list[TopicPartition] = []
        self._has_begun = False

    @property
    def is_done(self) -> bool:
        return self._stops_at_end and self._has_begun and not self._open

    def on_assigned(self, ends: Mapping[TopicPartition, int]) -> None:
        self._has_begun = True
        self._ends |= ends
        self._open |= ends.keys()

    def on_revoked(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self._ends.pop(key, None)
            self._open.discard(key)

    def on_record(self, record: Record) -> bool:
        if not self._stops_at_end:
            return True
        key = TopicPartition(record.topic, record.partition)
        end = self._ends.get(key, 0)
        if record.offset + 1 >= end:
            self._close(key)
        return record.offset < end

    def on_partition_end(self, key: TopicPartition) -> None:
        if self._stops_at_end:
            self._close(key)

    def take_closed(self) -> list[TopicPartition]:
        closed, self._just_closed = self._just_closed, []
        return closed

    def fraction(self) -> float | None:
        return None

    def _close(self, key: TopicPartition) -> None:
        if key in self._open:
            self._open.discard(key)
            self._just_closed.append(key)


@dataclass(slots=True)
class RecordFilter:
    """Literal matches and a CEL expression: neither can take for ever on a hostile record."""

    key: bytes | None = None
    contains: Sequence[bytes] = field(default_factory=tuple)
    expression: Expression | None = None
    error_count: int = 0
    """Records for which the expression could not be evaluated; they do not match."""
    first_error: str = ""

    @property
    def is_empty(self) -> bool:
        return self.key is None and not self.contains and self.expression is None

    def matches(self, record: Record) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        value = record.value or b""
        if not all(piece in value for piece in self.contains):
            return False
        return self.expression is None or self._is_true(self.expression, record)

    def _is_true(self, expression: Expression, record: Record) -> bool:
        from dashboard.expressions import EvaluationError

        try:
            return expression.matches(record)
        except EvaluationError as error:
            self.error_count += 1
            place = f"{record.topic}-{record.partition} offset {record.offset}"
            self.first_error = self.first_error or f"{place}: {error.reason}"
            return False


def find_spans(
    gateway: Gateway,
    keys: Sequence[TopicPartition],
    wanted: OffsetRange,
    *,
    stops_at_end: bool,
    read_committed: bool,
    remark: Callable[[str], None],
) -> tuple[list[Span], list[ItemError]]:
    """Ask the cluster where the partitions start and end now."""
    ask: list[Answers] = [
        gateway.offsets(keys, OffsetAt.EARLIEST),
        gateway.offsets(keys, OffsetAt.LATEST, read_committed=read_committed),
        *(_time_offsets(gateway, keys, bound) for bound in (wanted.start, wanted.end)),
    ]
    spans, errors = [], []
    for key in keys:
        answers = [answer.get(key) for answer in ask]
        failure = next((a for a in answers if isinstance(a, KafkaFailure)), None)
        if failure is not None:
            errors.append(ItemError.of(failure, topic=key.topic, partition=key.partition))
            continue
        offsets = [a.offset if isinstance(a, OffsetView) else -1 for a in answers]
        log_end = max(offsets[0], offsets[1])
        span, words = resolve_span(
            key, wanted, LogState(offsets[0], log_end, *offsets[2:]), stops_at_end=stops_at_end
        )
        spans.append(span)
        if words is not None:
            remark(words)
    return spans, errors


def _time_offsets(gateway: Gateway, keys: Sequence[TopicPartition], bound: Bound | None) -> Answers:
    if bound is None or bound.anchor is not Anchor.TIME:
        return {}
    return gateway.offsets(keys, bound.number)
