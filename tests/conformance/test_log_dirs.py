"""DescribeLogDirs: what lies where, and how large it is."""

import pytest

from tests.support import requests
from tests.support.fixtures import Broker
from tests.support.requests import create_topic, produce_values
from tests.support.wire import Wire


def describe(wire: Wire, version: int, topics: list[dict] | None):
    answer = wire.request("describe_log_dirs", version, topics=topics)
    assert getattr(answer, "error_code", 0) == 0
    (found,) = answer.results
    assert found.error_code == 0
    return found


@pytest.mark.parametrize("version", range(1, 6))
def test_every_version_tells_sizes(broker: Broker, wire: Wire, version: int) -> None:
    name = create_topic(wire, partitions=2)
    produce_values(wire, name, [b"x" * 10_000])
    size = len(requests.fetch(wire, name, 0).records)
    found = describe(wire, version, [{"topic": name, "partitions": [0, 1, 7]}])
    assert found.log_dir == str(broker.logs)
    (topic,) = found.topics
    assert topic.name == name
    sizes = {p.partition_index: p.partition_size for p in topic.partitions}
    # The true size, whatever room the active segment has taken ahead.
    assert sizes == {0: size, 1: 0}
    assert {p.offset_lag for p in topic.partitions} == {0}
    assert {p.is_future_key for p in topic.partitions} == {False}
    if version >= 4:
        assert found.total_bytes > found.usable_bytes > 0


def test_no_list_means_everything(wire: Wire) -> None:
    name = create_topic(wire)
    found = describe(wire, 4, None)
    assert name in {topic.name for topic in found.topics}


def test_deleted_records_leave_the_size_of_what_remains(wire: Wire) -> None:
    name = create_topic(wire, configs={"segment.bytes": "1048576", "file.delete.delay.ms": "0"})
    for _ in range(4):
        produce_values(wire, name, [b"x" * 600_000])
    one = len(requests.fetch(wire, name, 3).records)
    before = describe(wire, 4, [{"topic": name, "partitions": [0]}])
    assert before.topics[0].partitions[0].partition_size == 4 * one
    assert requests.delete_records(wire, name, 3).error_code == 0
    after = describe(wire, 4, [{"topic": name, "partitions": [0]}])
    # Whole segments go, at once or with the next retention check.
    assert after.topics[0].partitions[0].partition_size in (one, 4 * one)
