"""Hidden aliases for Kafka's console producer and consumer; see ``kafka_tools.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from appliance.commands.consume import ReadRequest, read_topics
from appliance.commands.produce import ACKS, CODECS, WriteRequest, acks_properties, write_topic
from appliance.failure import EXIT_FAILED, CommandError
from appliance.options import KEY_VALUE, command, pass_session
from appliance.record_format import Renderer
from appliance.session import Session
from appliance.topics import compile_pattern, matching_names
from appliance.writing import BadInput, LineParser, NewRecord
from dashboard.cluster import Record
from dashboard.offset_range import Anchor, Bound, OffsetRange

# kafka-console-producer


@command("kafka-console-producer", hidden=True)
@click.option("--topic", required=True)
@click.option("--reader-property", "--property", "settings", type=KEY_VALUE, multiple=True)
@click.option("--command-property", "--producer-property", "client", type=KEY_VALUE, multiple=True)
@click.option("--producer.config", "config_file")
@click.option(
    "--compression-codec",
    type=click.Choice(CODECS),
    is_flag=False,
    flag_value="gzip",
    default="none",
)
@click.option("--request-required-acks", "acks", type=click.Choice(list(ACKS)), default="-1")
@click.option("--sync", is_flag=True)
@pass_session
def kafka_console_producer(
    session: Session,
    topic: str,
    settings: tuple[tuple[str, str], ...],
    client: tuple[tuple[str, str], ...],
    config_file: str | None,
    compression_codec: str,
    acks: str,
    sync: bool,
) -> int:
    """The flags of kafka-console-producer.sh; records are acknowledged before it ends, as there."""
    _take_client_options(session, client, config_file)
    properties: dict[str, Any] = {"compression.type": compression_codec}
    properties |= acks_properties(ACKS[acks])
    if sync:
        properties["linger.ms"] = 0
    return write_topic(session, WriteRequest(topic, classic_parser(dict(settings)), properties))


def _take_client_options(
    session: Session, client: Sequence[tuple[str, str]], config_file: str | None
) -> None:
    from appliance.client_config import translate

    session.properties |= translate(dict(client))
    session.command_config = config_file or session.command_config


def classic_parser(settings: dict[str, str]) -> LineParser:
    """``h1:v1,h2:v2 <tab> key <tab> value``, each part only when its ``parse.`` says so."""
    has_key = settings.get("parse.key") == "true"
    has_headers = settings.get("parse.headers") == "true"
    key_separator = settings.get("key.separator", "\t").encode()
    headers_delimiter = settings.get("headers.delimiter", "\t").encode()
    headers_separator = settings.get("headers.separator", ",").encode()
    header_key_separator = settings.get("headers.key.separator", ":").encode()
    null_marker = settings.get("null.marker", "").encode() or None

    def nullable(data: bytes | None) -> bytes | None:
        return None if data == null_marker else data

    def header(piece: bytes) -> tuple[str, bytes | None]:
        name, found, value = piece.partition(header_key_separator)
        if not found:
            raise BadInput(f"no header key separator in header {piece.decode(errors='replace')!r}")
        return name.decode(errors="replace"), nullable(value)

    def parse(line: bytes) -> NewRecord:
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = None
        if has_headers:
            text, found, line = line.partition(headers_delimiter)
            if not found:
                raise BadInput("no headers delimiter found")
            if text and text != null_marker:
                headers = [header(piece) for piece in text.split(headers_separator)]
        if has_key:
            key, found, line = line.partition(key_separator)
            if not found:
                raise BadInput("no key separator found")
        return NewRecord(nullable(key), nullable(line), headers)

    return parse


# kafka-console-consumer


@command("kafka-console-consumer", hidden=True)
@click.option("--topic")
@click.option("--include", "pattern")
@click.option("--from-beginning", is_flag=True)
@click.option("--partition", type=click.IntRange(0))
@click.option("--offset")
@click.option("--max-messages", type=click.IntRange(0))
@click.option("--timeout-ms", type=click.IntRange(0))
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
)
@click.option("--formatter-property", "--property", "settings", type=KEY_VALUE, multiple=True)
@click.option("--command-property", "--consumer-property", "client", type=KEY_VALUE, multiple=True)
@click.option("--consumer.config", "config_file")
@click.option("--group")
@click.option("--skip-message-on-error", is_flag=True)
@pass_session
def kafka_console_consumer(session: Session, /, **given: Any) -> int:
    """The flags of kafka-console-consumer.sh; without --group nothing is committed."""
    if given["group"] is not None and given["partition"] is not None:
        raise click.UsageError("--partition does not go with --group")
    _take_client_options(session, given["client"], given["config_file"])
    topics = _classic_topics(session, given["topic"], given["pattern"])
    partition: int | None = given["partition"]
    renderer = ClassicRenderer(dict(given["settings"]))
    request = ReadRequest(
        topics=topics,
        range=_classic_range(given["offset"], given["from_beginning"], partition),
        render=renderer.render,
        partitions=None if partition is None else frozenset({partition}),
        max_records=given["max_messages"],
        read_committed=given["isolation_level"] == "read_committed",
        idle_timeout_ms=given["timeout_ms"],
        group=given["group"],
    )
    is_quiet, session.is_quiet = session.is_quiet, True
    try:
        return read_topics(session, request)
    finally:
        session.is_quiet = is_quiet
        session.note(f"Processed a total of {renderer.count} messages")


def _classic_topics(session: Session, topic: str | None, pattern: str | None) -> list[str]:
    if (topic is None) == (pattern is None):
        raise click.UsageError("give either --topic NAME or --include REGEX")
    if topic is not None:
        return [topic]
    names = [t.name for t in session.gateway().cluster().topics]
    found = matching_names(names, compile_pattern(str(pattern)))
    if not found:
        raise CommandError(f"no topic matches {pattern!r}", exit_code=EXIT_FAILED)
    return found


def _classic_range(offset: str | None, from_beginning: bool, partition: int | None) -> OffsetRange:
    if offset is not None and partition is None:
        raise click.UsageError("--offset wants --partition")
    if offset is not None and offset.isdigit():
        return OffsetRange(Bound(Anchor.OFFSET, int(offset)))
    if offset not in (None, "earliest", "latest"):
        raise click.BadParameter(f"{offset!r} is none of a number, earliest, latest")
    is_start = from_beginning or offset == "earliest"
    return OffsetRange(Bound(Anchor.START if is_start else Anchor.END))


class ClassicRenderer:
    """Records as Kafka's DefaultMessageFormatter writes them; counts what it wrote."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.count = 0
        self._separator = settings.get("key.separator", "\t").encode()
        self._line_end = settings.get("line.separator", "\n").encode()
        self._header_separator = settings.get("headers.separator", ",").encode()
        self._null = settings.get("null.literal", "null").encode()
        printed = {"value", *(n for n in _PRINTS if settings.get(f"print.{n}") == "true")}
        if settings.get("print.value") == "false":
            printed.discard("value")
        fields: dict[str, Renderer] = {
            "timestamp": self._timestamp,
            "partition": lambda record: b"Partition:%d" % record.partition,
            "offset": lambda record: b"Offset:%d" % record.offset,
            "headers": self._headers,
            "key": lambda record: self._nullable(record.key),
            "value": lambda record: self._nullable(record.value),
        }
        self._fields = [field for name, field in fields.items() if name in printed]

    def render(self, record: Record) -> bytes:
        self.count += 1
        return self._separator.join([field(record) for field in self._fields]) + self._line_end

    def _nullable(self, data: bytes | None) -> bytes:
        return self._null if data is None else data

    def _timestamp(self, record: Record) -> bytes:
        names = {1: b"CreateTime", 2: b"LogAppendTime"}
        if record.timestamp_type not in names:
            return b"NO_TIMESTAMP"
        return b"%s:%d" % (names[record.timestamp_type], record.timestamp_ms)

    def _headers(self, record: Record) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._header_separator.join(
            name.encode() + b":" + self._nullable(value) for name, value in record.headers
        )


_PRINTS = ("timestamp", "partition", "offset", "headers", "key")
