"""Broker settings that Kafka does not have. All of them begin with ``odradek.``."""

from __future__ import annotations

from broker.config.definition import ConfigKey, ConfigType, Importance, OneOf, Range, Scope

INT = ConfigType.INT
LONG = ConfigType.LONG
BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
LOW = Importance.LOW
CLUSTER_WIDE = Scope.CLUSTER_WIDE

KEYS = (
    ConfigKey(
        "odradek.disk.floor.bytes",
        LONG,
        "104857600",
        "Free space of a log directory below which clients' produce requests are refused.",
        Range(0),
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "odradek.disk.floor.replication.bytes",
        LONG,
        "33554432",
        "Free space of a log directory below which followers stop writing as well.",
        Range(0),
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "odradek.log.append",
        STRING,
        "auto",
        "How hot segments are written: through a memory map, by pwrite, or as the file system allows.",
        OneOf(("auto", "map", "pwrite")),
        importance=LOW,
        has_effect=True,
    ),
    ConfigKey(
        "odradek.log.dirs.begin.empty",
        BOOLEAN,
        "false",
        "Whether empty log directories may take the place of those whose records are nowhere else.",
        importance=LOW,
        has_effect=True,
    ),
    ConfigKey(
        "odradek.log.mapped.segments",
        INT,
        "256",
        "Most active segments that are mapped at a time; others are written by pwrite.",
        Range(0),
        importance=LOW,
        has_effect=True,
    ),
    ConfigKey(
        "odradek.metrics.listen",
        STRING,
        "",
        "Loopback address where Prometheus reads this broker's metrics, such as 127.0.0.1:9404; empty: nowhere.",
        importance=LOW,
        has_effect=True,
    ),
    ConfigKey(
        "odradek.metrics.required",
        BOOLEAN,
        "true",
        "Whether a broker that cannot have odradek.metrics.listen ends; false: it goes on without.",
        importance=LOW,
        has_effect=True,
    ),
    ConfigKey(
        "odradek.produce.validation",
        STRING,
        "relaxed",
        "How closely produced batches are checked: by their header, or (strict) record by record.",
        OneOf(("relaxed", "strict")),
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "odradek.retention.scheduled",
        BOOLEAN,
        "false",
        "Whether a scheduler asks for retention; the broker steps in when it is silent for two minutes.",
        importance=LOW,
        has_effect=True,
    ),
)
