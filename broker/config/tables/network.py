"""Broker settings: listeners, connections and requests."""

from __future__ import annotations

from broker.config.definition import (
    ConfigKey,
    ConfigType,
    DistinctItems,
    Importance,
    Range,
    Scope,
)

INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
STRING = ConfigType.STRING
HIGH = Importance.HIGH
LOW = Importance.LOW
PER_BROKER = Scope.PER_BROKER
CLUSTER_WIDE = Scope.CLUSTER_WIDE

KEYS = (
    ConfigKey(
        "advertised.listeners",
        LIST,
        None,
        "Addresses that clients are told to connect to; the addresses listened on if not given.",
        DistinctItems(may_be_empty=False, may_be_null=True),
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "connections.max.idle.ms",
        LONG,
        "600000",
        "Silence after which a connection is closed; below zero, never.",
        has_effect=True,
    ),
    ConfigKey(
        "fetch.max.bytes",
        INT,
        "57671680",
        "Most bytes in one answer to a fetch, whatever the client asked for.",
        Range(1024),
        has_effect=True,
    ),
    ConfigKey(
        "fetch.purgatory.purge.interval.requests",
        INT,
        "1000",
        "Finished waiting fetches that are kept before they are swept out.",
    ),
    ConfigKey(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener, as NAME:PROTOCOL.",
        importance=LOW,
        scope=PER_BROKER,
        has_effect=True,
        note="Fixed while the broker runs; every listener must be PLAINTEXT.",
    ),
    ConfigKey(
        "listeners",
        LIST,
        "PLAINTEXT://:9092",
        "Addresses to listen on, as NAME://host:port; an empty host means all of them.",
        DistinctItems(may_be_empty=False),
        importance=HIGH,
        scope=PER_BROKER,
        has_effect=True,
        note="Fixed while the broker runs; PLAINTEXT listeners only.",
    ),
    ConfigKey(
        "max.connection.creation.rate",
        INT,
        "2147483647",
        "Most new connections per second.",
        Range(0),
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections",
        INT,
        "2147483647",
        "Most connections at a time.",
        Range(0),
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "max.connections.per.ip",
        INT,
        "2147483647",
        "Most connections at a time from one address.",
        Range(0),
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "The same for single addresses, as host:count.",
        scope=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "Most incremental fetch sessions that are remembered.",
        Range(0),
        has_effect=True,
    ),
    ConfigKey(
        "num.io.threads",
        INT,
        "8",
        "Threads that work on requests.",
        Range(1),
        importance=HIGH,
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.network.threads",
        INT,
        "3",
        "Threads that read and write connections.",
        Range(1),
        importance=HIGH,
        scope=CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.purgatory.purge.interval.requests",
        INT,
        "1000",
        "Finished waiting produce requests that are kept before they are swept out.",
    ),
    ConfigKey(
        "queued.max.request.bytes",
        LONG,
        "-1",
        "Memory for requests that are arriving or waiting; -1 for no limit.",
        has_effect=True,
    ),
    ConfigKey(
        "queued.max.requests",
        INT,
        "500",
        "Requests that wait to be worked on before connections are no longer read.",
        Range(1),
        importance=HIGH,
    ),
    ConfigKey(
        "request.timeout.ms",
        INT,
        "30000",
        "How long this broker waits for an answer to its own requests.",
        importance=HIGH,
    ),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        "30000",
        "Longest time that setting up a connection to another node may take.",
    ),
    ConfigKey(
        "socket.connection.setup.timeout.ms",
        LONG,
        "10000",
        "First time limit for setting up a connection to another node.",
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        INT,
        "50",
        "Connections that the system queues before they are accepted.",
        Range(1),
        has_effect=True,
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        INT,
        "102400",
        "Receive buffer of a client's connection; -1 leaves it to the system.",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "socket.request.max.bytes",
        INT,
        "104857600",
        "Largest request that is read.",
        Range(1),
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        INT,
        "102400",
        "Send buffer of a client's connection; -1 leaves it to the system.",
        importance=HIGH,
        has_effect=True,
    ),
)
