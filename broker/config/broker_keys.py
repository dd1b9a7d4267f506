"""The table of broker settings of Apache Kafka 4.4, and ours (prefix ``odradek.``).

The rows live in ``tables``, one module for each subject; here they become one dictionary, with
the few facts that concern names rather than rows: listener prefixes and dynamic scopes.
"""

from __future__ import annotations

import re

from broker.config.definition import ConfigKey, Scope
from broker.config.tables import (
    general,
    groups,
    log,
    network,
    odradek,
    quorum,
    quotas,
    replication,
    security,
    tiered,
    transactions,
    zookeeper,
)

#: Subjects in the order in which the docs tell them.
SUBJECTS: dict[str, tuple[ConfigKey, ...]] = {
    "Node and topics": general.KEYS,
    "Listeners, connections and requests": network.KEYS,
    "Logs": log.KEYS,
    "Odradek's own": odradek.KEYS,
    "Replication": replication.KEYS,
    "Groups and offsets": groups.KEYS,
    "Transactions and producer ids": transactions.KEYS,
    "Quotas and metrics": quotas.KEYS,
    "Security": security.KEYS,
    "ZooKeeper": zookeeper.KEYS,
    "Metadata quorum": quorum.KEYS,
    "Tiered storage": tiered.KEYS,
}

BROKER_KEYS: dict[str, ConfigKey] = {key.name: key for keys in SUBJECTS.values() for key in keys}

#: Kept among the dynamic settings only: DescribeConfigs shows them when they were set.
DYNAMIC_ONLY = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)

#: Key and trust stores: while the broker runs, each listener has its own.
ONLY_PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

#: Dynamic in Kafka, but sockets of ours are opened once.
ONLY_AT_START = frozenset({"listeners", "listener.security.protocol.map"})

#: Behind a listener's name, these three may be set for all brokers at once.
_CLUSTER_WIDE_PER_LISTENER = frozenset(
    {"max.connection.creation.rate", "max.connections", "num.network.threads"}
)

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\.(.*)")

#: Settings that may stand behind a SASL mechanism's name, as in
#: ``listener.name.internal.plain.sasl.jaas.config``.
_PER_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def without_listener_prefix(name: str) -> str | None:
    """``ssl.protocol`` for ``listener.name.external.ssl.protocol``; None without such a prefix."""
    match = _LISTENER_PREFIX.fullmatch(name)
    if match is None:
        return None
    base = match.group(1)
    for suffix in _PER_MECHANISM:
        if base.endswith(suffix):
            return suffix
    return base


def find_broker_key(name: str) -> ConfigKey | None:
    """The row of ``name``, which may carry a listener prefix."""
    key = BROKER_KEYS.get(name)
    if key is not None:
        return key
    base = without_listener_prefix(name)
    return None if base is None else BROKER_KEYS.get(base)


def is_per_broker(name: str) -> bool:
    """Whether ``name`` may be set dynamically for single brokers only."""
    key = BROKER_KEYS.get(name)
    if key is not None:
        return key.scope is Scope.PER_BROKER
    base = without_listener_prefix(name)
    return base is not None and base not in _CLUSTER_WIDE_PER_LISTENER


def synonyms_of(name: str) -> tuple[str, ...]:
    """The settings that are asked in turn for the value of ``name``."""
    key = BROKER_KEYS.get(name)
    if key is not None:
        return key.synonyms or (name,)
    base = without_listener_prefix(name)
    return (name,) if base is None else (name, base)
