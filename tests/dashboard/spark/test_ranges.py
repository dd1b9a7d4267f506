"""The range of a run, on a real broker: decided once, and what of it is gone afterwards."""

from collections.abc import Iterator

import pytest

from broker.model.ids import TopicPartition
from dashboard.gateway import Gateway
from dashboard.offset_range import parse_offset_range
from dashboard.spark.ranges import (
    Gap,
    RangeError,
    as_json,
    compacted_topics,
    find_gaps,
    find_ranges,
    from_json,
    position_after,
)
from tests.support.odradek import OdradekBroker

NOW_MS = 1_900_000_000_000


@pytest.fixture
def filled(shared_odradek: OdradekBroker) -> Iterator[Gateway]:
    gateway = Gateway(shared_odradek.bootstrap)
    gateway.create_topics(["ranged"], partitions=2)
    writer = gateway.writer("ranged")
    for number in range(30):
        writer.send(number, b"x", partition=0)
    writer.send(30, b"x", partition=1)
    assert writer.flush(30) == 0
    yield gateway
    gateway.delete_topics(["ranged"])


def test_a_range_stands_for_every_partition(filled: Gateway) -> None:
    found = find_ranges(filled, ["ranged"], parse_offset_range("-10", NOW_MS))
    assert [(each.partition, each.start, each.end) for each in found] == [(0, 20, 30), (1, 0, 1)]
    assert from_json(as_json(found)) == found
    later = find_ranges(filled, ["ranged"], parse_offset_range("@-1h", NOW_MS))
    assert [(each.start, each.end) for each in later] == [(30, 30), (1, 1)]


def test_a_position_goes_before_the_range(filled: Gateway) -> None:
    chosen = parse_offset_range("start", NOW_MS)
    first = find_ranges(filled, ["ranged"], chosen)
    place = position_after(first)
    again = find_ranges(filled, ["ranged"], chosen, place)
    assert all(each.start == each.end for each in again)
    anew = find_ranges(filled, ["ranged"], chosen, {"ranged": {"0": 500}})
    assert [(each.start, each.end) for each in anew] == [(0, 30), (0, 1)]


def test_what_was_deleted_meanwhile_is_a_gap(filled: Gateway) -> None:
    ranges = find_ranges(filled, ["ranged"], parse_offset_range("2:10", NOW_MS))
    assert find_gaps(filled, ranges) == []
    filled.delete_records({TopicPartition("ranged", 0): 5})
    assert find_gaps(filled, ranges) == [Gap("ranged", 0, 2, 5)]
    filled.delete_records({TopicPartition("ranged", 0): 20})
    assert find_gaps(filled, ranges) == [Gap("ranged", 0, 2, 10)]


def test_compacted_topics_are_named(filled: Gateway) -> None:
    filled.create_topics(["squeezed"], configs={"cleanup.policy": "compact,delete"})
    assert compacted_topics(filled, ["ranged", "squeezed"]) == ["squeezed"]


def test_a_topic_that_is_not_there_is_said(filled: Gateway) -> None:
    with pytest.raises(RangeError, match="no-such-topic: "):
        find_ranges(filled, ["no-such-topic"], parse_offset_range("start", NOW_MS))
