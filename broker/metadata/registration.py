"""This broker's registration: an ephemeral node whose creation id is the broker epoch.

The node is looked at whenever it may have changed: gone, it is made again (with a new broker
epoch); left by an earlier process of the same directory, it is replaced at its version; made by
somebody else with this broker id, it is a rival, and we do not start. An answer that was lost costs
another look: the node is ours if our session owns it.

A process takes no role from the image before its registration was *answered*: the image holds it, and
so no role of an earlier process, whose records may be lost. After that its memory goes on, whatever
becomes of its session, and it follows every image.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.clock import Clock
from broker.metadata import znodes
from broker.metadata.image import BrokerImage, ClusterImage
from broker.metadata.store import (
    Create,
    Delete,
    Done,
    MetadataStore,
    Node,
    Operation,
    Outcome,
    Refused,
    SessionState,
)
from broker.metadata.watching import watch_node


class Registration:
    """Everything on the loop's thread. ``broker_epoch`` is None while we are not registered."""

    def __init__(
        self,
        store: MetadataStore,
        broker: BrokerImage,
        directory_id: str,
        clock: Clock,
        on_registered: Callable[[int], None],
        on_rival: Callable[[BrokerImage, int], None],
    ) -> None:
        self._store = store
        self._broker = broker
        self._directory_id = directory_id
        self._clock = clock
        self._on_registered = on_registered
        self._on_rival = on_rival
        self._path = znodes.broker_path(broker.broker_id)
        self._is_writing = False
        self.broker_epoch: int | None = None
        #: Ours, as the newest image has it.
        self._counted_epoch: int | None = None
        self.was_answered = False
        self._watching = watch_node(store, self._path, self._found)

    def start(self) -> None:
        self._watching.look()

    def stop(self) -> None:
        self._watching.stop()

    def on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.broker_epoch = None
        elif state is SessionState.CONNECTED:
            self._watching.on_connected()

    def on_image(self, image: ClusterImage) -> bool:
        """Gives whether roles may be taken from this image and later ones."""
        own = image.brokers.get(self._broker.broker_id)
        self._counted_epoch = None if own is None else own.broker_epoch
        self._compare()
        return self.was_answered

    def _compare(self) -> None:
        if self.broker_epoch is not None and self.broker_epoch == self._counted_epoch:
            self.was_answered = True

    def _found(self, node: Node | None) -> None:
        if self._is_writing:
            return  # its outcome makes another look
        if node is None:
            self._write([])
        elif node.owner == self._store.session_id:
            if self.broker_epoch != node.creation_id:
                self.broker_epoch = node.creation_id
                # The controller may have been quicker than this look, and its image was the last
                # one: no other need ever come.
                self._compare()
                self._on_registered(node.creation_id)
        elif znodes.decode_directory_id(node.data) == self._directory_id:
            self._write([Delete(self._path, node.version)])
        else:
            self._watching.stop()
            self._on_rival(
                znodes.decode_broker(self._broker.broker_id, node.creation_id, node.data),
                znodes.decode_registered_ms(node.data),
            )

    def _write(self, before: list[Operation]) -> None:
        self.broker_epoch = None
        self._is_writing = True
        data = znodes.encode_broker(self._broker, self._clock.wall_ms(), self._directory_id)
        self._store.submit([*before, Create(self._path, data, is_ephemeral=True)], self._written)

    def _written(self, outcome: Outcome) -> None:
        self._is_writing = False
        is_answered = isinstance(outcome, Done) or (
            isinstance(outcome, Refused) and outcome.position >= 0
        )
        if is_answered or self._store.session_state is SessionState.CONNECTED:
            self._watching.look()
