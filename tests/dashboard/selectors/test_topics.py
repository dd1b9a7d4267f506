"""The list of topics, from a snapshot made by hand."""

from dataclasses import replace

from dashboard.selectors.topics import PAGE_SIZE, TopicQuery, board_of
from dashboard.snapshots import (
    ClusterSnapshot,
    GroupPartitionState,
    GroupState,
    PartitionState,
    TopicState,
)


def topic(name: str, *, size: int | None = 0, internal: bool = False) -> TopicState:
    partition = PartitionState(0, 1, 0, (1, 2, 3), (1, 3))
    return TopicState(name, None, internal, (partition,), size_bytes=size)


def snapshot(*topics: TopicState, groups: tuple[GroupState, ...] = ()) -> ClusterSnapshot:
    ordered = sorted(topics, key=lambda each: each.name)
    return ClusterSnapshot(
        1, "c", 1, {}, {each.name: each for each in ordered}, {each.group: each for each in groups}
    )


def group(name: str, *lags: tuple[str, int | None]) -> GroupState:
    partitions = tuple(
        GroupPartitionState(topic, index, 0, 0, lag) for index, (topic, lag) in enumerate(lags)
    )
    topics = tuple(dict.fromkeys(topic for topic, _ in lags))
    return GroupState(name, "Stable", "classic", 1, None, 1, topics, partitions, 0)


def names(found: ClusterSnapshot, **asked: object) -> list[str]:
    page = board_of(found).page(replace(TopicQuery(), **asked))  # type: ignore[arg-type]
    return [row.name for row in page.rows]


def test_every_word_of_a_search_is_in_the_name_in_any_case() -> None:
    found = snapshot(topic("shop.Orders"), topic("shop.payments"), topic("orders"))

    assert names(found, search="ORD shop") == ["shop.Orders"]
    assert names(found, search="nothing") == []


def test_what_is_not_known_comes_last_both_ways() -> None:
    found = snapshot(
        topic("a", size=5), topic("b", size=None), topic("c", size=9), topic("d", size=5)
    )

    assert names(found, sort="size") == ["a", "d", "c", "b"]
    assert names(found, sort="-size") == ["c", "a", "d", "b"]


def test_internal_topics_are_hidden_and_counted() -> None:
    found = snapshot(topic("orders"), topic("__consumer_offsets", internal=True))
    page = board_of(found).page(TopicQuery())

    assert [row.name for row in page.rows] == ["orders"]
    assert page.hidden_count == 1
    assert names(found, shows_internal=True) == ["__consumer_offsets", "orders"]


def test_a_page_past_the_last_is_the_last() -> None:
    found = snapshot(*(topic(f"t{i:04d}") for i in range(2 * PAGE_SIZE + 1)))
    page = board_of(found).page(TopicQuery(page=9))

    assert (page.number, page.last, page.total) == (3, 3, 2 * PAGE_SIZE + 1)
    assert (page.first_row, page.last_row) == (101, 101)


def test_a_row_counts_replicas_out_of_sync_and_names_the_group_furthest_behind() -> None:
    slow, slower = (
        group("slow", ("t", 3), ("t", 4)),
        group("slower", ("t", 10), ("t", -9), ("u", None)),
    )
    page = board_of(snapshot(topic("t"), groups=(slow, slower))).page(TopicQuery())
    (row,) = page.rows

    assert row.out_of_sync == 1
    assert (row.lag, row.lag_group) == (10, "slower")


def test_an_address_that_makes_no_sense_is_the_first_page_by_name() -> None:
    asked = {"sort": "-nonsense", "page": "-3", "q": "  x  "}
    query = TopicQuery.of(asked, shows_internal=False)

    assert query == TopicQuery(search="x")
    assert query.encode() == "q=x"
    assert (
        query.encode(sort="-size", page=2, shows_internal=True)
        == "q=x&sort=-size&page=2&internal=1"
    )


def test_orders_are_made_once_a_snapshot() -> None:
    found = snapshot(topic("a"), topic("b"))
    query = TopicQuery(sort="-size")

    assert board_of(found).ordered(query) is board_of(found).ordered(query)
    assert board_of(found) is not board_of(snapshot(topic("a")))


def test_what_has_not_changed_is_taken_from_the_snapshot_before() -> None:
    same, changed = topic("same"), topic("changed", size=1)
    first = board_of(snapshot(same, changed))
    first.ordered(TopicQuery(sort="-size"))
    by_group = snapshot(same, replace(changed, size_bytes=2), groups=(group("g", ("same", 3)),))
    second = board_of(by_group)

    assert [row.name for row in second.ordered(TopicQuery(sort="-size"))] == ["changed", "same"]
    assert second.rows["same"][1].lag == 3
    assert second.rows["changed"][1].size_bytes == 2
    third = board_of(replace(by_group, taken_ms=2))
    assert third.rows["same"][1] is second.rows["same"][1]
    assert third.ordered(TopicQuery(sort="-size")) is second.ordered(TopicQuery(sort="-size"))
    gone = board_of(snapshot(same))
    assert [row.name for row in gone.ordered(TopicQuery(sort="-size"))] == ["same"]
    assert gone.rows["same"][1].lag is None


def test_favourites_alone_are_shown_even_internal_ones() -> None:
    found = snapshot(topic("a"), topic("b"), topic("_c", internal=True))

    assert names(found, only_favourites=True, favourites=frozenset({"b", "_c"})) == ["_c", "b"]
    assert TopicQuery.of({"only": "favourites"}, shows_internal=False).encode() == "only=favourites"
