"""The metadata store in ZooKeeper: kazoo behind the port of ``store.py``.

kazoo's one thread holds the connection; whatever it hears is posted to the loop, in the order in
which it came (``kazoo_thread``). Beyond what the port promises:

* Lost with the connection is what had no answer: writes are ``Unknown``, reads ``Failed``. While
  the session is not CONNECTED nothing is asked.
* After a reconnect, and before anybody reads, the server catches up with the ensemble (``sync``);
  then every watch fires once, as the servers have forgotten them.
* A submission that is too large for the server is ``TOO_LARGE`` here: it would break the connection.
* ``read_subtree`` takes many requests: it may see a write half, and end after later calls.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.states import EventType, KazooState, WatchedEvent

from broker.metadata.kazoo_thread import Answer, close_session, new_client
from broker.metadata.store import (
    Create,
    Delete,
    Done,
    Failed,
    Node,
    Operation,
    OperationResult,
    Outcome,
    Post,
    RefusalReason,
    Refused,
    SessionState,
    SetData,
    Unknown,
    Watcher,
)
from broker.metadata.zookeeper_address import ZooKeeperAddress
from broker.metadata.zookeeper_reads import Found, MultiRead, SubtreeWalk, failure
from broker.metadata.zookeeper_session import SessionFile

logger: Final = logging.getLogger(__name__)

#: ZooKeeper's default ``jute.maxbuffer``, less what stands around the operations.
MAX_REQUEST_BYTES: Final = 1_048_575 - 1024
#: What an operation takes besides its path and data: type, lengths, access list, version.
OPERATION_BYTES: Final = 64
MAX_OPERATIONS: Final = MAX_REQUEST_BYTES // OPERATION_BYTES
#: Requests that kazoo holds at a time. Each leaves a byte in a socket pair that blocks when full,
#: at 278 of them.
MAX_UNDER_WAY: Final = 128
#: Requests that wait for their turn; more are refused.
MAX_WAITING: Final = 20_000

REASONS: Final = {
    NodeExistsError: RefusalReason.NODE_EXISTS,
    NoNodeError: RefusalReason.NO_NODE,
    BadVersionError: RefusalReason.BAD_VERSION,
    NotEmptyError: RefusalReason.NOT_EMPTY,
    NoChildrenForEphemeralsError: RefusalReason.NO_CHILDREN_FOR_EPHEMERALS,
    NoAuthError: RefusalReason.NOT_ALLOWED,
}
#: The connection is gone, or the session with it: nobody knows what became of the request.
LOST: Final = (ConnectionLoss, ConnectionClosedError, SessionExpiredError)


class CannotConnectError(Exception):
    """No server of the ensemble took us in time."""


class Asked:
    """A call of the port without an answer. ``lost``: what it is told with the connection gone."""

    __slots__ = ("answer", "done", "is_answered", "lost")

    def __init__(self, done: Callable[[Any], None], lost: object) -> None:
        self.done = done
        self.lost = lost
        self.is_answered = False
        self.answer: object = None


class ZooKeeperStore:
    """See the module's docstring. ``post`` is called from kazoo's thread, too; everything else
    happens on the loop's."""

    max_operations = MAX_OPERATIONS

    def __init__(self, address: ZooKeeperAddress, session_file: SessionFile, post: Post) -> None:
        self._address = address
        self._session_file = session_file
        self._post = post
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        #: What lies in the file is ours to remove.
        self._had_session = False
        self._listeners: list[Callable[[SessionState], None]] = []
        #: Calls in their order: so are they answered.
        self._asked: deque[Asked] = deque()
        #: Requests that wait until fewer are under way.
        self._to_send: deque[Callable[[], None]] = deque()
        self._under_way = 0
        #: Counts connections: an answer to an earlier one's request comes too late.
        self._connection = 0
        #: Armed watches by number. kazoo holds the number only.
        self._watchers: dict[int, Watcher] = {}
        self._next_watch = 1
        self._is_root_made = not address.chroot
        self._client: KazooClient = new_client(address, post, self._on_kazoo_state)

    # Life --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Blocks, so not for the loop: connect, after what an earlier process left is closed.

        Raises ``CannotConnectError``.
        """
        earlier = self._session_file.read()
        is_connected = earlier is None or close_session(self._address, earlier)
        if is_connected:
            seconds = self._address.connection_timeout_ms / 1000
            is_connected = self._client.start_async().wait(seconds)
        if not is_connected:
            self.close()
            raise CannotConnectError(f"no ZooKeeper server answers at {self._address.hosts}")

    def close(self) -> None:
        """Blocks: the session ends, and its ephemeral nodes go."""
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # noqa: BLE001 - kazoo's thread hangs in a connect: it is a daemon
            logger.warning("the session with ZooKeeper was not closed: %s", error)
        else:
            if self._had_session:
                self._session_file.remove()

    @property
    def is_idle(self) -> bool:
        return not self._asked

    # Port --------------------------------------------------------------------------------------

    @property
    def session_state(self) -> SessionState:
        return self._state

    @property
    def connection(self) -> int:
        """Another number after each loss of a connection: what was read before may have failed by that alone."""
        return self._connection

    @property
    def session_id(self) -> int:
        return self._session_id

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def submit(self, operations: Iterable[Operation], done: Callable[[Outcome], None]) -> None:
        made = list(operations)
        lost = Unknown("the connection to ZooKeeper was lost")
        asked = self._ask(done, lost, Refused(RefusalReason.UNAVAILABLE, -1, ""))
        if asked is None:
            return
        too_large = _too_large(made)
        if too_large is not None:
            self._post(lambda: self._settle(asked, too_large))
            return

        def received(answer: object) -> None:
            outcome = self._outcome(made, answer)
            self._settle(asked, outcome)

        self._send(asked, lambda: self._commit(made), received)

    def get(
        self,
        path: str,
        done: Callable[[Node | Failed | None], None],
        on_change: Watcher | None = None,
    ) -> None:
        def read(watch: Callable[[WatchedEvent], None] | None) -> Answer:
            answer: Answer = self._client.get_async(self._full(path), watch)
            return answer

        def found(answer: Any) -> Node:
            return _node(*answer)

        self._read(path, read, found, done, on_change)

    def children(
        self,
        path: str,
        done: Callable[[list[str] | Failed | None], None],
        on_change: Watcher | None = None,
    ) -> None:
        def read(watch: Callable[[WatchedEvent], None] | None) -> Answer:
            answer: Answer = self._client.get_children_async(self._full(path), watch)
            return answer

        self._read(path, read, sorted, done, on_change)

    def read_subtree(
        self, path: str, done: Callable[[list[tuple[str, Node]] | Failed], None]
    ) -> None:
        def read(found: list[Found] | Failed) -> None:
            if isinstance(found, Failed):
                done(found)
            else:
                root = self._address.chroot
                done([(full.removeprefix(root) or "/", _node(*node)) for full, *node in found])

        SubtreeWalk(self._read_many, read).start(self._full(path))

    def _read_many(self, request: MultiRead, done: Callable[[list[Any] | Failed], None]) -> None:
        failed = Failed("not connected to ZooKeeper")
        asked = self._ask(done, failed, failed)
        if asked is None:
            return

        def send() -> Answer:
            answer = Answer(self._post)
            self._client._call(request, answer)  # kazoo has no public call for it
            return answer

        def received(answers: object) -> None:
            self._settle(asked, failure(answers) if isinstance(answers, Exception) else answers)

        self._send(asked, send, received)

    # Requests ----------------------------------------------------------------------------------

    def _read(
        self,
        path: str,
        read: Callable[[Callable[[WatchedEvent], None] | None], Answer],
        found: Callable[[Any], Any],
        done: Callable[[Any], None],
        on_change: Watcher | None,
    ) -> None:
        """A node that is not there leaves no watch with its read: then it is looked for once more,
        by the one request that does."""
        failed = Failed("not connected to ZooKeeper")
        asked = self._ask(done, failed, failed)
        if asked is None:
            return
        number, watch = self._new_watch() if on_change is not None else (0, None)

        def arm() -> None:
            if on_change is not None:
                self._watchers[number] = on_change

        def received(answer: object) -> None:
            if isinstance(answer, NoNodeError) and watch is not None:
                self._send(
                    asked, lambda: self._client.exists_async(self._full(path), watch), looked
                )
            elif isinstance(answer, Exception):
                self._settle(asked, _read_failure(answer))
            else:
                arm()
                self._settle(asked, found(answer))

        def looked(answer: object) -> None:
            if isinstance(answer, Exception):
                self._settle(asked, _read_failure(answer))
            elif answer is None:
                arm()
                self._settle(asked, None)
            else:
                self._send(asked, lambda: read(watch), received)

        self._send(asked, lambda: read(watch), received)

    def _ask(self, done: Callable[[Any], None], lost: object, unavailable: object) -> Asked | None:
        """None: it is answered already, as nothing can be asked now."""
        if self._state is not SessionState.CONNECTED or len(self._to_send) >= MAX_WAITING:
            if not self._asked:
                self._post(lambda: done(unavailable))
                return None
            asked = Asked(done, unavailable)
            self._asked.append(asked)
            self._post(lambda: self._settle(asked, unavailable))
            return None
        asked = Asked(done, lost)
        self._asked.append(asked)
        return asked

    def _send(
        self, asked: Asked, send: Callable[[], Answer], received: Callable[[Any], None]
    ) -> None:
        """``received`` with the answer or an exception, unless the connection is lost before."""
        connection = self._connection

        def answered(answer: object) -> None:
            if connection != self._connection or asked.is_answered:
                return
            self._under_way -= 1
            if isinstance(answer, LOST):
                self._suspend()
                return
            received(answer)
            self._send_more()

        def go() -> None:
            self._under_way += 1
            send().received = answered

        self._to_send.append(go)
        self._send_more()

    def _send_more(self) -> None:
        while self._to_send and self._under_way < MAX_UNDER_WAY:
            self._to_send.popleft()()

    def _settle(self, asked: Asked, answer: object) -> None:
        asked.is_answered = True
        asked.answer = answer
        while self._asked and self._asked[0].is_answered:
            first = self._asked.popleft()
            first.done(first.answer)

    def _commit(self, operations: list[Operation]) -> Answer:
        transaction = self._client.transaction()
        for operation in operations:
            path = self._full(operation.path)
            if isinstance(operation, Create):
                transaction.create(
                    path,
                    operation.data,
                    ephemeral=operation.is_ephemeral,
                    sequence=operation.is_sequential,
                )
            elif isinstance(operation, SetData):
                transaction.set_data(path, operation.data, operation.version)
            elif isinstance(operation, Delete):
                transaction.delete(path, operation.version)
            else:
                transaction.check(path, operation.version)
        answer: Answer = transaction.commit_async()
        return answer

    def _outcome(self, operations: list[Operation], answer: Any) -> Outcome:
        if isinstance(answer, Exception):
            reason = REASONS.get(type(answer))
            if reason is None:
                return Unknown(f"ZooKeeper said: {answer!r}")
            return Refused(reason, -1, "")
        for position, result in enumerate(answer):
            if isinstance(result, Exception) and not isinstance(
                result, RolledBackError | RuntimeInconsistency
            ):
                reason = REASONS.get(type(result), RefusalReason.UNAVAILABLE)
                return Refused(reason, position, operations[position].path)
        return Done(
            tuple(
                self._result(operation, result)
                for operation, result in zip(operations, answer, strict=True)
            )
        )

    def _result(self, operation: Operation, result: Any) -> OperationResult:
        if isinstance(operation, Create):
            return OperationResult(result.removeprefix(self._address.chroot), 0)
        if isinstance(operation, SetData):
            return OperationResult(operation.path, result.version)
        return OperationResult(operation.path, operation.version)

    def _full(self, path: str) -> str:
        return (self._address.chroot + path).rstrip("/") or "/"

    # Watches -----------------------------------------------------------------------------------

    def _new_watch(self) -> tuple[int, Callable[[WatchedEvent], None]]:
        number = self._next_watch
        self._next_watch += 1
        return number, partial(self._fired, number)

    def _fired(self, number: int, event: WatchedEvent) -> None:
        if event.type == EventType.NONE:
            return  # the connection is lost: it fires when there is one again
        watcher = self._watchers.pop(number, None)
        if watcher is not None:
            watcher()

    def _rearm(self) -> None:
        forgotten, self._watchers = self._watchers, {}
        for watcher in forgotten.values():
            watcher()

    # Session -----------------------------------------------------------------------------------

    def _on_kazoo_state(self, state: str, client_id: tuple[int, bytes] | None) -> None:
        """From kazoo's thread. The file is written before anybody can make an ephemeral node."""
        if state == KazooState.CONNECTED and client_id is not None:
            self._had_session = True
            self._session_file.write(*client_id)
            self._post(lambda: self._connected(client_id[0]))
        elif state == KazooState.SUSPENDED:
            self._post(self._suspend)
        else:
            self._post(self._expired)

    def _connected(self, session_id: int) -> None:
        # A short loss of the connection may come to us as this alone.
        self._suspend()
        self._session_id = session_id
        if not self._is_root_made:
            self._make_root()
        # What comes after it on this connection is read from a server that has caught up.
        self._client.sync_async(self._full("/"))
        self._set_state(SessionState.CONNECTED)
        self._rearm()

    def _make_root(self) -> None:
        """Each part of the chroot; it usually exists."""
        parts = self._address.chroot.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            transaction = self._client.transaction()
            transaction.create(f"/{'/'.join(parts[:count])}")
            transaction.commit_async()
        self._is_root_made = True

    def _suspend(self) -> None:
        if self._state is not SessionState.CONNECTED:
            return
        self._connection += 1
        self._under_way = 0
        self._to_send.clear()
        self._set_state(SessionState.SUSPENDED)
        for asked in tuple(self._asked):
            if not asked.is_answered:
                self._settle(asked, asked.lost)

    def _expired(self) -> None:
        self._suspend()
        self._session_id = 0
        self._set_state(SessionState.EXPIRED)

    def _set_state(self, state: SessionState) -> None:
        self._state = state
        for listener in self._listeners:
            listener(state)


def _too_large(operations: list[Operation]) -> Refused | None:
    total = 0
    for position, operation in enumerate(operations):
        size = OPERATION_BYTES + len(operation.path)
        if isinstance(operation, Create | SetData):
            size += len(operation.data)
        if size > MAX_REQUEST_BYTES:
            return Refused(RefusalReason.TOO_LARGE, position, operation.path)
        total += size
    return Refused(RefusalReason.TOO_LARGE, -1, "") if total > MAX_REQUEST_BYTES else None


def _node(data: bytes, stat: Any) -> Node:
    # ZooKeeper tells how many children came and went; the next number is how many came.
    next_sequence = (stat.cversion + stat.numChildren) // 2
    return Node(data, stat.version, stat.czxid, stat.ephemeralOwner, next_sequence)


def _read_failure(error: Exception) -> Failed | None:
    return None if isinstance(error, NoNodeError) else Failed(f"ZooKeeper said: {error!r}")
