"""``odradek topic list``: one line a topic, or with -d one line a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from appliance.commands.topic_describe import kafka_partition_line
from appliance.options import TOPIC, command, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session
from appliance.topics import LogFigures, choose_names, compile_pattern
from dashboard.cluster import KafkaFailure, PartitionView, TopicView
from dashboard.gateway import Gateway

POLICY_KEY = "cleanup.policy"
MIN_ISR_KEY = "min.insync.replicas"
COLUMNS = (
    Column("name"),
    Column("partitions", "count"),
    Column("replicas", "count"),
    Column("isr", "count"),
    Column("messages", "count"),
    Column("size", "size"),
    Column("policy"),
    Column("last_record", "moment"),
)
PARTITION_COLUMNS = (
    Column("name"),
    Column("partition", "count"),
    Column("leader", "count"),
    Column("replicas"),
    Column("isr"),
)
SORT_KEYS = ("name", "partitions", "messages", "size", "last_record")


@command("list", has_kafka_format=True)
@click.argument("names", nargs=-1, type=TOPIC, metavar="[TOPIC]...")
@click.option("-i", "--internal", is_flag=True, help="Internal topics too.")
@click.option("-r", "--regex", metavar="REGEX", help="Only topics whose whole name matches.")
@click.option("-d", "--detailed", is_flag=True, help="One line a partition.")
@click.option("--under-replicated", is_flag=True, help="Only where replicas are behind.")
@click.option("--under-min-isr", is_flag=True, help="Only where acks=all is refused.")
@click.option("--at-min-isr", is_flag=True, help="Only where one replica less refuses acks=all.")
@click.option("--unavailable", is_flag=True, help="Only where a partition has no leader.")
@click.option(
    "--sort", type=click.Choice(SORT_KEYS), default="name", help="Biggest first, but for name."
)
@pass_session
def list_topics(
    session: Session,
    names: tuple[str, ...],
    internal: bool,
    regex: str | None,
    detailed: bool,
    under_replicated: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    unavailable: bool,
    sort: str,
) -> int:
    """Topics with their size and state.

    MESSAGES counts offsets between start and end of each log; ISR is the smallest count of
    in-sync replicas over a topic's partitions.
    """
    if regex is not None:
        compile_pattern(regex)
    gateway = session.gateway()
    topics = _choose(gateway, names, regex, internal=internal)
    keep = _filter(
        gateway,
        topics,
        under_replicated=under_replicated,
        under_min_isr=under_min_isr,
        at_min_isr=at_min_isr,
        unavailable=unavailable,
    )
    topics = [topic for topic in topics if any(keep(topic, p) for p in topic.partitions)]
    if detailed:
        kept = [(topic, p) for topic in topics for p in topic.partitions if keep(topic, p)]
        rows = [_partition_row(topic, partition) for topic, partition in kept]
        lines = "".join(f"{kafka_partition_line(topic.name, p)}\n" for topic, p in kept)
        text = lines if session.format == "kafka" else None
        return session.emit(Report([Table(PARTITION_COLUMNS, rows)], text=text))
    if session.format == "kafka":
        return session.emit(Report(text="".join(f"{topic.name}\n" for topic in topics)))
    rows = _rows(gateway, topics)
    if sort != "name":
        rows.sort(key=lambda row: row[sort] if row[sort] is not None else -1, reverse=True)
    return session.emit(Report([Table(COLUMNS, rows)]))


def _choose(
    gateway: Gateway, names: tuple[str, ...], regex: str | None, *, internal: bool
) -> list[TopicView]:
    topics = [topic for topic in gateway.cluster().topics if topic.partitions]
    if not names and regex is None:
        return [topic for topic in topics if internal or not topic.is_internal]
    chosen = set(choose_names(gateway, names, regex, internal=internal))
    return [topic for topic in topics if topic.name in chosen]


def _filter(
    gateway: Gateway,
    topics: list[TopicView],
    *,
    under_replicated: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    unavailable: bool,
) -> Callable[[TopicView, PartitionView], bool]:
    asks_min_isr = under_min_isr or at_min_isr
    min_isr = _values(gateway, topics, MIN_ISR_KEY) if asks_min_isr else {}

    def keep(topic: TopicView, partition: PartitionView) -> bool:
        spare = len(partition.isr) - int(min_isr.get(topic.name) or 0)
        return (
            (not under_replicated or partition.is_under_replicated)
            and (not unavailable or partition.is_leaderless)
            and (not under_min_isr or spare < 0)
            and (not at_min_isr or spare == 0)
        )

    return keep


def _values(gateway: Gateway, topics: list[TopicView], key: str) -> dict[str, str | None]:
    found = gateway.topic_configs([topic.name for topic in topics], [key])
    return {
        name: views[0].value
        for name, views in found.items()
        if not isinstance(views, KafkaFailure) and views
    }


def _rows(gateway: Gateway, topics: list[TopicView]) -> list[dict[str, Any]]:
    figures = LogFigures(gateway, topics, last_records=True)
    policies = _values(gateway, topics, POLICY_KEY)
    return [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replicas": topic.replication_factor,
            "isr": min(len(partition.isr) for partition in topic.partitions),
            "messages": figures.message_count(topic),
            "size": figures.size(topic),
            "policy": policies.get(topic.name),
            "last_record": figures.last_record_ms(topic),
        }
        for topic in topics
    ]


def _partition_row(topic: TopicView, partition: PartitionView) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partition": partition.index,
        "leader": partition.leader,
        "replicas": partition.replicas,
        "isr": partition.isr,
    }
