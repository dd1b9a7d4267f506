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
    "Metadata quorum": quorum.KEYS,
    "Tiered storage": tiered.KEYS,
}

BROKER_KEYS: dict[str, ConfigKey] = {key.name: key for keys in SUBJECTS.values() for key in keys}

#: Kept in the dynamic settings only: no row of Kafka's static table, so DescribeConfigs shows them
#: only when they were set.
DYNAMIC_ONLY = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
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


def is_dynamic(name: str) -> bool:
    """Whether ``name`` may be changed while the broker runs."""
    key = find_broker_key(name)
    return key is not None and key.scope is not Scope.READ_ONLY
