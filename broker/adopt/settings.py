"""From Kafka's ``server.properties`` to the settings that an adopted broker goes on with.

Taken over is what concerns data: defaults of topics, logs, limits. Left behind is what belongs to
the old process and its surroundings: where it listened, how it secured that, its quorum, its
plug-ins, and factors that need more brokers than this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.adopt.refusal import Refusal
from broker.config.broker_config import resolve_broker_config
from broker.config.broker_keys import SUBJECTS
from broker.config.definition import ConfigError
from broker.storage.checkpoints import MetaProperties

_SUBJECTS: Final = (
    "Node and topics",
    "Listeners, connections and requests",
    "Logs",
    "Replication",
    "Groups and offsets",
    "Transactions and producer ids",
)
_LEFT: Final = frozenset(
    {
        "node.id",
        "broker.id",
        "log.dir",
        "log.dirs",
        "cordoned.log.dirs",
        "config.providers",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "min.insync.replicas",
    }
)
_TAKEN: Final = frozenset(
    key.name for subject in _SUBJECTS for key in SUBJECTS[subject] if key.name not in _LEFT
)
#: What every node has anyway: not worth a word when it is left.
_SELF_EVIDENT: Final = frozenset({"node.id", "broker.id", "log.dir", "log.dirs", "process.roles"})
_HEAD: Final = """\
# Settings of this data directory, made when it was adopted from Apache Kafka.
# `python -m broker` and `odradek serve` read them first; --config and --property are stronger.
"""


class Settings(NamedTuple):
    taken: Mapping[str, str]
    #: Names of settings that were given and not taken over.
    left: tuple[str, ...]


def choose_settings(given: Mapping[str, str], meta: MetaProperties) -> Settings:
    """Raises ``Refusal`` when they are another node's, or nothing that a broker can start with."""
    node_id = given.get("node.id", given.get("broker.id"))
    if node_id is not None and node_id.strip() != str(meta.node_id):
        raise Refusal(
            f"these settings are of node {node_id}, the log directory is of node {meta.node_id}",
            "Give the server.properties that this Kafka ran with.",
        )
    taken: dict[str, str] = {}
    left: list[str] = []
    for name, text in given.items():
        # A value with ${ comes from a provider that only the old process can ask.
        if name in _TAKEN and not name.endswith(".class.name") and "${" not in text:
            taken[name] = text
        elif name not in _SELF_EVIDENT:
            left.append(name)
    try:
        resolve_broker_config(with_node_id(taken, meta.node_id))
    except ConfigError as error:
        raise Refusal(
            f"the settings cannot be used: {error.reason}",
            "Take that line out of the file that you give with --config.",
        ) from error
    return Settings(taken, tuple(sorted(left)))


def with_node_id(settings: Mapping[str, str], node_id: int) -> dict[str, str]:
    return {"node.id": str(node_id), **settings}


def render_properties(settings: Mapping[str, str]) -> str:
    """Java's format, for values of one line."""
    lines = [f"{name}={_escaped(value)}" for name, value in settings.items()]
    return _HEAD + "\n".join([*lines, ""])


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return text.replace("\t", "\\t").replace("\f", "\\f")
