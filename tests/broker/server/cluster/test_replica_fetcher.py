"""The follower's side of a session, against the leader's handler: what a request names, and what it costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.model.error_code import ErrorCode
from broker.model.errors import CorruptLogError
from broker.model.ids import BrokerId
from broker.model.leadership import LeaderAndIsr
from broker.protocol.hot.fetch import FetchRequest, decode_request
from broker.protocol.request import parse_header
from broker.replication.followed_partition import FollowedPartition
from broker.server import tasks
from broker.server.cluster import replica_fetcher
from broker.server.cluster.peer import PeerError
from broker.server.cluster.private_wire import Proving
from broker.server.cluster.replica_fetcher import (
    BACK_OFF_MS,
    LAST_BACK_OFF_MS,
    ReplicaFetcher,
    _Session,
)
from broker.server.connection import Connection
from broker.server.handlers import HOT_HANDLERS
from broker.server.tasks import MAX_FAILURES, TaskGroup
from broker.storage.log import Log
from tests.broker.replication.build import ORDERS, TOPIC_ID, World, rules_of
from tests.broker.server.build import FakeConnection, HandlerWorld, Pending, content
from tests.broker.storage.build import config

pytestmark = pytest.mark.interpreted  # with doubles of the connection

ONE, TWO = BrokerId(1), BrokerId(2)
REPLICAS = (ONE, TWO)
EPOCHS = {ONE: 101, TWO: 102}
PARTITIONS = 4
STATE = LeaderAndIsr(ONE, 1, 1, REPLICAS, frozenset(REPLICAS))


def host(world: World, state: LeaderAndIsr) -> None:
    rules = rules_of(config())
    world.replicas.host_topic(ORDERS, TOPIC_ID, [state] * PARTITIONS, config(), rules)
    for index in range(PARTITIONS):
        world.replicas.materialise(ORDERS, index)


class Pair:
    """Broker 1 leads, broker 2 follows; ``steps`` happen one by one, while a request waits each time."""

    def __init__(self, directory: Path) -> None:
        self.leader = HandlerWorld([directory / "one"])
        self.leader.replicas.on_brokers(EPOCHS)
        host(self.leader, STATE)
        self.connection = FakeConnection()
        proving = Proving("00")
        proving.is_proved = True
        self.connection.proving = proving  # type: ignore[attr-defined]
        self.followed: dict[int, FollowedPartition] = {}
        self.requests: list[FetchRequest] = []
        self.looked_at: list[int] = []
        self.steps: list[Callable[[], None]] = []
        self.membership: Any = None
        self.reported: list[str] = []
        self.tasks: Any = None
        self.on_fetched: Callable[[memoryview], None] = lambda frame: None
        self.on_lost: Callable[[PeerError], None] = lambda error: None

    def follow(self, directory: Path) -> World:
        world = World([directory / "two"])
        world.replicas._broker_id = TWO
        world.replicas.on_followed = self._keep
        world.replicas.on_brokers(EPOCHS)
        host(world, STATE)
        return world

    def _keep(self, followed: FollowedPartition) -> None:
        self.followed[followed.topic_partition.partition] = followed

    async def run(self, world: World) -> None:
        broker: Any = SimpleNamespace(
            clock=world.scheduler,
            loop=asyncio.get_running_loop(),
            replicas=world.replicas,
            logs=world.logs,
            config=self.leader.broker.config,
            tasks=TaskGroup(asyncio.get_running_loop()),
            maintenance=SimpleNamespace(report_once=self.reported.append),
        )
        self.tasks = broker.tasks
        throttle = SimpleNamespace(wait_ms=lambda now_ms: 0)
        membership: Any = SimpleNamespace(
            broker_epoch=EPOCHS[TWO],
            broker_id=TWO,
            replication=SimpleNamespace(follower_throttle=throttle),
        )
        self.membership = membership
        fetcher = ReplicaFetcher(broker, membership, ONE)
        next_fetches = fetcher.next_fetches

        def counted(*arguments: Any) -> Any:
            self.looked_at.append(len(fetcher._due))
            return next_fetches(*arguments)

        fetcher.next_fetches = counted  # type: ignore[method-assign]
        for followed in self.followed.values():
            fetcher.add(followed)
        with pytest.raises(PeerError, match="no more steps"):
            await _Session(broker, membership, cast(Any, self), fetcher).go_on()

    # As a ``Peer`` does -----------------------------------------------------------------------

    def begin_fetches(
        self, on_fetched: Callable[[memoryview], None], on_lost: Callable[[PeerError], None]
    ) -> None:
        self.on_fetched, self.on_lost = on_fetched, on_lost

    def fetch(self, frame: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._serve, frame)

    def _serve(self, frame: bytes) -> None:
        data = memoryview(bytearray(frame))
        header = parse_header(data)
        request = decode_request(17, data, header.body_offset)
        self.requests.append(request)
        before = len(self.connection.slots)
        connection = cast(Connection, self.connection)
        answer = HOT_HANDLERS[1](self.leader.broker, connection, header, data)
        slot = self.connection.slots[-1] if len(self.connection.slots) > before else None
        pending = Pending("fetch", 17, answer, slot)
        if not pending.is_answered:
            if not self.steps:
                self.on_lost(PeerError("no more steps"))
                return
            self.steps.pop(0)()
            self.leader.run()
        if not pending.is_answered:
            self.leader.scheduler.advance(request.max_wait_ms)
        pieces = pending.raw
        assert pieces is not None
        self.on_fetched(memoryview(b"".join(map(content, pieces)))[8:])

    def named(self) -> list[list[int]]:
        return [
            sorted(wanted.partition for _, partitions in request.topics for wanted in partitions)
            for request in self.requests
        ]

    def forgotten(self) -> list[list[int]]:
        return [
            [index for _, indexes in request.forgotten for index in indexes]
            for request in self.requests
        ]

    def append(self, index: int) -> None:
        self.leader.append(self.leader.replicas.find(ORDERS, index))


def nothing() -> None:
    pass


def test_a_request_names_and_looks_at_what_has_changed(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    world = pair.follow(tmp_path)
    pair.steps = [nothing, nothing, lambda: pair.append(2), nothing]
    asyncio.run(pair.run(world))
    assert pair.named()[0] == [0, 1, 2, 3]
    assert [named for named in pair.named()[1:] if named] == [[2]]
    assert pair.looked_at[0] == PARTITIONS
    # All of them once more, as the first answer told of all; then nobody but who was told something.
    assert pair.looked_at[1] == PARTITIONS
    assert sum(pair.looked_at[2:]) <= 2
    assert pair.followed[2].log.log_end_offset == 1
    assert not any(pair.forgotten())


def test_what_is_followed_no_more_is_forgotten_by_the_next_request(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    world = pair.follow(tmp_path)
    pair.steps = [
        nothing,
        lambda: pair.followed[1].close(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        nothing,
    ]
    asyncio.run(pair.run(world))
    closed_in = next(at for at, indexes in enumerate(pair.forgotten()) if indexes)
    assert pair.forgotten()[closed_in] == [1]
    assert closed_in == len(pair.requests) - 2  # while the one before the last step's waited


def test_a_log_that_begins_later_here_is_told_to_the_leader(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    world = pair.follow(tmp_path)

    def delete() -> None:
        pair.followed[3].log.set_log_start_offset(1)
        pair.followed[3].tell_changed()

    pair.steps = [lambda: pair.append(3), nothing, delete, nothing]
    asyncio.run(pair.run(world))
    (last,) = [
        wanted
        for request in pair.requests
        for _, partitions in request.topics
        for wanted in partitions
        if wanted.log_start_offset == 1
    ]
    assert last.partition == 3


def test_a_fetch_that_is_not_named_stays_one_for_the_lease(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    world = pair.follow(tmp_path)
    pair.steps = [nothing, lambda: world.scheduler.advance(5_000), nothing]
    asyncio.run(pair.run(world))
    clock = pair.followed[0].replica.fetch_clock
    assert clock is not None
    assert clock.sent_ms == world.scheduler.monotonic_ms()


def test_a_connection_that_is_lost_while_nothing_is_asked_ends_the_session(tmp_path: Path) -> None:
    """As when this broker registers anew: the next request would not be answered for ten seconds."""
    pair = Pair(tmp_path)
    world = pair.follow(tmp_path)

    def lose_while_idle() -> None:
        pair.membership.broker_epoch = None
        later = BACK_OFF_MS / 2000
        asyncio.get_running_loop().call_later(later, pair.on_lost, PeerError("no more steps"))

    pair.steps = [nothing, nothing, lose_while_idle]
    asyncio.run(pair.run(world))
    assert not pair.steps
    assert pair.membership.broker_epoch is None


def fail(error: Exception) -> Callable[..., Any]:
    def failing(*arguments: Any) -> Any:
        raise error

    return failing


@pytest.mark.parametrize(
    ("error", "is_counted"),
    [
        (RuntimeError("a fault of ours"), True),
        (OSError(5, "Input/output error"), False),
        (CorruptLogError("data", 0, 0, "its sum is wrong"), False),
    ],
)
def test_a_partition_that_fails_again_and_again_keeps_no_other_from_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, is_counted: bool
) -> None:
    pair = Pair(tmp_path)
    world = pair.follow(tmp_path)
    logs = {index: followed.log for index, followed in pair.followed.items()}
    broken: set[Log] = set()
    append = Log.append_as_follower

    def append_or_fail(log: Log, *arguments: Any) -> Any:
        if log in broken:
            raise error
        return append(log, *arguments)

    monkeypatch.setattr(Log, "append_as_follower", append_or_fail)
    pauses: list[int] = []
    others: list[int] = []

    def begin() -> None:
        broken.add(logs[1])
        pair.append(1)

    def wait() -> None:
        """A record of another one comes, and the pause of the one that failed is over."""
        others.append(logs[3].log_end_offset)
        pauses.append(pair.requests[-1].max_wait_ms)
        pair.append(3)
        world.scheduler.advance(pauses[-1])

    rounds = 15
    pair.steps = [nothing, begin, *[wait] * rounds, broken.clear, *[wait] * 5]
    asyncio.run(pair.run(world))
    assert pauses[:4] == [50, 100, 200, 400]
    assert max(pauses) <= LAST_BACK_OFF_MS
    assert others[:rounds] == list(range(rounds))
    assert logs[1].log_end_offset == 1  # once it could
    assert bool(pair.tasks.troubles) == is_counted
    assert len(set(pair.reported)) == (0 if is_counted else 1)


class Kept:
    """A fetcher as the broker keeps it; ``connect`` is what it meets."""

    def __init__(self, connect: Callable[[], Any], directory: Path) -> None:
        self.connect = connect
        self.pair = Pair(directory)
        self.world = self.pair.follow(directory)
        self.attempts = 0
        self.lost: list[str] = []

    async def run(self, attempts: int) -> None:
        loop = asyncio.get_running_loop()
        enough = asyncio.Event()

        async def connect_by_image(leader_id: BrokerId) -> Any:
            self.attempts += 1
            if self.attempts == attempts:
                enough.set()
            return self.connect()

        group = TaskGroup(loop, self.lost.append)
        broker: Any = SimpleNamespace(loop=loop)
        fetcher = ReplicaFetcher(
            broker, cast(Any, SimpleNamespace(connect_by_image=connect_by_image)), ONE
        )
        fetcher.add(self.pair.followed[0])
        group.keep(fetcher.run, "fetch from broker 1", is_vital=True)
        async with asyncio.timeout(30):
            await enough.wait()
        while group._tasks and self.lost:
            await asyncio.sleep(0)
        await group.cancel()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0001)
    monkeypatch.setattr(tasks, "LAST_PAUSE_SECONDS", 0.0005)
    monkeypatch.setattr(replica_fetcher, "BACK_OFF_MS", 0.1)


@pytest.mark.usefixtures("quick")
def test_a_fetcher_that_fails_for_ever_is_lost(tmp_path: Path) -> None:
    kept = Kept(fail(RuntimeError("a fault of ours")), tmp_path)
    asyncio.run(kept.run(MAX_FAILURES))
    (lost,) = kept.lost
    assert "task fetch from broker 1 failed 9 times in a row" in lost
    assert kept.attempts == MAX_FAILURES


@pytest.mark.usefixtures("quick")
def test_a_leader_that_is_away_for_ever_is_no_failure(tmp_path: Path) -> None:
    kept = Kept(fail(PeerError("broker 1 is not there")), tmp_path)
    asyncio.run(kept.run(5 * MAX_FAILURES))
    assert kept.lost == []
