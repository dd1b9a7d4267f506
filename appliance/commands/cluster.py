"""``odradek cluster ...``: the brokers, and whether all is well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from appliance.lagging import since_words
from appliance.options import command, data_option, lazy_group, pass_session
from appliance.output import Column, Report, Table, moment_fields, render_description
from appliance.session import Session
from broker.clock import SystemClock
from broker.model.ids import TopicPartition
from dashboard.broker_api import BrokerApi
from dashboard.cluster import BrokerView, ClusterView
from dashboard.quorum_wire import Behind

if TYPE_CHECKING:
    from dashboard.gateway import Gateway

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
    Column("skew", "count"),
    Column("not_in_sync", "count"),
    Column("state"),
)
ALIVE, GONE = "alive", "gone"
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
@data_option(
    "The data directory of a broker here, whose session with ZooKeeper is told.",
    takes_any_version=True,
)
@click.option("-d", "--detailed", is_flag=True, help="The topics too, and where they are.")
@click.option("-i", "--internal", is_flag=True, help="Internal topics too.")
@pass_session
def info(session: Session, data: Path, detailed: bool, internal: bool) -> int:
    """The brokers, what each holds and leads, and which one is the controller.

    SIZE is what a broker's log directories hold; PARTITIONS and SIZE count internal topics too. SKEW is by how
    many percent more (or less) than an even share a broker leads, NOT-IN-SYNC how many of its replicas lag:
    `odradek status` names them, and since when. A broker that replicas are placed on and that is not there is
    told as gone: since when, as its replicas' leaders know it.
    """
    gateway = session.gateway()
    view = gateway.cluster()
    brokers = gateway.brokers()
    sizes = gateway.broker_log_sizes(brokers)
    gone = gone_since(gateway, view)
    rows = [_broker_row(each, view, sizes, ALIVE) for each in brokers]
    rows += [_broker_row(BrokerView(each, "", 0), view, sizes, GONE) for each in gone]
    rows.sort(key=lambda row: row["id"])
    table = Table(BROKER_COLUMNS, rows)
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
        "broker_list": [
            each | _gone_fields(gone.get(each["id"], NOT_GONE)) for each in table.objects()
        ],
        "zookeeper_session": _zookeeper_session(data, view),
    }
    tables = [table]
    now_ms = SystemClock().wall_ms()
    told_rows = [
        row | {"state": gone[row["id"]].as_words(now_ms)} if row["state"] == GONE else row
        for row in rows
    ]
    texts = [Table(BROKER_COLUMNS, told_rows)]
    if detailed:
        topic_table = Table(TOPIC_COLUMNS, topics)
        tables.append(topic_table)
        texts.append(topic_table)
        document["topic_list"] = topic_table.objects()
    summary = [
        (key.upper().replace("_", "-"), document[key])
        for key in ("cluster_id", "controller", "topics")
    ]
    if (told := document["zookeeper_session"]) is not None:
        summary.append(("ZOOKEEPER-SESSION", session_words(told, now_ms)))
    text = render_description(summary, texts, wide=session.format == "wide")
    return session.emit(Report(tables, data=[document], text=text))


class Gone(NamedTuple):
    """Since when a broker is away. ``is_exact``: that its replicas were in sync last then; else their leaders
    lead since then, and have not seen it."""

    since_ms: int | None = None
    is_exact: bool = False

    def as_words(self, now_ms: int) -> str:
        if self.since_ms is None:
            return GONE
        return f"{GONE} since {since_words(self.since_ms, now_ms, is_exact=self.is_exact)}"


NOT_GONE = Gone()


def gone_since(gateway: Gateway, view: ClusterView) -> dict[int, Gone]:
    """Those that replicas are placed on, and that are not there."""
    held = {b for topic in view.topics for each in topic.partitions for b in each.replicas}
    away = sorted(held - {broker.broker_id for broker in view.brokers})
    if not away:
        return {}
    told: dict[int, list[Behind]] = {each: [] for each in away}
    for replicas in gateway.moves.behind(view.topics).values():
        for broker, behind in replicas.items():
            if broker in told and behind.since_ms is not None:
                told[broker].append(behind)
    return {each: _since(told[each]) for each in away}


def _since(told: Sequence[Behind]) -> Gone:
    """One that lags may have done so before: the last that was in sync says most. Who leads anew knows only
    that it was away by then."""
    exact = [each.since_ms for each in told if each.since_ms is not None and each.is_since_known]
    if exact:
        return Gone(max(exact), is_exact=True)
    return Gone(min((each.since_ms for each in told if each.since_ms is not None), default=None))


def _gone_fields(gone: Gone) -> dict[str, Any]:
    return {**moment_fields("gone_since", gone.since_ms), "gone_since_is_exact": gone.is_exact}


def _zookeeper_session(data: Path, view: ClusterView) -> dict[str, Any] | None:
    """Of the broker on this machine, if it is one of this cluster; None: nobody tells."""
    try:
        node = BrokerApi(data.absolute()).node()
    except OSError:
        return None
    if node is None or node.zookeeper is None or node.cluster_id != view.cluster_id:
        return None
    told = node.zookeeper
    return {
        "broker": node.node_id,
        "state": told.state,
        **moment_fields("since", told.since_ms),
        "hosts": told.hosts,
        "chroot": told.chroot,
        "session_id": told.session_id,
        "timeout_ms": told.timeout_ms,
    }


def session_words(told: Mapping[str, Any], now_ms: int) -> str:
    """``connected since 14:03:12, 4 min ago (broker 1)``."""
    return (
        f"{told['state']} since {since_words(told['since_ms'], now_ms)} (broker {told['broker']}, "
        f"{told['hosts']}{told['chroot']})"
    )


def _skew(count: int, total: int, brokers: int) -> int | None:
    """In percent of an even share; None where there is none."""
    return round(100 * count * brokers / total) - 100 if total and brokers > 1 else None


def _broker_row(
    broker: BrokerView,
    view: ClusterView,
    sizes: Mapping[int, Mapping[TopicPartition, int]],
    state: str,
) -> dict[str, Any]:
    partitions = [partition for topic in view.topics for partition in topic.partitions]
    known = sizes.get(broker.broker_id)
    led = [partition.leader for partition in partitions if partition.leader is not None]
    leaders = led.count(broker.broker_id)
    return {
        "id": broker.broker_id,
        "controller": broker.broker_id == view.controller_id,
        "host": broker.host or None,
        "port": broker.port or None,
        "rack": broker.rack,
        "partitions": sum(broker.broker_id in partition.replicas for partition in partitions),
        "leaders": leaders,
        "size": None if known is None else sum(known.values()),
        "skew": _skew(leaders, len(led), len(view.brokers)) if state == ALIVE else None,
        "not_in_sync": sum(
            broker.broker_id in partition.replicas and broker.broker_id not in partition.isr
            for partition in partitions
        ),
        "state": state,
    }
