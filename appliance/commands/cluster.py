"""``odradek cluster ...``: the brokers, and whether all is well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from appliance.options import command, lazy_group, pass_session
from appliance.output import Column, Report, Table, render_description
from appliance.session import Session
from broker.model.ids import TopicPartition
from dashboard.cluster import BrokerView, ClusterView

COMMANDS = {
    "info": ("appliance.commands.cluster:info", "The brokers and what they hold."),
    "join": ("appliance.commands.cluster_moves:join", "Use brokers that have come."),
    "leave": ("appliance.commands.cluster_moves:leave", "Move everything away from a broker."),
    "reassign": ("appliance.commands.cluster_moves:reassign", "Move partitions to other brokers."),
    "elect": ("appliance.commands.cluster_moves:elect", "Have preferred leaders lead again."),
    "move-to-zookeeper": (
        "appliance.commands.cluster_move:move_to_zookeeper",
        "Make a single node the first of several.",
    ),
    "health": ("appliance.commands.status:status", "Is the cluster healthy? As odradek status."),
}
BROKER_COLUMNS = (
    Column("id", "count"),
    Column("controller", is_wide=True),
    Column("host"),
    Column("port", "count"),
    Column("rack"),
    Column("partitions", "count"),
    Column("leaders", "count"),
    Column("size", "size"),
)
TOPIC_COLUMNS = (
    Column("topic"),
    Column("partitions", "count"),
    Column("replicas", "count"),
    Column("brokers"),
)


@lazy_group("cluster", COMMANDS, {"metadata": "info", "status": "health"})
def cluster() -> None:
    """The brokers, and whether all is well."""


@command("info")
@click.option("-d", "--detailed", is_flag=True, help="The topics too, and where they are.")
@click.option("-i", "--internal", is_flag=True, help="Internal topics too.")
@pass_session
def info(session: Session, detailed: bool, internal: bool) -> int:
    """The brokers, what each holds and leads, and which one is the controller.

    SIZE is what a broker's log directories hold; PARTITIONS and SIZE count internal topics too.
    """
    gateway = session.gateway()
    view = gateway.cluster()
    brokers = gateway.brokers()
    sizes = gateway.broker_log_sizes(brokers)
    table = Table(BROKER_COLUMNS, [_broker_row(each, view, sizes) for each in brokers])
    topics = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": topic.replication_factor,
            "brokers": sorted({b for p in topic.partitions for b in p.replicas}),
        }
        for topic in view.topics
        if internal or not topic.is_internal
    ]
    document: dict[str, Any] = {
        "cluster_id": view.cluster_id,
        "controller": view.controller_id,
        "topics": len(topics),
        "broker_list": table.objects(),
    }
    tables = [table]
    if detailed:
        tables.append(Table(TOPIC_COLUMNS, topics))
        document["topic_list"] = tables[-1].objects()
    summary = [
        (key.upper().replace("_", "-"), document[key])
        for key in ("cluster_id", "controller", "topics")
    ]
    text = render_description(summary, tables, wide=session.format == "wide")
    return session.emit(Report(tables, data=[document], text=text))


def _broker_row(
    broker: BrokerView,
    view: ClusterView,
    sizes: Mapping[int, Mapping[TopicPartition, int]],
) -> dict[str, Any]:
    partitions = [partition for topic in view.topics for partition in topic.partitions]
    known = sizes.get(broker.broker_id)
    return {
        "id": broker.broker_id,
        "controller": broker.broker_id == view.controller_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "partitions": sum(broker.broker_id in partition.replicas for partition in partitions),
        "leaders": sum(partition.leader == broker.broker_id for partition in partitions),
        "size": None if known is None else sum(known.values()),
    }
