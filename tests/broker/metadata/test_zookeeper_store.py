"""The store in a real ZooKeeper keeps the contracts, as its simulation does."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.metadata import zookeeper_store
from broker.metadata.kazoo_thread import close_session
from broker.metadata.store import (
    Create,
    Done,
    Failed,
    MetadataStore,
    Node,
    RefusalReason,
    Refused,
    SessionState,
    SetData,
)
from broker.metadata.zookeeper_address import ZooKeeperAddress
from broker.metadata.zookeeper_session import SessionFile
from broker.metadata.zookeeper_store import (
    MAX_REQUEST_BYTES,
    MAX_UNDER_WAY,
    OPERATION_BYTES,
    CannotConnectError,
    ZooKeeperStore,
)
from tests.broker.metadata.session_contract import SessionContract
from tests.broker.metadata.store_contract import StoreContract
from tests.support import judge, processes
from tests.support.cut_proxy import CutProxy
from tests.support.thread_turns import ThreadTurns
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


class ZooKeeperWorld:
    """Each world has a chroot of its own in one server."""

    count = 0

    def __init__(self, zookeeper: ZooKeeper, directory: Path) -> None:
        ZooKeeperWorld.count += 1
        self.address = ZooKeeperAddress(zookeeper.address, f"/world/{ZooKeeperWorld.count}")
        self.directory = directory
        self.turns = ThreadTurns(lambda: self.store.is_idle)
        self.store = self._new_store()

    def _new_store(self) -> ZooKeeperStore:
        store = ZooKeeperStore(
            self.address, SessionFile(self.directory / "session"), self.turns.post
        )
        store.open()
        self.turns.wait(lambda: store.session_id != 0, "a session")
        return store

    def restart(self) -> None:
        self.turns.run()
        self.store.close()
        self.store = self._new_store()

    def close(self) -> None:
        self.store.close()


class TestContract(StoreContract):
    @pytest.fixture
    def world(self, zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[ZooKeeperWorld]:
        world = ZooKeeperWorld(zookeeper, tmp_path)
        yield world
        world.close()


class WiredWorld:
    """Stores that reach the server through a wire of their own each."""

    def __init__(self, zookeeper: ZooKeeper, directory: Path) -> None:
        ZooKeeperWorld.count += 1
        self._zookeeper = zookeeper
        self._directory = directory
        self._chroot = f"/world/{ZooKeeperWorld.count}"
        self._stack = contextlib.ExitStack()
        self._turns = ThreadTurns()
        self._sessions: dict[MetadataStore, SessionFile] = {}
        self._wire = self._stack.enter_context(CutProxy(zookeeper.port))
        self.store: MetadataStore = self._open(self._wire)

    def _open(self, wire: CutProxy) -> ZooKeeperStore:
        session_file = SessionFile(self._directory / f"session-{len(self._sessions)}")
        address = ZooKeeperAddress(wire.address, self._chroot, session_timeout_ms=30_000)
        store = ZooKeeperStore(address, session_file, self._turns.post)
        self._stack.callback(store.close)
        store.open()
        self._sessions[store] = session_file
        self.wait(lambda: store.session_id != 0, "a session")
        return store

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        self._turns.wait(condition, what)

    def other(self) -> MetadataStore:
        return self._open(self._stack.enter_context(CutProxy(self._zookeeper.port)))

    def cut(self) -> None:
        self._wire.cut()

    def lose_answers(self) -> None:
        self._wire.lose_answers()

    def heal(self) -> None:
        self._wire.heal()

    def end_session(self, store: MetadataStore) -> None:
        session = self._sessions[store].read()
        assert session is not None
        assert close_session(ZooKeeperAddress(self._zookeeper.address), session)

    def close(self) -> None:
        self._wire.heal()
        self._stack.close()


class TestSessions(SessionContract):
    @pytest.fixture
    def world(self, zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[WiredWorld]:
        world = WiredWorld(zookeeper, tmp_path)
        yield world
        world.close()


# What only the real one does


def opened(
    stack: contextlib.ExitStack, address: ZooKeeperAddress, session_file: Path
) -> tuple[ZooKeeperStore, ThreadTurns]:
    turns = ThreadTurns()
    store = ZooKeeperStore(address, SessionFile(session_file), turns.post)
    turns.is_idle = lambda: store.is_idle
    stack.callback(store.close)
    store.open()
    turns.wait(lambda: store.session_id != 0, "a session")
    return store, turns


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def asked(turns: ThreadTurns, method: Callable[..., None], *arguments: Any) -> Any:
    answers: list[Any] = []
    method(*arguments, answers.append)
    turns.wait(lambda: bool(answers), "an answer")
    return answers[0]


def test_a_killed_server_costs_a_pause_and_no_session(
    stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    server = stack.enter_context(ZooKeeper(tmp_path / "server"))
    address = ZooKeeperAddress(server.address, session_timeout_ms=60_000)
    store, turns = opened(stack, address, tmp_path / "session")
    states: list[SessionState] = []
    store.on_session(states.append)
    fired: list[str] = []
    asked(turns, store.submit, [Create("/e", b"1", is_ephemeral=True), Create("/a")])
    store.get("/a", lambda _: None, lambda: fired.append("watch"))
    turns.run()
    session_id = store.session_id

    server.kill9()
    turns.wait(lambda: states == [SessionState.SUSPENDED], "the loss")
    assert asked(turns, store.submit, [Create("/b")]) == Refused(RefusalReason.UNAVAILABLE, -1, "")
    server.start()
    turns.wait(lambda: states[-1] is SessionState.CONNECTED, "the server's return")

    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert store.session_id == session_id
    turns.wait(lambda: fired == ["watch"], "the watch")
    assert asked(turns, store.get, "/e").owner == session_id
    assert isinstance(asked(turns, store.submit, [Create("/b")]), Done)


def test_a_server_that_takes_a_connection_and_forgets_it_costs_no_session(
    zookeeper: ZooKeeper, stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    wire = stack.enter_context(CutProxy(zookeeper.port))
    address = ZooKeeperAddress(wire.address, session_timeout_ms=9_000)
    store, turns = opened(stack, address, tmp_path / "session")
    states: list[SessionState] = []
    store.on_session(states.append)
    asked(turns, store.submit, [Create("/forgotten", b"1", is_ephemeral=True)])
    session_id = store.session_id
    wire.cut()
    turns.wait(lambda: states == [SessionState.SUSPENDED], "the loss")
    wire.forget()
    processes.wait_until(lambda: wire.lost_count > 0, 60, "a connection that is not answered")
    wire.heal()
    turns.wait(lambda: states[-1] is SessionState.CONNECTED, "the next attempt")
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert store.session_id == session_id
    assert asked(turns, store.get, "/forgotten").owner == session_id


def test_the_next_process_ends_the_session_of_one_that_was_killed(
    zookeeper: ZooKeeper, stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    session_file = tmp_path / "session"
    killed = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.broker.metadata.zookeeper_client"),
            *(zookeeper.address, str(session_file), "/killed"),
        ],
        stdout=subprocess.PIPE,
    )
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline().startswith(b"Done")
        killed.kill()
    address = ZooKeeperAddress(zookeeper.address, session_timeout_ms=60_000)
    watcher, watching = opened(stack, address, tmp_path / "watcher")
    assert asked(watching, watcher.get, "/killed") is not None
    opened(stack, address, session_file)
    assert asked(watching, watcher.get, "/killed") is None


def test_the_saved_session_is_for_its_owner_and_goes_with_a_clean_stop(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    session_file = tmp_path / "session"
    with contextlib.ExitStack() as stack:
        opened(stack, ZooKeeperAddress(zookeeper.address), session_file)
        assert session_file.stat().st_mode & 0o777 == 0o600
        kept = session_file.read_bytes()
    assert not session_file.exists()
    # One that has ended, or a file that is damaged, is no obstacle.
    for data in (kept, b"\0\0\0"):
        session_file.write_bytes(data)
        with contextlib.ExitStack() as stack:
            opened(stack, ZooKeeperAddress(zookeeper.address), session_file)


def test_nodes_made_with_a_digest_are_for_whoever_has_it(
    zookeeper: ZooKeeper, stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    address = ZooKeeperAddress(zookeeper.address, "/guarded", digest="odradek:secret")
    ours, turns = opened(stack, address, tmp_path / "ours")
    assert isinstance(asked(turns, ours.submit, [Create("/a", b"1")]), Done)
    stranger, strange_turns = opened(
        stack, address._replace(digest="odradek:wrong"), tmp_path / "strange"
    )
    assert isinstance(asked(strange_turns, stranger.get, "/a"), Failed)
    refused = asked(strange_turns, stranger.submit, [SetData("/a", b"2")])
    assert refused == Refused(RefusalReason.NOT_ALLOWED, 0, "/a")
    friend, friends_turns = opened(stack, address, tmp_path / "friend")
    assert asked(friends_turns, friend.get, "/a").data == b"1"


def test_many_calls_wait_for_their_turn_and_are_answered_in_order(
    zookeeper: ZooKeeper, stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    store, turns = opened(stack, ZooKeeperAddress(zookeeper.address, "/many"), tmp_path / "session")
    # More than a socket pair holds bytes, several times.
    names = [f"n{number:04}" for number in range(2000)]
    answered: list[str] = []
    for name in names:
        store.submit(
            [Create(f"/{name}", name.encode())], lambda _, name=name: answered.append(name)
        )
    turns.run()
    assert answered == names
    found = asked(turns, store.read_subtree, "/")
    assert [node.data.decode() for _, node in found[1:]] == names


def test_more_calls_than_may_wait_are_refused(
    zookeeper: ZooKeeper, stack: contextlib.ExitStack, tmp_path: Path, monkeypatch: Any
) -> None:
    store, turns = opened(stack, ZooKeeperAddress(zookeeper.address), tmp_path / "session")
    monkeypatch.setattr(zookeeper_store, "MAX_WAITING", 10)
    answers: list[Any] = []
    for _ in range(MAX_UNDER_WAY + 11):
        store.get("/", answers.append)
    turns.run()
    assert [type(answer) for answer in answers] == [Node] * (MAX_UNDER_WAY + 10) + [Failed]


def test_a_submission_that_would_break_the_connection_is_refused(
    zookeeper: ZooKeeper, stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    store, turns = opened(
        stack, ZooKeeperAddress(zookeeper.address, "/large"), tmp_path / "session"
    )
    half = bytes(MAX_REQUEST_BYTES // 2 - 2 * OPERATION_BYTES)
    assert isinstance(asked(turns, store.submit, [Create("/a", half), Create("/b", half)]), Done)
    three = [SetData("/a", half), SetData("/b", half), SetData("/a", half)]
    assert asked(turns, store.submit, three) == Refused(RefusalReason.TOO_LARGE, -1, "")
    assert store.session_state is SessionState.CONNECTED


def test_without_a_server_the_start_says_so(tmp_path: Path) -> None:
    address = ZooKeeperAddress(f"127.0.0.1:{judge.free_port()}", connection_timeout_ms=300)
    turns = ThreadTurns()
    store = ZooKeeperStore(address, SessionFile(tmp_path / "session"), turns.post)
    with pytest.raises(CannotConnectError, match=r"no ZooKeeper server answers at 127\.0\.0\.1"):
        store.open()
