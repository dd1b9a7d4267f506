"""``odradek consume`` and ``tail``: read records and write them out.

Without -g no consumer group takes part: partitions are assigned, nothing is committed, so looking
at a topic disturbs nobody; partitions that are added while it is being read are not seen. With -g
the group decides what is read, and what was written out is committed.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any

import click

from appliance.failure import EXIT_FAILED, EXIT_OK, CommandError, ItemError
from appliance.options import GROUP, PARTITIONS, TOPIC, command, pass_session
from appliance.progress import ProgressLine, progress_words
from appliance.reading import (
    GroupProgress,
    Progress,
    ReadProgress,
    RecordFilter,
    find_spans,
)
from appliance.record_format import Renderer, compile_format, json_renderer, pretty_renderer
from appliance.session import Session
from appliance.topics import choose_partitions, split_failures
from broker.clock import SystemClock
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, PartitionEnd, Record
from dashboard.gateway import ConsumerReader, Gateway
from dashboard.offset_range import GRAMMAR, Anchor, OffsetRange, parse_offset_range

if TYPE_CHECKING:
    from dashboard.expressions import Expression

POLL_S = 0.2


@dataclass(slots=True)
class ReadRequest:
    """Everything that was asked of one reading."""

    topics: Sequence[str]
    range: OffsetRange
    render: Renderer
    partitions: frozenset[int] | None = None
    max_records: int | None = None
    stops_at_end: bool = False
    read_committed: bool = False
    filter: RecordFilter | None = None
    idle_timeout_ms: int | None = None
    """Stop after this long without a record."""
    group: str | None = None
    """Read as a member of it; then ``range`` only says where to begin where it has been nowhere."""


def read_options(default_offset: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of consume and tail, which differ in where they start."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(_options(default_offset)):
            function = option(function)
        return function

    return decorate


def _options(default_offset: str) -> list[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    return [
        click.argument("topics", nargs=-1, required=True, type=TOPIC, metavar="TOPIC..."),
        click.option(
            "-o",
            "--offset",
            default=default_offset,
            show_default=True,
            metavar="SPEC",
            help=f"What to read, in each partition: {GRAMMAR}.",
        ),
        click.option(
            "-g",
            "--group",
            type=GROUP,
            metavar="GROUP",
            help="As a member of this consumer group, from where it is; commits what was written.",
        ),
        click.option("-n", "--num", type=click.IntRange(0), help="Stop after this many records."),
        click.option("-p", "--partitions", type=PARTITIONS, metavar="0,3-5", help="Only these."),
        click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the ends of now."),
        click.option(
            "-f",
            "--output-format",
            "output",
            metavar="FORMAT",
            help="json, or a format such as '%t[%p]@%o %k=%v\\n': %t topic, %p partition, "
            "%o offset, %T time in ms, %k key, %v or %s value, %K and %S their sizes, %h headers.",
        ),
        click.option("--key", metavar="TEXT", help="Only records with this key."),
        click.option(
            "--grep", multiple=True, metavar="TEXT", help="Only values that contain this text."
        ),
        click.option(
            "--filter",
            "expression",
            metavar="EXPR",
            help="Only records for which this CEL expression is true, as in the dashboard: "
            '"json.total > 100 && key != null".',
        ),
        click.option("--meta-only", is_flag=True, help="No keys, values and headers."),
        click.option("--read-committed", is_flag=True, help="No records of open transactions."),
        click.option(
            "--tz", default="local", metavar="local|UTC|ZONE", help="Zone of times shown."
        ),
    ]


@command("consume")
@read_options("start")
@pass_session
def consume(session: Session, /, **options: Any) -> int:
    """Read records.

    On a terminal one line a record; piped, one JSON object a line. Reading goes on until -n, the
    end of the range or -e; Ctrl-C ends it too.
    """
    return _consume(session, **options)


@command("tail")
@read_options("end")
@pass_session
def tail(session: Session, /, **options: Any) -> int:
    """Read records as they arrive: consume -o end."""
    return _consume(session, **options)


def _consume(
    session: Session,
    topics: tuple[str, ...],
    offset: str,
    group: str | None,
    num: int | None,
    partitions: frozenset[int] | None,
    exit_at_end: bool,
    output: str | None,
    key: str | None,
    grep: tuple[str, ...],
    expression: str | None,
    meta_only: bool,
    read_committed: bool,
    tz: str,
) -> int:
    try:
        wanted = parse_offset_range(offset, SystemClock().wall_ms())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-o") from None
    if group is not None:
        _check_group_options(wanted, partitions)
    wants = RecordFilter(
        None if key is None else _bytes(key),
        tuple(_bytes(piece) for piece in grep),
        None if expression is None else _expression(expression),
    )
    return read_topics(
        session,
        ReadRequest(
            topics=tuple(dict.fromkeys(topics)),
            range=wanted,
            render=_renderer(session, output, tz, meta_only=meta_only),
            partitions=partitions,
            max_records=num,
            stops_at_end=exit_at_end,
            read_committed=read_committed,
            filter=None if wants.is_empty else wants,
            group=group,
        ),
    )


def _check_group_options(wanted: OffsetRange, partitions: frozenset[int] | None) -> None:
    if partitions is not None:
        raise click.UsageError("-p does not go with -g: the group shares out the partitions")
    if wanted.end is not None or wanted.start.anchor not in (Anchor.START, Anchor.END):
        raise click.UsageError(
            "with -g reading goes on from where the group is; -o start or end says where it begins "
            "the first time, `odradek group seek` moves it"
        )


def _expression(text: str) -> Expression:
    from dashboard.expressions import Expression, ExpressionError

    try:
        return Expression(text)
    except ExpressionError as error:
        raise click.BadParameter(str(error), param_hint="--filter") from None


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _renderer(session: Session, output: str | None, tz: str, *, meta_only: bool) -> Renderer:
    if output is None:
        is_json = session.format == "json" or not sys.stdout.isatty()
        output = "json" if is_json else "pretty"
    if output == "json":
        return json_renderer(meta_only=meta_only)
    if output == "pretty":
        color = session.color_for(sys.stdout)
        return pretty_renderer(_zone(tz), meta_only=meta_only, color=color)
    try:
        return compile_format(output)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-f") from None


def _zone(name: str) -> tzinfo | None:
    """None is the machine's own zone, whose offset depends on each time shown."""
    if name == "local":
        return None
    if name.upper() == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise click.BadParameter(
            f"{name!r} is not a time zone such as Europe/Berlin", param_hint="--tz"
        ) from None


def read_topics(session: Session, request: ReadRequest) -> int:
    """Read what was asked for; returns the exit code."""
    gateway = session.gateway()
    keys, errors = _find_partitions(gateway, request)
    if not keys:
        return _end(session, errors)
    if request.group is not None:
        _read_group(session, request, request.group, sorted({key.topic for key in keys}))
        return _end(session, errors)
    spans, more = find_spans(
        gateway,
        keys,
        request.range,
        stops_at_end=request.stops_at_end,
        read_committed=request.read_committed,
        remark=session.note,
    )
    errors += more
    progress = ReadProgress(spans)
    reading = _Reading(session, request, progress)
    if not progress.is_done and request.max_records != 0:
        with gateway.reader(progress.starts(), read_committed=request.read_committed) as reader:
            try:
                reading.run(reader)
            finally:
                reading.say_end()
    else:
        reading.say_end()
    return _end(session, errors)


def _read_group(session: Session, request: ReadRequest, group: str, topics: Sequence[str]) -> None:
    progress = GroupProgress(stops_at_end=request.stops_at_end)
    reading = _Reading(session, request, progress)
    try:
        if request.max_records == 0:
            return
        with session.gateway().group_reader(
            group,
            topics,
            from_end=request.range.start.anchor is Anchor.END,
            read_committed=request.read_committed,
            on_assigned=progress.on_assigned,
            on_revoked=progress.on_revoked,
        ) as reader:
            reading.run(reader)
    finally:
        reading.say_end()


def _find_partitions(
    gateway: Gateway, request: ReadRequest
) -> tuple[list[TopicPartition], list[ItemError]]:
    topics, errors = split_failures(gateway.topics(request.topics))
    keys: list[TopicPartition] = []
    for name in request.topics:
        if name in topics:
            found, more = choose_partitions(topics[name], request.partitions)
            keys += found
            errors += more
    return keys, errors


def _end(session: Session, errors: Sequence[ItemError]) -> int:
    for error in errors:
        session.complain(error.as_line(), error.hint)
    return EXIT_FAILED if errors else EXIT_OK


def has_reader_left(descriptor: int) -> bool:
    """Whether nobody reads this pipe any more: ``consume | head`` ends though nothing arrives."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


class _Reading:
    """The loop, and its counts."""

    def __init__(self, session: Session, request: ReadRequest, progress: Progress) -> None:
        self._session = session
        self._request = request
        self._progress = progress
        self._shown = 0
        self._read = 0
        self._bytes = 0
        self._line = ProgressLine(
            SystemClock(),
            is_enabled=sys.stderr.isatty() and not sys.stdout.isatty() and not session.is_quiet,
        )

    def run(self, reader: ConsumerReader) -> None:
        idle_since_ms = self._line.elapsed_ms
        while not self._progress.is_done:
            try:
                items = reader.read(POLL_S)
            except KafkaFailure as failure:
                raise CommandError.of(failure, self._session.bootstrap or "the cluster") from None
            shown_before = self._shown
            reader.done(self._show(items))
            if self._shown == self._request.max_records:
                return
            for key in self._progress.take_closed():
                reader.stop_reading(key)
            for trouble in reader.take_troubles():
                self._session.note(f"trouble with the connection, trying on: {trouble}")
            self._line.update(self._shown, self._bytes, self._progress.fraction())
            if self._shown > shown_before:
                idle_since_ms = self._line.elapsed_ms
            elif self._is_idle(idle_since_ms):
                return
            elif has_reader_left(sys.stdout.fileno()):
                raise BrokenPipeError

    def _show(self, items: Sequence[Record | PartitionEnd]) -> dict[TopicPartition, int]:
        """Write what was asked for, at most as many records as were asked for.

        Returns how far that came: what lies before these offsets has been written, or left out.
        """
        progress, wants, render = self._progress, self._request.filter, self._request.render
        out: list[bytes] = []
        positions: dict[TopicPartition, int] = {}
        for item in items:
            if isinstance(item, PartitionEnd):
                progress.on_partition_end(TopicPartition(item.topic, item.partition))
                continue
            self._read += 1
            if not progress.on_record(item):
                continue
            positions[TopicPartition(item.topic, item.partition)] = item.offset + 1
            if not (wants is None or wants.matches(item)):
                continue
            self._shown += 1
            self._bytes += len(item.key or b"") + len(item.value or b"")
            out.append(render(item))
            if self._shown == self._request.max_records:
                break
        if out:
            sys.stdout.buffer.write(b"".join(out))
            sys.stdout.buffer.flush()
        return positions

    def _is_idle(self, since_ms: int) -> bool:
        timeout_ms = self._request.idle_timeout_ms
        return timeout_ms is not None and self._line.elapsed_ms - since_ms >= timeout_ms

    def say_end(self) -> None:
        self._line.clear()
        words = progress_words(self._shown, self._bytes, self._line.elapsed_ms)
        wants = self._request.filter
        if wants is not None:
            words += f", of {self._read:,} read"
        self._session.note(words)
        if wants is not None and wants.error_count:
            self._session.note(
                f"the filter could not be evaluated for {wants.error_count:,} of them, which count "
                f"as not matching; the first, {wants.first_error}"
            )
