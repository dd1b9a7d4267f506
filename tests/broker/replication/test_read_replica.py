"""Which replica a consumer is told to read from."""

from __future__ import annotations

from broker.model.ids import NO_BROKER, BrokerId
from broker.replication.read_replica import Reader, preferred

TWO, THREE, FOUR = BrokerId(2), BrokerId(3), BrokerId(4)


def test_the_leader_comes_first_where_it_stands_in_the_rack() -> None:
    assert preferred("a", "a", [Reader(TWO, "a", 10, 0)]) == NO_BROKER


def test_somebody_in_the_rack_else_the_leader() -> None:
    readers = [Reader(TWO, "b", 10, 0), Reader(THREE, None, 10, 0)]
    assert preferred("b", "a", readers) == TWO
    assert preferred("c", "a", readers) == NO_BROKER
    assert preferred("b", None, []) == NO_BROKER


def test_of_several_the_one_that_is_furthest_then_the_one_that_was_there_last() -> None:
    readers = [Reader(TWO, "b", 9, 500), Reader(THREE, "b", 10, 300), Reader(FOUR, "b", 10, 400)]
    assert preferred("b", "a", readers) == FOUR
    assert preferred("b", "a", readers[:2]) == THREE
