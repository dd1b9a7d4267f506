"""Verdicts on topics are Apache Kafka's, word for word (tests/golden/topic_verdicts.json)."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.requests import MorePartitions, NewTopic, TopicReference
from broker.model.ids import ZERO_TOPIC_ID
from tests.golden.capture_metadata import UNKNOWN_ID, in_short
from tests.golden.metadata_conversations import TOPICS
from tests.support.memory_files import MemoryDirectory
from tests.support.metadata import Cluster

VERDICTS = json.loads((Path(__file__).parents[2] / "golden" / "topic_verdicts.json").read_text())
INVALID_CONFIG = 40


def ask(cluster: Cluster, request: str, arguments: dict[str, Any]) -> list[list[Any]]:
    answers = {"create": create, "delete": delete, "grow": grow}[request](cluster, arguments)
    return in_short(sorted(answers, key=lambda answer: (answer[0] or "", answer[1])))


def create(cluster: Cluster, arguments: dict[str, Any]) -> list[list[Any]]:
    topics = [
        NewTopic(t["name"], t["partitions"], t["replicas"], t["assignments"], t["configs"])
        for t in arguments["topics"]
    ]
    results = cluster.ask(cluster.controller.create_topics, topics, arguments["validate_only"])
    return [
        [r.name, r.error.value, r.message, r.partition_count, r.replication_factor] for r in results
    ]


def grow(cluster: Cluster, arguments: dict[str, Any]) -> list[list[Any]]:
    topics = [
        MorePartitions(t["name"], t["partitions"], t["assignments"]) for t in arguments["topics"]
    ]
    results = cluster.ask(cluster.controller.create_partitions, topics, arguments["validate_only"])
    return [[r.name, r.error.value, r.message] for r in results]


def delete(cluster: Cluster, arguments: dict[str, Any]) -> list[list[Any]]:
    topics = [
        TopicReference(topic["name"], topic_id(cluster, topic["id"]))
        for topic in arguments["topics"]
    ]
    results = cluster.ask(cluster.controller.delete_topics, topics)
    return [[r.name, r.error.value, r.message] for r in results]


def topic_id(cluster: Cluster, text: str | None) -> uuid.UUID:
    if text is None:
        return ZERO_TOPIC_ID
    if text == "unknown id":
        return UNKNOWN_ID
    return cluster.image.topics[text.removeprefix("id of ")].topic_id


def test_the_conversation_goes_as_with_apache_kafka() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    assert len(TOPICS) == len(VERDICTS)
    for (request, arguments), verdict in zip(TOPICS, VERDICTS, strict=True):
        answer = ask(cluster, request, arguments)
        if any(each[1] == INVALID_CONFIG and "Invalid value" in each[2] for each in verdict):
            # The reason why a value is bad is told in our own words.
            answer, verdict = [[a[:2] for a in each] for each in (answer, verdict)]
        assert answer == verdict, (request, str(arguments)[:200])


def test_a_refused_request_changes_nothing() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    for request, arguments in TOPICS:
        before = cluster.image
        answer = ask(cluster, request, arguments)
        if all(each[1] != 0 for each in answer) or arguments.get("validate_only"):
            assert cluster.image is before


@pytest.mark.parametrize("bad", [0, 1, 99, 0xF8 << 120 | 5])
def test_reserved_topic_ids_and_those_that_look_like_options_are_drawn_again(bad: int) -> None:
    cluster = Cluster(MemoryDirectory()).start()
    drawn = [uuid.UUID(int=bad), uuid.UUID(int=bad), uuid.UUID(int=1 << 100)]
    cluster.controller._new_topic_id = lambda: drawn.pop(0)
    cluster.ask(cluster.controller.create_topics, [NewTopic("t")], False)
    assert cluster.image.topics["t"].topic_id == uuid.UUID(int=1 << 100)
