"""Metadata store port: a small tree of versioned nodes, as ZooKeeper has it.

The controller is written against this port; ``local_store`` implements it in the data directory.
Promises of every adapter:

* Operations of one ``submit`` happen together or not at all, and later submissions see them.
  Each operation sees the ones before it in the same submission.
* Callbacks are never called from inside the call that passed them, and in the order of the calls.
* ``Done`` means durable. ``Refused`` means that nothing happened. ``Unknown`` means that it may
  have happened or may still turn up after a restart: whoever gets it reads the tree anew.
* A watch fires at least once after a change of what was read; it may also fire for nothing.
* A node's version is 0 when created and grows by one with each set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

#: In ``SetData``, ``Delete`` and ``Check``: whatever version the node has.
ANY_VERSION = -1

#: Ephemeral owner of a node that lives on its own.
NO_SESSION = 0


class Create(NamedTuple):
    """Parents must exist. Sequential: a growing ten-digit number is added to the path's end."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False
    is_sequential: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """The node must have no children."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """The node must exist at this version; nothing is changed."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | SetData | Delete | Check


class RefusalReason(Enum):
    NODE_EXISTS = "node exists"
    NO_NODE = "no node"
    BAD_VERSION = "bad version"
    NOT_EMPTY = "not empty"
    NO_CHILDREN_FOR_EPHEMERALS = "ephemeral nodes have no children"
    TOO_LARGE = "too large"
    DISK_FULL = "disk full"
    UNAVAILABLE = "store unavailable"
    NOT_ALLOWED = "not allowed"


class OperationResult(NamedTuple):
    """Where a node was created (sequential ones differ from what was asked), and its version.

    Of a node that was deleted or checked at any version, an adapter may not know it: -1.
    """

    path: str
    version: int


class Done(NamedTuple):
    """Durable. One result per operation."""

    results: tuple[OperationResult, ...]


class Refused(NamedTuple):
    """Nothing happened. ``position`` of the operation in the way (-1: none in particular)."""

    reason: RefusalReason
    position: int
    path: str


class Unknown(NamedTuple):
    """The answer was lost: it may have happened."""

    why: str


Outcome: TypeAlias = Done | Refused | Unknown


class Node(NamedTuple):
    """A node as read.

    ``creation_id`` is the number of the submission that created it: growing, never reused.
    ``next_sequence`` is the number that the next sequential child gets.
    """

    data: bytes
    version: int
    creation_id: int
    owner: int = NO_SESSION
    next_sequence: int = 0


class Failed(NamedTuple):
    """A read that got no answer."""

    why: str


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


Watcher: TypeAlias = Callable[[], None]


class MetadataStore(Protocol):
    """See the module's docstring for what every adapter promises."""

    @property
    def session_state(self) -> SessionState: ...

    @property
    def session_id(self) -> int:
        """Owner of the ephemeral nodes that this adapter creates."""
        ...

    @property
    def max_operations(self) -> int:
        """How many operations one submission may have."""
        ...

    def submit(self, operations: Iterable[Operation], done: Callable[[Outcome], None]) -> None:
        """All of the operations or none. They may be looked at later, in several turns."""
        ...

    def get(
        self,
        path: str,
        done: Callable[[Node | Failed | None], None],
        on_change: Watcher | None = None,
    ) -> None:
        """The node, or None. ``on_change``: once, when it is created, set or deleted."""
        ...

    def children(
        self,
        path: str,
        done: Callable[[list[str] | Failed | None], None],
        on_change: Watcher | None = None,
    ) -> None:
        """Names of the children, sorted; None without a node."""
        ...

    def read_subtree(
        self, path: str, done: Callable[[list[tuple[str, Node]] | Failed], None]
    ) -> None:
        """The node and everything below it, parents before children and siblings in order; empty
        without a node.

        Atomic for the local store only: others may see a write half, and call back after the
        callbacks of later calls.
        """
        ...

    def on_session(self, listener: Callable[[SessionState], None]) -> None: ...


#: Runs blocking work off the loop, then ``then(error or None)`` on the loop's thread.
RunBlocking: TypeAlias = Callable[
    [Callable[[], None], Callable[[BaseException | None], None]], None
]

#: Calls back soon on the loop's thread, never at once (``loop.call_soon``).
Post: TypeAlias = Callable[[Callable[[], None]], None]


def run_at_once(post: Post) -> RunBlocking:
    """For a program whose loop nobody waits for: blocking work is done where it is asked for."""

    def run_blocking(
        work: Callable[[], None], then: Callable[[BaseException | None], None]
    ) -> None:
        failure: BaseException | None = None
        try:
            work()
        except OSError as error:
            failure = error
        post(lambda: then(failure))

    return run_blocking
