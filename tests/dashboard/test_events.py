"""What has happened to a cluster, found by two looks at it."""

from dataclasses import replace
from pathlib import Path

from dashboard.collecting.events import MAX_EVENTS, EventMemory
from dashboard.snapshots import BrokerState, ClusterSnapshot, PartitionState, TopicState


def snapshot(
    at_ms: int,
    leaders: list[int | None],
    *,
    brokers: tuple[int, ...] = (1, 2, 3),
    controller: int = 1,
) -> ClusterSnapshot:
    """A topic t, and brokers 1 to 3 of which some are there."""
    partitions = tuple(
        PartitionState(index, leader, 0, (1, 2, 3), (1, 2, 3))
        for index, leader in enumerate(leaders)
    )
    states = {
        one: BrokerState(one, "h" if one in brokers else "", 9092, None, one == controller, 0, 0)
        for one in (1, 2, 3)
    }
    topics = {"t": TopicState("t", None, False, partitions)}
    return ClusterSnapshot(at_ms, "c", controller, states, topics)


def told(memory: EventMemory, *looks: ClusterSnapshot) -> list[tuple[int, str, str]]:
    old = None
    for new in looks:
        events, old = memory.look(old, new), new
    return [(one.at_ms, one.kind, one.text) for one in events]


def test_a_failover_is_told_with_who_led_before_and_who_leads_now() -> None:
    found = told(
        EventMemory(),
        snapshot(1, [1, 2, 1, 3, 1, 1]),
        snapshot(2, [2, 2, 3, 3, 2, None], brokers=(2, 3), controller=2),
        snapshot(3, [2, 2, 3, 3, 2, 2], controller=2),
        snapshot(4, [1, 2, 3, 3, 2, 2], controller=2),
    )

    assert found == [
        (4, "leaders_moved", "1 partition (t-0), led by broker 2 before, by broker 1 now."),
        (3, "broker_came", "Broker 1 joined the cluster."),
        (2, "leaders_lost", "1 partition (t-5), led by broker 1 before, by nobody now."),
        (
            2,
            "failover",
            "3 partitions (t-0, t-2, t-4), led by broker 1 before, by broker 2 and broker 3 now.",
        ),
        (2, "controller", "The controller is broker 2; it was broker 1."),
        (2, "broker_gone", "Broker 1 left the cluster."),
    ]


def test_a_first_look_another_cluster_and_no_change_tell_nothing() -> None:
    first, other = snapshot(1, [1]), replace(snapshot(2, [2]), cluster_id="d")

    assert told(EventMemory(), first, other, replace(other, taken_ms=3)) == []


def test_the_next_process_knows_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    looks = [snapshot(at_ms, [1 + at_ms % 2]) for at_ms in range(MAX_EVENTS + 10)]

    found = told(EventMemory(path), *looks)

    assert len(found) == MAX_EVENTS
    assert told(EventMemory(path), looks[-1]) == found
    path.write_text("{")
    assert told(EventMemory(path), looks[-1]) == []
