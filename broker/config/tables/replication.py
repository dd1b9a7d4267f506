"""Broker settings: replication and leadership."""

from __future__ import annotations

from broker.config.definition import (
    ConfigKey,
    ConfigType,
    DistinctItems,
    Importance,
    OneOf,
    Range,
    Scope,
)

BOOLEAN = ConfigType.BOOLEAN
INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
STRING = ConfigType.STRING
HIGH = Importance.HIGH
PER_BROKER = Scope.PER_BROKER
CLUSTER_WIDE = Scope.CLUSTER_WIDE

KEYS = (
    ConfigKey(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Whether leadership goes back to preferred replicas by itself.",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "controlled.shutdown.enable",
        BOOLEAN,
        "true",
        "Whether a stopping broker hands its leaderships over first.",
        has_effect=True,
    ),
    ConfigKey(
        "cordoned.log.dirs",
        LIST,
        "",
        "Log directories that get no new partitions; * for all.",
        DistinctItems(may_be_null=True),
        scope=PER_BROKER,
    ),
    ConfigKey(
        "default.replication.factor",
        INT,
        "1",
        "Replicas of a topic that is created without a number of its own.",
        has_effect=True,
    ),
    ConfigKey(
        "inter.broker.listener.name",
        STRING,
        None,
        "Listener on which brokers speak to each other; unset: the first that is PLAINTEXT.",
        has_effect=True,
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "300",
        "How often it is checked whether preferred replicas lead.",
        Range(1),
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "min.insync.replicas",
        INT,
        "1",
        "Default of the topic setting of the same name.",
        Range(1),
        importance=HIGH,
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "num.replica.alter.log.dirs.threads",
        INT,
        None,
        "Threads that move replicas between log directories.",
        importance=HIGH,
    ),
    ConfigKey(
        "num.replica.fetchers",
        INT,
        "1",
        "Connections over which a follower fetches from one leader.",
        Range(1),
        importance=HIGH,
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        INT,
        "1000",
        "Pause of a follower after an error.",
        Range(0),
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        "Bytes of one partition that a follower asks for at a time.",
        Range(0),
        has_effect=True,
    ),
    ConfigKey(
        "replica.fetch.min.bytes",
        INT,
        "1",
        "Bytes that must be there before a waiting follower is answered.",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        INT,
        "10485760",
        "Bytes of all partitions that a follower asks for at a time.",
        Range(0),
        has_effect=True,
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        INT,
        "500",
        "How long a follower's fetch waits for new data.",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        "How often high watermarks are written to the disk.",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "replica.lag.max.messages",
        LONG,
        "-1",
        # As early Kafka had it. A burst of more takes every follower out until it has caught up.
        "Records by which a follower may lag before it leaves the in-sync replicas; -1: any number.",
        Range(-1),
        has_effect=True,
    ),
    ConfigKey(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "How long a follower may lag before it leaves the in-sync replicas.",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "replica.selector.class",
        STRING,
        None,
        "Who chooses the replica from which a consumer reads: an in-sync one in its client.rack, or the leader.",
        OneOf(
            (
                "org.apache.kafka.common.replica.RackAwareReplicaSelector",
                "org.apache.kafka.common.replica.LeaderSelector",
            )
        ),
        has_effect=True,
    ),
    ConfigKey(
        "replica.socket.receive.buffer.bytes",
        INT,
        "65536",
        "Receive buffer of a follower's connection.",
        importance=HIGH,
    ),
    ConfigKey(
        "replica.socket.timeout.ms",
        INT,
        "30000",
        "How long a follower waits for an answer.",
        importance=HIGH,
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Default of the topic setting of the same name.",
        importance=HIGH,
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
)
