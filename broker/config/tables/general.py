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
        "Plugin that may veto changes of settings.",
        importance=LOW,
    ),
    ConfigKey(
        "auto.create.topics.enable",
        BOOLEAN,
        "true",
        "Whether a topic is created when a client asks for one that does not exist.",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "background.threads",
        INT,
        "10",
        "Threads for chores such as deleting files.",
        Range(1),
        importance=HIGH,
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "broker.id",
        INT,
        "-1",
        "Older name of node.id; both must be equal.",
        importance=HIGH,
        has_effect=True,
        note="node.id when that alone is given.",
    ),
    ConfigKey(
        "broker.rack",
        STRING,
        None,
        "Where the broker stands; replicas are spread over racks and consumers may read nearby.",
        has_effect=True,
    ),
    ConfigKey(
        "config.providers",
        LIST,
        "",
        "Names of plugins that fetch settings from elsewhere.",
        DistinctItems(),
        importance=LOW,
        scope=CLUSTER_WIDE,
        note="Values are taken as they stand.",
    ),
    ConfigKey(
        "create.topic.policy.class.name",
        CLASS,
        None,
        "Plugin that may veto new topics.",
        importance=LOW,
    ),
    ConfigKey(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        "1",
        "Finished DeleteRecords requests that are kept before they are swept out.",
    ),
    ConfigKey(
        "delete.topic.enable",
        BOOLEAN,
        "true",
        "Whether topics can be deleted.",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "Most partitions in one answer of DescribeTopicPartitions.",
        Range(1),
        has_effect=True,
    ),
    ConfigKey(
        "node.id",
        INT,
        None,
        "Number of this node in its cluster.",
        Range(0),
        importance=HIGH,
        has_effect=True,
        note="No default in Kafka; 1 here, when neither it nor broker.id is given.",
    ),
    ConfigKey(
        "num.partitions",
        INT,
        "1",
        "Partitions of a topic that is created without a number of its own.",
        Range(1),
        has_effect=True,
    ),
)
