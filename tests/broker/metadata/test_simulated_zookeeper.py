"""The simulated ZooKeeper keeps the store's contract, and loses what a real one loses."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.metadata.store import (
    Create,
    Failed,
    MetadataStore,
    RefusalReason,
    Refused,
    SessionState,
    Unknown,
)
from tests.broker.metadata.session_contract import SessionContract
from tests.broker.metadata.store_contract import StoreContract, get, submit
from tests.simulation.world import World
from tests.support.simulated_zookeeper import SimulatedStore, ZooKeeperServer
from tests.support.turns import Turns


class TurnSchedule:
    """Without time: everything happens in the order in which it was asked for."""

    now_ms = 0

    def __init__(self, turns: Turns) -> None:
        self.rng = random.Random(1)
        self._turns = turns

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._turns.post(call)


class ZooKeeperWorld:
    def __init__(self) -> None:
        self.turns = Turns()
        self.schedule = TurnSchedule(self.turns)
        self.server = ZooKeeperServer(self.schedule)
        self.store = SimulatedStore(self.server, self.schedule)

    def restart(self) -> None:
        self.turns.run()
        self.server.expire(self.store.session_id)
        self.store = SimulatedStore(self.server, self.schedule)


@pytest.fixture
def world() -> ZooKeeperWorld:
    return ZooKeeperWorld()


class TestContract(StoreContract):
    @pytest.fixture
    def world(self) -> ZooKeeperWorld:
        return ZooKeeperWorld()


def test_a_write_whose_answer_was_lost_is_unknown_and_may_have_happened(
    world: ZooKeeperWorld,
) -> None:
    world.server.lost_answers.add(0)
    outcomes: list[object] = []
    world.store.submit([Create("/a")], outcomes.append)
    for _ in range(2):
        world.turns.step()
    world.store.connection_lost()
    world.server.lost_answers.discard(0)
    world.turns.run()
    assert isinstance(outcomes[0], Unknown)
    assert world.server.tree.get("/a") is not None


def test_without_a_connection_nothing_is_asked(world: ZooKeeperWorld) -> None:
    states: list[SessionState] = []
    world.store.on_session(states.append)
    world.store.connection_lost()
    world.turns.step()
    answers: list[object] = []
    world.store.submit([Create("/a")], answers.append)
    world.store.get("/a", answers.append)
    world.turns.run()
    assert answers == [Refused(RefusalReason.UNAVAILABLE, -1, ""), Failed("not connected")]
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]


def test_a_watch_fires_after_a_lost_connection_though_the_server_forgot_it(
    world: ZooKeeperWorld,
) -> None:
    fired: list[str] = []
    world.store.get("/a", lambda _: None, lambda: fired.append("changed"))
    world.turns.run()
    world.store.connection_lost()
    world.turns.step()
    other = SimulatedStore(world.server, world.schedule, 1)
    other.submit([Create("/a")], lambda _: None)
    world.turns.run()
    assert fired == ["changed"]


def test_ephemeral_nodes_go_when_the_server_ends_the_session(world: ZooKeeperWorld) -> None:
    states: list[SessionState] = []
    world.store.on_session(states.append)
    submit(world, Create("/e", is_ephemeral=True))
    session_id = world.store.session_id
    world.server.expire(session_id)
    world.turns.run()
    assert states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
    assert world.store.session_id > session_id
    assert get(world, "/e") is None


class TimedWorld:
    """With time, which passes when the test waits; a store's number is its wire's name."""

    def __init__(self) -> None:
        self._world = World(1)
        self._server = ZooKeeperServer(self._world, session_timeout_ms=600_000)
        self._count = 0
        self.store: MetadataStore = self.other()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        end_ms = self._world.now_ms + 60_000
        while not condition():
            assert self._world.now_ms < end_ms, what
            self._world.run_until(self._world.now_ms + 1)

    def other(self) -> SimulatedStore:
        self._count += 1
        return SimulatedStore(self._server, self._world, self._count)

    def cut(self) -> None:
        self._server.lost_requests.add(1)
        self._server.lost_answers.add(1)
        assert isinstance(self.store, SimulatedStore)
        self.store.connection_lost()

    def lose_answers(self) -> None:
        self._server.lost_answers.add(1)

    def heal(self) -> None:
        self._server.lost_requests.clear()
        self._server.lost_answers.clear()

    def end_session(self, store: MetadataStore) -> None:
        self._server.expire(store.session_id)


class TestSessions(SessionContract):
    @pytest.fixture
    def world(self) -> TimedWorld:
        return TimedWorld()
