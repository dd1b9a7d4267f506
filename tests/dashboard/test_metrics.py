"""Figures of the web process for Prometheus: however large the cluster, so many lines and no more."""

import pytest

from dashboard import metrics
from dashboard.snapshots import (
    ClusterSnapshot,
    GroupPartitionState,
    GroupState,
    PartitionState,
    SnapshotShelf,
    TopicState,
)

pytestmark = pytest.mark.django_db


def topic(name: str, size: int) -> TopicState:
    partition = PartitionState(0, 1, 0, (1,), (1,), 0, size, size)
    return TopicState(name, None, False, (partition,), record_count=size, size_bytes=size)


def group(name: str, *lags: int) -> GroupState:
    parts = tuple(GroupPartitionState("t", at, 0, lag, lag) for at, lag in enumerate(lags))
    return GroupState(name, "Empty", None, 1, None, 0, ("t",), parts, sum(lags), lag_ms=1000)


def scraped(monkeypatch: pytest.MonkeyPatch, snapshot: ClusterSnapshot) -> list[str]:
    shelf = SnapshotShelf()
    shelf.put(snapshot)
    monkeypatch.setattr(metrics, "shelf", shelf)
    return metrics.render().decode().splitlines()


def test_the_largest_topics_and_the_furthest_groups_have_lines_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "MAX_TOPICS", 3)
    monkeypatch.setattr(metrics, "MAX_GROUP_TOPICS", 2)
    topics = {f"t{size}": topic(f"t{size}", size) for size in range(10)}
    groups = {f"g{lag}": group(f"g{lag}", lag) for lag in range(7)}

    lines = scraped(monkeypatch, ClusterSnapshot(1, "c", 1, {}, topics, groups))

    assert [one for one in lines if one.startswith("kafka_log_log_size{")] == [
        f'kafka_log_log_size{{topic="t{size}"}} {size}.0' for size in (9, 8, 7)
    ]
    assert "odradek_topics_left_out 7.0" in lines
    assert [one for one in lines if one.startswith("kafka_consumergroup_lag{")] == [
        f'kafka_consumergroup_lag{{consumergroup="g{lag}",topic="t"}} {lag}.0' for lag in (6, 5)
    ]
    assert sum(one.startswith("odradek_consumergroup_lag_seconds{") for one in lines) == 2
    assert "odradek_consumergroups_left_out 5.0" in lines


def test_a_group_ahead_of_a_log_that_was_lost_hides_no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = ClusterSnapshot(1, "c", 1, {}, {}, {"g": group("g", -500, 7)})

    lines = scraped(monkeypatch, snapshot)

    assert 'kafka_consumergroup_lag{consumergroup="g",topic="t"} 7.0' in lines
