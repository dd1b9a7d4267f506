"""Hidden aliases: command lines of Kafka's own tools, so that what was pasted works.

``odradek kafka-topics --bootstrap-server ... --list`` and others, here and in ``kafka_console.py``
and ``kafka_groups.py``. Each maps the classic flags onto a command of ours and prints in the classic
layout; flags that are not in these tables are refused as unknown. ``--bootstrap-server`` and
``--command-config`` are global options already.
"""

from __future__ import annotations

import re
from typing import Any

import click

from appliance.classic import forward, only_action, repeated
from appliance.failure import EXIT_OK, CommandError, ItemError
from appliance.options import PARTITIONS, command, pass_session
from appliance.output import Report
from appliance.session import Session
from appliance.topics import compile_pattern, matching_names
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure
from dashboard.gateway import OffsetAt

TIMES = {
    "-1": OffsetAt.LATEST,
    "latest": OffsetAt.LATEST,
    "-2": OffsetAt.EARLIEST,
    "earliest": OffsetAt.EARLIEST,
    "-3": OffsetAt.MAX_TIMESTAMP,
    "max-timestamp": OffsetAt.MAX_TIMESTAMP,
}


# kafka-topics


@command("kafka-topics", hidden=True)
@click.option("--list", "list_", is_flag=True)
@click.option("--describe", is_flag=True)
@click.option("--create", is_flag=True)
@click.option("--alter", is_flag=True)
@click.option("--delete", is_flag=True)
@click.option("--topic")
@click.option("--partitions")
@click.option("--replication-factor")
@click.option("--config", "configs", multiple=True)
@click.option("--delete-config", "delete_configs", multiple=True)
@click.option("--if-exists", is_flag=True)
@click.option("--if-not-exists", is_flag=True)
@click.option("--exclude-internal", is_flag=True)
@click.option("--under-replicated-partitions", "under_replicated", is_flag=True)
@click.option("--unavailable-partitions", "unavailable", is_flag=True)
@click.option("--under-min-isr-partitions", "under_min_isr", is_flag=True)
@click.option("--at-min-isr-partitions", "at_min_isr", is_flag=True)
@pass_session
def kafka_topics(session: Session, /, **given: Any) -> int:
    """The flags of kafka-topics.sh."""
    actions = {
        name: given["list_" if name == "list" else name]
        for name in ("list", "describe", "create", "alter", "delete")
    }
    action = only_action(actions, "kafka-topics")
    topic: str | None = given["topic"]
    if action in ("create", "alter", "delete") and topic is None:
        raise click.UsageError(f"--{action} wants --topic NAME")
    narrow = [
        f"--{name.replace('_', '-')}"
        for name in ("under_replicated", "unavailable", "under_min_isr", "at_min_isr")
        if given[name]
    ]
    internal = [] if given["exclude_internal"] else ["-i"]
    if action == "describe" and narrow:
        return forward(session, ["topic", "list", "-d", *internal, *narrow, *_pattern(topic)])
    if action == "list":
        return forward(session, ["topic", "list", *internal, *narrow, *_pattern(topic)])
    if action == "describe":
        if topic is None:
            names = [t.name for t in session.gateway().cluster().topics]
            return forward(session, ["topic", "describe", *names]) if names else EXIT_OK
        return forward(session, ["topic", "describe", *internal, *_pattern(topic)])
    name = str(topic)
    arguments = {
        "create": ["topic", "create", name, *repeated("-c", given["configs"])],
        "alter": [
            *["topic", "alter", name, *repeated("--set", given["configs"])],
            *repeated("--delete", given["delete_configs"]),
        ],
        "delete": ["topic", "delete", name, "--yes"],
    }[action]
    if given["partitions"] is not None:
        arguments += ["--partitions", given["partitions"]]
    if given["replication_factor"] is not None:
        arguments += ["--replicas", given["replication_factor"]]
    arguments += ["--if-exists"] if given["if_exists"] and action == "delete" else []
    arguments += ["--if-not-exists"] if given["if_not_exists"] and action == "create" else []
    return forward(session, arguments)


def _pattern(topic: str | None) -> list[str]:
    return [] if topic is None else ["-r", topic]


# kafka-configs


@command("kafka-configs", hidden=True)
@click.option("--describe", is_flag=True)
@click.option("--alter", is_flag=True)
@click.option("--entity-type", type=click.Choice(["topics", "brokers"]))
@click.option("--entity-name")
@click.option("--entity-default", is_flag=True)
@click.option("--topic")
@click.option("--broker")
@click.option("--broker-defaults", is_flag=True)
@click.option("--add-config", default="")
@click.option("--delete-config", default="")
@click.option("--all", "everything", is_flag=True)
@pass_session
def kafka_configs(session: Session, /, **given: Any) -> int:
    """The flags of kafka-configs.sh, for topics and brokers."""
    actions = {"describe": given["describe"], "alter": given["alter"]}
    action = only_action(actions, "kafka-configs")
    entities = _configs_entities(session, given)
    if action == "describe":
        everything = ["-a"] if given["everything"] else []
        return forward(session, ["config", "get", *entities, *everything])
    changes = [f"{key}={value}" for key, value in split_configs(given["add_config"])]
    deletes = [key.strip() for key in given["delete_config"].split(",") if key.strip()]
    return forward(session, ["config", "set", *changes, *entities, *repeated("--delete", deletes)])


def _configs_entities(session: Session, given: dict[str, Any]) -> list[str]:
    kind, name = given["entity_type"], given["entity_name"]
    if given["topic"] is not None:
        kind, name = "topics", given["topic"]
    if given["broker"] is not None:
        kind, name = "brokers", given["broker"]
    if given["broker_defaults"] or (kind == "brokers" and given["entity_default"]):
        kind, name = "brokers", "default"
    if kind is None:
        raise click.UsageError("say whose configs: --entity-type topics|brokers --entity-name NAME")
    option = "--topic" if kind == "topics" else "--broker"
    if name is not None:
        return [option, name]
    if given["alter"]:
        raise click.UsageError("--alter wants --entity-name NAME or --entity-default")
    cluster = session.gateway().cluster()
    if kind == "topics":
        return repeated(option, [topic.name for topic in cluster.topics])
    return repeated(option, ["default", *(str(broker.broker_id) for broker in cluster.brokers)])


def split_configs(text: str) -> list[tuple[str, str]]:
    """``k1=v1,k2=[a,b]``: commas part settings, brackets hold values together."""
    found = []
    for piece in re.findall(r"[^,\[]*(?:\[[^\]]*\])?[^,]*", text):
        if not piece.strip():
            continue
        key, separator, value = piece.partition("=")
        if not separator:
            raise click.BadParameter(f"{piece!r} is not key=value", param_hint="--add-config")
        value = value.strip()
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        found.append((key.strip(), value))
    return found


# kafka-get-offsets


@command("kafka-get-offsets", hidden=True)
@click.option("--topic", "pattern")
@click.option("--partitions", type=PARTITIONS)
@click.option("--time", "moment", default="latest")
@click.option("--exclude-internal-topics", "exclude_internal", is_flag=True)
@pass_session
def kafka_get_offsets(
    session: Session,
    pattern: str | None,
    partitions: frozenset[int] | None,
    moment: str,
    exclude_internal: bool,
) -> int:
    """The flags of kafka-get-offsets.sh."""
    if moment not in TIMES and not moment.isdigit():
        raise click.BadParameter(f"{moment!r} is no time; write one of {', '.join(TIMES)} or ms")
    gateway = session.gateway()
    topics = [t for t in gateway.cluster().topics if not (exclude_internal and t.is_internal)]
    names = {topic.name for topic in topics}
    if pattern is not None:
        names = set(matching_names(names, compile_pattern(pattern)))
    keys = [
        key
        for topic in topics
        if topic.name in names
        for key in topic.keys
        if partitions is None or key.partition in partitions
    ]
    if not keys:
        raise CommandError("no topic and partition matches", code="UNKNOWN_TOPIC_OR_PARTITION")
    found = gateway.offsets(keys, TIMES[moment] if moment in TIMES else int(moment))
    lines, errors = [], []
    for key in sorted(found):
        answer = found[key]
        if isinstance(answer, KafkaFailure):
            errors.append(ItemError.of(answer, topic=key.topic, partition=key.partition))
        elif answer.offset >= 0:
            lines.append(_offset_line(key, answer.offset))
    return session.emit(Report(text="".join(lines), errors=errors))


def _offset_line(key: TopicPartition, offset: int) -> str:
    return f"{key.topic}:{key.partition}:{offset}\n"
