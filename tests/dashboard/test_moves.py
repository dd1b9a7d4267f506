"""Plans of what lies where when brokers come and go."""

from __future__ import annotations

import pytest

from broker.model.ids import TopicPartition
from dashboard.cluster import BrokerView, PartitionView, TopicView
from dashboard.moves import CannotLeave, Move, at_target, plan_join, plan_leave


def brokers(racks: dict[int, str | None]) -> list[BrokerView]:
    return [BrokerView(number, "h", 1, rack) for number, rack in racks.items()]


def topic(name: str, *replicas: tuple[int, ...]) -> TopicView:
    partitions = tuple(
        PartitionView(index, each[0], 0, each, each) for index, each in enumerate(replicas)
    )
    return TopicView(name, None, name.startswith("__"), partitions)


THREE = brokers({1: None, 2: None, 3: None})


def test_internal_topics_get_three_replicas_and_others_if_that_is_wanted() -> None:
    topics = [topic("__consumer_offsets", (1,), (1,)), topic("orders", (2,))]
    assert plan_join(topics, THREE, with_user_topics=False) == [
        Move(TopicPartition("__consumer_offsets", 0), (1,), (1, 3, 2)),
        Move(TopicPartition("__consumer_offsets", 1), (1,), (1, 3, 2)),
    ]
    moves = plan_join(topics, THREE, with_user_topics=True)
    assert {move.key.topic for move in moves} == {"__consumer_offsets", "orders"}
    assert all(sorted(move.after) == [1, 2, 3] for move in moves)
    assert plan_join(topics, THREE[:1], with_user_topics=True) == []


def test_what_one_leaves_is_spread_over_the_others_and_keeps_its_place() -> None:
    topics = [topic("t", (3, 1), (1, 3), (1, 2), (3, 2))]
    assert plan_leave(topics, brokers(dict.fromkeys((1, 2, 3, 4))), 3) == [
        Move(TopicPartition("t", 0), (3, 1), (4, 1)),
        Move(TopicPartition("t", 1), (1, 3), (1, 4)),
        Move(TopicPartition("t", 3), (3, 2), (4, 2)),
    ]


def test_another_rack_comes_before_a_broker_with_less() -> None:
    topics = [topic("t", (1, 3), (4, 4), (4, 4))]
    (move,) = plan_leave([topics[0]], brokers({1: "a", 2: "a", 3: "b", 4: "b"}), 3)[:1]
    assert move.after == (1, 4)


def test_where_nobody_is_left_there_is_a_replica_less_but_never_none() -> None:
    assert plan_leave([topic("t", (1, 2, 3))], THREE, 1) == [
        Move(TopicPartition("t", 0), (1, 2, 3), (2, 3))
    ]
    with pytest.raises(CannotLeave):
        plan_leave([topic("t", (1,))], THREE[:1], 1)


def test_a_plan_begins_where_what_is_under_way_will_end() -> None:
    going = {TopicPartition("t", 0): (1, 2)}
    topics = at_target([topic("t", (1, 2, 3), (3, 1))], going)
    assert plan_leave(topics, THREE, 3) == [Move(TopicPartition("t", 1), (3, 1), (2, 1))]
