"""Taking the controller's place: the tree is laid out, ``/controller`` created, the epoch raised.

The node and the raised epoch are one submission, so that whoever holds ``/controller`` has an
epoch that nobody had before, and every write of an earlier controller fails its check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.clock import Clock
from broker.metadata import znodes
from broker.metadata.store import (
    Create,
    Delete,
    Done,
    Failed,
    MetadataStore,
    Node,
    Operation,
    Outcome,
    RefusalReason,
    Refused,
    SetData,
)
from broker.model.ids import BrokerId

#: Of its first controller, as Kafka counts.
FIRST_CONTROLLER_EPOCH = 1

#: Someone else laid the tree out, or took part in the election, at the same time.
MAX_ATTEMPTS = 10

_ANOTHER = "Another broker is the controller."
_LOST = "The metadata store holds no cluster any more."


@dataclass(frozen=True, slots=True)
class Election:
    """Won. ``epoch_version`` is the version that the epoch's node has while we are controller."""

    controller_epoch: int
    epoch_version: int


def elect(
    store: MetadataStore,
    broker_id: BrokerId,
    cluster_id: str,
    clock: Clock,
    done: Callable[[Election | str], None],
    *,
    skeleton: Sequence[str] = znodes.SKELETON,
    replaces: Node | None = None,
    may_found: bool = True,
) -> None:
    """``done`` with the election won, or with the reason why not.

    ``replaces`` is the ``/controller`` node to take away in the same submission, and no later one.
    ``may_found`` False: the cluster was there before; a store that has lost it is not laid out anew, as an
    image without topics would have their directories deleted.
    """
    _Candidate(store, broker_id, cluster_id, clock, done, skeleton, replaces, may_found).read()


class _Candidate:
    """One try after another: read what is there, then one submission."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: BrokerId,
        cluster_id: str,
        clock: Clock,
        done: Callable[[Election | str], None],
        skeleton: Sequence[str],
        replaces: Node | None,
        may_found: bool,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._clock = clock
        self._done = done
        self._skeleton = skeleton
        self._replaces = replaces
        self._may_found = may_found
        self._attempts = 0
        self._found: dict[str, Node | None] = {}

    def read(self) -> None:
        self._attempts += 1
        self._found = {}
        # The controller after the epoch: whoever is elected between the two is seen, and whoever is
        # elected later has raised the epoch's version. Its node's own version is always the same.
        paths = (
            *self._skeleton,
            znodes.CLUSTER_ID,
            znodes.CONTROLLER_EPOCH,
            znodes.CONTROLLER,
        )
        for path in paths:
            self._store.get(path, self._reader(path, is_last=path is paths[-1]))

    def _reader(self, path: str, is_last: bool) -> Callable[[Node | Failed | None], None]:
        def received(node: Node | Failed | None) -> None:
            if isinstance(node, Failed):
                if is_last:
                    self._done(f"The metadata store cannot be read: {node.why}")
                return
            self._found[path] = node
            if is_last:
                try:
                    self._run()
                except ValueError as error:
                    self._done(f"The metadata store is damaged: {error}")

        return received

    def _run(self) -> None:
        cluster = self._found[znodes.CLUSTER_ID]
        if cluster is not None:
            known = znodes.decode_cluster_id(cluster.data)
            if known != self._cluster_id:
                self._done(
                    f"The log directories belong to cluster {self._cluster_id}, "
                    f"the metadata store to cluster {known}."
                )
                return
        elif not self._may_found:
            self._done(_LOST)
            return
        controller = self._found[znodes.CONTROLLER]
        if controller is not None and (
            self._replaces is None or controller.creation_id != self._replaces.creation_id
        ):
            self._done(_ANOTHER)
            return
        epoch = self._found[znodes.CONTROLLER_EPOCH]
        operations: list[Operation] = [
            Create(path) for path in self._skeleton if self._found[path] is None
        ]
        if cluster is None:
            operations.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(self._cluster_id)))
        if epoch is None:
            election = Election(FIRST_CONTROLLER_EPOCH, 0)
            data = znodes.encode_controller_epoch(FIRST_CONTROLLER_EPOCH)
            operations.append(Create(znodes.CONTROLLER_EPOCH, data))
        else:
            controller_epoch = znodes.decode_controller_epoch(epoch.data) + 1
            election = Election(controller_epoch, epoch.version + 1)
            data = znodes.encode_controller_epoch(controller_epoch)
            operations.append(SetData(znodes.CONTROLLER_EPOCH, data, epoch.version))
        data = znodes.encode_controller(self._broker_id, self._clock.wall_ms())
        if controller is not None:
            operations.append(Delete(znodes.CONTROLLER, controller.version))
        operations.append(Create(znodes.CONTROLLER, data, is_ephemeral=True))
        self._store.submit(operations, lambda outcome: self._answered(outcome, election))

    def _answered(self, outcome: Outcome, election: Election) -> None:
        if isinstance(outcome, Done):
            self._done(election)
        elif isinstance(outcome, Refused) and outcome.path == znodes.CONTROLLER:
            self._done(_ANOTHER)
        elif (
            isinstance(outcome, Refused)
            and outcome.reason in (RefusalReason.NODE_EXISTS, RefusalReason.BAD_VERSION)
            and self._attempts < MAX_ATTEMPTS
        ):
            self.read()
        else:
            why = outcome.reason.value if isinstance(outcome, Refused) else outcome.why
            self._done(f"The controller could not be elected: {why}")
