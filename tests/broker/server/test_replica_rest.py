"""Partitions at rest in a follower's session: nobody looks at them, and nobody can tell but by the time it takes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from broker.model.ids import BrokerId
from broker.model.leadership import LeaderAndIsr
from broker.protocol.hot.replica_fetch import (
    FetchedAnswer,
    WantedPartition,
    decode_answer,
    encode_request,
)
from broker.protocol.request import parse_header
from broker.replication.replica_session import ReplicaSession
from broker.replication.replicated_partition import ReplicatedPartition
from broker.server.cluster.private_wire import Proving
from broker.server.connection import Connection
from broker.server.handlers import HOT_HANDLERS
from tests.broker.replication.build import ORDERS, TOPIC_ID, rules_of
from tests.broker.server.build import FakeConnection, HandlerWorld, Pending, content
from tests.broker.storage.build import config

pytestmark = pytest.mark.interpreted  # with doubles of the connection

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
REPLICAS = (ONE, TWO, THREE)
PARTITIONS = 3


class Follower:
    """Its side of the session: what it has, and the request that waits."""

    def __init__(self, leader: Leader, broker_id: BrokerId) -> None:
        self.leader = leader
        self.broker_id = broker_id
        self.begin_anew()

    def begin_anew(self) -> None:
        """Another connection."""
        self.connection = FakeConnection()
        self.proving = Proving("00")
        self.proving.is_proved = True
        self.connection.proving = self.proving  # type: ignore[attr-defined]
        self.at = (0, 0)
        self.waiting: Pending | None = None
        self.named: dict[int, WantedPartition] = {}

    @property
    def session(self) -> ReplicaSession:
        session = self.proving.fetch_session
        assert isinstance(session, ReplicaSession)
        return session

    def send(
        self,
        wanted: Sequence[WantedPartition] = (),
        forgotten: Sequence[int] = (),
        *,
        wait_ms: int = 500,
    ) -> None:
        request = encode_request(
            b"b",
            replica_id=self.broker_id,
            replica_epoch=self.leader.epochs[self.broker_id],
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session=self.at,
            topics=[(TOPIC_ID, wanted)] if wanted else [],
            forgotten=[(TOPIC_ID, forgotten)] if forgotten else [],
        )
        frame = memoryview(bytearray(request))
        before = len(self.connection.slots)
        answer = HOT_HANDLERS[1](
            self.leader.broker,
            cast(Connection, self.connection),
            parse_header(frame),
            frame,
        )
        slot = self.connection.slots[-1] if len(self.connection.slots) > before else None
        self.waiting = Pending("fetch", 17, answer, slot)

    def take(self) -> FetchedAnswer | None:
        """The answer, if there is one by now."""
        self.leader.run()
        if self.waiting is None or not self.waiting.is_answered:
            return None
        pieces = self.waiting.raw
        assert pieces is not None
        self.waiting = None
        answer = decode_answer(memoryview(b"".join(map(content, pieces)))[8:])
        self.at = (answer.session_id, self.at[1] + 1) if answer.session_id else (0, 0)
        return answer

    def settle(self, *partitions: int) -> None:
        """All of these are in its session, and at rest where they can be."""
        for wanted in ([self.wanted(each) for each in partitions], [], []):
            self.send(wanted, wait_ms=0)
            assert self.take() is not None

    def wanted(self, index: int) -> WantedPartition:
        partition = self.leader.partition(index)
        end = partition.log.log_end_offset
        return WantedPartition(index, self.leader.epoch, end, self.last_epoch(index), 0, 1 << 20)

    def last_epoch(self, index: int) -> int:
        return self.leader.partition(index).log.latest_leader_epoch


class Leader(HandlerWorld):
    """Broker 1, which leads three partitions that brokers 2 and 3 follow."""

    def __init__(self, directory: Path) -> None:
        super().__init__([directory])
        self.epochs: dict[BrokerId, int] = {ONE: 101, TWO: 102, THREE: 103}
        self.replicas.on_brokers(self.epochs)
        self.epoch = 0
        self.lead(1)
        self.two, self.three = Follower(self, TWO), Follower(self, THREE)

    def lead(
        self, epoch: int, isr: Sequence[BrokerId] = REPLICAS, partition_epoch: int = 0
    ) -> None:
        self.epoch = epoch
        self.tell(LeaderAndIsr(ONE, epoch, 100 * epoch + partition_epoch, REPLICAS, frozenset(isr)))

    def tell(self, state: LeaderAndIsr) -> None:
        self.replicas.host_topic(
            ORDERS, TOPIC_ID, [state] * PARTITIONS, config(), rules_of(config())
        )
        for index in range(PARTITIONS):
            self.replicas.materialise(ORDERS, index)

    def partition(self, index: int) -> ReplicatedPartition:
        found = self.replicas.find(ORDERS, index)
        assert isinstance(found, ReplicatedPartition)
        return found

    def loud(self) -> list[int]:
        return sorted(entry.partition for entry in self.two.session.loud)


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(tmp_path)


def test_what_has_everything_is_looked_at_no_more(leader: Leader) -> None:
    leader.two.settle(0, 1, 2)
    assert leader.loud() == []
    leader.append(leader.partition(1))
    assert leader.loud() == [1]


def test_a_record_for_one_at_rest_is_sent_to_the_request_that_waits(leader: Leader) -> None:
    leader.two.settle(0, 1, 2)
    leader.two.send()
    assert leader.two.take() is None
    leader.append(leader.partition(1))
    answer = leader.two.take()
    assert answer is not None
    assert [(each.index, len(each.records) > 0) for each in answer.partitions] == [(1, True)]


def test_a_second_record_wakes_a_request_that_the_first_could_not_answer(leader: Leader) -> None:
    leader.two.settle(0, 1, 2)
    leader.three.settle(0, 1, 2)
    leader.append(leader.partition(0))
    for follower in (leader.two, leader.three):
        follower.send()
        assert follower.take() is not None
    leader.two.send([leader.two.wanted(0)])
    assert leader.two.take() is None
    leader.three.send([leader.three.wanted(0)])  # commits it: news for the other, but no record
    assert leader.two.take() is None
    leader.append(leader.partition(0))
    answer = leader.two.take()
    assert answer is not None
    assert [(each.high_watermark, len(each.records) > 0) for each in answer.partitions] == [
        (1, True)
    ]


def test_each_request_is_evidence_for_the_lease_of_all_at_rest(leader: Leader) -> None:
    leader.scheduler.advance(10_000)
    for follower in (leader.two, leader.three):
        follower.settle(0, 1, 2)
    for _ in range(5):
        for follower in (leader.two, leader.three):
            follower.send(wait_ms=0)
            assert follower.take() is not None
        assert all(leader.partition(index).may_coordinate for index in range(PARTITIONS))
        leader.scheduler.advance(2_900)
    leader.scheduler.advance(100)
    assert not any(leader.partition(index).may_coordinate for index in range(PARTITIONS))


def test_a_request_that_forgets_a_partition_is_no_evidence_for_it(leader: Leader) -> None:
    leader.scheduler.advance(10_000)
    for follower in (leader.two, leader.three):
        follower.settle(0, 1, 2)
    leader.scheduler.advance(2_500)
    leader.two.send(forgotten=[1], wait_ms=0)
    leader.two.take()
    leader.two.send(wait_ms=0)
    leader.three.send(wait_ms=0)
    leader.three.take()
    leader.three.send(wait_ms=0)
    leader.scheduler.advance(600)
    assert [leader.partition(index).may_coordinate for index in range(PARTITIONS)] == [
        True,
        False,
        True,
    ]


def test_a_leader_that_was_replaced_gets_no_evidence_any_more(leader: Leader) -> None:
    leader.scheduler.advance(10_000)
    leader.two.settle(0, 1, 2)
    leader.three.settle(0, 1, 2)
    old = leader.partition(0)
    leader.lead(2)
    for _ in range(4):
        leader.scheduler.advance(1_000)
        for follower in (leader.two, leader.three):
            follower.send(wait_ms=0)
            follower.take()
    assert not old.leader.holds_lease(leader.scheduler.monotonic_ms())


def test_who_registers_anew_is_judged_again(leader: Leader) -> None:
    leader.two.settle(0, 1, 2)
    old = leader.epochs[TWO]
    leader.replicas.on_brokers({**leader.epochs, TWO: old + 10})
    leader.two.send(wait_ms=0)
    answer = leader.two.take()
    assert answer is not None
    assert len({each.error_code for each in answer.partitions} - {0}) == 1
    assert len(answer.partitions) == PARTITIONS


def test_who_is_not_in_sync_is_at_rest_once_it_is(leader: Leader) -> None:
    leader.lead(1, isr=(ONE, THREE), partition_epoch=1)
    leader.two.settle(0, 1, 2)
    assert leader.loud() == [0, 1, 2]
    leader.lead(1, partition_epoch=2)
    leader.two.send(wait_ms=0)
    leader.two.take()
    assert leader.loud() == []


def test_a_log_that_begins_later_is_told(leader: Leader) -> None:
    for _ in range(3):
        leader.append(leader.partition(2))
    for follower in (leader.two, leader.three):
        follower.settle(0, 1, 2)
    for _ in range(2):  # one that tells what the other follower has committed
        leader.two.send(wait_ms=0)
        leader.two.take()
    assert leader.loud() == []
    leader.two.send()
    leader.partition(2).delete_records(2)
    answer = leader.two.take()
    assert answer is not None
    assert [(each.index, each.log_start_offset) for each in answer.partitions] == [(2, 2)]


def test_another_connection_of_the_same_follower_takes_over(leader: Leader) -> None:
    leader.two.settle(0, 1, 2)
    old = leader.two.session
    leader.two.begin_anew()
    leader.two.settle(0, 1, 2)
    assert (leader.loud(), len(old.loud)) == ([], PARTITIONS)
    leader.append(leader.partition(1))
    assert leader.loud() == [1]


# With rest and without ------------------------------------------------------------------------


class Script:
    """What happens to two leaders, of which one lets nobody rest."""

    def __init__(self, leaders: Sequence[Leader], seed: int) -> None:
        self.leaders = leaders
        self.dice = random.Random(seed)

    def step(self) -> list[list[Any]]:
        """What each of them shows then."""
        dice = self.dice
        kind = dice.choice(
            ("fetch", "fetch", "fetch", "append", "time", "isr", "epoch", "cut", "start")
        )
        index, follower_id = dice.randrange(PARTITIONS), dice.choice((TWO, THREE))
        ms = dice.choice((1, 100, 500, 1_500, 3_100))
        seed = dice.random()
        return [self._do(leader, kind, index, follower_id, ms, seed) for leader in self.leaders]

    def _do(
        self, leader: Leader, kind: str, index: int, follower_id: BrokerId, ms: int, seed: float
    ) -> list[Any]:
        follower = leader.two if follower_id == TWO else leader.three
        shown: list[Any] = [kind]
        if kind == "append":
            leader.append(leader.partition(index))
        elif kind == "time":
            leader.scheduler.advance(ms)
        elif kind == "isr":
            isr = REPLICAS if seed < 0.6 else (ONE, TWO)
            partition_epoch = leader.partition(0).leader.isr.partition_epoch % 100 + 1
            leader.lead(leader.epoch, isr, partition_epoch)
        elif kind == "epoch" and seed < 0.3:
            leader.lead(leader.epoch + 1)
        elif kind == "cut":
            follower.begin_anew()
        elif kind == "start":
            partition = leader.partition(index)
            partition.delete_records(partition.high_watermark)
        elif follower.waiting is None:
            self._fetch(follower, random.Random(seed))
        for each in (leader.two, leader.three):
            shown.append(self._taken(each))
        return shown + [self._state(leader.partition(each), leader) for each in range(PARTITIONS)]

    def _fetch(self, follower: Follower, dice: random.Random) -> None:
        """It names what is new to it, forgets now and then, and never goes back."""
        wanted, forgotten = [], []
        for index in range(PARTITIONS):
            now = follower.wanted(index)
            known = follower.named.get(index)
            if known is not None and dice.random() < 0.1:
                forgotten.append(index)
                del follower.named[index]
            elif (known is None or dice.random() < 0.7) and known != now:
                wanted.append(now)
                follower.named[index] = now
        follower.send(wanted, forgotten, wait_ms=dice.choice((0, 500)))

    def _taken(self, follower: Follower) -> Any:
        answer = follower.take()
        if answer is None:
            return follower.waiting is not None
        if not answer.session_id:
            follower.begin_anew()
        told = [
            (
                each.index,
                each.error_code,
                each.high_watermark,
                each.log_start_offset,
                bytes(each.records),
            )
            for each in answer.partitions
        ]
        return (answer.error_code, sorted(told))

    def _state(self, partition: ReplicatedPartition, leader: Leader) -> Any:
        machine, now_ms = partition.leader, leader.scheduler.monotonic_ms()
        held = machine.holds_lease(now_ms)
        followers = [
            (
                each.log_end_offset,
                each.last_caught_up_ms,
                each.is_caught_up(partition.log.log_end_offset, 1000, now_ms),
            )
            for _, each in sorted(machine.followers.items())
        ]
        proposal = machine._wanted_isr(leader.epochs, now_ms)
        low = partition.low_watermark(leader.epochs)
        return partition.high_watermark, held, followers, sorted(proposal), low


@pytest.mark.parametrize("seed", range(20))
def test_nobody_can_tell_who_is_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    resting, restless = Leader(tmp_path / "resting"), Leader(tmp_path / "restless")
    rests = 0
    maybe_rest = ReplicatedPartition.maybe_rest

    def counted(partition: ReplicatedPartition, follower_id: BrokerId, entry: Any) -> None:
        nonlocal rests
        if partition.leader in {restless.partition(each).leader for each in range(PARTITIONS)}:
            return
        maybe_rest(partition, follower_id, entry)
        rests += entry.is_resting

    monkeypatch.setattr(ReplicatedPartition, "maybe_rest", counted)
    script = Script((resting, restless), seed)
    for _ in range(150):
        one, other = script.step()
        assert one == other
    assert rests > 10
