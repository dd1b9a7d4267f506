"""Hold the conversations of ``metadata_conversations`` with Apache Kafka and keep its answers.

    KAFKA_LIBS=... python -m tests.golden.capture_metadata

starts an empty broker of the version in tests/support/judges/pom.xml for each and writes
topic_verdicts.json and config_resource_verdicts.json beside this file. Kept of each answer, sorted: name, code, message and, for a created
topic, its partition count and replication factor. Topic ids are left out. Of a hundred equal
answers or more, the first is kept, behind their number.
"""

import json
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.golden.metadata_conversations import CONFIG_RESOURCES, TOPICS, Step
from tests.support.apache import ApacheKafka
from tests.support.wire import ZERO_UUID, ConnectionClosed, Wire

HERE = Path(__file__).parent
LONG = 100
UNKNOWN_ID = uuid.UUID("12345678-1234-4234-8234-123456789012")


def ask(wire: Wire, request: str, arguments: dict[str, Any]) -> list[list[Any]]:
    answers = REQUESTS[request](wire, arguments)
    return in_short(sorted(answers, key=lambda answer: (answer[0] or "", answer[1])))


def in_short(answers: list[list[Any]]) -> list[list[Any]]:
    """Of a long list of equal answers only the first, and how many there were."""
    if len(answers) < LONG or len({tuple(answer[1:]) for answer in answers}) > 1:
        return answers
    return [[len(answers), *answers[0]]]


def create(wire: Wire, arguments: dict[str, Any]) -> list[list[Any]]:
    answer = wire.request(
        "create_topics",
        7,
        timeout=60000,
        validate_only=arguments["validate_only"],
        topics=[
            {
                "name": topic["name"],
                "num_partitions": topic["partitions"],
                "replication_factor": topic["replicas"],
                "assignments": [
                    {"partition_index": index, "broker_ids": brokers}
                    for index, brokers in topic["assignments"]
                ],
                "configs": [{"name": key, "value": value} for key, value in topic["configs"]],
            }
            for topic in arguments["topics"]
        ],
    )
    return [
        [
            topic.name,
            topic.error_code,
            topic.error_message,
            topic.num_partitions,
            topic.replication_factor,
        ]
        for topic in answer.topics
    ]


def grow(wire: Wire, arguments: dict[str, Any]) -> list[list[Any]]:
    answer = wire.request(
        "create_partitions",
        3,
        timeout=60000,
        validate_only=arguments["validate_only"],
        topics=[
            {
                "name": topic["name"],
                "count": topic["partitions"],
                "assignments": None
                if topic["assignments"] is None
                else [{"broker_ids": brokers} for brokers in topic["assignments"]],
            }
            for topic in arguments["topics"]
        ],
    )
    return [[result.name, result.error_code, result.error_message] for result in answer.results]


def delete(wire: Wire, arguments: dict[str, Any]) -> list[list[Any]]:
    answer = wire.request(
        "delete_topics",
        6,
        timeout=60000,
        topics=[
            {"name": topic["name"], "topic_id": topic_id(wire, topic["id"])}
            for topic in arguments["topics"]
        ],
    )
    return [[result.name, result.error_code, result.error_message] for result in answer.responses]


def topic_id(wire: Wire, text: str | None) -> uuid.UUID:
    if text is None:
        return ZERO_UUID
    if text == "unknown id":
        return UNKNOWN_ID
    name = text.removeprefix("id of ")
    (topic,) = wire.request("metadata", 12, topics=[{"name": name}]).topics
    assert topic.error_code == 0, topic
    found: uuid.UUID = topic.topic_id
    return found


def alter(wire: Wire, arguments: dict[str, Any]) -> list[list[Any]]:
    def as_config(name: str, operation: int, value: str | None) -> dict[str, Any]:
        return {"name": name, "config_operation": operation, "value": value}

    return alter_resources(wire, "incremental_alter_configs", 1, arguments, as_config)


def replace(wire: Wire, arguments: dict[str, Any]) -> list[list[Any]]:
    def as_config(name: str, value: str | None) -> dict[str, Any]:
        return {"name": name, "value": value}

    return alter_resources(wire, "alter_configs", 2, arguments, as_config)


def alter_resources(
    wire: Wire,
    api: str,
    version: int,
    arguments: dict[str, Any],
    as_config: Callable[..., dict[str, Any]],
) -> list[list[Any]]:
    answer = wire.request(
        api,
        version,
        resources=[
            {
                "resource_type": resource["type"],
                "resource_name": resource["name"],
                "configs": [as_config(*config) for config in resource["configs"]],
            }
            for resource in arguments["resources"]
        ],
        validate_only=arguments["validate_only"],
    )
    return [
        [f"{each.resource_type} {each.resource_name}", each.error_code, each.error_message]
        for each in answer.responses
    ]


REQUESTS = {"create": create, "delete": delete, "grow": grow, "alter": alter, "replace": replace}


def hold(conversation: list[Step], path: Path) -> None:
    kept = []
    with tempfile.TemporaryDirectory() as directory, ApacheKafka(Path(directory)) as kafka:
        for request, arguments in conversation:
            with Wire(kafka.address) as wire:
                try:
                    answer: Any = ask(wire, request, arguments)
                except ConnectionClosed:
                    answer = "closed"
                except TimeoutError:
                    answer = "no answer"
            kept.append(answer)
    lines = ",\n".join(json.dumps(answer) for answer in kept)
    path.write_text(f"[\n{lines}\n]\n")


def main() -> None:
    hold(TOPICS, HERE / "topic_verdicts.json")
    hold(CONFIG_RESOURCES, HERE / "config_resource_verdicts.json")


if __name__ == "__main__":
    main()
