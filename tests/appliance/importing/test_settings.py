"""Which settings come along, and how committed offsets do."""

from appliance.importing.offsets import translated
from appliance.importing.topics import changes
from broker.model.ids import TopicPartition
from dashboard.cluster import ConfigSource, ConfigView
from dashboard.groups import CommittedOffset

OWN, STATIC, DEFAULT = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)


def view(name: str, value: str | None, source: ConfigSource = OWN) -> ConfigView:
    return ConfigView(name, value, source, False, False, ())


def test_what_holds_there_holds_here_whoever_says_so() -> None:
    there = [view("retention.ms", "77", STATIC), view("cleanup.policy", "compact")]
    here = [view("retention.ms", "5", DEFAULT), view("cleanup.policy", "delete", DEFAULT)]
    wanted, notes = changes(there, here, 1)
    assert {change.name: change.value for change in wanted} == {
        "retention.ms": "77",
        "cleanup.policy": "compact",
    }
    assert notes == []


def test_what_cannot_come_along_is_named() -> None:
    there = [
        view("min.insync.replicas", "2"),
        view("message.format.version", "3.0"),
        view("x", None),
    ]
    wanted, notes = changes(there, [view("min.insync.replicas", "1", DEFAULT)], 1)
    assert wanted == []
    assert [note.split("=")[0] for note in notes] == [
        "min.insync.replicas",
        "message.format.version",
    ]


def test_offsets_are_kept_up_to_the_end_of_the_copy() -> None:
    one, other, strange = (TopicPartition("t", number) for number in range(3))
    committed = {
        one: CommittedOffset(7, 3, "m"),
        other: CommittedOffset(12, None, None),
        strange: CommittedOffset(1),
    }
    assert translated(committed, {one: 10, other: 10}) == {
        one: CommittedOffset(7, None, "m"),
        other: CommittedOffset(10, None, None),
    }
