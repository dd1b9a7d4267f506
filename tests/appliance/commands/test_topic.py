from collections.abc import Callable

import pytest

from tests.appliance.conftest import Odradek

NewName = Callable[[], str]


def test_a_topic_is_created_with_its_settings(on_broker: Odradek, new_topic_name: NewName) -> None:
    name = new_topic_name()
    done = on_broker("topic", "create", name, "-p", 2, "-r", 1, "-c", "retention.ms=60000").ok()
    assert done.lines == [f"{'TOPIC':<{len(name)}}  STATUS", f"{name}  OK"]
    (found,) = on_broker("topic", "describe", name, "--format", "json").ok().data
    assert found["partitions"] == 2
    assert len(found["topic_id"]) == 22
    assert {
        "topic": name,
        "key": "retention.ms",
        "value": "60000",
        "source": "DYNAMIC_TOPIC_CONFIG",
    } in found["configs"]
    assert found["partition_list"][1] == {
        "topic": name,
        "partition": 1,
        "leader": 1,
        "epoch": 0,
        "replicas": [1],
        "isr": [1],
        "log_start_offset": 0,
        "high_watermark": 0,
        "size": 0,
    }


def test_one_failure_of_several_is_told_beside_the_successes(
    on_broker: Odradek, topic: str, new_topic_name: NewName
) -> None:
    other = new_topic_name()
    done = on_broker("topic", "create", topic, other, "bad/name", "--format", "json")
    assert done.code == 1
    assert {row["topic"]: row["status"] for row in done.data} == {
        topic: "TOPIC_ALREADY_EXISTS",
        other: "OK",
        "bad/name": "INVALID_TOPIC_EXCEPTION",
    }
    assert [error["topic"] for error in done.document["errors"]] == [topic, "bad/name"]
    assert "--if-not-exists" in done.document["errors"][0]["hint"]


def test_an_existing_topic_is_accepted_when_asked(on_broker: Odradek, topic: str) -> None:
    on_broker("topic", "create", topic, "--if-not-exists").ok()


def test_a_dry_run_creates_nothing(on_broker: Odradek, new_topic_name: NewName) -> None:
    name = new_topic_name()
    assert "OK (dry run)" in on_broker("topic", "create", name, "--dry-run").ok().out
    assert on_broker("topic", "describe", name).code == 1
    bad = on_broker("topic", "create", name, "--dry-run", "-c", "retention.ms=x")
    assert "INVALID_CONFIG" in bad.out


def test_topics_are_listed_with_their_figures(on_broker: Odradek, topic: str) -> None:
    on_broker("produce", topic, "-p", 1, stdin=b"one\ntwo\n").ok()
    (row,) = on_broker("topic", "list", topic, "--format", "json").ok().data
    assert row["messages"] == 2
    assert row["size"] > 0
    assert row["policy"] == "delete"
    assert row["last_record_time"].endswith("Z")
    text = on_broker("topic", "ls", topic).ok()
    assert text.lines[0].split() == (
        ["NAME", "PARTITIONS", "REPLICAS", "ISR", "MESSAGES", "SIZE", "POLICY", "LAST-RECORD"]
    )


def test_topics_are_chosen_by_pattern_and_state(on_broker: Odradek, topic: str) -> None:
    by_pattern = on_broker("topic", "list", "-r", f"{topic[:-1]}.", "--format", "json").ok()
    assert [row["name"] for row in by_pattern.data] == [topic]
    assert on_broker("topic", "list", "-r", topic[:-1], "--format", "json").data == []
    assert on_broker("topic", "list", topic, "--under-replicated", "--format", "json").data == []
    on_broker("topic", "alter", topic, "--set", "min.insync.replicas=2").ok()
    found = on_broker("topic", "list", topic, "--under-min-isr", "-d", "--format", "json").ok()
    assert [row["partition"] for row in found.data] == [0, 1, 2]
    spare = ["topic", "list", topic, "--at-min-isr", "-d", "--format", "json"]
    assert on_broker(*spare).ok().data == []
    on_broker("topic", "alter", topic, "--set", "min.insync.replicas=1").ok()
    assert len(on_broker(*spare).ok().data) == 3
    on_broker("topic", "alter", topic, "--delete", "min.insync.replicas").ok()


def test_a_bad_pattern_is_wrong_usage(on_broker: Odradek) -> None:
    assert on_broker("topic", "list", "-r", "(").code == 2


def test_settings_and_partitions_are_altered(on_broker: Odradek, topic: str) -> None:
    on_broker("topic", "alter", topic, "--set", "segment.ms=5000", "--partitions", 5).ok()
    (found,) = on_broker("topic", "describe", topic, "--format", "json").ok().data
    assert found["partitions"] == 5
    assert "segment.ms" in [config["key"] for config in found["configs"]]
    on_broker("topic", "alter", topic, "--delete", "segment.ms").ok()
    fewer = on_broker("topic", "alter", topic, "--partitions", 2)
    assert fewer.code == 1
    assert "INVALID_PARTITIONS" in fewer.out


def test_a_refused_setting_leaves_the_partitions_alone(on_broker: Odradek, topic: str) -> None:
    done = on_broker("topic", "alter", topic, "--set", "retention.ms=x", "--partitions", 9)
    assert done.code == 1
    assert "INVALID_CONFIG" in done.out
    assert on_broker("topic", "describe", topic, "--format", "json").data[0]["partitions"] == 3


def test_deleting_wants_to_be_confirmed(on_broker: Odradek, topic: str) -> None:
    unconfirmed = on_broker("topic", "delete", topic)
    assert unconfirmed.code == 2
    assert "--yes" in unconfirmed.err
    on_broker("topic", "describe", topic).ok()
    on_broker("topic", "delete", topic, "--yes").ok()
    gone = on_broker("topic", "delete", topic, "--yes")
    assert gone.code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in gone.out
    on_broker("topic", "delete", topic, "--yes", "--if-exists").ok()


def test_trimming_moves_the_start(on_broker: Odradek, topic: str) -> None:
    on_broker("produce", topic, "-p", 0, stdin=b"a\nb\nc\n").ok()
    dry = on_broker("topic", "trim", topic, "-o", "-1", "--dry-run", "--format", "json").ok()
    assert dry.data[0] == {
        "topic": topic,
        "partition": 0,
        "prior_start_offset": 0,
        "new_start_offset": 2,
    }
    assert on_broker("topic", "trim", topic, "-o", "1").code == 2
    done = on_broker("topic", "trim", topic, "-o", "1", "-p", 0, "--yes").ok()
    assert done.lines[1].split() == [topic, "0", "0", "1"]
    assert on_broker("consume", topic, "-e", "-q", "-f", r"%v\n").out == "b\nc\n"


def test_trimming_beyond_the_end_is_refused(on_broker: Odradek, topic: str) -> None:
    done = on_broker("topic", "trim", topic, "-o", "7", "-p", 1, "--yes", "--format", "json")
    assert done.code == 1
    assert done.document["errors"][0]["code"] == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize("arguments", [["describe"], ["consume"], ["trim", "-o", "end"]])
def test_a_missing_topic_fails_with_what_to_do(
    arguments: list[str], on_broker: Odradek, new_topic_name: NewName
) -> None:
    name = new_topic_name()
    first, *others = arguments
    group = [] if first == "consume" else ["topic"]
    done = on_broker(*group, first, name, *others)
    assert done.code == 1
    assert f"odradek topic create {name}" in done.err
    assert name not in on_broker("topic", "list", "-i").out
