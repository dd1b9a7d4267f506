"""``odradek produce``: records from standard input or a file into one topic."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from appliance.failure import EXIT_FAILED, CommandError, ItemError
from appliance.options import TOPIC, command, pass_session
from appliance.output import Column, Report, Table
from appliance.progress import ProgressLine
from appliance.record_format import unescape
from appliance.session import Session
from appliance.writing import (
    BadInput,
    LineFormat,
    LineParser,
    LineSplitter,
    parse_json,
    read_pieces,
)
from broker.clock import SystemClock
from dashboard.cluster import KafkaFailure
from dashboard.gateway import RecordWriter

COLUMNS = (
    Column("topic"),
    Column("partition", "count"),
    Column("records", "count"),
    Column("first_offset", "count"),
    Column("last_offset", "count"),
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
POLL_EVERY = 100
"""Delivery reports are taken after so many records."""


@command("produce")
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Read this instead of standard input.",
)
@click.option("-k", "--key", metavar="TEXT", help="One key for all records.")
@click.option(
    "-K", "--key-separator", metavar="SEP", help="Key and value of a line, parted by SEP."
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="K=V", help="Header; K alone: null."
)
@click.option("-p", "--partition", type=click.IntRange(0), help="Default: by key, else any.")
@click.option("-Z", "--tombstone", is_flag=True, help="Empty keys and values become null.")
@click.option("-z", "--compression", type=click.Choice(CODECS), default="none", help="Codec.")
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True)
@click.option(
    "-f",
    "--input-format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: one object a line, as consume -f json writes them.",
)
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="What ends a record.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Records a second at most.")
@pass_session
def produce(
    session: Session,
    /,
    topic: str,
    path: Path | None,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    tombstone: bool,
    compression: str,
    acks: str,
    form: str,
    delimiter: str,
    rate: float | None,
) -> int:
    """Write records from standard input, one a line."""
    if key is not None and key_separator is not None:
        raise click.UsageError("-k and -K exclude each other")
    line_format = LineFormat(
        key=None if key is None else key.encode(errors="surrogateescape"),
        key_separator=None if key_separator is None else _separator(key_separator, "-K"),
        headers=[_header(text) for text in headers],
        empty_is_null=tombstone,
    )
    return write_topic(
        session,
        WriteRequest(
            topic=topic,
            parse=parse_json if form == "json" else line_format.parse,
            path=None if path is None or str(path) == "-" else path,
            partition=partition,
            delimiter=_separator(delimiter, "-D"),
            rate=rate,
            properties={"compression.type": compression, **acks_properties(ACKS[acks])},
        ),
    )


def acks_properties(acks: int) -> dict[str, Any]:
    """Only acks=all lets the library number its batches, so that a retry cannot repeat one."""
    return {"acks": acks, "enable.idempotence": acks == -1, "linger.ms": 5}


def _separator(text: str, option: str) -> bytes:
    try:
        found = unescape(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
    if not found:
        raise click.BadParameter("a separator cannot be empty", param_hint=option)
    return found


def _header(text: str) -> tuple[str, bytes | None]:
    name, separator, value = text.partition("=")
    if not name:
        raise click.BadParameter(f"{text!r} has no name; write NAME=VALUE", param_hint="-H")
    return name, value.encode(errors="surrogateescape") if separator else None


@dataclass(slots=True)
class WriteRequest:
    topic: str
    parse: LineParser
    properties: dict[str, Any]
    path: Path | None = None
    partition: int | None = None
    delimiter: bytes = b"\n"
    rate: float | None = None


def write_topic(session: Session, request: WriteRequest) -> int:
    """Send everything, wait for the acknowledgements, say what became of it."""
    gateway = session.gateway()
    found = gateway.topics([request.topic]).get(request.topic)
    if isinstance(found, KafkaFailure) and found.code == "UNKNOWN_TOPIC_OR_PARTITION":
        session.note(f"there is no topic {request.topic} yet; the broker may make it")
    writer = gateway.writer(request.topic, **request.properties)
    writing = _Writing(session, request, writer)
    if request.path is None:
        bad = writing.run(sys.stdin.fileno(), None)
    else:
        with request.path.open("rb") as file:
            bad = writing.run(file.fileno(), os.fstat(file.fileno()).st_size)
    return _finish(session, writing, bad)


class _Writing:
    """The loop from input to the client library's queue."""

    def __init__(self, session: Session, request: WriteRequest, writer: RecordWriter) -> None:
        self.request = request
        self.writer = writer
        self.count = 0
        self._session = session
        self._bytes = 0
        self.is_typed = request.path is None and sys.stdin.isatty()
        self.line = ProgressLine(
            SystemClock(),
            is_enabled=sys.stderr.isatty() and not self.is_typed and not session.is_quiet,
        )
        if self.is_typed:
            session.note("type records, one a line; Ctrl-D ends")
            writer.on_delivered = self._say_delivered

    def run(self, descriptor: int, total: int | None) -> ItemError | None:
        """Returns what was wrong with the input, if anything; what came before it was sent."""
        try:
            for lines, position in self._lines(descriptor):
                for line in lines:
                    self._send(line)
                self.writer.poll()
                if self.is_typed:
                    self.writer.flush(self._session.timeout_s)
                fraction = position / total if total else None
                self.line.update(self.count, self._bytes, fraction)
        except BadInput as error:
            hint = "Records before this one were sent, it and later ones were not."
            return ItemError("BAD_INPUT", f"record {self.count + 1}: {error}", {}, hint)
        finally:
            self.line.clear()
        return None

    def _lines(self, descriptor: int) -> Iterator[tuple[list[bytes], int]]:
        splitter = LineSplitter(self.request.delimiter)
        position = 0
        for data in read_pieces(descriptor, self.writer.poll):
            position += len(data)
            yield splitter.feed(data), position
        yield splitter.end(), position

    def _send(self, line: bytes) -> None:
        record = self.request.parse(line)
        self.count += 1
        self._bytes += len(line)
        if self.request.rate is not None:
            self._pace(self.request.rate)
        self.writer.send(
            self.count, record.value, record.key, record.headers, self.request.partition
        )
        if self.count % POLL_EVERY == 0:
            self.writer.poll()

    def _pace(self, rate: float) -> None:
        """Record n leaves no sooner than n/rate seconds after the first."""
        due_ms = (self.count - 1) * 1000 / rate
        while (wait_ms := due_ms - self.line.elapsed_ms) > 0:
            self.writer.poll()
            time.sleep(min(wait_ms, 100) / 1000)

    def _say_delivered(self, partition: int, offset: int) -> None:
        self._session.note(f"Produced to partition {partition} offset {offset}")


def _finish(session: Session, writing: _Writing, bad: ItemError | None) -> int:
    writer = writing.writer
    # The library gives up on a record by itself (message.timeout.ms) and reports it as failed.
    while writer.flush(1.0):
        pass
    errors = [] if bad is None else [bad]
    errors += _failures(writing)
    rows = [
        {
            "topic": writing.request.topic,
            "partition": partition,
            "records": tally.count,
            "first_offset": tally.first_offset,
            "last_offset": tally.last_offset,
        }
        for partition, tally in sorted(writer.tallies.items())
    ]
    if session.format == "text":
        for row in rows if not writing.is_typed else ():
            session.note(_tally_words(row))
        for error in errors:
            session.complain(error.as_line(), error.hint)
        return EXIT_FAILED if errors else 0
    return session.emit(Report([Table(COLUMNS, rows)], errors))


def _failures(writing: _Writing) -> list[ItemError]:
    writer = writing.writer
    if writer.failures and writer.failure_count == writing.count:
        _, first = writer.failures[0]
        if first.is_transport:
            raise CommandError.of(first, "the cluster")
    errors = [
        ItemError.of(failure, record=number, topic=writer.topic)
        for number, failure in writer.failures
    ]
    untold = writer.failure_count - len(writer.failures)
    if untold:
        errors.append(ItemError("MORE_FAILED", f"{untold} more records failed"))
    return errors


def _tally_words(row: dict[str, Any]) -> str:
    place = f"to partition {row['partition']}"
    if row["first_offset"] is None:
        noun = "record" if row["records"] == 1 else "records"
        return f"Sent {row['records']} {noun} {place}, not acknowledged"
    if row["records"] == 1:
        return f"Produced {place} offset {row['first_offset']}"
    offsets = f"{row['first_offset']}-{row['last_offset']}"
    return f"Produced {row['records']} records {place} offsets {offsets}"
