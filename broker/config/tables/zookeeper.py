"""Broker settings: ZooKeeper, by the names that Apache Kafka had for them up to 3.9."""

from __future__ import annotations

from broker.config.definition import ConfigKey, ConfigType, Importance, OneOf, Range

BOOLEAN = ConfigType.BOOLEAN
INT = ConfigType.INT
PASSWORD = ConfigType.PASSWORD
STRING = ConfigType.STRING
HIGH = Importance.HIGH
LOW = Importance.LOW

KEYS = (
    ConfigKey(
        "zookeeper.connect",
        STRING,
        "",
        "ZooKeeper of the cluster, as host:port,host:port/path; empty: this broker is a cluster of its own.",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms",
        INT,
        "18000",
        "How long ZooKeeper waits for a silent broker.",
        Range(100),
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms",
        INT,
        None,
        "How long a start waits for ZooKeeper; unset: as long as zookeeper.session.timeout.ms.",
        importance=HIGH,
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.ssl.client.enable",
        BOOLEAN,
        "false",
        "Whether ZooKeeper is reached by TLS.",
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.location",
        STRING,
        None,
        "PEM file of authorities that may sign ZooKeeper's certificate; unset: the system's.",
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.location",
        STRING,
        None,
        "PEM file with this broker's key and certificate for ZooKeeper.",
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.password",
        PASSWORD,
        None,
        "Password of the key in zookeeper.ssl.keystore.location.",
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        "HTTPS",
        "Whether ZooKeeper's certificate must name its host; empty: it need not.",
        OneOf(("HTTPS", "")),
        importance=LOW,
        has_effect=True,
    ),
    ConfigKey(
        "odradek.zookeeper.digest",
        PASSWORD,
        None,
        "USER:PASSWORD for ZooKeeper; what the cluster keeps there is then for whoever has it.",
        has_effect=True,
    ),
)
