"""Broker settings: quotas, throttling and metrics."""

from __future__ import annotations

from broker.config.definition import (
    ConfigKey,
    ConfigType,
    DistinctItems,
    Importance,
    Range,
    Scope,
)

CLASS = ConfigType.CLASS
INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
STRING = ConfigType.STRING
LOW = Importance.LOW
CLUSTER_WIDE = Scope.CLUSTER_WIDE

KEYS = (
    ConfigKey(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        "11",
        "Samples kept for throttling moves between log directories.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        "1",
        "Length of one such sample.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "client.quota.callback.class",
        CLASS,
        None,
        "Plugin that computes the quotas of clients.",
        importance=LOW,
    ),
    ConfigKey(
        "controller.quota.window.num",
        INT,
        "11",
        "Samples kept for throttling changes of topics.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "controller.quota.window.size.seconds",
        INT,
        "1",
        "Length of one such sample.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "follower.replication.throttled.rate",
        LONG,
        "9223372036854775807",
        "Bytes per second that throttled replicas of this broker fetch from leaders.",
        Range(0),
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "kafka.metrics.polling.interval.secs",
        INT,
        "10",
        "How often metrics reporters of the older kind are polled.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "kafka.metrics.reporters",
        LIST,
        "",
        "Plugins that report metrics of the older kind.",
        DistinctItems(),
        importance=LOW,
    ),
    ConfigKey(
        "leader.replication.throttled.rate",
        LONG,
        "9223372036854775807",
        "Bytes per second that this broker serves to throttled followers.",
        Range(0),
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "metric.reporters",
        LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        "Plugins that report metrics.",
        DistinctItems(),
        importance=LOW,
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "metrics.num.samples",
        INT,
        "2",
        "Samples from which a metric is computed.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "metrics.recording.level",
        STRING,
        "INFO",
        "How much is measured: INFO, DEBUG or TRACE.",
        importance=LOW,
    ),
    ConfigKey(
        "metrics.sample.window.ms",
        LONG,
        "30000",
        "Length of one sample of a metric.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "quota.window.num",
        INT,
        "11",
        "Samples kept for client quotas.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "quota.window.size.seconds",
        INT,
        "1",
        "Length of one such sample.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        "9223372036854775807",
        "Speed limit of moving replicas between log directories.",
        Range(0),
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "replication.quota.window.num",
        INT,
        "11",
        "Samples kept for throttling replication.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "replication.quota.window.size.seconds",
        INT,
        "1",
        "Length of one such sample.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "telemetry.max.bytes",
        INT,
        "1048576",
        "Most bytes of metrics that a client may push at once.",
        Range(1),
        importance=LOW,
    ),
)
