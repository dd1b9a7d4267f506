"""Rows of the brokers' page, and one broker's settings with where each value comes from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.config.broker_keys import find_broker_key
from broker.config.definition import OneOf
from dashboard import clusters
from dashboard.answers import Answer, answers
from dashboard.broker_api import NodeReport
from dashboard.cluster import ConfigSource, ConfigView, KafkaFailure
from dashboard.snapshots import BrokerState, ClusterSnapshot, LaggingReplica

SETTINGS_AGE_MS = 5_000
SOURCES = {
    ConfigSource.DYNAMIC_BROKER_CONFIG: "this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "its file",
    ConfigSource.DEFAULT_CONFIG: "default",
}


class Lagging(NamedTuple):
    """Replicas of one broker that are not in sync."""

    replicas: int
    records: int | None
    """That they lack together; None: not told of each."""
    since_ms: int
    """When the first of them was in sync last."""
    is_since_known: bool


class BrokerRow(NamedTuple):
    state: BrokerState
    leader_skew: float | None
    """By how much of an even share it leads more (or less): 0.25 is a quarter more."""
    replica_skew: float | None
    lagging: Lagging | None = None


def rows_of(snapshot: ClusterSnapshot) -> list[BrokerRow]:
    brokers = list(snapshot.brokers.values())
    leaders = sum(broker.leader_count for broker in brokers)
    replicas = sum(broker.replica_count for broker in brokers)
    lagging = lagging_of(snapshot)
    return [
        BrokerRow(
            broker,
            _skew(broker.leader_count, leaders, len(brokers)),
            _skew(broker.replica_count, replicas, len(brokers)),
            lagging.get(broker.broker_id),
        )
        for broker in brokers
    ]


def lagging_of(snapshot: ClusterSnapshot) -> dict[int, Lagging]:
    """By broker."""
    found: dict[int, list[LaggingReplica]] = {}
    for problem in snapshot.problems:
        for each in problem.lagging:
            found.setdefault(each.broker_id, []).append(each)
    return {broker_id: _together(replicas) for broker_id, replicas in found.items()}


def _together(replicas: list[LaggingReplica]) -> Lagging:
    lags = [each.lag for each in replicas if each.lag is not None]
    since_ms, is_vague = min((each.since_ms, not each.is_since_known) for each in replicas)
    return Lagging(
        len(replicas), sum(lags) if len(lags) == len(replicas) else None, since_ms, not is_vague
    )


def _skew(count: int, total: int, brokers: int) -> float | None:
    return count * brokers / total - 1 if total and brokers > 1 else None


def node_of(snapshot: ClusterSnapshot, broker_id: int) -> NodeReport | None:
    """What only an Odradek broker tells of itself; None: not told by this cluster."""
    node = snapshot.node
    return node if node is not None and node.node_id == broker_id else None


class SettingRow(NamedTuple):
    view: ConfigView
    doc: str
    source: str
    is_editable: bool
    is_own: bool
    """Set by hand, for this broker or for all of them."""
    synonyms: tuple[tuple[str, str | None, str], ...]
    options: tuple[str, ...] = ()


def settings_of(broker_id: int) -> Answer[list[SettingRow]]:
    """Asked of the broker itself; a page never waits long for it."""

    def ask() -> list[SettingRow]:
        name = str(broker_id)
        found = clusters.gateway().broker_configs([name])[name]
        if isinstance(found, KafkaFailure):
            raise found
        return [row_of(view) for view in found]

    return answers.ask(key_of(broker_id), ask, max_age_ms=SETTINGS_AGE_MS)


def key_of(broker_id: int) -> tuple[str, str]:
    return ("broker", str(broker_id))


def row_of(view: ConfigView) -> SettingRow:
    key = find_broker_key(view.name)
    validator = key.validator if key is not None else None
    return SettingRow(
        view,
        key.doc if key is not None else "",
        SOURCES.get(view.source, "unknown"),
        not view.is_read_only,
        view.source
        in (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        tuple((one.name, one.value, SOURCES.get(one.source, "unknown")) for one in view.synonyms),
        validator.words if isinstance(validator, OneOf) else (),
    )


def matching(rows: Iterable[SettingRow], search: str, shown: str) -> list[SettingRow]:
    """``shown``: all, set (not a default) or dynamic (can be changed here)."""
    words = search.casefold().split()
    return [
        row
        for row in rows
        if all(word in f"{row.view.name} {row.doc} {row.view.value}".casefold() for word in words)
        and (shown != "set" or not row.view.is_default)
        and (shown != "dynamic" or row.is_editable)
    ]
