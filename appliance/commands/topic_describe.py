"""``odradek topic describe``: a topic's summary, settings and partitions; also as kafka-topics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from appliance.failure import CommandError, ItemError
from appliance.lagging import COLUMNS as LAGGING_COLUMNS
from appliance.lagging import lagging_of
from appliance.options import TOPIC, command, pass_session
from appliance.output import Column, Report, Table, format_size, render_description
from appliance.session import Session
from appliance.topics import (
    LogFigures,
    choose_names,
    require_names,
    split_failures,
)
from broker.clock import SystemClock
from broker.model.ids import TopicPartition
from dashboard.cluster import ConfigView, PartitionView, TopicView
from dashboard.gateway import Gateway

CONFIG_COLUMNS = (Column("topic", is_wide=True), Column("key"), Column("value"), Column("source"))
PARTITION_COLUMNS = (
    Column("topic", is_wide=True),
    Column("partition", "count"),
    Column("leader", "count"),
    Column("epoch", "count"),
    Column("replicas"),
    Column("isr"),
    Column("log_start_offset", "count"),
    Column("high_watermark", "count"),
    Column("size", "size"),
)


@command("describe", has_kafka_format=True)
@click.argument("names", nargs=-1, type=TOPIC, metavar="[TOPIC]...")
@click.option("-s", "--summary", is_flag=True, help="The summary.")
@click.option("-c", "--configs", is_flag=True, help="Every setting, changed or not.")
@click.option("-p", "--partitions", is_flag=True, help="The partitions.")
@click.option("-a", "--all", "everything", is_flag=True, help="All of it.")
@click.option("-r", "--regex", metavar="REGEX", help="Topics whose whole name matches.")
@click.option("-i", "--internal", is_flag=True, help="With -r: internal topics too.")
@pass_session
def describe(
    session: Session,
    names: tuple[str, ...],
    summary: bool,
    configs: bool,
    partitions: bool,
    everything: bool,
    regex: str | None,
    internal: bool,
) -> int:
    """A topic's summary, its changed settings and its partitions.

    With -s, -c or -p only what they name. --format kafka prints what kafka-topics --describe does.
    """
    require_names(names, regex)
    gateway = session.gateway()
    chosen = choose_names(gateway, names, regex, internal=internal)
    if not chosen:
        raise CommandError(f"no topic matches {regex!r}", code="UNKNOWN_TOPIC_OR_PARTITION")
    topics, errors = split_failures(gateway.topics(chosen))
    settings, config_errors = split_failures(gateway.topic_configs(list(topics)))
    errors += config_errors
    ordered = [topics[name] for name in chosen if name in topics]
    if session.format == "kafka":
        text = "".join(kafka_layout(t, settings.get(t.name, [])) for t in ordered)
        return session.emit(Report(text=text, errors=errors))
    is_default = not (summary or configs or partitions)
    sections = Sections(
        summary=summary or everything or is_default,
        configs="all" if configs or everything else "changed" if is_default else "none",
        partitions=partitions or everything or is_default,
    )
    wide = session.format == "wide"
    return session.emit(_report(gateway, ordered, settings, sections, errors, wide=wide))


class Sections:
    """Which parts of a description were asked for."""

    def __init__(self, *, summary: bool, configs: str, partitions: bool) -> None:
        self.summary = summary
        self.configs = configs
        self.partitions = partitions


def _report(
    gateway: Gateway,
    topics: Sequence[TopicView],
    settings: dict[str, list[ConfigView]],
    sections: Sections,
    errors: list[ItemError],
    *,
    wide: bool,
) -> Report:
    figures = LogFigures(gateway, topics)
    report = Report(errors=errors, data=[])
    texts = []
    for topic in topics:
        views = settings.get(topic.name, [])
        shown = [view for view in views if sections.configs == "all" or not view.is_default]
        tables = []
        document = _summary(topic, figures)
        summary = _lines(document) if sections.summary else []
        if sections.configs != "none":
            table = Table(CONFIG_COLUMNS, [_config_row(topic, view) for view in shown])
            document["configs"] = table.objects()
            tables.append(table)
        if sections.partitions:
            table = Table(PARTITION_COLUMNS, [_row(topic, p, figures) for p in topic.partitions])
            document["partition_list"] = table.objects()
            tables.append(table)
            lagging = lagging_of(gateway.moves.behind([topic]))
            document["lagging"] = [each.as_object() for each in lagging]
            if lagging:
                now_ms = SystemClock().wall_ms()
                tables.append(Table(LAGGING_COLUMNS, [each.as_row(now_ms) for each in lagging]))
        assert report.data is not None
        report.data.append(document)
        texts.append(render_description(summary, tables, wide=wide))
        report.tables += tables or [_summary_table(document)]
    report.text = "\n".join(texts)
    return report


def _summary(topic: TopicView, figures: LogFigures) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": topic.replication_factor,
        "messages": figures.message_count(topic),
        "size": figures.size(topic),
    }


def _summary_table(document: dict[str, Any]) -> Table:
    return Table([Column(key) for key in document], [document])


def _lines(document: dict[str, Any]) -> list[tuple[str, Any]]:
    size = document["size"]
    shown = {**document, "size": None if size is None else format_size(size)}
    return [(key.upper().replace("_", "-"), value) for key, value in shown.items()]


def _config_row(topic: TopicView, view: ConfigView) -> dict[str, Any]:
    return {"topic": topic.name, "key": view.name, "value": view.value, "source": view.source.name}


def _row(topic: TopicView, partition: PartitionView, figures: LogFigures) -> dict[str, Any]:
    key = TopicPartition(topic.name, partition.index)
    start, end = figures.starts.get(key), figures.ends.get(key)
    return {
        "topic": topic.name,
        "partition": partition.index,
        "leader": partition.leader,
        "epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "log_start_offset": None if start is None else start.offset,
        "high_watermark": None if end is None else end.offset,
        "size": None if figures.sizes is None else figures.sizes.get(key),
    }


def kafka_layout(topic: TopicView, configs: Iterable[ConfigView]) -> str:
    """One topic as kafka-topics --describe prints it: scripts grep these words and tabs."""
    changed = ",".join(f"{c.name}={c.value or ''}" for c in configs if not c.is_default)
    lines = [
        f"Topic: {topic.name}\tTopicId: {topic.topic_id or ''}"
        f"\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {topic.replication_factor}\tConfigs: {changed}"
    ]
    lines += [kafka_partition_line(topic.name, partition) for partition in topic.partitions]
    return "\n".join(lines) + "\n"


def kafka_partition_line(name: str, partition: PartitionView) -> str:
    leader = "none" if partition.leader is None else partition.leader
    return (
        f"\tTopic: {name}\tPartition: {partition.index}\tLeader: {leader}"
        f"\tReplicas: {_joined(partition.replicas)}\tIsr: {_joined(partition.isr)}"
        f"\tElr: {_joined(partition.eligible_leader_replicas)}"
        f"\tLastKnownElr: {_joined(partition.last_known_eligible_leader_replicas)}"
    )


def _joined(ids: Iterable[int] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))
