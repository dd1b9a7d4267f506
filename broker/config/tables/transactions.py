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
        "Longest time that the broker goes on retrying to add a partition to a transaction.",
        Range(0),
        importance=HIGH,
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        "20",
        "Pause between two such attempts.",
        Range(1),
        importance=HIGH,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        INT,
        "600000",
        "How often silent producers are looked for.",
        Range(1),
        importance=LOW,
        is_internal=True,
        has_effect=True,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "Silence after which a producer's sequence numbers are forgotten.",
        Range(1),
        importance=LOW,
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        "10000",
        "How often transactions that took too long are looked for.",
        Range(1),
        importance=LOW,
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        INT,
        "900000",
        "Longest timeout that a transactional producer may ask for.",
        Range(1),
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        BOOLEAN,
        "true",
        "Whether a partition is checked to be part of a transaction before it is written to.",
        importance=LOW,
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        "3600000",
        "How often unused transactional ids are looked for.",
        Range(1),
        importance=LOW,
        has_effect=True,
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        INT,
        "5242880",
        "Bytes read at a time when transaction state is loaded.",
        Range(1),
        importance=HIGH,
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        INT,
        "2",
        "In-sync replicas that the transaction topic needs.",
        Range(1),
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        INT,
        "50",
        "Partitions of the transaction topic.",
        Range(1),
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        SHORT,
        "3",
        "Replicas of the transaction topic.",
        Range(1),
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        INT,
        "104857600",
        "Segment size of the transaction topic.",
        Range(1),
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        "false",
        "Whether transactions may take part in a two-phase commit with others.",
        importance=LOW,
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        INT,
        "604800000",
        "Time without use after which a transactional id is forgotten.",
        Range(1),
        importance=HIGH,
        has_effect=True,
    ),
)
