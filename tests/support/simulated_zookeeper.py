"""A ZooKeeper in memory: one server, and a client of it that is a ``MetadataStore``.

As the real one: sessions whose ephemeral nodes go when they expire, one-shot watches that the
server forgets with the connection, answers in the order of the requests, requests and answers that
are lost with a connection, and a write that happens although its client was told nothing.
Time comes from a ``Schedule``; delays and chances from its ``rng``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from broker.metadata import znodes
from broker.metadata.store import (
    Create,
    Done,
    Failed,
    Node,
    Operation,
    Outcome,
    RefusalReason,
    Refused,
    SessionState,
    Unknown,
    Watcher,
)
from broker.metadata.tree import Effect, Tree, parent_of

MAX_OPERATIONS = 100_000


class Schedule(Protocol):
    rng: random.Random

    @property
    def now_ms(self) -> int: ...

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None: ...


class WatchKey(NamedTuple):
    is_children: bool
    path: str


class ZooKeeperServer:
    """The tree, the sessions, and who watches what."""

    def __init__(self, schedule: Schedule, session_timeout_ms: int = 1500) -> None:
        self.schedule = schedule
        self.session_timeout_ms = session_timeout_ms
        self.tree = Tree()
        self.is_up = True
        #: Clients whose requests, or answers, are lost on the way.
        self.lost_requests: set[int] = set()
        self.lost_answers: set[int] = set()
        #: Told of every change: path, node before, node after.
        self.on_change: Callable[[Effect], None] = lambda effect: None
        self._next_session = 1
        self._next_submission = 1
        self._alive: dict[int, SimulatedStore] = {}
        self._watches: dict[WatchKey, set[int]] = {}

    def open_session(self, client: SimulatedStore) -> int:
        session_id = self._next_session
        self._next_session += 1
        self._alive[session_id] = client
        return session_id

    def is_alive(self, session_id: int) -> bool:
        return session_id in self._alive

    def expire(self, session_id: int) -> None:
        """Its ephemeral nodes go; its client learns of it when it is connected the next time."""
        client = self._alive.pop(session_id, None)
        if client is None:
            return
        self.forget_watches(session_id)
        owned = [p for p, node in self.tree.nodes.items() if node.owner == session_id]
        for path in owned:
            before = self.tree.nodes[path]
            self.tree.put(path, None)
            self._changed([Effect(path, before, None)])
        client.connection_lost()

    def forget_watches(self, session_id: int) -> None:
        for watching in self._watches.values():
            watching.discard(session_id)

    def watch(self, session_id: int, key: WatchKey) -> None:
        self._watches.setdefault(key, set()).add(session_id)

    def submit(self, session_id: int, operations: list[Operation]) -> Outcome:
        applied = self.tree.apply(operations, self._next_submission, session_id)
        if isinstance(applied, Refused):
            return applied
        if applied.effects:
            self._next_submission += 1
        self._changed(applied.effects)
        return Done(applied.results)

    def _changed(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self.on_change(effect)
            self._fire(WatchKey(False, effect.path))
            if (effect.before is None) != (effect.after is None):
                self._fire(WatchKey(True, effect.path))
                self._fire(WatchKey(True, parent_of(effect.path)))

    def _fire(self, key: WatchKey) -> None:
        for session_id in sorted(self._watches.pop(key, ())):
            client = self._alive.get(session_id)
            if client is not None:
                client.deliver(lambda client=client: client.watch_fired(key))


def found_cluster(server: ZooKeeperServer, cluster_id: str) -> None:
    """As the first broker's start leaves it (`broker.server.cluster.joining`)."""
    nodes = [
        Create(znodes.CLUSTER),
        Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id)),
    ]
    assert isinstance(server.submit(0, nodes), Done)


class SimulatedStore:
    """One process's client; implements ``MetadataStore``."""

    max_operations = MAX_OPERATIONS

    def __init__(self, server: ZooKeeperServer, schedule: Schedule, name: int = 0) -> None:
        self._server = server
        #: Of the process: what it schedules ends, or waits, with the process.
        self._schedule = schedule
        self._rng = schedule.rng
        self._name = name
        self._state = SessionState.CONNECTED
        self._session_id = 0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._watchers: dict[WatchKey, list[Watcher]] = {}
        self._connection = 1
        #: Requests without an answer: number to what the caller is told when it never comes.
        self._waiting: dict[int, Callable[[], None]] = {}
        self._next_request = 1
        self._last_arrival = 0
        if self._is_reachable:
            self._session_id = server.open_session(self)
        else:
            self._state = SessionState.SUSPENDED
            self._reconnect_later()

    @property
    def is_cut_out(self) -> bool:
        return self._name in self._server.lost_requests

    @property
    def is_cut_in(self) -> bool:
        return self._name in self._server.lost_answers

    @property
    def _is_reachable(self) -> bool:
        return self._server.is_up and not self.is_cut_out and not self.is_cut_in

    # Port --------------------------------------------------------------------------------------

    @property
    def session_state(self) -> SessionState:
        return self._state

    @property
    def session_id(self) -> int:
        return self._session_id

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def submit(self, operations: Iterable[Operation], done: Callable[[Outcome], None]) -> None:
        made = list(operations)
        self._ask(
            lambda: self._server.submit(self._session_id, made),
            done,
            Unknown("the connection was lost"),
            Refused(RefusalReason.UNAVAILABLE, -1, ""),
        )

    def get(
        self,
        path: str,
        done: Callable[[Node | Failed | None], None],
        on_change: Watcher | None = None,
    ) -> None:
        self._read(lambda: self._server.tree.get(path), done, WatchKey(False, path), on_change)

    def children(
        self,
        path: str,
        done: Callable[[list[str] | Failed | None], None],
        on_change: Watcher | None = None,
    ) -> None:
        tree = self._server.tree
        self._read(
            lambda: tree.children(path) if tree.get(path) is not None else None,
            done,
            WatchKey(True, path),
            on_change,
        )

    def read_subtree(
        self, path: str, done: Callable[[list[tuple[str, Node]] | Failed], None]
    ) -> None:
        self._read(lambda: self._server.tree.subtree(path), done, None, None)

    # Requests ----------------------------------------------------------------------------------

    def _read(
        self,
        look: Callable[[], Any],
        done: Callable[[Any], None],
        key: WatchKey | None,
        on_change: Watcher | None,
    ) -> None:
        def look_and_watch() -> Any:
            if key is not None and on_change is not None:
                self._server.watch(self._session_id, key)
            return look()

        def received(found: Any) -> None:
            # With the answer, not before: an event of an older watch may still be on its way.
            if key is not None and on_change is not None and not isinstance(found, Failed):
                self._watchers.setdefault(key, []).append(on_change)
            done(found)

        failed = Failed("not connected")
        self._ask(look_and_watch, received, failed, failed)

    def _ask(
        self, work: Callable[[], Any], done: Callable[[Any], None], lost: object, refused: object
    ) -> None:
        if self._state is not SessionState.CONNECTED:
            self._schedule.call_later(0, lambda: done(refused))
            return
        number, connection, session = self._next_request, self._connection, self._session_id
        self._next_request += 1
        self._waiting[number] = lambda: done(lost)

        def arrive() -> None:
            is_old = connection != self._connection or session != self._session_id
            if self.is_cut_out or not self._server.is_up or not self._server.is_alive(session):
                return
            if is_old and (self._state is SessionState.CONNECTED or self._rng.random() < 0.5):
                return  # a broken connection's bytes may still reach the server, or not
            outcome = work()
            self.deliver(lambda: answer(outcome))

        def answer(outcome: object) -> None:
            if connection == self._connection and self._waiting.pop(number, None) is not None:
                done(outcome)

        self._server.schedule.call_later(self._in_order(), arrive)

    def _in_order(self) -> int:
        """Delay of a request: none overtakes another."""
        now_ms = self._schedule.now_ms
        self._last_arrival = max(self._last_arrival, now_ms + self._rng.randrange(1, 4))
        return self._last_arrival - now_ms

    def deliver(self, call: Callable[[], None]) -> None:
        """From the server, in order; lost with the connection."""
        connection = self._connection

        def arrive() -> None:
            if connection == self._connection and not self.is_cut_in:
                call()

        self._schedule.call_later(2, arrive)

    def watch_fired(self, key: WatchKey) -> None:
        for watcher in self._watchers.pop(key, ()):
            watcher()

    # Connection --------------------------------------------------------------------------------

    def connection_lost(self) -> None:
        """The client notices it: in a turn of its own process."""
        connection = self._connection
        self._schedule.call_later(0, lambda: self._suspend(connection))

    def _suspend(self, connection: int) -> None:
        if connection != self._connection or self._state is not SessionState.CONNECTED:
            return
        self._connection += 1
        self._server.forget_watches(self._session_id)
        self._set_state(SessionState.SUSPENDED)
        waiting, self._waiting = self._waiting, {}
        for lost in waiting.values():
            lost()
        self._reconnect_later()

    def _reconnect_later(self) -> None:
        self._schedule.call_later(self._rng.randrange(5, 150), self._reconnect)

    def _reconnect(self) -> None:
        if self._state is SessionState.CONNECTED:
            return
        if not self._is_reachable:
            self._reconnect_later()
            return
        if not self._server.is_alive(self._session_id):
            self._set_state(SessionState.EXPIRED)
            self._session_id = self._server.open_session(self)
        self._connection += 1
        self._set_state(SessionState.CONNECTED)
        self.rearm()

    def rearm(self) -> None:
        """The server has forgotten all watches: each fires once, for nothing maybe."""
        forgotten, self._watchers = self._watchers, {}
        for watchers in forgotten.values():
            for watcher in watchers:
                watcher()

    def _set_state(self, state: SessionState) -> None:
        self._state = state
        for listener in self._listeners:
            listener(state)
