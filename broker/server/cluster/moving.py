"""A local metadata store moves into ZooKeeper: one way, and on from where it was interrupted.

Everything is staged first, under the paths where it will be read, while ``/cluster/id`` is missing:
without it there is no cluster, and ``/cluster/moving`` keeps brokers from founding one. What was
staged is read back. Then the data directory is marked, and from there on no broker starts in it;
one submission puts ``/cluster/id`` in the place of ``/cluster/moving``, which makes the copy the
authority; and the local store is put aside. So at any instant at most one of them can be served
from: a move that was interrupted leaves the local store in charge, or waits to be called again.

Leader epochs are raised by one: what the new cluster writes is told from what was written before.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from broker.metadata import znodes
from broker.metadata.store import (
    Check,
    Create,
    Delete,
    Done,
    Failed,
    MetadataStore,
    Node,
    Operation,
    SetData,
)
from broker.server.cluster.joining import SECRET_BYTES
from broker.server.cluster.moving_marks import MovingMarks
from broker.server.start_error import StartError
from broker.server.tasks import called_back

#: What is moved. Registrations and the controller are not: they end with their process.
ROOTS: Final = (
    "/admin",
    "/brokers",
    "/config",
    "/feature",
    znodes.PRODUCER_IDS,
    znodes.CONTROLLER_EPOCH,
)
#: What ZooKeeper itself has at its root.
NOT_OURS: Final = frozenset({"zookeeper"})
OPERATIONS_A_SUBMISSION: Final = 1000
BYTES_A_SUBMISSION: Final = 512 * 1024
#: What is staged is compared with what was read back; the second time there is nothing to change.
MAX_PASSES: Final = 3

DONE: Final = "the move is done, only its end is missing: call it again to finish it"

#: Gives what ``read_local`` does; not called when the local store may be gone already.
ReadLocal = Callable[[], Awaitable[tuple[str, Mapping[str, bytes]]]]
#: Told how many of how many nodes are staged.
OnProgress = Callable[[int, int], None]


async def read_local(store: MetadataStore) -> tuple[str, dict[str, bytes]]:
    """The cluster's id, and what is to be staged, parents before children. Raises StartError."""
    cluster = await called_back(store.get, znodes.CLUSTER_ID)
    if not isinstance(cluster, Node):
        raise StartError("there is no cluster in this data directory: nothing to move")
    found = await _read(store)
    return znodes.decode_cluster_id(cluster.data), {
        path: _raised(data) if path.endswith("/state") else data for path, data in found.items()
    }


async def move(
    read: ReadLocal, target: MetadataStore, marks: MovingMarks, on_progress: OnProgress
) -> None:
    """Raises StartError; called again it goes on. ``read`` gives what ``read_local`` does."""
    if await _is_done(target, marks):
        marks.finish()
        return
    cluster_id, nodes = await read()
    if await _is_live(target, cluster_id):
        raise StartError("this cluster is in ZooKeeper already, moved from another directory")
    marker = await _claim(target, cluster_id)
    # What was under way before the claim fails its check; so this is the last word on it.
    if not await _is_live(target, cluster_id):
        await _stage(target, nodes, on_progress)
        marks.begin(cluster_id)
        await _go_live(target, cluster_id, marker)
    marks.finish()


async def abandon(read: ReadLocal, target: MetadataStore, marks: MovingMarks) -> None:
    """Take back what was staged, and let the local store be in charge. Raises StartError when the
    move is done already."""
    if await _is_done(target, marks):
        raise StartError(DONE)
    cluster_id, _ = await read()
    if await _is_live(target, cluster_id):
        raise StartError(DONE)
    marker = await called_back(target.get, znodes.CLUSTER_MOVING)
    if isinstance(marker, Failed):
        raise StartError(f"ZooKeeper cannot be read: {marker.why}")
    if marker is not None:
        version = await _claim(target, cluster_id)
        if await _is_live(target, cluster_id):
            raise StartError(DONE)
        staged = list(await _read(target))
        for portion in _portions(Delete(path) for path in reversed(staged)):
            await _submit(target, portion)
        await _submit(target, [Delete(znodes.CLUSTER_MOVING, version), Delete(znodes.CLUSTER)])
    marks.give_up()


async def _is_done(target: MetadataStore, marks: MovingMarks) -> bool:
    """Whether an interrupted move lacks its end only; the local store may be put aside then."""
    cluster_id = marks.moving_cluster_id
    return cluster_id is not None and await _is_live(target, cluster_id)


async def _is_live(target: MetadataStore, cluster_id: str) -> bool:
    """Whether ZooKeeper is in charge. Raises StartError when another cluster is there."""
    node = await called_back(target.get, znodes.CLUSTER_ID)
    if isinstance(node, Failed):
        raise StartError(f"ZooKeeper cannot be read: {node.why}")
    if node is None:
        return False
    there = znodes.decode_cluster_id(node.data)
    if there != cluster_id:
        raise StartError(
            f"another cluster, {there}, is in ZooKeeper already; choose another chroot"
        )
    return True


async def _claim(target: MetadataStore, cluster_id: str) -> int:
    """``/cluster/moving`` is ours, at a version that nothing sent before this knows."""
    names = await called_back(target.children, "/")
    node = await called_back(target.get, znodes.CLUSTER_MOVING)
    if isinstance(names, Failed) or isinstance(node, Failed):
        failed = names if isinstance(names, Failed) else node
        raise StartError(f"ZooKeeper cannot be read: {failed.why}")
    if node is None:
        if set(names or ()) - NOT_OURS:
            raise StartError(
                f"ZooKeeper holds something else there ({', '.join(names)});"
                " choose another chroot, as in HOST:PORT/odradek"
            )
        data = json.dumps({"cluster_id": cluster_id}).encode()
        await _submit(target, [Create(znodes.CLUSTER), Create(znodes.CLUSTER_MOVING, data)])
        return 0
    owner = json.loads(node.data)["cluster_id"]
    if owner != cluster_id:
        raise StartError(f"cluster {owner} is being moved there; choose another chroot")
    done = await _submit(target, [SetData(znodes.CLUSTER_MOVING, node.data, node.version)])
    return done.results[0].version


async def _stage(
    target: MetadataStore, wanted: Mapping[str, bytes], on_progress: OnProgress
) -> None:
    for _ in range(MAX_PASSES):
        changes = list(_differences(await _read(target), wanted))
        if not changes:
            return
        done = len(wanted) - len(changes)
        for portion in _portions(changes):
            await _submit(target, portion)
            done += len(portion)
            on_progress(max(done, 0), len(wanted))
    raise StartError(
        "what was staged in ZooKeeper changes all the time: does somebody write there?"
    )


async def _go_live(target: MetadataStore, cluster_id: str, marker: int) -> None:
    outcome = await called_back(
        target.submit,
        [
            Check(znodes.CLUSTER_MOVING, marker),
            Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id)),
            Create(znodes.CLUSTER_SECRET, secrets.token_bytes(SECRET_BYTES)),
            Delete(znodes.CLUSTER_MOVING, marker),
        ],
    )
    if not isinstance(outcome, Done):
        raise StartError(f"ZooKeeper did not take the last step ({outcome}); call it again")


async def _read(store: MetadataStore) -> dict[str, bytes]:
    """What lies below ``ROOTS``, parents before children."""
    found: dict[str, bytes] = {}
    for root in ROOTS:
        nodes = await called_back(store.read_subtree, root)
        if isinstance(nodes, Failed):
            raise StartError(f"the metadata cannot be read: {nodes.why}")
        found.update((path, node.data) for path, node in nodes)
    return found


def _differences(found: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> Iterator[Operation]:
    """What makes ``wanted`` of ``found``."""
    for path in reversed(list(found)):
        if path not in wanted:
            yield Delete(path)
    for path, data in wanted.items():
        if path not in found:
            yield Create(path, data)
        elif found[path] != data:
            yield SetData(path, data)


def _portions(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    portion: list[Operation] = []
    size = 0
    for operation in operations:
        length = len(operation.path)
        if isinstance(operation, Create | SetData):
            length += len(operation.data)
        if portion and (
            len(portion) == OPERATIONS_A_SUBMISSION or size + length > BYTES_A_SUBMISSION
        ):
            yield portion
            portion, size = [], 0
        portion.append(operation)
        size += length
    if portion:
        yield portion


async def _submit(target: MetadataStore, operations: Sequence[Operation]) -> Done:
    outcome = await called_back(target.submit, operations)
    if not isinstance(outcome, Done):
        raise StartError(f"ZooKeeper took not all of it ({outcome}); call it again")
    return outcome


def _raised(data: bytes) -> bytes:
    state = znodes.decode_partition_state(data)
    return znodes.encode_partition_state(state._replace(leader_epoch=state.leader_epoch + 1))
