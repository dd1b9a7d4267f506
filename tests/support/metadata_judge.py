"""Asks our controller what ``tests.golden.capture_metadata`` asks Apache Kafka."""

from __future__ import annotations

import uuid
from typing import Any

from broker.metadata.requests import (
    AlteredConfig,
    ConfigAlteration,
    ConfigReplacement,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from broker.model.ids import ZERO_TOPIC_ID
from tests.golden.capture_metadata import UNKNOWN_ID, in_short
from tests.support.metadata import Cluster


def ask(cluster: Cluster, request: str, arguments: dict[str, Any]) -> list[list[Any]]:
    answers = _REQUESTS[request](cluster, arguments)
    return in_short(sorted(answers, key=lambda answer: (answer[0] or "", answer[1])))


def _create(cluster: Cluster, arguments: dict[str, Any]) -> list[list[Any]]:
    topics = [
        NewTopic(t["name"], t["partitions"], t["replicas"], t["assignments"], t["configs"])
        for t in arguments["topics"]
    ]
    results = cluster.ask(cluster.controller.create_topics, topics, arguments["validate_only"])
    return [
        [r.name, r.error.value, r.message, r.partition_count, r.replication_factor] for r in results
    ]


def _grow(cluster: Cluster, arguments: dict[str, Any]) -> list[list[Any]]:
    topics = [
        MorePartitions(t["name"], t["partitions"], t["assignments"]) for t in arguments["topics"]
    ]
    results = cluster.ask(cluster.controller.create_partitions, topics, arguments["validate_only"])
    return [[r.name, r.error.value, r.message] for r in results]


def _delete(cluster: Cluster, arguments: dict[str, Any]) -> list[list[Any]]:
    topics = [
        TopicReference(topic["name"], _topic_id(cluster, topic["id"]))
        for topic in arguments["topics"]
    ]
    results = cluster.ask(cluster.controller.delete_topics, topics)
    return [[r.name, r.error.value, r.message] for r in results]


def _topic_id(cluster: Cluster, text: str | None) -> uuid.UUID:
    if text is None:
        return ZERO_TOPIC_ID
    if text == "unknown id":
        return UNKNOWN_ID
    return cluster.image.topics[text.removeprefix("id of ")].topic_id


def _alter(cluster: Cluster, arguments: dict[str, Any]) -> list[list[Any]]:
    resources = [
        ConfigAlteration(each["type"], each["name"], [tuple(config) for config in each["configs"]])
        for each in arguments["resources"]
    ]
    return _altered(
        cluster.ask(
            cluster.controller.incremental_alter_configs, resources, arguments["validate_only"]
        )
    )


def _replace(cluster: Cluster, arguments: dict[str, Any]) -> list[list[Any]]:
    resources = [
        ConfigReplacement(each["type"], each["name"], [tuple(config) for config in each["configs"]])
        for each in arguments["resources"]
    ]
    return _altered(
        cluster.ask(cluster.controller.alter_configs, resources, arguments["validate_only"])
    )


def _altered(results: list[AlteredConfig]) -> list[list[Any]]:
    return [[f"{r.resource_type} {r.resource_name}", r.error.value, r.message] for r in results]


_REQUESTS = {
    "create": _create,
    "delete": _delete,
    "grow": _grow,
    "alter": _alter,
    "replace": _replace,
}
