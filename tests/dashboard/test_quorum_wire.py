"""Followers as their leader tells of them: ours with more, Apache Kafka's answers read as nothing told."""

import struct
from typing import Any

import pytest

from broker.model.error_code import ErrorCode
from broker.protocol import schema
from broker.protocol.codec import Cursor, EncodedItems, entity_codec
from broker.protocol.supplements.describe_quorum import REPLICA_STATES
from dashboard.quorum_wire import (
    DESCRIBE_QUORUM,
    PARTITIONS_PER_REQUEST,
    Behind,
    ask_followers,
)
from dashboard.wire import WireConnection
from tests.support.apache import ApacheKafka
from tests.support.requests import create_topic
from tests.support.wire import Wire

KEY, VERSION = DESCRIBE_QUORUM
types = schema.response_types(KEY, VERSION)


class Peer:
    """What is asked of a broker is kept; it answers what it was told to."""

    def __init__(self, *partitions: Any, error: ErrorCode = ErrorCode.NONE) -> None:
        self.asked: list[Any] = []
        self._topics = [types.TopicData(topic_name="orders", partitions=partitions)]
        self._error = error

    def ask_raw(self, key: int, version: int, body: bytes, *, is_flexible: bool) -> bytes:
        assert (key, version, is_flexible) == (KEY, VERSION, True)
        cursor = Cursor(memoryview(body), 0)
        self.asked.append(entity_codec(schema.request_type(KEY, VERSION)).read(cursor))
        assert cursor.position == len(body)
        response = types.DescribeQuorumResponse(
            error_code=self._error, topics=[] if self._error else self._topics
        )
        return schema.encode_response(KEY, VERSION, 1, response)[9:]


def partition(index: int, *voters: Any, error: ErrorCode = ErrorCode.NONE) -> Any:
    return types.PartitionData(
        partition_index=index,
        error_code=error,
        leader_id=1,
        leader_epoch=3,
        high_watermark=90,
        current_voters=EncodedItems(voters),
        observers=(),
    )


def replica(broker_id: int, end: int, caught_up_ms: int = -1, since_ms: int = -1) -> Any:
    return REPLICA_STATES[VERSION](
        replica_id=broker_id,
        log_end_offset=end,
        last_fetch_timestamp=-1,
        last_caught_up_timestamp=caught_up_ms,
        observed_since_timestamp=since_ms,
    )


def ask(peer: Peer, count: int = 1) -> Any:
    return ask_followers(peer, [("orders", range(count))])  # type: ignore[arg-type]


def test_who_lags_by_how_much_and_since_when() -> None:
    peer = Peer(
        partition(
            0,
            replica(1, 100, caught_up_ms=9_000),
            replica(2, 88, caught_up_ms=5_000, since_ms=1_000),
            replica(3, 70, since_ms=1_000),
            replica(4, -1),
        )
    )
    assert ask(peer) == {
        ("orders", 0): {
            2: Behind(12, 5_000, True),
            3: Behind(30, 1_000, False),
            4: Behind(None, None, False),
        }
    }


def test_apache_kafkas_replicas_have_no_field_of_ours() -> None:
    own = types.ReplicaState(replica_id=1, log_end_offset=10, last_caught_up_timestamp=9_000)
    other = types.ReplicaState(replica_id=2, log_end_offset=4)
    assert ask(Peer(partition(0, own, other))) == {("orders", 0): {2: Behind(6, None, False)}}


def test_who_does_not_lead_or_does_not_tell_leaves_it_out() -> None:
    assert ask(Peer(partition(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))) == {}
    assert ask(Peer(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)) == {}


def test_many_partitions_are_few_requests() -> None:
    peer = Peer()
    ask(peer, 2 * PARTITIONS_PER_REQUEST + 1)
    indexes = [
        each.partition_index
        for request in peer.asked
        for topic in request.topics
        for each in topic.partitions
    ]
    assert (len(peer.asked), indexes) == (3, list(range(2 * PARTITIONS_PER_REQUEST + 1)))


@pytest.mark.parametrize(
    "answer", [b"", b"\0\0\x05", b"\0\0\x02\x03\xff\xfe", struct.pack(">hbb", 0, 2, 7) + b"orders"]
)
def test_an_answer_that_cannot_be_read_is_a_broken_connection(answer: bytes) -> None:
    class Garbled:
        def ask_raw(self, *_: Any, **__: Any) -> bytes:
            return answer

    with pytest.raises(OSError, match=r"makes no sense|cut short"):
        ask_followers(Garbled(), [("orders", [0])])  # type: ignore[arg-type]


def test_apache_kafka_tells_nothing_of_topics(shared_apache: ApacheKafka) -> None:
    with Wire(shared_apache.address) as wire:
        topic = create_topic(wire)
    with WireConnection(shared_apache.address, 30) as connection:
        assert ask_followers(connection, [(topic, [0])]) == {}
        # The connection is as good as before.
        assert ask_followers(connection, [(topic, [0])]) == {}
