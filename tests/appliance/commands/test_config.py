import json
from collections.abc import Callable

import pytest

from tests.appliance.conftest import Odradek
from tests.support import processes


def test_changed_settings_are_shown_with_their_source(on_broker: Odradek, topic: str) -> None:
    on_broker(
        "config", "set", "--topic", topic, "retention.ms=777", "--append", "cleanup.policy=compact"
    ).ok()
    done = on_broker("config", "get", "--topic", topic, "--format", "json").ok()
    own = {r["key"]: r["value"] for r in done.data if r["source"] == "DYNAMIC_TOPIC_CONFIG"}
    assert own == {"retention.ms": "777", "cleanup.policy": "delete,compact"}


def test_named_settings_are_shown_changed_or_not(on_broker: Odradek, topic: str) -> None:
    done = on_broker("config", "get", "--topic", topic, "segment.bytes", "--format", "json").ok()
    assert [(row["key"], row["value"], row["source"]) for row in done.data] == [
        ("segment.bytes", "1073741824", "DEFAULT_CONFIG")
    ]
    unknown = on_broker("config", "get", "--topic", topic, "no.such.key")
    assert unknown.code == 1
    assert "there is no such setting" in unknown.err


def test_all_settings_can_be_listed(on_broker: Odradek, topic: str) -> None:
    found = on_broker("config", "get", "--topic", topic, "-a", "--format", "json").ok().data
    assert len(found) > 30
    assert [row["key"] for row in found] == sorted(row["key"] for row in found)
    brokers = on_broker("config", "get", "--broker", 1, "-a", "--format", "json").ok().data
    assert len(brokers) > 200


def test_an_invalid_value_is_refused_with_its_reason(on_broker: Odradek, topic: str) -> None:
    done = on_broker("config", "set", "--topic", topic, "retention.ms=abc")
    assert done.code == 1
    assert "INVALID_CONFIG" in done.out
    assert "Invalid value abc for configuration retention.ms" in done.err


def test_broker_settings_for_one_and_for_all(on_broker: Odradek) -> None:
    key = "log.cleaner.threads"

    def becomes(value: str, source: str) -> None:
        """A broker takes its settings from the controller a moment after they were accepted."""

        def is_so() -> bool:
            done = on_broker("config", "get", "--broker", 1, key, "--format", "json").ok()
            (row,) = done.data
            return (row["value"], row["source"]) == (value, source)

        processes.wait_until(is_so, 30, f"{value} from {source}")

    on_broker("config", "set", "--broker", "default", f"{key}=2").ok()
    try:
        becomes("2", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        on_broker("config", "set", "--broker", 1, f"{key}=1").ok()
        becomes("1", "DYNAMIC_BROKER_CONFIG")
    finally:
        on_broker("config", "set", "--broker", 1, "--delete", key).ok()
        on_broker("config", "set", "--broker", "default", "--delete", key).ok()
    becomes("1", "DEFAULT_CONFIG")


def test_a_broker_that_does_not_exist_is_told_at_once(on_broker: Odradek) -> None:
    done = on_broker("config", "get", "--broker", 4711)
    assert done.code == 1
    assert "no broker '4711'" in done.err


def test_settings_travel_from_cluster_to_cluster(
    on_broker: Odradek, topic: str, new_topic_name: Callable[[], str]
) -> None:
    on_broker("config", "set", "--topic", topic, "retention.ms=12345").ok()
    exported = json.loads(on_broker("config", "export").ok().out)
    assert exported["topics"][topic] == {"retention.ms": "12345"}
    other = new_topic_name()
    on_broker("topic", "create", other).ok()
    document = json.dumps({"topics": {other: exported["topics"][topic]}}).encode()
    on_broker("config", "import", "-", "--dry-run", stdin=document).ok()
    assert (
        on_broker("config", "get", "--topic", other, "retention.ms", "--format", "json").data[0][
            "value"
        ]
        != "12345"
    )
    on_broker("config", "import", "-", stdin=document).ok()
    assert (
        on_broker("config", "get", "--topic", other, "retention.ms", "--format", "json").data[0][
            "value"
        ]
        == "12345"
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"x": 1}', '{"topics": 1}'])
def test_what_is_no_export_is_refused(text: str, on_broker: Odradek) -> None:
    assert on_broker("config", "import", "-", stdin=text.encode()).code == 2


def test_one_must_say_whose_settings(on_broker: Odradek) -> None:
    assert on_broker("config", "get").code == 2
    assert on_broker("config", "set", "a=b").code == 2
