from collections.abc import Callable

import pytest

from broker.model.ids import TopicPartition
from dashboard import wire
from dashboard.cluster import (
    DEFAULT_BROKER,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    ConfigView,
    KafkaFailure,
    PartitionEnd,
    Record,
    TopicView,
)
from dashboard.gateway import Gateway, OffsetAt, RecordReader
from tests.support.processes import wait_until

pytestmark = pytest.mark.conformance
NewName = Callable[[], str]


@pytest.fixture
def topic(gateway: Gateway, new_topic_name: NewName) -> str:
    name = new_topic_name()
    assert gateway.create_topics([name], partitions=3, configs={"retention.ms": "5000000"}) == {
        name: None
    }
    return name


def read_all(reader: RecordReader, end_count: int) -> list[Record]:
    records: list[Record] = []
    while end_count:
        for item in reader.read(10):
            if isinstance(item, PartitionEnd):
                end_count -= 1
            else:
                records.append(item)
    return records


def test_both_ways_to_a_topic_tell_the_same(
    gateway: Gateway, library_only: Gateway, topic: str
) -> None:
    ours = gateway.topics([topic])[topic]
    theirs = library_only.topics([topic])[topic]
    assert isinstance(ours, TopicView)
    assert isinstance(theirs, TopicView)
    assert ours.topic_id == theirs.topic_id
    for one, other in zip(ours.partitions, theirs.partitions, strict=True):
        assert (one.index, one.leader, one.replicas, one.isr) == (
            other.index,
            other.leader,
            other.replicas,
            other.isr,
        )
        assert (one.leader_epoch, other.leader_epoch) == (0, None)


def test_descriptions_come_in_pages(
    gateway: Gateway, topic: str, new_topic_name: NewName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "PARTITIONS_PER_PAGE", 2)
    other, missing = new_topic_name(), new_topic_name()
    assert gateway.create_topics([other], partitions=5) == {other: None}
    found = gateway.topics([topic, other, missing])
    sizes = {name: len(v.partitions) for name, v in found.items() if isinstance(v, TopicView)}
    assert sizes == {topic: 3, other: 5}, found
    failure = found[missing]
    assert isinstance(failure, KafkaFailure)
    assert failure.code == "UNKNOWN_TOPIC_OR_PARTITION"


def test_looking_at_a_topic_does_not_create_it(
    gateway: Gateway, library_only: Gateway, new_topic_name: NewName
) -> None:
    name = new_topic_name()
    for one in (gateway, library_only):
        assert isinstance(one.topics([name])[name], KafkaFailure)
    assert name not in [view.name for view in gateway.cluster().topics]


def test_both_ways_to_settings_tell_the_same(
    gateway: Gateway, library_only: Gateway, topic: str
) -> None:
    ours = gateway.topic_configs([topic])[topic]
    theirs = library_only.topic_configs([topic])[topic]
    assert isinstance(ours, list)
    assert isinstance(theirs, list)

    def plain(views: list[ConfigView]) -> list[tuple[object, ...]]:
        return [
            (v.name, v.value, v.source, v.is_read_only, v.is_sensitive, sorted(v.synonyms))
            for v in views
        ]

    assert plain(ours) == plain(theirs)
    for one in (gateway, library_only):
        assert [view.name for view in one.topic_configs([topic], ["retention.ms"])[topic]] == [  # type: ignore[union-attr]
            "retention.ms"
        ]


def test_what_only_the_plain_socket_can_ask_is_left_out_elsewhere(library_only: Gateway) -> None:
    assert library_only.log_sizes() is None
    assert isinstance(library_only.broker_configs([DEFAULT_BROKER])[DEFAULT_BROKER], KafkaFailure)
    change = ConfigChange("log.retention.ms", ConfigOperation.SET, "1")
    assert isinstance(library_only.alter_broker_configs(DEFAULT_BROKER, [change]), KafkaFailure)


def test_refusals_keep_kafkas_names_and_words(gateway: Gateway, topic: str) -> None:
    change = ConfigChange("retention.ms", ConfigOperation.SET, "x")
    refused = gateway.alter_topic_configs({topic: [change]})[topic]
    assert refused is not None
    assert (refused.code, refused.is_transport) == ("INVALID_CONFIG", False)
    default = gateway.alter_broker_configs(
        DEFAULT_BROKER, [ConfigChange("log.cleaner.threads", ConfigOperation.SET, "x")]
    )
    assert default is not None
    assert default.code == "INVALID_REQUEST"
    fewer = gateway.create_partitions(topic, 2)
    assert fewer is not None
    assert fewer.code == "INVALID_PARTITIONS"


def test_settings_tell_their_source(gateway: Gateway, topic: str) -> None:
    (view,) = gateway.topic_configs([topic], ["retention.ms"])[topic]  # type: ignore[misc]
    assert view.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert view.synonyms[0].value == "5000000"


def test_records_are_written_and_read_with_their_metadata(gateway: Gateway, topic: str) -> None:
    writer = gateway.writer(topic)
    writer.send(1, b"v1", b"k", [("h", b"1"), ("h", None)], partition=1)
    writer.send(2, None, b"k", partition=1)
    assert writer.flush(30) == 0
    tally = writer.tallies[1]
    assert (tally.count, tally.first_offset, tally.last_offset) == (2, 0, 1)
    keys = [TopicPartition(topic, index) for index in range(3)]
    with gateway.reader(dict.fromkeys(keys, 0)) as reader:
        first, second = read_all(reader, 3)
    assert (first.key, first.value, first.headers) == (b"k", b"v1", [("h", b"1"), ("h", None)])
    assert (second.offset, second.value, second.headers) == (1, None, [])
    assert first.timestamp_type == 1


def test_a_failed_record_is_named_by_its_number(gateway: Gateway, topic: str) -> None:
    writer = gateway.writer(topic)
    writer.send(7, b"v", partition=99)
    writer.flush(30)
    ((number, failure),) = writer.failures
    assert number == 7
    assert failure.code == "UNKNOWN_TOPIC_OR_PARTITION"


def test_offsets_of_all_kinds(gateway: Gateway, topic: str) -> None:
    writer = gateway.writer(topic)
    for number in range(3):
        writer.send(number, b"v", partition=0)
    writer.flush(30)
    key, empty, missing = (TopicPartition(topic, index) for index in (0, 1, 7))

    def offset(at: OffsetAt | int, of: TopicPartition = key) -> int:
        found = gateway.offsets([of], at)[of]
        assert not isinstance(found, KafkaFailure)
        return found.offset

    assert offset(OffsetAt.EARLIEST) == 0
    assert offset(OffsetAt.LATEST) == 3
    assert offset(0) == 0
    assert offset(2**62) == -1
    assert offset(OffsetAt.MAX_TIMESTAMP, empty) == -1
    assert isinstance(gateway.offsets([missing], OffsetAt.LATEST)[missing], KafkaFailure)
    assert gateway.delete_records({key: 2}) == {key: 2}
    assert offset(OffsetAt.EARLIEST) == 2


def test_log_sizes_are_those_of_the_leaders(gateway: Gateway, topic: str) -> None:
    writer = gateway.writer(topic)
    writer.send(1, b"x" * 1000, partition=2)
    writer.flush(30)
    # Kafka answers the creation before it has made each log.
    wait_until(lambda: TopicPartition(topic, 0) in (gateway.log_sizes() or {}), 30, "the empty log")
    sizes = gateway.log_sizes()
    assert sizes is not None
    assert sizes[TopicPartition(topic, 0)] == 0
    assert 1000 < sizes[TopicPartition(topic, 2)] < 1200


def test_nobody_there_is_told_at_once() -> None:
    with pytest.raises(KafkaFailure, match=r"127\.0\.0\.1:1: connection refused") as error:
        Gateway("127.0.0.1:1,nonsense:0", timeout_s=30).check()
    assert error.value.is_transport
    assert "not HOST:PORT" in error.value.message


def test_partitions_that_were_added_meanwhile_are_found(gateway: Gateway, topic: str) -> None:
    keys = [TopicPartition(topic, index) for index in range(4)]
    assert gateway.offsets(keys[:3], OffsetAt.LATEST).keys() == set(keys[:3])
    assert gateway.create_partitions(topic, 4) is None

    assert gateway.offsets(keys, OffsetAt.LATEST)[keys[3]] == (0, -1)
    assert gateway.delete_records(dict.fromkeys(keys, 0)) == dict.fromkeys(keys, 0)
