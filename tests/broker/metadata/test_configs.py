"""Which resources may be altered is judged as by Apache Kafka (config_resource_verdicts.json)."""

import json
from pathlib import Path
from typing import Any

from broker.metadata.requests import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigAlteration,
    ConfigReplacement,
    NewTopic,
)
from broker.model.ids import BrokerId
from tests.golden.metadata_conversations import CONFIG_RESOURCES
from tests.support.memory_files import MemoryDirectory
from tests.support.metadata import Cluster
from tests.support.metadata_judge import ask

VERDICTS = json.loads(
    (Path(__file__).parents[2] / "golden" / "config_resource_verdicts.json").read_text()
)
INVALID_REQUEST, INVALID_CONFIG = 42, 40
SET, DELETE, APPEND = 0, 1, 2
NOT_KEPT_HERE = {8, 16}  # log levels, client metrics


def expected(arguments: dict[str, Any], verdict: Any) -> Any:
    """Kafka's verdict, but for what we do otherwise on purpose."""
    resources = arguments.get("resources", [])
    if verdict == "no answer":
        # Kafka's controller forgets AlterConfigs that name a resource twice.
        twice = [r for r in resources if resources.count(r) > 1 or r["name"] == "t"]
        told = [INVALID_REQUEST, "Each resource must appear at most once."]
        others = [r for r in resources if r not in twice]
        return sorted(
            [[f"{r['type']} {r['name']}", *told] for r in twice]
            + [[f"{r['type']} {r['name']}", 0, None] for r in others]
        )
    if any(resource["type"] in NOT_KEPT_HERE for resource in resources):
        (resource,) = resources
        told = f"Unknown resource type {resource['type']}"
        return [[f"{resource['type']} {resource['name']}", INVALID_REQUEST, told]]
    if any(config[1] == 9 for r in resources for config in r["configs"]):
        # An operation that does not exist is the client's fault, not the server's.
        return [["2 t", INVALID_REQUEST, None]]
    return verdict


def test_the_conversation_goes_as_with_apache_kafka() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    for (request, arguments), kafka in zip(CONFIG_RESOURCES, VERDICTS, strict=True):
        answer, verdict = ask(cluster, request, arguments), expected(arguments, kafka)
        for ours, theirs in zip(answer, verdict, strict=True):
            assert ours[:2] == theirs[:2], (request, arguments)
            if not is_about_a_value(theirs, ours):
                assert ours == theirs, (request, arguments)


def is_about_a_value(theirs: list[Any], ours: list[Any]) -> bool:
    """Why a value is bad is told in our own words."""
    message = theirs[2]
    if ours[1] == INVALID_CONFIG or message is None:
        return ours[1] != 0
    return "Null value" in message or "no.such" in message


def alter(cluster: Cluster, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    request = [ConfigAlteration(kind, name, changes)]
    (result,) = cluster.ask(cluster.controller.incremental_alter_configs, request, False)
    return result


def replace(cluster: Cluster, kind: int, name: str, *configs: tuple[str, str]) -> Any:
    request = [ConfigReplacement(kind, name, configs)]
    (result,) = cluster.ask(cluster.controller.alter_configs, request, False)
    return result


def test_overrides_are_set_extended_replaced_and_taken_back() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk).start()
    cluster.ask(cluster.controller.create_topics, [NewTopic("t")], False)

    def configs() -> dict[str, str]:
        """As the running controller has them, and as the next one will."""
        again = Cluster(MemoryDirectory(disk.contents())).start()
        assert again.image.topics["t"].configs == cluster.image.topics["t"].configs
        return dict(cluster.image.topics["t"].configs)

    assert alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5")).is_success
    assert alter(cluster, TOPIC_RESOURCE, "t", ("cleanup.policy", APPEND, "compact")).is_success
    assert configs() == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", DELETE, None)).is_success
    assert configs() == {"cleanup.policy": "delete,compact"}
    assert replace(cluster, TOPIC_RESOURCE, "t", ("retention.ms", "6")).is_success
    assert configs() == {"retention.ms": "6"}
    assert replace(cluster, TOPIC_RESOURCE, "t").is_success
    assert configs() == {}
    assert alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "7")).is_success
    assert configs() == {"retention.ms": "7"}


def test_dynamic_settings_of_one_broker_and_of_all_are_kept_apart() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk).start()
    assert alter(cluster, BROKER_RESOURCE, "", ("log.retention.ms", SET, "5000")).is_success
    assert alter(cluster, BROKER_RESOURCE, "1", ("log.retention.ms", SET, "6000")).is_success
    for image in (cluster.image, Cluster(MemoryDirectory(disk.contents())).start().image):
        assert image.default_broker_configs == {"log.retention.ms": "5000"}
        assert image.broker_configs == {BrokerId(1): {"log.retention.ms": "6000"}}
    assert replace(cluster, BROKER_RESOURCE, "1").is_success
    assert replace(cluster, BROKER_RESOURCE, "").is_success
    image = Cluster(MemoryDirectory(disk.contents())).start().image
    assert not image.default_broker_configs
    assert not image.broker_configs.get(BrokerId(1))


def test_a_change_that_changes_nothing_is_not_written() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    cluster.ask(cluster.controller.create_topics, [NewTopic("t")], False)
    alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5"))
    before = cluster.image
    assert alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5")).is_success
    assert alter(cluster, TOPIC_RESOURCE, "t", ("segment.ms", DELETE, None)).is_success
    assert cluster.image is before


def test_a_deleted_topic_leaves_no_overrides_for_its_successor() -> None:
    cluster = Cluster(MemoryDirectory()).start()
    topic = NewTopic("t", configs=[("retention.ms", "5")])
    cluster.ask(cluster.controller.create_topics, [topic], False)
    assert ask(cluster, "delete", {"topics": [{"name": "t", "id": None}]}) == [["t", 0, None]]
    cluster.ask(cluster.controller.create_topics, [NewTopic("t")], False)
    assert cluster.image.topics["t"].configs == {}
