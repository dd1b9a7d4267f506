"""Broker settings: the node itself and its topics."""

from __future__ import annotations

from broker.config.definition import (
    ConfigKey,
    ConfigType,
    DistinctItems,
    Importance,
    Range,
    Scope,
)

BOOLEAN = ConfigType.BOOLEAN
CLASS = ConfigType.CLASS
INT = ConfigType.INT
LIST = ConfigType.LIST
STRING = ConfigType.STRING
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER_WIDE = Scope.CLUSTER_WIDE

KEYS = (
    ConfigKey(
        "alter.config.policy.class.name",
        CLASS,
        None,
        "",
        importance=LOW,
    ),
    ConfigKey(
        "auto.create.topics.enable",
        BOOLEAN,
        "true",
        "",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "background.threads",
        INT,
        "10",
        "",
        Range(1),
        importance=HIGH,
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "broker.id",
        INT,
        "-1",
        "",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "broker.rack",
        STRING,
        None,
        "",
        has_effect=True,
    ),
    ConfigKey(
        "config.providers",
        LIST,
        "",
        "",
        DistinctItems(),
        importance=LOW,
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "create.topic.policy.class.name",
        CLASS,
        None,
        "",
        importance=LOW,
    ),
    ConfigKey(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        "1",
        "",
    ),
    ConfigKey(
        "delete.topic.enable",
        BOOLEAN,
        "true",
        "",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "",
        Range(1),
        has_effect=True,
    ),
    ConfigKey(
        "node.id",
        INT,
        None,
        "",
        Range(0),
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "num.partitions",
        INT,
        "1",
        "",
        Range(1),
        has_effect=True,
    ),
)
