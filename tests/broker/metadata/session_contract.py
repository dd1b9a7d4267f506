"""What sessions with ZooKeeper do, as tests that run on the real one and on the simulated one: so
the simulator, in which the cluster's machines are tried, is shown to be honest.

``store`` reaches its server through a wire that the test cuts; ``other()`` is another process's,
with a wire and a session of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from broker.clock import Clock
from broker.metadata import znodes
from broker.metadata.election import Election, elect
from broker.metadata.image import BrokerImage, Endpoint
from broker.metadata.registration import Registration
from broker.metadata.store import (
    Check,
    Create,
    Done,
    Failed,
    MetadataStore,
    Operation,
    RefusalReason,
    Refused,
    SessionState,
    SetData,
    Unknown,
)
from broker.model.ids import BrokerId
from tests.support.metadata import CLUSTER_ID, FixedClock

SUSPENDED, EXPIRED, CONNECTED = (
    SessionState.SUSPENDED,
    SessionState.EXPIRED,
    SessionState.CONNECTED,
)


class SessionWorld(Protocol):
    store: MetadataStore

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Let everybody run until it holds."""

    def other(self) -> MetadataStore: ...

    def cut(self) -> None:
        """Of ``store``: the connection breaks, and there is none until ``heal``."""

    def lose_answers(self) -> None:
        """Of ``store``: what it asks arrives, what is answered does not, until ``heal``."""

    def heal(self) -> None: ...

    def end_session(self, store: MetadataStore) -> None:
        """The server ends it, as when nothing was heard of its process for too long."""


class SessionContract:
    @pytest.fixture
    def world(self) -> SessionWorld:
        raise NotImplementedError

    # Connections

    def test_a_session_outlives_its_connection(self, world: SessionWorld) -> None:
        store, states = world.store, states_of(world.store)
        submit(world, store, Create("/e", is_ephemeral=True))
        session_id = store.session_id
        suspend(world)
        world.heal()
        wait_for(world, CONNECTED)
        assert states == [SUSPENDED, CONNECTED]
        assert store.session_id == session_id
        assert get(world, store, "/e").owner == session_id

    def test_without_a_connection_nothing_is_asked(self, world: SessionWorld) -> None:
        suspend(world)
        store = world.store
        assert submit(world, store, Create("/a")) == Refused(RefusalReason.UNAVAILABLE, -1, "")
        assert isinstance(get(world, store, "/a"), Failed)
        assert isinstance(ask(world, store.children, "/"), Failed)
        assert isinstance(ask(world, store.read_subtree, "/"), Failed)
        world.heal()
        wait_for(world, CONNECTED)
        assert get(world, store, "/a") is None

    def test_a_write_whose_answer_was_lost_is_unknown_and_may_have_happened(
        self, world: SessionWorld
    ) -> None:
        store, other = world.store, world.other()
        outcomes: list[Any] = []
        world.lose_answers()
        store.submit([Create("/a", b"1")], outcomes.append)
        world.wait(lambda: get(world, other, "/a") is not None, "the write")
        # On a slow machine the client may have missed its heartbeat by now: it knows no more then.
        assert not any(isinstance(outcome, Done) for outcome in outcomes)
        suspend(world)
        world.wait(lambda: bool(outcomes), "an outcome")
        assert isinstance(outcomes[0], Unknown)
        world.heal()
        wait_for(world, CONNECTED)
        assert get(world, store, "/a").data == b"1"

    def test_what_was_asked_is_lost_in_its_order(self, world: SessionWorld) -> None:
        store = world.store
        told: list[Any] = []
        world.lose_answers()
        for number in range(3):
            store.submit([Create(f"/{number}")], lambda o, n=number: told.append((n, type(o))))
            store.get(f"/{number}", lambda o, n=number: told.append((n, type(o))))
        suspend(world)
        world.wait(lambda: len(told) == 6, "every outcome")
        assert told == [(n, kind) for n in range(3) for kind in (Unknown, Failed)]

    # Watches

    @pytest.mark.parametrize("path", ["/watched", "/missing"])
    def test_a_watch_fires_after_a_reconnect_that_hid_a_change(
        self, world: SessionWorld, path: str
    ) -> None:
        store, other = world.store, world.other()
        submit(world, store, Create("/watched"))
        seen: list[Any] = []

        def look() -> None:
            store.get(path, lambda node: seen.append(node and node.data))

        ask_with_watch(world, store.get, path, look)
        suspend(world)
        change = SetData(path, b"2") if path == "/watched" else Create(path, b"2")
        assert isinstance(submit(world, other, change), Done)
        world.heal()
        world.wait(lambda: b"2" in seen, "a look at the change")

    def test_a_watch_of_children_fires_when_another_session_ends(self, world: SessionWorld) -> None:
        store, other = world.store, world.other()
        submit(world, store, Create("/ids"))
        submit(world, other, Create("/ids/2", is_ephemeral=True))
        fired: list[str] = []
        names = ask_with_watch(world, store.children, "/ids", lambda: fired.append("children"))
        assert names == ["2"]
        world.end_session(other)
        world.wait(lambda: bool(fired), "the watch")
        assert ask(world, store.children, "/ids") == []
        assert fired == ["children"]

    def test_another_ones_watch_fires_before_it_reads_the_change(self, world: SessionWorld) -> None:
        store, other = world.store, world.other()
        submit(world, store, Create("/a"), Create("/b"))
        story: list[str] = []
        ask_with_watch(world, other.get, "/a", lambda: story.append("fired"))
        submit(world, store, SetData("/a", b"1"), SetData("/b", b"1"))
        world.wait(lambda: get(world, other, "/b").data == b"1", "the change")
        assert story == ["fired"]

    # Sessions that end

    @pytest.mark.parametrize("is_cut", [False, True])
    def test_a_session_that_has_ended_is_followed_by_another(
        self, world: SessionWorld, is_cut: bool
    ) -> None:
        store, states = world.store, states_of(world.store)
        submit(world, store, Create("/e", is_ephemeral=True), Create("/kept"))
        fired: list[str] = []
        ask_with_watch(world, store.get, "/e", lambda: fired.append("watch"))
        session_id = store.session_id
        if is_cut:
            suspend(world)
        world.end_session(store)
        world.heal()
        world.wait(lambda: states[-1:] == [CONNECTED], "a new session")
        assert states == [SUSPENDED, EXPIRED, CONNECTED]
        assert store.session_id not in (session_id, 0)
        assert get(world, store, "/e") is None
        assert get(world, store, "/kept") is not None
        world.wait(lambda: fired == ["watch"], "the watch")
        submit(world, store, Create("/e", is_ephemeral=True))
        assert get(world, store, "/e").owner == store.session_id

    # Two processes

    def test_of_two_writes_at_a_version_one_is_done(self, world: SessionWorld) -> None:
        store, other = world.store, world.other()
        submit(world, store, Create("/a"), Create("/b"))
        outcomes: list[Any] = []
        for each in (store, other):
            each.submit([SetData("/b", b""), SetData("/a", b"", 0)], outcomes.append)
        world.wait(lambda: len(outcomes) == 2, "both outcomes")
        assert {type(outcome) for outcome in outcomes} == {Done, Refused}
        assert Refused(RefusalReason.BAD_VERSION, 1, "/a") in outcomes
        assert get(world, store, "/b").version == 1

    def test_one_candidate_wins_and_who_replaces_it_fences_it(self, world: SessionWorld) -> None:
        stores = [world.store, world.other()]
        results: list[list[Election | str]] = [[], []]
        for number, (store, told) in enumerate(zip(stores, results, strict=True)):
            elect(store, BrokerId(number), CLUSTER_ID, clock(), told.append)
        world.wait(lambda: all(results), "both results")
        (winner,) = (n for n in range(2) if isinstance(results[n][0], Election))
        assert results[1 - winner] == ["Another broker is the controller."]
        first, loser = stores[winner], stores[1 - winner]
        won = results[winner][0]
        assert isinstance(won, Election)
        fence = Check(znodes.CONTROLLER_EPOCH, won.epoch_version)
        assert isinstance(submit(world, first, fence, Create("/by_the_first")), Done)

        node = get(world, loser, znodes.CONTROLLER)
        assert node.owner == first.session_id
        taken: list[Election | str] = []
        elect(loser, BrokerId(7), CLUSTER_ID, clock(), taken.append, replaces=node)
        world.wait(lambda: bool(taken), "the take-over")
        assert isinstance(taken[0], Election)
        assert taken[0].controller_epoch == won.controller_epoch + 1
        refused = submit(world, first, fence, Create("/too_late"))
        assert refused == Refused(RefusalReason.BAD_VERSION, 0, znodes.CONTROLLER_EPOCH)

        # Who suspected the first one, and is late, leaves the one after it in office.
        late: list[Election | str] = []
        elect(first, BrokerId(8), CLUSTER_ID, clock(), late.append, replaces=node)
        world.wait(lambda: bool(late), "the second suspicion")
        assert late == ["Another broker is the controller."]
        fence = Check(znodes.CONTROLLER_EPOCH, taken[0].epoch_version)
        assert isinstance(submit(world, loser, fence, Create("/by_the_second")), Done)

    # Registration

    def test_a_broker_registers_again_after_its_session(self, world: SessionWorld) -> None:
        broker = Broker(world, world.store)
        first = broker.registered(1)[0]
        world.end_session(world.store)
        assert broker.registered(2)[1] > first
        assert get(world, world.store, znodes.broker_path(BrokerId(1))).owner == (
            world.store.session_id
        )

    def test_its_own_stale_node_is_replaced_and_a_rivals_is_not(self, world: SessionWorld) -> None:
        killed = Broker(world, world.other())
        before = killed.registered(1)[0]
        killed.registration.stop()
        own = Broker(world, world.store)
        assert own.registered(1)[0] > before
        rival = Broker(world, world.other(), directory_id="another")
        world.wait(lambda: bool(rival.rivals), "the refusal")
        assert rival.epochs == []
        assert rival.rivals[0].broker_epoch == own.epochs[0]


class Broker:
    """Number 1, as it registers by one store."""

    def __init__(
        self, world: SessionWorld, store: MetadataStore, directory_id: str = "mine"
    ) -> None:
        self._world = world
        self.epochs: list[int] = []
        self.rivals: list[BrokerImage] = []
        submit(world, store, Create("/brokers"), Create(znodes.BROKER_IDS))
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")
        self.registration = Registration(
            store,
            BrokerImage(BrokerId(1), -1, (endpoint,)),
            directory_id,
            clock(),
            self.epochs.append,
            lambda rival, since_ms: self.rivals.append(rival),
        )
        store.on_session(self.registration.on_session)
        self.registration.start()

    def registered(self, count: int) -> list[int]:
        self._world.wait(lambda: len(self.epochs) == count, f"registration {count}")
        return self.epochs


def clock() -> Clock:
    return FixedClock()


def states_of(store: MetadataStore) -> list[SessionState]:
    states: list[SessionState] = []
    store.on_session(states.append)
    return states


def wait_for(world: SessionWorld, state: SessionState) -> None:
    world.wait(lambda: world.store.session_state is state, state.value)


def suspend(world: SessionWorld) -> None:
    world.cut()
    wait_for(world, SUSPENDED)


def ask(world: SessionWorld, method: Callable[..., None], *arguments: Any) -> Any:
    answers: list[Any] = []
    method(*arguments, answers.append)
    world.wait(lambda: bool(answers), "an answer")
    return answers[0]


def ask_with_watch(
    world: SessionWorld, method: Callable[..., None], path: str, fired: Callable[[], None]
) -> Any:
    answers: list[Any] = []
    method(path, answers.append, fired)
    world.wait(lambda: bool(answers), "an answer")
    return answers[0]


def submit(world: SessionWorld, store: MetadataStore, *operations: Operation) -> Any:
    return ask(world, store.submit, operations)


def get(world: SessionWorld, store: MetadataStore, path: str) -> Any:
    return ask(world, store.get, path)
