"""Verdicts on topics are Apache Kafka's, word for word (tests/golden/topic_verdicts.json)."""

import json
import uuid
from pathlib import Path

import pytest

from broker.metadata.requests import NewTopic
from tests.golden.metadata_conversations import TOPICS
from tests.support.memory_files import MemoryDirectory
from tests.support.metadata import Cluster
from tests.support.metadata_judge import ask

VERDICTS = json.loads((Path(__file__).parents[2] / "golden" / "topic_verdicts.json").read_text())
INVALID_CONFIG = 40


def test_the_conversation_goes_as_with_apache_kafka() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    for (request, arguments), verdict in zip(TOPICS, VERDICTS, strict=True):
        answer = ask(cluster, request, arguments)
        if any(each[1] == INVALID_CONFIG and "Invalid value" in each[2] for each in verdict):
            # Why a value is bad is told in our own words.
            answer, verdict = [[a[:2] for a in each] for each in (answer, verdict)]
        assert answer == verdict, (request, str(arguments)[:200])


def test_a_request_that_is_refused_or_only_validated_changes_nothing() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    for request, arguments in TOPICS:
        before = cluster.image
        answer = ask(cluster, request, arguments)
        codes = [each[1] if isinstance(each[0], str | None) else each[2] for each in answer]
        if 0 not in codes or arguments.get("validate_only"):
            assert cluster.image.topics is before.topics


def test_names_that_collide_are_refused_after_a_restart_too() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk).start()
    ask(cluster, *TOPICS[[s[1].get("topics", [{}])[:1] for s in TOPICS].index(_MY_TOPIC)])
    cluster.stop()
    cluster = Cluster(disk).start()
    (result,) = cluster.ask(cluster.controller.create_topics, [NewTopic("my_topic")], False)
    assert result.message == "Topic 'my_topic' collides with existing topic: my.topic"
    (result,) = cluster.ask(cluster.controller.create_topics, [NewTopic("my_other")], False)
    assert result.is_success


_MY_TOPIC = [{"name": "my.topic", "partitions": 1, "replicas": 1, "assignments": [], "configs": []}]


@pytest.mark.parametrize("bad", [0, 1, 99, 0xF8 << 120 | 5])
def test_reserved_topic_ids_and_those_that_look_like_options_are_drawn_again(bad: int) -> None:
    drawn = [uuid.UUID(int=1 << 100), uuid.UUID(int=bad), uuid.UUID(int=bad)]
    cluster = Cluster(MemoryDirectory(), new_topic_id=drawn.pop).start()
    cluster.ask(cluster.controller.create_topics, [NewTopic("t")], False)
    assert cluster.image.topics["t"].topic_id == uuid.UUID(int=1 << 100)
