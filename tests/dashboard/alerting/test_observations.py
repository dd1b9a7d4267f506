"""What is seen, judged by a rule's figures."""

from dataclasses import replace

import pytest

from dashboard.alerting.disk_trend import NEVER
from dashboard.alerting.kinds import KINDS, rule_in_words
from dashboard.alerting.machine import Level, Observed
from dashboard.alerting.observations import observe
from dashboard.alerting.sources import Disk, FailingJob, Sources
from dashboard.snapshots import BrokerState, ClusterSnapshot, PartitionState, TopicState
from tests.dashboard.alerting.conftest import group, snapshot

NOW = 1_800_000_000_000
GIB = 1 << 30


def look(kind: str, sources: Sources, targets: str = "*", **values: int) -> Observed | None:
    return observe(kind, sources, KINDS[kind].values(values), targets)


def levels(observed: Observed | None) -> dict[str, Level]:
    assert observed is not None
    return {reading.target: reading.level for reading in observed.readings}


def partition(leader: int | None, isr: tuple[int, ...]) -> PartitionState:
    return PartitionState(0, leader, 1, (1, 2, 3), isr)


def topics(*found: TopicState, brokers: tuple[int, ...] = (1, 2, 3)) -> ClusterSnapshot:
    states = {one: BrokerState(one, "h", 9092, None, one == 1, 1, 1) for one in brokers}
    return ClusterSnapshot(NOW, "c", 1, states, {topic.name: topic for topic in found})


def topic(name: str, *partitions: PartitionState, min_isr: int = 2) -> TopicState:
    return TopicState(name, None, False, partitions, min_isr)


def test_partitions_without_leader_or_with_too_few_in_sync() -> None:
    seen = Sources(
        NOW,
        topics(
            topic("whole", partition(1, (1, 2, 3))),
            topic("behind", partition(1, (1, 2))),
            topic("thin", partition(1, (1,))),
            topic("gone", partition(None, ())),
        ),
    )

    assert levels(look("partition_offline", seen)) == {"gone": Level.BAD}
    assert levels(look("under_min_isr", seen)) == {"thin": Level.BAD, "gone": Level.BAD}
    assert levels(look("under_replicated", seen)).keys() == {"behind", "thin", "gone"}
    assert levels(look("under_replicated", seen, "b*, none")) == {"behind": Level.BAD}


def test_a_topic_that_could_not_be_read_is_unknown() -> None:
    stale = replace(topic("gone", partition(None, ())), stale_since_ms=NOW - 1)

    assert levels(look("partition_offline", Sources(NOW, topics(stale)))) == {"gone": Level.UNKNOWN}


@pytest.mark.parametrize("kind", ["partition_offline", "under_min_isr", "group_lag"])
def test_while_the_cluster_does_not_answer_its_parts_cannot_be_seen(kind: str) -> None:
    silent = replace(snapshot(NOW, group("g", 10**9)), failure="refused", stale_since_ms=NOW)

    assert look(kind, Sources(NOW, silent)) is None
    assert look(kind, Sources(NOW)) is None


def test_a_silent_cluster_is_one_alert_and_its_brokers_are_unknown() -> None:
    silent = replace(topics(), failure="refused", stale_since_ms=NOW - 5000)
    observed = look("broker_silent", Sources(NOW, silent))

    assert observed is not None
    assert observed.at_ms == NOW
    assert levels(observed) == {
        "cluster": Level.BAD,
        "broker-1": Level.UNKNOWN,
        "broker-2": Level.UNKNOWN,
        "broker-3": Level.UNKNOWN,
    }
    assert observed.readings[0].since_ms == NOW - 5000
    assert "refused" in observed.readings[0].text


def test_brokers_that_are_silent_or_missing_are_named() -> None:
    seen = topics(topic("t", partition(1, (1, 2))), brokers=(1, 2))
    brokers = {**seen.brokers, 2: replace(seen.brokers[2], stale_since_ms=NOW - 1)}

    found = levels(look("broker_silent", Sources(NOW, replace(seen, brokers=brokers))))

    assert found == {"broker-2": Level.BAD, "broker-3": Level.BAD}


def test_lag_has_two_thresholds_and_unknown_lag_is_unknown() -> None:
    seen = snapshot(
        NOW, group("far", 60_001), group("near", 55_000), group("ok", 53_000),
        group("dark", None), group("done", None, lag=0),
    )  # fmt: skip

    assert levels(look("group_lag", Sources(NOW, seen))) == {
        "far": Level.BAD,
        "near": Level.BETWEEN,
        "dark": Level.UNKNOWN,
    }


@pytest.mark.parametrize(
    ("free", "level"),
    [(4.9, Level.BAD), (5.4, Level.BETWEEN), (5.6, None)],
)
def test_a_disk_below_its_share(free: float, level: Level | None) -> None:
    seen = Sources(NOW, disks=(Disk("d", 1000 * GIB, round(free * 10 * GIB)),))

    assert levels(look("disk_floor", seen)).get("d") is level


def test_a_small_disk_has_a_floor_in_bytes() -> None:
    seen = Sources(NOW, disks=(Disk("d", 10 * GIB, GIB - 1), Disk("dark", 0, 0, is_known=False)))

    assert levels(look("disk_floor", seen)) == {"d": Level.BAD, "dark": Level.UNKNOWN}


@pytest.mark.parametrize(
    ("hours", "level"),
    [(23.9, Level.BAD), (29.0, Level.BETWEEN), (31.0, None), (NEVER, None), (None, Level.UNKNOWN)],
)
def test_a_disk_that_will_be_full(hours: float | None, level: Level | None) -> None:
    seen = Sources(NOW, disks=(Disk("d", 100, 50, hours),))

    assert levels(look("disk_trend", seen)).get("d") is level


def test_a_scheduler_that_never_was_is_not_silent() -> None:
    assert look("scheduler_silent", Sources(NOW)) is None
    assert levels(look("scheduler_silent", Sources(NOW, scheduler_sign_ms=NOW + 30_000))) == {}
    silent = Sources(NOW, scheduler_sign_ms=NOW - 120_001)
    assert levels(look("scheduler_silent", silent)) == {"scheduler": Level.BAD}


def test_jobs_that_failed_often_enough_in_a_row() -> None:
    jobs = (FailingJob("once", 1, "e", NOW), FailingJob("twice/orders", 2, "no room", NOW))
    observed = look("job_failed", Sources(NOW, failing_jobs=jobs))

    assert levels(observed) == {"twice/orders": Level.BAD}
    assert observed is not None
    assert observed.readings[0].text == "twice/orders failed twice in a row: no room"


def test_children_that_were_started_again_count_only_for_a_while() -> None:
    minute = 60_000
    restarts = {
        "web": (NOW - 14 * minute, NOW - 2 * minute, NOW - minute),
        "broker": (NOW - 16 * minute, NOW - 2 * minute, NOW - minute),
    }

    assert levels(look("child_restarts", Sources(NOW, restarts_ms=restarts))) == {"web": Level.BAD}
    assert look("child_restarts", Sources(NOW)) is None


def test_rules_in_words() -> None:
    assert rule_in_words("group_lag", {}, "*", 300) == (
        "consumer lag of any group is over 60 s for 5 min"
    )
    assert rule_in_words("partition_offline", {}, "a-*, b", 0) == (
        "a partition of any topic like a-* or b is offline"
    )
