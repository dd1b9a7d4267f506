"""Which rows are stale when a broker, or everybody, has fallen silent; and that a look ends all the same."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.clock import SystemClock
from dashboard.cluster import KafkaFailure
from dashboard.collecting import cluster_survey
from dashboard.collecting.cluster_survey import ClusterSurvey
from dashboard.collecting.problems import ProblemMemory
from dashboard.collecting.staleness import all_stale, stale_groups
from dashboard.snapshots import (
    BrokerState,
    ClusterSnapshot,
    GroupState,
    PartitionProblem,
    PartitionState,
    TopicState,
)

TAKEN, EARLIER, NOW = 1_000, 4_000, 5_000


def group(name: str, coordinator: int | None, **more: Any) -> GroupState:
    return GroupState(name, "Stable", "classic", coordinator, None, 0, (), (), 0, **more)


def broker(number: int, stale_since_ms: int | None = None) -> BrokerState:
    failure = "no answer" if stale_since_ms is not None else None
    return BrokerState(
        number, "localhost", 9092, None, number == 1, 1, 1,
        stale_since_ms=stale_since_ms, failure=failure,
    )  # fmt: skip


def seen() -> ClusterSnapshot:
    partitions = (
        PartitionState(0, 1, 3, (1, 2), (1, 2), 5, 9, 700),
        PartitionState(1, 2, 3, (2, 1), (1,), 0, 4, 70, stale_since_ms=EARLIER),
    )
    topic = TopicState(
        "orders", "id", False, partitions, 2, 8, 770, 1.5, 2.5, 3.5, "delete", EARLIER
    )
    problem = PartitionProblem("under_replicated", "orders", 1, 2, (2, 1), (1,), 2, TAKEN, True)
    return ClusterSnapshot(
        TAKEN, "cluster", 1, {1: broker(1), 2: broker(2, EARLIER)}, {"orders": topic},
        {"g": group("g", 1)}, problems=(problem,),
    )  # fmt: skip


def test_when_nobody_answers_every_row_says_since_when_and_keeps_what_it_told() -> None:
    before = seen()
    after = all_stale(before, "refused", NOW)

    assert (after.taken_ms, after.failure, after.stale_since_ms) == (TAKEN, "refused", NOW)
    assert [one.stale_since_ms for one in after.brokers.values()] == [NOW, EARLIER]
    topic = after.topics["orders"]
    assert topic == replace(before.topics["orders"], partitions=topic.partitions)
    first, second = before.topics["orders"].partitions
    assert topic.partitions == (replace(first, stale_since_ms=NOW), second)
    assert [one.stale_since_ms for one in after.problems] == [NOW]
    assert after.groups["g"] == replace(
        before.groups["g"], stale_since_ms=NOW, failure="the cluster does not answer"
    )


def test_a_silence_that_lasts_keeps_its_beginning() -> None:
    first = all_stale(seen(), "refused", NOW)
    second = all_stale(first, "timed out", NOW + 9_000)
    assert second == replace(first, failure="timed out")


def test_groups_of_a_silent_coordinator_are_stale_with_its_broker() -> None:
    groups = {
        "of 1": group("of 1", 1),
        "of 2": group("of 2", 2),
        "of nobody": group("of nobody", None),
        "known": group("known", 2, stale_since_ms=TAKEN, failure="it said no"),
    }
    found = stale_groups(groups, {1: broker(1), 2: broker(2, NOW)})
    assert found == {
        **groups,
        "of 2": replace(
            groups["of 2"],
            stale_since_ms=NOW,
            failure="coordinator 2 does not answer: no answer",
        ),
    }
    assert stale_groups(groups, {1: broker(1), 2: broker(2)}) is groups


def test_a_look_ends_though_none_of_those_asked_comes_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One limit for all that are asked: the last one asked has no longer than the first."""
    monkeypatch.setattr(cluster_survey, "FIRST_TIMEOUT_S", 0.2)
    monkeypatch.setattr(cluster_survey, "HEDGE_S", 0.05)
    servers = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    survey = ClusterSurvey(servers, SystemClock(), None, ProblemMemory(tmp_path / "problems.json"))
    may_end = threading.Event()
    asked = []

    def hang(address: tuple[str, int]) -> Any:
        asked.append(address[1])
        may_end.wait()
        raise TimeoutError

    monkeypatch.setattr(survey, "_ask_metadata", hang)
    try:
        with pytest.raises(KafkaFailure) as caught:
            survey.look(NOW, dict, is_complete=False)
    finally:
        may_end.set()
        survey.close()
    assert asked == [1, 2, 3]
    assert caught.value.message == "; ".join(
        f"127.0.0.1:{port}: no answer in time" for port in asked
    )
