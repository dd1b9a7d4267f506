"""What brokers must agree on before any of them is controller: the cluster's id and its secret.

Both are nodes that whoever comes first creates. A connection that is lost meanwhile ends no start.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from broker.clock import Clock
from broker.metadata import znodes
from broker.metadata.store import Create, MetadataStore, Node, SessionState
from broker.server.data_directory import cluster_in, new_cluster_id
from broker.server.start_error import StartError
from broker.server.tasks import called_back

SECRET_BYTES: Final = 32
#: Others create the same nodes at the same time; one of us is first.
MAX_ATTEMPTS: Final = 5
LOOK_SECONDS: Final = 0.01

T = TypeVar("T")


class Connected(Protocol):
    """What is asked of a store here: ``ZooKeeperStore`` is one."""

    @property
    def session_state(self) -> SessionState: ...

    @property
    def connection(self) -> int:
        """Another number after each loss of a connection."""
        ...


async def read_connected(
    store: Connected, read: Callable[[], Awaitable[T]], clock: Clock, within_ms: int
) -> T:
    """What ``read`` finds. A failure with which the connection was lost says nothing: it is read
    again, on the next one. Raises StartError, ``read``'s or for want of a connection."""
    end_ms = clock.monotonic_ms() + within_ms
    while True:
        while store.session_state is not SessionState.CONNECTED:
            if clock.monotonic_ms() > end_ms:
                raise StartError(
                    "the connection to ZooKeeper was lost, and did not come back in time"
                )
            await asyncio.sleep(LOOK_SECONDS)
        connection = store.connection
        try:
            return await read()
        except StartError:
            if store.connection == connection or clock.monotonic_ms() > end_ms:
                raise


class Agreed(NamedTuple):
    cluster_id: str
    secret: bytes


async def agree(store: MetadataStore, log_dirs: Sequence[str]) -> Agreed:
    """Raises StartError."""
    for _ in range(MAX_ATTEMPTS):
        moving = await called_back(store.get, znodes.CLUSTER_MOVING)
        if isinstance(moving, Node):
            raise StartError(
                "a cluster is being moved there: `odradek cluster move-to-zookeeper` on its node ends it"
            )
        found = await called_back(store.get, znodes.CLUSTER_ID)
        secret = await called_back(store.get, znodes.CLUSTER_SECRET)
        if isinstance(found, Node) and isinstance(secret, Node):
            return Agreed(znodes.decode_cluster_id(found.data), secret.data)
        known = cluster_in(log_dirs)
        if found is None and known is not None:
            # A cluster founded anew knows no topic: their directories would be deleted.
            raise StartError(
                f"ZooKeeper holds no cluster there, but {log_dirs[0]} belongs to cluster {known}: is"
                " zookeeper.connect right, with its path? If what ZooKeeper held is lost, restore it; nothing was"
                " changed here (docs/operations.md)"
            )
        # Each by itself: any of them may be there.
        for node in (
            Create(znodes.CLUSTER),
            Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(new_cluster_id())),
            Create(znodes.CLUSTER_SECRET, secrets.token_bytes(SECRET_BYTES)),
        ):
            await called_back(store.submit, [node])
    raise StartError("the cluster's id cannot be read from ZooKeeper, or not be written")
