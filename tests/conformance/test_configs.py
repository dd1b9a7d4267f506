"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: one verdict at every door (C022)."""

from typing import Any

import pytest

from tests.support import processes
from tests.support.apache import ApacheKafka
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.requests import (
    APPEND,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    DELETE,
    GROUP_RESOURCE,
    NOT_KAFKAS,
    SET,
    SUBTRACT,
    TOPIC_RESOURCE,
    alter_config,
    create_topic,
    describe_configs,
    new_topic_name,
    topic_config,
)
from tests.support.wire import Struct, Wire

Broker = ApacheKafka | OdradekBroker
UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_CONFIG, INVALID_REQUEST = 3, 17, 40, 42
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5

REFUSED: list[tuple[str, str | None]] = [
    ("segment.bytes", "-1"),
    ("segment.bytes", "0"),
    ("segment.bytes", "1048575"),
    ("segment.bytes", "many"),
    ("segment.bytes", "2147483648"),
    ("retention.ms", "-5"),
    ("retention.ms", "1.5"),
    ("cleanup.policy", "compactt"),
    ("min.insync.replicas", "0"),
    ("max.message.bytes", "-1"),
    ("unknown.key", "1"),
    ("compression.type", "brotli"),
    ("compression.gzip.level", "11"),
    ("message.timestamp.type", "createtime"),
    ("unclean.leader.election.enable", "yes"),
    ("min.cleanable.dirty.ratio", "1.1"),
    ("segment.index.bytes", "3"),
    ("flush.messages", "0"),
    ("index.interval.bytes", "-1"),
    ("leader.replication.throttled.replicas", "nonsense"),
    ("segment.bytes", ""),
]
ACCEPTED: list[tuple[str, str]] = [
    ("segment.bytes", "1048576"),
    ("retention.ms", "-1"),
    ("retention.bytes", "-1"),
    ("cleanup.policy", "compact,delete"),
    ("min.insync.replicas", "99"),
    ("compression.type", "uncompressed"),
    ("max.message.bytes", "0"),
    ("flush.messages", "1"),
    ("message.timestamp.type", "LogAppendTime"),
    ("preallocate", "TRUE"),
    ("file.delete.delay.ms", " 5 "),
]


def legacy_alter(wire: Wire, name: str, configs: dict[str, str | None], **options: Any) -> Struct:
    answer = wire.request(
        "alter_configs",
        options.pop("version", 2),
        validate_only=options.pop("validate_only", False),
        resources=[
            {
                "resource_type": options.pop("resource_type", TOPIC_RESOURCE),
                "resource_name": name,
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
        ],
    )
    (found,) = answer.responses
    return found


def wait_for_value(wire: Wire, name: str, key: str, value: str | None) -> Struct:
    """Apache Kafka answers from the broker a moment after its controller has changed."""
    processes.wait_until(lambda: topic_config(wire, name, key).value == value, 20, f"{key}={value}")
    return topic_config(wire, name, key)


def as_table(found: Struct) -> dict[str, tuple[Any, ...]]:
    return {
        entry.name: (
            entry.value,
            entry.config_source,
            entry.read_only,
            entry.is_sensitive,
            entry.config_type,
            [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
        )
        for entry in found.configs
    }


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_a_bad_value_is_refused_at_every_door(wire: Wire, key: str, value: str | None) -> None:
    name = create_topic(wire)
    before = as_table(describe_configs(wire, TOPIC_RESOURCE, name))
    answers = {
        "incremental": alter_config(wire, name, key, value),
        "legacy": legacy_alter(wire, name, {key: value}),
        "legacy, validated only": legacy_alter(wire, name, {key: value}, validate_only=True),
    }
    (created,) = wire.request(
        "create_topics",
        7,
        timeout=10000,
        topics=[
            {
                "name": new_topic_name(),
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": key, "value": value}],
            }
        ],
    ).topics
    answers["create"] = created
    codes = {door: answer.error_code for door, answer in answers.items()}
    assert set(codes.values()) == {INVALID_CONFIG}, answers
    for door, answer in answers.items():
        assert key in answer.error_message, (door, answer)
    assert as_table(describe_configs(wire, TOPIC_RESOURCE, name)) == before


@pytest.mark.parametrize(("key", "value"), ACCEPTED)
def test_a_good_value_is_accepted_at_every_door(wire: Wire, key: str, value: str) -> None:
    for door in ("incremental", "legacy", "create"):
        if door == "create":
            name = create_topic(wire, configs={key: value})
        else:
            name = create_topic(wire)
            answer = (
                alter_config(wire, name, key, value)
                if door == "incremental"
                else legacy_alter(wire, name, {key: value})
            )
            assert answer.error_code == 0, (door, answer)
        processes.wait_until(
            lambda name=name: topic_config(wire, name, key).config_source == DYNAMIC_TOPIC,
            20,
            "the change",
        )
        assert topic_config(wire, name, key).value.strip().lower() == value.strip().lower()


def test_the_deletion_of_an_unset_key_is_no_error(wire: Wire) -> None:
    name = create_topic(wire)
    assert alter_config(wire, name, "retention.ms", None, operation=DELETE).error_code == 0
    assert topic_config(wire, name, "retention.ms").config_source == DEFAULT


def test_a_value_set_and_deleted_falls_back_to_the_default(wire: Wire) -> None:
    name = create_topic(wire)
    assert alter_config(wire, name, "retention.ms", "5000").error_code == 0
    assert wait_for_value(wire, name, "retention.ms", "5000").config_source == DYNAMIC_TOPIC
    assert alter_config(wire, name, "retention.ms", None, operation=DELETE).error_code == 0
    assert wait_for_value(wire, name, "retention.ms", "604800000").config_source == DEFAULT


def test_append_and_subtract_work_on_lists_only(wire: Wire) -> None:
    name = create_topic(wire)
    key = "cleanup.policy"
    assert alter_config(wire, name, key, "compact", operation=APPEND).error_code == 0
    wait_for_value(wire, name, key, "delete,compact")
    assert alter_config(wire, name, key, "delete", operation=SUBTRACT).error_code == 0
    wait_for_value(wire, name, key, "compact")
    for operation in (APPEND, SUBTRACT):
        answer = alter_config(wire, name, "retention.ms", "1", operation=operation)
        assert answer.error_code == INVALID_CONFIG
        assert "retention.ms" in answer.error_message
    # Apache Kafka stumbles here (UNKNOWN_SERVER_ERROR); to say what is wrong is better.
    answer = alter_config(wire, name, key, "1", operation=7)
    assert answer.error_code in (-1, INVALID_REQUEST, INVALID_CONFIG)


def test_set_without_a_value_is_refused(wire: Wire) -> None:
    name = create_topic(wire)
    answer = alter_config(wire, name, "retention.ms", None, operation=SET)
    assert answer.error_code == INVALID_REQUEST
    assert legacy_alter(wire, name, {"retention.ms": None}).error_code in (
        INVALID_CONFIG,
        INVALID_REQUEST,
    )


def test_a_resource_is_changed_as_a_whole_or_not_at_all(wire: Wire) -> None:
    name = create_topic(wire)
    answer = wire.request(
        "incremental_alter_configs",
        1,
        resources=[
            {
                "resource_type": TOPIC_RESOURCE,
                "resource_name": name,
                "configs": [
                    {"name": "retention.ms", "config_operation": SET, "value": "77"},
                    {"name": "segment.bytes", "config_operation": SET, "value": "-7"},
                ],
            }
        ],
    )
    assert answer.responses[0].error_code == INVALID_CONFIG
    assert topic_config(wire, name, "retention.ms").config_source == DEFAULT


def test_the_same_key_twice_is_refused(wire: Wire) -> None:
    name = create_topic(wire)
    answer = wire.request(
        "incremental_alter_configs",
        1,
        resources=[
            {
                "resource_type": TOPIC_RESOURCE,
                "resource_name": name,
                "configs": [
                    {"name": "retention.ms", "config_operation": SET, "value": "77"},
                    {"name": "retention.ms", "config_operation": SET, "value": "78"},
                ],
            }
        ],
    )
    assert answer.responses[0].error_code == INVALID_REQUEST


def test_the_legacy_door_replaces_everything(wire: Wire) -> None:
    name = create_topic(wire, configs={"retention.ms": "1111", "segment.ms": "2222"})
    assert legacy_alter(wire, name, {"retention.ms": "3333"}).error_code == 0
    wait_for_value(wire, name, "retention.ms", "3333")
    assert topic_config(wire, name, "segment.ms").config_source == DEFAULT


def test_validate_only_changes_nothing(wire: Wire) -> None:
    name = create_topic(wire)
    assert legacy_alter(wire, name, {"retention.ms": "1"}, validate_only=True).error_code == 0
    answer = wire.request(
        "incremental_alter_configs",
        1,
        validate_only=True,
        resources=[
            {
                "resource_type": TOPIC_RESOURCE,
                "resource_name": name,
                "configs": [{"name": "retention.ms", "config_operation": SET, "value": "77"}],
            }
        ],
    )
    assert answer.responses[0].error_code == 0
    assert topic_config(wire, name, "retention.ms").config_source == DEFAULT


def test_configs_of_what_does_not_exist_are_refused(wire: Wire) -> None:
    name = new_topic_name()
    assert alter_config(wire, name, "retention.ms", "1").error_code == UNKNOWN_TOPIC
    assert legacy_alter(wire, name, {"retention.ms": "1"}).error_code == UNKNOWN_TOPIC
    assert describe_configs(wire, TOPIC_RESOURCE, name).error_code == UNKNOWN_TOPIC
    assert describe_configs(wire, TOPIC_RESOURCE, "a b").error_code == INVALID_TOPIC
    assert describe_configs(wire, BROKER_RESOURCE, "4711").error_code == INVALID_REQUEST
    assert describe_configs(wire, BROKER_RESOURCE, "nonsense").error_code == INVALID_REQUEST


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes_all_or_some(wire: Wire, version: int) -> None:
    name = create_topic(wire)
    every = describe_configs(wire, TOPIC_RESOURCE, name, version=version)
    assert (every.error_code, every.resource_type, every.resource_name) == (0, 2, name)
    assert len(every.configs) > 25
    some = describe_configs(
        wire, TOPIC_RESOURCE, name, ["retention.ms", "unknown.key"], version=version
    )
    assert [entry.name for entry in some.configs] == ["retention.ms"]
    none = describe_configs(wire, TOPIC_RESOURCE, name, [], version=version)
    assert len(none.configs) in (0, len(every.configs))


def test_documentation_and_synonyms_come_when_asked_for(wire: Wire) -> None:
    name = create_topic(wire)
    silent = describe_configs(wire, TOPIC_RESOURCE, name, ["segment.bytes"]).configs[0]
    assert (silent.documentation, silent.synonyms) == (None, [])
    asked = describe_configs(
        wire,
        TOPIC_RESOURCE,
        name,
        ["segment.bytes"],
        include_synonyms=True,
        include_documentation=True,
    ).configs[0]
    assert asked.documentation
    assert [(s.name, s.value, s.source) for s in asked.synonyms] == [
        ("log.segment.bytes", "1073741824", DEFAULT)
    ]


def test_a_dynamic_broker_config_is_default_for_topics(wire: Wire) -> None:
    name = create_topic(wire)
    key, topic_key = "log.segment.delete.delay.ms", "file.delete.delay.ms"
    answer = alter_config(wire, "", key, "54321", resource_type=BROKER_RESOURCE)
    assert answer.error_code == 0, answer
    try:
        found = wait_for_value(wire, name, topic_key, "54321")
        assert found.config_source == DYNAMIC_DEFAULT_BROKER
    finally:
        alter_config(wire, "", key, None, operation=DELETE, resource_type=BROKER_RESOURCE)
    assert wait_for_value(wire, name, topic_key, "60000").config_source == DEFAULT


def test_a_broker_config_that_is_read_only_is_refused(wire: Wire) -> None:
    (node,) = wire.request("metadata", 1, topics=[]).brokers
    for name in ("", str(node.node_id)):
        answer = alter_config(wire, name, "node.id", "7", resource_type=BROKER_RESOURCE)
        assert answer.error_code in (INVALID_REQUEST, INVALID_CONFIG), answer
        answer = alter_config(
            wire, name, "log.retention.ms", "nonsense", resource_type=BROKER_RESOURCE
        )
        assert answer.error_code in (INVALID_REQUEST, INVALID_CONFIG), answer


def test_a_per_broker_config_shows_its_source(wire: Wire) -> None:
    (node,) = wire.request("metadata", 1, topics=[]).brokers
    name, key = str(node.node_id), "background.threads"

    def value() -> tuple[str, int]:
        (entry,) = describe_configs(wire, BROKER_RESOURCE, name, [key]).configs
        return entry.value, entry.config_source

    answer = alter_config(wire, name, key, "11", resource_type=BROKER_RESOURCE)
    assert answer.error_code == 0, answer
    processes.wait_until(lambda: value() == ("11", DYNAMIC_BROKER), 20, "the change")
    alter_config(wire, name, key, None, operation=DELETE, resource_type=BROKER_RESOURCE)
    processes.wait_until(lambda: value() == ("10", DEFAULT), 20, "the change")


def test_changed_resources_are_listed(wire: Wire) -> None:
    create_topic(wire, configs={"retention.ms": "1"})
    (node,) = wire.request("metadata", 1, topics=[]).brokers
    answer = wire.request("list_config_resources", 1, resource_types=[TOPIC_RESOURCE])
    topics = {t.name for t in wire.request("metadata", 9, topics=None).topics}
    assert {r.resource_name for r in answer.config_resources} == topics
    answer = wire.request("list_config_resources", 1, resource_types=[BROKER_RESOURCE])
    assert [r.resource_name for r in answer.config_resources] == [str(node.node_id)]
    answer = wire.request("list_config_resources", 1, resource_types=[])
    kinds = {r.resource_type for r in answer.config_resources}
    assert {TOPIC_RESOURCE, BROKER_RESOURCE} <= kinds
    answer = wire.request("list_config_resources", 0)
    assert (answer.error_code, answer.config_resources) == (0, [])
    answer = wire.request("list_config_resources", 1, resource_types=[77])
    assert answer.error_code == 35


@pytest.mark.slow
def test_topic_configs_are_told_as_apache_kafka_tells_them(
    shared_apache: ApacheKafka, shared_odradek: OdradekBroker
) -> None:
    tables = []
    for broker in (shared_apache, shared_odradek):
        with Wire(broker.address) as wire:
            name = create_topic(wire, configs={"retention.ms": "777", "segment.bytes": "2000000"})
            wait_for_value(wire, name, "retention.ms", "777")
            found = describe_configs(wire, TOPIC_RESOURCE, name, include_synonyms=True)
            tables.append(as_table(found))
    theirs, ours = tables
    own = {key for key in ours if key.startswith(NOT_KAFKAS)}
    assert {key: ours.get(key) for key in theirs} == theirs
    assert set(ours) - own == set(theirs)


@pytest.mark.slow
def test_broker_configs_are_told_as_apache_kafka_tells_them(
    shared_apache: ApacheKafka, shared_odradek: OdradekBroker
) -> None:
    tables = []
    for broker in (shared_apache, shared_odradek):
        with Wire(broker.address) as wire:
            (node,) = wire.request("metadata", 1, topics=[]).brokers
            found = describe_configs(
                wire, BROKER_RESOURCE, str(node.node_id), include_synonyms=True
            )
            tables.append(as_table(found))
    theirs, ours = tables
    assert set(theirs) <= set(ours)
    # What the two were started with differs, and rightly shows.
    given = {key for key, entry in theirs.items() if entry[1] == STATIC_BROKER}
    given |= {key for key, entry in ours.items() if entry[1] == STATIC_BROKER}
    compared = set(theirs) - given
    assert {key: ours.get(key) for key in compared} == {key: theirs[key] for key in compared}
    assert {key for key in set(ours) - set(theirs) if not key.startswith(NOT_KAFKAS)} == set()


@pytest.mark.slow
def test_settings_of_other_resources_that_apache_kafka_has_beyond_are_told_with_a_reason(
    shared_apache: ApacheKafka, shared_odradek: OdradekBroker
) -> None:
    """Loggers by their kind only: Kafka's have names of Java classes."""
    page = (REPOSITORY / "docs" / "not_implemented.md").read_text()
    rows = page.partition("## Settings of other resources")[2].partition("\n## ")[0]
    with Wire(shared_apache.address) as apache, Wire(shared_odradek.address) as odradek:
        for kind in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
            theirs, ours = (
                {each.name for each in describe_configs(wire, kind, "any").configs}
                for wire in (apache, odradek)
            )
            assert ours <= theirs
            assert {name for name in theirs - ours if f"`{name}`" not in rows} == set()
            assert {name for name in ours if f"`{name}`" in rows} == set()
        (node,) = odradek.request("metadata", 1, topics=[]).brokers
        loggers = describe_configs(odradek, BROKER_LOGGER_RESOURCE, str(node.node_id))
    assert loggers.error_code == INVALID_REQUEST
    assert "`BROKER_LOGGER`" in rows
