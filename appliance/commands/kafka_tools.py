"""Hidden aliases: command lines of Kafka's own tools, so that what was pasted works.

``odradek kafka-topics --bootstrap-server ... --list`` and four others. Each maps the classic flags
onto a command of ours and prints in the classic layout; flags that are not in these tables are
refused as unknown. ``--bootstrap-server`` and ``--command-config`` are global options already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import click

from appliance.commands.consume import ReadRequest, read_topics
from appliance.commands.produce import ACKS, CODECS, WriteRequest, acks_properties, write_topic
from appliance.failure import EXIT_FAILED, EXIT_OK, CommandError, ItemError
from appliance.offset_range import Anchor, Bound, OffsetRange
from appliance.options import KEY_VALUE, PARTITIONS, command, pass_session
from appliance.output import Report
from appliance.record_format import Renderer
from appliance.session import Session
from appliance.topics import compile_pattern, matching_names
from appliance.writing import BadInput, LineParser, NewRecord
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, Record
from dashboard.gateway import OffsetAt

TIMES = {
    "-1": OffsetAt.LATEST,
    "latest": OffsetAt.LATEST,
    "-2": OffsetAt.EARLIEST,
    "earliest": OffsetAt.EARLIEST,
    "-3": OffsetAt.MAX_TIMESTAMP,
    "max-timestamp": OffsetAt.MAX_TIMESTAMP,
}


def _forward(session: Session, arguments: Sequence[str]) -> int:
    """Run a command of ours in Kafka's layout."""
    from appliance.cli import cli

    session.format = "kafka"
    result = cli.main(list(arguments), prog_name="odradek", standalone_mode=False, obj=session)
    return result if isinstance(result, int) else EXIT_OK


def _only_action(given: dict[str, bool], tool: str) -> str:
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) != 1:
        flags = ", ".join(f"--{name}" for name in given)
        raise click.UsageError(f"{tool} wants exactly one of {flags}")
    return chosen[0]


def _options(flag: str, values: Iterable[str]) -> list[str]:
    return [piece for value in values for piece in (flag, value)]


# kafka-topics


@command("kafka-topics", hidden=True)
@click.option("--list", "list_", is_flag=True)
@click.option("--describe", is_flag=True)
@click.option("--create", is_flag=True)
@click.option("--alter", is_flag=True)
@click.option("--delete", is_flag=True)
@click.option("--topic")
@click.option("--partitions")
@click.option("--replication-factor")
@click.option("--config", "configs", multiple=True)
@click.option("--delete-config", "delete_configs", multiple=True)
@click.option("--if-exists", is_flag=True)
@click.option("--if-not-exists", is_flag=True)
@click.option("--exclude-internal", is_flag=True)
@click.option("--under-replicated-partitions", "under_replicated", is_flag=True)
@click.option("--unavailable-partitions", "unavailable", is_flag=True)
@click.option("--under-min-isr-partitions", "under_min_isr", is_flag=True)
@pass_session
def kafka_topics(session: Session, /, **given: Any) -> int:
    """The flags of kafka-topics.sh."""
    actions = {
        name: given["list_" if name == "list" else name]
        for name in ("list", "describe", "create", "alter", "delete")
    }
    action = _only_action(actions, "kafka-topics")
    topic: str | None = given["topic"]
    if action in ("create", "alter", "delete") and topic is None:
        raise click.UsageError(f"--{action} wants --topic NAME")
    narrow = [
        f"--{name.replace('_', '-')}"
        for name in ("under_replicated", "unavailable", "under_min_isr")
        if given[name]
    ]
    internal = [] if given["exclude_internal"] else ["-i"]
    if action == "describe" and narrow:
        return _forward(session, ["topic", "list", "-d", *internal, *narrow, *_pattern(topic)])
    if action == "list":
        return _forward(session, ["topic", "list", *internal, *narrow, *_pattern(topic)])
    if action == "describe":
        if topic is None:
            names = [t.name for t in session.gateway().cluster().topics]
            return _forward(session, ["topic", "describe", *names]) if names else EXIT_OK
        return _forward(session, ["topic", "describe", *internal, *_pattern(topic)])
    name = str(topic)
    arguments = {
        "create": ["topic", "create", name, *_options("-c", given["configs"])],
        "alter": [
            *["topic", "alter", name, *_options("--set", given["configs"])],
            *_options("--delete", given["delete_configs"]),
        ],
        "delete": ["topic", "delete", name, "--yes"],
    }[action]
    if given["partitions"] is not None:
        arguments += ["--partitions", given["partitions"]]
    if given["replication_factor"] is not None:
        arguments += ["--replicas", given["replication_factor"]]
    arguments += ["--if-exists"] if given["if_exists"] and action == "delete" else []
    arguments += ["--if-not-exists"] if given["if_not_exists"] and action == "create" else []
    return _forward(session, arguments)


def _pattern(topic: str | None) -> list[str]:
    return [] if topic is None else ["-r", topic]


# kafka-configs


@command("kafka-configs", hidden=True)
@click.option("--describe", is_flag=True)
@click.option("--alter", is_flag=True)
@click.option("--entity-type", type=click.Choice(["topics", "brokers"]))
@click.option("--entity-name")
@click.option("--entity-default", is_flag=True)
@click.option("--topic")
@click.option("--broker")
@click.option("--broker-defaults", is_flag=True)
@click.option("--add-config", default="")
@click.option("--delete-config", default="")
@click.option("--all", "everything", is_flag=True)
@pass_session
def kafka_configs(session: Session, /, **given: Any) -> int:
    """The flags of kafka-configs.sh, for topics and brokers."""
    actions = {"describe": given["describe"], "alter": given["alter"]}
    action = _only_action(actions, "kafka-configs")
    entities = _configs_entities(session, given)
    if action == "describe":
        everything = ["-a"] if given["everything"] else []
        return _forward(session, ["config", "get", *entities, *everything])
    changes = [f"{key}={value}" for key, value in split_configs(given["add_config"])]
    deletes = [key.strip() for key in given["delete_config"].split(",") if key.strip()]
    return _forward(session, ["config", "set", *changes, *entities, *_options("--delete", deletes)])


def _configs_entities(session: Session, given: dict[str, Any]) -> list[str]:
    kind, name = given["entity_type"], given["entity_name"]
    if given["topic"] is not None:
        kind, name = "topics", given["topic"]
    if given["broker"] is not None:
        kind, name = "brokers", given["broker"]
    if given["broker_defaults"] or (kind == "brokers" and given["entity_default"]):
        kind, name = "brokers", "default"
    if kind is None:
        raise click.UsageError("say whose configs: --entity-type topics|brokers --entity-name NAME")
    option = "--topic" if kind == "topics" else "--broker"
    if name is not None:
        return [option, name]
    if given["alter"]:
        raise click.UsageError("--alter wants --entity-name NAME or --entity-default")
    cluster = session.gateway().cluster()
    if kind == "topics":
        return _options(option, [topic.name for topic in cluster.topics])
    return _options(option, ["default", *(str(broker.broker_id) for broker in cluster.brokers)])


def split_configs(text: str) -> list[tuple[str, str]]:
    """``k1=v1,k2=[a,b]``: commas part settings, brackets hold values together."""
    found = []
    for piece in re.findall(r"[^,\[]*(?:\[[^\]]*\])?[^,]*", text):
        if not piece.strip():
            continue
        key, separator, value = piece.partition("=")
        if not separator:
            raise click.BadParameter(f"{piece!r} is not key=value", param_hint="--add-config")
        value = value.strip()
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        found.append((key.strip(), value))
    return found


# kafka-get-offsets


@command("kafka-get-offsets", hidden=True)
@click.option("--topic", "pattern")
@click.option("--partitions", type=PARTITIONS)
@click.option("--time", "moment", default="latest")
@click.option("--exclude-internal-topics", "exclude_internal", is_flag=True)
@pass_session
def kafka_get_offsets(
    session: Session,
    pattern: str | None,
    partitions: frozenset[int] | None,
    moment: str,
    exclude_internal: bool,
) -> int:
    """The flags of kafka-get-offsets.sh."""
    if moment not in TIMES and not moment.isdigit():
        raise click.BadParameter(f"{moment!r} is no time; write one of {', '.join(TIMES)} or ms")
    gateway = session.gateway()
    topics = [t for t in gateway.cluster().topics if not (exclude_internal and t.is_internal)]
    names = {topic.name for topic in topics}
    if pattern is not None:
        names = set(matching_names(names, compile_pattern(pattern)))
    keys = [
        key
        for topic in topics
        if topic.name in names
        for key in topic.keys
        if partitions is None or key.partition in partitions
    ]
    if not keys:
        raise CommandError("no topic and partition matches", code="UNKNOWN_TOPIC_OR_PARTITION")
    found = gateway.offsets(keys, TIMES[moment] if moment in TIMES else int(moment))
    lines, errors = [], []
    for key in sorted(found):
        answer = found[key]
        if isinstance(answer, KafkaFailure):
            errors.append(ItemError.of(answer, topic=key.topic, partition=key.partition))
        elif answer.offset >= 0:
            lines.append(_offset_line(key, answer.offset))
    return session.emit(Report(text="".join(lines), errors=errors))


def _offset_line(key: TopicPartition, offset: int) -> str:
    return f"{key.topic}:{key.partition}:{offset}\n"


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
    """The flags of kafka-console-consumer.sh, but for groups: nothing is committed."""
    if given["group"] is not None:
        raise click.UsageError("--group does not exist here yet: records are read without a group")
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
