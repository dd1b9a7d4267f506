"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: where a log starts, ends, and is by time."""

import pytest

from tests.support import record_batches as rb
from tests.support import requests
from tests.support.fixtures import Broker
from tests.support.record_batches import Record, batch
from tests.support.requests import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    create_topic,
    delete_records,
    list_offset,
    now_ms,
    produce,
    produce_values,
)
from tests.support.wire import Wire

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, POLICY_VIOLATION = 1, 3, 35, 44
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
T = now_ms() - 100_000


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_knows_start_end_and_time(wire: Wire, version: int) -> None:
    name = create_topic(wire)
    for index in range(5):
        produce(wire, name, batch([Record(value=b"v", timestamp=T + 10 * index)]))
    for asked, offset, timestamp in (
        (LATEST, 5, -1),
        (EARLIEST, 0, -1),
        (T, 0, T),
        (T + 1, 1, T + 10),
        (T + 40, 4, T + 40),
        (T + 41, -1, -1),
        (0, 0, T),
    ):
        found = list_offset(wire, name, asked, version=version)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, timestamp), asked
        if version >= 4:
            assert found.leader_epoch == (-1 if offset == -1 else 0)


def test_special_timestamps(wire: Wire) -> None:
    name = create_topic(wire)
    assert list_offset(wire, name, MAX_TIMESTAMP).offset == -1
    produce(wire, name, batch([Record(value=b"v", timestamp=T + t) for t in (0, 9, 5)]))
    produce(wire, name, batch([Record(value=b"v", timestamp=T + t) for t in (3, 9, 1)]))
    found = list_offset(wire, name, MAX_TIMESTAMP)
    assert (found.error_code, found.offset, found.timestamp) == (0, 1, T + 9)
    assert list_offset(wire, name, EARLIEST_LOCAL, version=8).offset == 0
    found = list_offset(wire, name, LATEST_TIERED, version=9)
    assert (found.error_code, found.offset) == (0, -1)
    assert list_offset(wire, name, -6, version=11).error_code in (0, UNSUPPORTED_VERSION)


@pytest.mark.parametrize("asked", [-7, -100])
def test_other_negative_timestamps(wire: Wire, asked: int) -> None:
    name = create_topic(wire)
    produce_values(wire, name, [b"v"])
    found = list_offset(wire, name, asked)
    assert (found.error_code, found.offset) in ((0, 0), (UNSUPPORTED_VERSION, -1), (42, -1))


@pytest.mark.parametrize("codec", range(5), ids=rb.CODEC_NAMES.values())
def test_the_newest_timestamp_is_exact_within_a_batch(wire: Wire, codec: int) -> None:
    # C009
    name = create_topic(wire)
    records = [Record(value=b"v", timestamp=T + t) for t in (0, 5000, 1000)]
    produce(wire, name, batch(records, codec=codec))
    found = list_offset(wire, name, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (1, T + 5000)
    # By time: the first record at or behind it, in the middle of a batch as well.
    assert list_offset(wire, name, T + 1).offset == 1
    assert list_offset(wire, name, T + 5000).offset == 1
    assert list_offset(wire, name, T + 5001).offset == -1


def test_the_newest_timestamp_under_log_append_time(wire: Wire) -> None:
    name = create_topic(wire, configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    produce_values(wire, name, [b"a", b"b", b"c"])
    found = list_offset(wire, name, MAX_TIMESTAMP)
    assert found.offset in (0, 1, 2)
    assert before <= found.timestamp <= now_ms()
    assert list_offset(wire, name, before).offset == 0


@pytest.mark.parametrize("way", ["stop", "kill9"])
def test_the_newest_timestamp_after_the_loss_of_the_time_index(
    own_broker: Broker, way: str
) -> None:
    if own_broker.name == "apache" and way == "stop":
        pytest.skip(
            "Apache Kafka trusts a missing time index after a clean stop, and finds nothing"
        )
    with Wire(own_broker.address) as wire:
        name = create_topic(wire)
        produce(
            wire,
            name,
            batch([Record(value=b"v", timestamp=T + t) for t in (0, 5000, 1000)], codec=rb.GZIP),
        )
    getattr(own_broker, way)()
    (own_broker.logs / f"{name}-0" / f"{0:020}.timeindex").unlink(missing_ok=True)
    own_broker.start()
    with Wire(own_broker.address) as wire:
        requests.wait_for_leaders(wire, name, 1)
        found = list_offset(wire, name, MAX_TIMESTAMP)
        assert (found.offset, found.timestamp) == (1, T + 5000)
        assert list_offset(wire, name, T + 1).offset == 1


def test_timestamps_out_of_order_find_the_first_that_is_late_enough(wire: Wire) -> None:
    name = create_topic(wire)
    times = [50, 10, 90, 20, 80, 30]
    for t in times:
        produce(wire, name, batch([Record(value=b"v", timestamp=T + t)]))
    for asked in range(0, 100, 5):
        expected = next((i for i, t in enumerate(times) if t >= asked), -1)
        assert list_offset(wire, name, T + asked).offset == expected, asked


def test_look_ups_by_time_over_many_segments(wire: Wire) -> None:
    name = create_topic(wire, configs={"segment.bytes": "1048576", "index.interval.bytes": "4096"})
    for index in range(200):
        value = b"x" * 20_000
        data = batch([Record(value=value, timestamp=T + 10 * index + j) for j in (0, 3)])
        wire.send("produce", 9, **requests.produce_fields(name, 0, data))
    for _ in range(200):
        wire.receive()
    for index in range(0, 200, 13):
        assert list_offset(wire, name, T + 10 * index).offset == 2 * index
        assert list_offset(wire, name, T + 10 * index + 2).offset == 2 * index + 1
        assert list_offset(wire, name, T + 10 * index - 1).offset == 2 * index
    assert list_offset(wire, name, T + 1994).offset == -1


def test_unknown_partitions_are_told(wire: Wire) -> None:
    name = create_topic(wire)
    for topic, partition in ((requests.new_topic_name(), 0), (name, 4), (name, -1)):
        found = list_offset(wire, topic, LATEST, partition=partition)
        assert (found.error_code, found.offset) == (UNKNOWN_TOPIC, -1)


def test_leader_epochs_are_checked(wire: Wire) -> None:
    name = create_topic(wire)

    def ask(leader_epoch: int):
        answer = wire.request(
            "list_offsets",
            5,
            replica_id=-1,
            topics=[
                {
                    "name": name,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "timestamp": LATEST,
                            "current_leader_epoch": leader_epoch,
                        }
                    ],
                }
            ],
        )
        return answer.topics[0].partitions[0]

    assert ask(0).error_code == 0
    assert ask(3).error_code == UNKNOWN_LEADER_EPOCH


def test_the_same_partition_twice_is_refused(wire: Wire) -> None:
    name = create_topic(wire)
    part = {"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": -1}
    answer = wire.request(
        "list_offsets", 5, replica_id=-1, topics=[{"name": name, "partitions": [part, part]}]
    )
    assert {p.error_code for p in answer.topics[0].partitions} == {42}


# ------------------------------------------------------------------------------ leader epochs


def epoch_end(wire: Wire, name: str, leader_epoch: int, *, version: int = 4, **fields: int):
    answer = wire.request(
        "offset_for_leader_epoch",
        version,
        replica_id=-1,
        topics=[
            {
                "topic": name,
                "partitions": [
                    {
                        "partition": fields.pop("partition", 0),
                        "current_leader_epoch": fields.pop("current_leader_epoch", -1),
                        "leader_epoch": leader_epoch,
                    }
                ],
            }
        ],
    )
    (entry,) = answer.topics
    (found,) = entry.partitions
    return found


@pytest.mark.parametrize("version", range(2, 5))
def test_the_end_of_the_present_epoch_is_the_end_of_the_log(wire: Wire, version: int) -> None:
    name = create_topic(wire)
    produce_values(wire, name, [b"a", b"b"])
    found = epoch_end(wire, name, 0, version=version)
    assert (found.error_code, found.end_offset) == (0, 2)
    assert found.leader_epoch == 0
    found = epoch_end(wire, name, 5, version=version)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, -1, -1)
    found = epoch_end(wire, name, 0, version=version, current_leader_epoch=7)
    assert found.error_code == UNKNOWN_LEADER_EPOCH
    assert epoch_end(wire, name, 0, version=version, partition=5).error_code == UNKNOWN_TOPIC


def test_an_epoch_that_ended_keeps_its_end(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        name = create_topic(wire)
        produce_values(wire, name, [b"a", b"b", b"c"])
    own_broker.kill9()
    own_broker.start()
    with Wire(own_broker.address) as wire:
        requests.wait_for_leaders(wire, name, 1)
        # After an unclean stop offsets may be used again, so clients must see another epoch.
        (partition,) = requests.describe_topic(wire, name).partitions
        current = partition.leader_epoch
        assert current > 0
        produce_values(wire, name, [b"d"])
        old = epoch_end(wire, name, 0)
        assert (old.error_code, old.leader_epoch, old.end_offset) == (0, 0, 3)
        new = epoch_end(wire, name, current)
        assert (new.error_code, new.leader_epoch, new.end_offset) == (0, current, 4)
        assert list_offset(wire, name, LATEST).leader_epoch == current
        assert list_offset(wire, name, EARLIEST).leader_epoch == 0
        assert requests.fetch(wire, name, 3, current_leader_epoch=0).error_code == (
            FENCED_LEADER_EPOCH
        )


# ----------------------------------------------------------------------------- delete records


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(wire: Wire, version: int) -> None:
    name = create_topic(wire)
    for _ in range(5):
        produce_values(wire, name, [b"v"])
    answer = wire.request(
        "delete_records",
        version,
        timeout=10000,
        topics=[{"name": name, "partitions": [{"partition_index": 0, "offset": 3}]}],
    )
    (found,) = answer.topics[0].partitions
    assert (found.partition_index, found.error_code, found.low_watermark) == (0, 0, 3)
    assert requests.start_offset(wire, name) == 3
    assert requests.end_offset(wire, name) == 5
    assert len(requests.read_all(wire, name, start=3)) == 2


def test_minus_one_deletes_up_to_the_high_watermark(wire: Wire) -> None:
    name = create_topic(wire)
    produce_values(wire, name, [b"v"] * 7)
    found = delete_records(wire, name, -1)
    assert (found.error_code, found.low_watermark) == (0, 7)
    assert requests.start_offset(wire, name) == requests.end_offset(wire, name) == 7
    assert requests.fetch(wire, name, 7, max_wait=0).error_code == 0
    assert produce_values(wire, name, [b"v"]) == 7


@pytest.mark.parametrize("offset", [8, 1000, -2, -100])
def test_an_offset_beyond_the_high_watermark_is_out_of_range(wire: Wire, offset: int) -> None:
    name = create_topic(wire)
    produce_values(wire, name, [b"v"] * 7)
    found = delete_records(wire, name, offset)
    assert (found.error_code, found.low_watermark) == (OFFSET_OUT_OF_RANGE, -1)
    assert requests.start_offset(wire, name) == 0


def test_an_offset_in_the_past_changes_nothing(wire: Wire) -> None:
    name = create_topic(wire)
    produce_values(wire, name, [b"v"] * 7)
    delete_records(wire, name, 5)
    found = delete_records(wire, name, 2)
    assert (found.error_code, found.low_watermark) == (0, 5)


def test_the_start_may_lie_inside_a_batch(wire: Wire) -> None:
    name = create_topic(wire)
    produce_values(wire, name, [b"%d" % index for index in range(10)])
    assert delete_records(wire, name, 4).low_watermark == 4
    part = requests.fetch(wire, name, 4)
    assert next(rb.batches(part.records)).base_offset == 0
    assert part.log_start_offset == 4
    assert requests.fetch(wire, name, 3).error_code == OFFSET_OUT_OF_RANGE
    assert list_offset(wire, name, EARLIEST).offset == 4


def test_records_of_compacted_topics_are_not_deleted(wire: Wire) -> None:
    name = create_topic(wire, configs={"cleanup.policy": "compact"})
    produce(wire, name, batch([Record(b"k", b"v", now_ms())]))
    assert delete_records(wire, name, -1).error_code == POLICY_VIOLATION
    assert requests.start_offset(wire, name) == 0
    both = create_topic(wire, configs={"cleanup.policy": "compact,delete"})
    produce(wire, both, batch([Record(b"k", b"v", now_ms())]))
    assert delete_records(wire, both, -1).error_code == 0


def test_records_of_unknown_partitions_are_not_deleted(wire: Wire) -> None:
    name = create_topic(wire)
    assert delete_records(wire, requests.new_topic_name(), 0).error_code == UNKNOWN_TOPIC
    assert delete_records(wire, name, 0, partition=3).error_code == UNKNOWN_TOPIC


@pytest.mark.parametrize("way", ["stop", "kill9"])
def test_a_new_start_survives_a_restart(own_broker: Broker, way: str) -> None:
    with Wire(own_broker.address) as wire:
        name = create_topic(wire)
        for _ in range(9):
            produce_values(wire, name, [b"v"])
        assert delete_records(wire, name, 6).error_code == 0
        emptied = create_topic(wire)
        produce_values(wire, emptied, [b"v"] * 3)
        assert delete_records(wire, emptied, -1).error_code == 0
    if own_broker.name == "apache" and way == "kill9":
        pytest.skip("Apache Kafka checkpoints the start offset once a minute only")
    getattr(own_broker, way)()
    own_broker.start()
    with Wire(own_broker.address) as wire:
        requests.wait_for_leaders(wire, name, 1)
        requests.wait_for_leaders(wire, emptied, 1)
        assert (requests.start_offset(wire, name), requests.end_offset(wire, name)) == (6, 9)
        assert (requests.start_offset(wire, emptied), requests.end_offset(wire, emptied)) == (3, 3)
        assert produce_values(wire, emptied, [b"v"]) == 3
