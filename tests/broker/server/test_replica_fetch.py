"""Fetches of followers, without sockets: who is one, what counts, what is sent and when."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path
from typing import cast

import pytest

from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId
from broker.model.leadership import LeaderAndIsr
from broker.protocol.hot.replica_fetch import (
    FetchedAnswer,
    WantedPartition,
    decode_answer,
    encode_request,
)
from broker.protocol.request import parse_header
from broker.replication.replicated_partition import ReplicatedPartition
from broker.server.cluster.private_wire import Proving
from broker.server.connection import Connection
from broker.server.coordinator_log import when_committed
from broker.server.handlers import HOT_HANDLERS
from tests.broker.replication.build import ORDERS, TOPIC_ID, rules_of
from tests.broker.server.build import HandlerWorld, Pending, content
from tests.broker.storage.build import config
from tests.support import wire

pytestmark = pytest.mark.interpreted  # with doubles of the connection

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCHS = {ONE: 101, TWO: 102, THREE: 103}
REPLICAS = (ONE, TWO)


class Leader(HandlerWorld):
    """Broker 1 leads; requests come from broker 2, which has proved the cluster's secret."""

    def __init__(self, directory: Path) -> None:
        super().__init__([directory])
        self.proving = Proving("00")
        self.proving.is_proved = True
        self.connection.proving = self.proving  # type: ignore[attr-defined]
        self.replicas.on_brokers(EPOCHS)
        self.session = (0, 0)

    def lead(self, epoch: int = 1) -> ReplicatedPartition:
        return self.lead_many(1, epoch)[0]

    def lead_many(self, count: int, epoch: int = 1) -> list[ReplicatedPartition]:
        now = LeaderAndIsr(ONE, epoch, epoch, REPLICAS, frozenset(REPLICAS))
        topic_config = config()
        states = [now] * count
        self.replicas.host_topic(ORDERS, TOPIC_ID, states, topic_config, rules_of(topic_config))
        partitions = [self.replicas.find(ORDERS, index) for index in range(count)]
        return cast(list[ReplicatedPartition], partitions)

    def send(
        self,
        *wanted: WantedPartition,
        topic_id: uuid.UUID = TOPIC_ID,
        forgotten: tuple[int, ...] = (),
        wait_ms: int = 500,
        replica_epoch: int = EPOCHS[TWO],
    ) -> Pending:
        request = encode_request(
            b"b",
            replica_id=TWO,
            replica_epoch=replica_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session=self.session,
            topics=[(topic_id, wanted)] if wanted else [],
            forgotten=[(topic_id, forgotten)] if forgotten else [],
        )
        frame = memoryview(bytearray(request))
        header = parse_header(frame)
        before = len(self.connection.slots)
        answer = HOT_HANDLERS[header.api_key](
            self.broker, cast(Connection, self.connection), header, frame
        )
        slot = self.connection.slots[-1] if len(self.connection.slots) > before else None
        return Pending("fetch", 17, answer, slot)

    def take(self, pending: Pending) -> FetchedAnswer:
        pieces = pending.raw
        assert pieces is not None, "there is no answer yet"
        answer = decode_answer(memoryview(b"".join(map(content, pieces)))[8:])
        self.session = (answer.session_id, self.session[1] + 1)
        return answer


def wanted(
    offset: int, last_epoch: int = -1, leader_epoch: int = 1, index: int = 0
) -> WantedPartition:
    return WantedPartition(index, leader_epoch, offset, last_epoch, 0, 1 << 20)


@pytest.fixture
def world(tmp_path: Path) -> Leader:
    return Leader(tmp_path)


def test_a_follower_gets_what_is_not_committed_and_commits_it_by_fetching_on(
    world: Leader,
) -> None:
    partition = world.lead()
    world.append(partition)
    (first,) = world.take(world.send(wanted(0))).partitions
    assert (first.error_code, first.high_watermark, len(first.records) > 0) == (0, 0, True)
    waiting = world.send(wanted(1, 1))
    assert partition.high_watermark == 1
    assert not waiting.is_answered
    world.append(partition)
    world.run()
    (second,) = world.take(waiting).partitions
    assert (second.high_watermark, len(second.records) > 0) == (1, True)


@pytest.mark.parametrize("ended", [0, 1])
def test_what_an_acknowledgement_brings_about_is_in_the_same_answer(
    world: Leader, ended: int
) -> None:
    """As the end of a transaction does, once it is committed: its markers are appended in the same turn, and a
    follower that did not see them slept over them."""
    partitions = world.lead_many(2)
    outcome, data = partitions[ended], partitions[1 - ended]
    world.append(outcome)
    both = [wanted(0, index=index) for index in range(2)]
    world.take(world.send(*both))

    def write_marker(_: ErrorCode) -> None:
        world.append(data)

    when_committed(world.broker, outcome, 30_000, write_marker)
    answer = world.take(world.send(wanted(1, 1, index=ended)))
    assert outcome.high_watermark == 1
    assert [each.index for each in answer.partitions if len(each.records)] == [1 - ended]


def test_what_is_not_named_is_fetched_on_and_answers_name_only_news(world: Leader) -> None:
    partition = world.lead()
    assert world.take(world.send(wanted(0), wait_ms=0)).session_id != 0
    assert world.take(world.send(wait_ms=0)).partitions == []
    world.append(partition)
    (news,) = world.take(world.send()).partitions
    assert len(news.records) > 0
    assert world.take(world.send(forgotten=(0,))).partitions == []


def test_an_answer_that_arrived_is_evidence_for_the_lease(world: Leader) -> None:
    partition = world.lead()
    world.scheduler.advance(10_000)
    world.take(world.send(wanted(0), wait_ms=0))
    assert not partition.may_coordinate
    world.scheduler.advance(100)
    world.send()
    assert partition.may_coordinate
    world.scheduler.advance(2_800)
    assert partition.may_coordinate
    world.scheduler.advance(100)  # 3 s after the answer was sent, not after the fetch
    assert not partition.may_coordinate


@pytest.mark.parametrize("is_known", [False, True])
def test_who_has_not_proved_the_secret_is_no_follower(world: Leader, is_known: bool) -> None:
    partition = world.lead()
    world.proving.is_proved = False
    if not is_known:
        world.connection.proving = None  # type: ignore[attr-defined]
    (told,) = world.take(world.send(wanted(0))).partitions
    assert told.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    world.append(partition)
    assert partition.high_watermark == 0


def test_an_older_registration_and_another_leader_epoch_do_not_count(world: Leader) -> None:
    world.lead(epoch=2)
    for fetch, expected in (
        (world.send(wanted(0), replica_epoch=99), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (world.send(wanted(0, leader_epoch=1)), ErrorCode.FENCED_LEADER_EPOCH),
        (world.send(wanted(0, leader_epoch=3)), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (world.send(wanted(0, leader_epoch=2), replica_epoch=99), ErrorCode.STALE_BROKER_EPOCH),
        (world.send(wanted(5, leader_epoch=2)), ErrorCode.OFFSET_OUT_OF_RANGE),
        (world.send(wanted(0), topic_id=uuid.UUID(int=99)), ErrorCode.UNKNOWN_TOPIC_ID),
    ):
        (told,) = world.take(fetch).partitions
        if expected is not ErrorCode.UNKNOWN_LEADER_EPOCH:
            assert told.error_code == expected
        assert told.error_code != 0
        world.session = (0, 0)


def test_where_the_logs_part_is_told(world: Leader) -> None:
    partition = world.lead()
    world.append(partition)
    partition = world.lead(epoch=5)
    (told,) = world.take(world.send(wanted(3, 2, leader_epoch=5))).partitions
    assert told.diverging_epoch == (1, 1)


def test_a_session_ends_with_an_answer_that_was_lost(world: Leader) -> None:
    world.lead()
    world.take(world.send(wanted(0), wait_ms=0))
    session = world.session
    world.send(wait_ms=0)
    world.session = session
    assert world.take(world.send(wait_ms=0)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_fetch_that_waits_is_told_when_another_leads(world: Leader) -> None:
    partition = world.lead()
    world.take(world.send(wanted(0), wait_ms=0))
    waiting = world.send()
    away = LeaderAndIsr(TWO, 2, 2, REPLICAS, frozenset({TWO}))
    world.replicas.host_topic(
        ORDERS, TOPIC_ID, [away], partition.log.config, rules_of(partition.log.config)
    )
    world.run()
    (told,) = world.take(waiting).partitions
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_requests_are_encoded_as_a_client_library_does() -> None:
    partition = WantedPartition(3, 4, 5, 6, 7, 8)
    request = encode_request(
        b"odradek",
        replica_id=2,
        replica_epoch=77,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1000,
        session=(1, 9),
        topics=[(TOPIC_ID, [partition])],
        forgotten=[(TOPIC_ID, [1, 2])],
    )
    fields = {
        "partition": 3,
        "current_leader_epoch": 4,
        "fetch_offset": 5,
        "last_fetched_epoch": 6,
        "log_start_offset": 7,
        "partition_max_bytes": 8,
    }
    expected = wire.encode_request(
        "fetch",
        17,
        0,
        "odradek",
        replica_state={"replica_id": 2, "replica_epoch": 77},
        max_wait=500,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=1,
        session_epoch=9,
        topics=[{"topic_id": TOPIC_ID, "partitions": [fields]}],
        forgotten_topics_data=[{"topic_id": TOPIC_ID, "partitions": [1, 2]}],
        rack_id="",
    )
    assert struct.pack(">i", len(request)) + request == expected
