"""Broker settings: transactions and producer ids."""

from __future__ import annotations

from broker.config.definition import (
    ConfigKey,
    ConfigType,
    Importance,
    Range,
    Scope,
)

BOOLEAN = ConfigType.BOOLEAN
INT = ConfigType.INT
SHORT = ConfigType.SHORT
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER_WIDE = Scope.CLUSTER_WIDE

KEYS = (
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        "100",
        "",
        Range(0),
        importance=HIGH,
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        "20",
        "",
        Range(1),
        importance=HIGH,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        INT,
        "600000",
        "",
        Range(1),
        importance=LOW,
        has_effect=True,
        is_internal=True,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "",
        Range(1),
        importance=LOW,
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        "10000",
        "",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        INT,
        "900000",
        "",
        Range(1),
        importance=HIGH,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        BOOLEAN,
        "true",
        "",
        importance=LOW,
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        "3600000",
        "",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        INT,
        "5242880",
        "",
        Range(1),
        importance=HIGH,
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        INT,
        "2",
        "",
        Range(1),
        importance=HIGH,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        INT,
        "50",
        "",
        Range(1),
        importance=HIGH,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        SHORT,
        "3",
        "",
        Range(1),
        importance=HIGH,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        INT,
        "104857600",
        "",
        Range(1),
        importance=HIGH,
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        "false",
        "",
        importance=LOW,
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        INT,
        "604800000",
        "",
        Range(1),
        importance=HIGH,
    ),
)
