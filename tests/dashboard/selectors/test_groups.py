"""Choosing, sorting, paging and wording of groups; pure."""

from dataclasses import replace
from typing import Any

import pytest

from broker.model.ids import TopicPartition
from dashboard.selectors.groups import (
    GroupQuery,
    assignment_words,
    chosen_groups,
    csv_rows,
    groups_of_topic,
    lag_time,
    page_of,
    safe_cell,
    trend_of,
)
from dashboard.snapshots import ClusterSnapshot, GroupPartitionState, GroupState


def group(name: str, lag: int | None = 0, **more: Any) -> GroupState:
    parts = (GroupPartitionState("orders", 0, 10, None if lag is None else 10 + lag, lag),)
    state = GroupState(name, "Stable", "classic", 1, "range", 1, ("orders",), parts, lag)
    return replace(state, **more)


def by_name(*groups: GroupState) -> dict[str, GroupState]:
    return {one.group: one for one in groups}


def names(groups: dict[str, GroupState], **query: str) -> list[str]:
    return [one.group for one in chosen_groups(groups, GroupQuery.of(query))]


def test_most_lag_comes_first_and_what_is_not_known_last() -> None:
    found = by_name(group("a", 5), group("b", None), group("c", 70))

    assert names(found) == ["c", "a", "b"]
    assert names(found, sort="lag") == ["a", "c", "b"]
    assert names(found, sort="group") == ["a", "b", "c"]
    assert names(found, sort="no such column") == ["c", "a", "b"]


def test_status_sorts_by_how_bad_it_is() -> None:
    found = by_name(*(group(status, status=status) for status in ("ok", "stop", "warn", "stall")))

    assert names(found, sort="-status") == ["stop", "stall", "warn", "ok"]


def test_filters() -> None:
    found = by_name(
        group("Billing", status="ok"),
        group("billing-2", state="Empty", status="stop"),
        group("search", topics=("clicks",)),
    )

    assert names(found, q="BILL") == ["Billing", "billing-2"]
    assert names(found, q="bill", state="Empty") == ["billing-2"]
    assert names(found, status="stop") == ["billing-2"]
    assert names(found, status="unknown") == ["search"]
    assert names(found, topic="clicks") == ["search"]


@pytest.mark.parametrize(
    ("asked", "shown"), [("1", 1), ("3", 3), ("9", 3), ("0", 1), ("-1", 1), ("x", 1), ("9" * 99, 1)]
)
def test_a_page_that_does_not_exist_is_one_that_does(asked: str, shown: int) -> None:
    found = by_name(*(group(f"g{number:03}") for number in range(120)))

    page = page_of(found, GroupQuery.of({"page": asked, "sort": "group"}))

    assert (page.page, page.page_count, page.total, page.all_count) == (shown, 3, 120, 120)
    assert page.rows[0].group.group == f"g{(shown - 1) * 50:03}"


def test_groups_of_a_topic_have_its_partitions_alone() -> None:
    both = (
        GroupPartitionState("clicks", 0, 1, 9, 8, 50, "exact", status="stop", reason="why"),
        GroupPartitionState("orders", 0, 1, 4, 3, 20, "about", status="ok"),
    )
    found = by_name(
        group("small"),
        group("both", 11, topics=("clicks", "orders"), partitions=both, status="stop"),
        group("other", topics=("clicks",)),
    )
    first, second = groups_of_topic(ClusterSnapshot(0, None, None, {}, {}, found), "orders")

    assert (first.group, first.lag, first.lag_ms, first.status) == ("both", 3, 20, "ok")
    assert [one.topic for one in first.partitions] == ["orders"]
    assert second.group == "small"


def test_how_exact_a_time_is_can_be_seen() -> None:
    assert lag_time(None, None).text == "–"
    assert lag_time(0, "exact").text == "0 s"
    assert lag_time(65_000, "exact").text == "1 min 5 s"
    assert lag_time(65_000, "about").text == "≈ 1 min 5 s"
    assert lag_time(65_000, "at least").text == "> 1 min 5 s"
    assert lag_time(0, "at least").text == "–"


@pytest.mark.parametrize(
    ("lag", "trend", "word"),
    [
        (100, 5.0, "growing by 5.00/s"),
        (100, -5.0, "shrinking by 5.00/s"),
        (100, 0.0, "steady"),
        (1_000_000, 1.0, "steady"),
        (0, -5.0, ""),
        (0, 0.0, ""),
        (5, None, ""),
        (None, 1.0, ""),
    ],
)
def test_trend_in_words(lag: int | None, trend: float | None, word: str) -> None:
    assert trend_of(group("g", lag, trend=trend)).word == word


def test_an_assignment_in_words() -> None:
    keys = [TopicPartition("b", 3), *(TopicPartition("a", at) for at in (7, 0, 1, 2, 5, 6))]

    assert assignment_words(keys) == [("a", "0-2, 5-7"), ("b", "3")]
    assert assignment_words([]) == []


def test_csv_has_each_partition_when_asked() -> None:
    found = [group("=g", 5, status="ok")]

    head, row = csv_rows(found, by_partition=True)
    assert dict(zip(head, row, strict=True))["log_end_offset"] == 15
    head, row = csv_rows(found, by_partition=False)
    assert dict(zip(head, row, strict=True))["lag"] == 5


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert safe_cell(text) == f"'{text}"
    assert safe_cell(-5) == -5
    assert safe_cell("a=b") == "a=b"
