"""Who is the controller, and becoming it when there is none.

``/controller`` is watched; where it is missing this broker runs, and also where the controller does not
answer (``suspect``): then the node goes in the same submission. Won, a term begins: a new
``Controller``, fed with the registered brokers. The term ends with the session, or with a doubt that
the store cannot settle; then it runs anew, with a higher controller epoch, replacing a node that its
own session left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.metadata import znodes
from broker.metadata.image import BrokerImage
from broker.metadata.store import MetadataStore, Node, SessionState
from broker.metadata.watching import Watching, watch_children, watch_node
from broker.model.ids import NO_BROKER, BrokerId


class Term(Protocol):
    """The part of ``Controller`` that a candidacy drives."""

    def take_office(self, replaces: Node | None, done: Callable[[str | None], None]) -> None:
        """Elect and load. ``replaces``: the node of our own session, or of a suspect."""
        ...

    def brokers_seen(
        self, brokers: dict[BrokerId, BrokerImage], done: Callable[[bool], None]
    ) -> None: ...

    def stop(self, why: str) -> None: ...


class Candidacy:
    """Everything on the loop's thread. ``new_term(on_stopped)`` makes a ``Term``."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: BrokerId,
        new_term: Callable[[Callable[[str], None]], Term],
        on_controller: Callable[[BrokerId], None],
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._new_term = new_term
        self._on_controller = on_controller
        self.controller_id = NO_BROKER
        #: In office, or on the way into it.
        self.term: Term | None = None
        self.is_in_office = False
        self._node: Node | None = None
        self._brokers: Watching | None = None
        self._watching = watch_node(store, znodes.CONTROLLER, self._found)

    def start(self) -> None:
        self._watching.look()

    def stop(self) -> None:
        """The broker stops: it neither is nor becomes the controller."""
        self._watching.stop()
        self._end_term("The broker stops.")

    def suspect(self) -> None:
        """The controller seems to be dead: take its place. It may well be alive; then its writes
        are refused from there on, as the controller epoch has risen."""
        if self.term is None and self._node is not None:
            self._run(self._node)

    def on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._end_term("The session with the metadata store has expired.")
        elif state is SessionState.CONNECTED:
            self._watching.on_connected()
            if self._brokers is not None:
                self._brokers.on_connected()

    def _found(self, node: Node | None) -> None:
        self._node = node
        controller_id = NO_BROKER if node is None else znodes.decode_controller(node.data)
        if controller_id != self.controller_id:
            self.controller_id = controller_id
            self._on_controller(controller_id)
        is_ours = node is not None and node.owner == self._store.session_id
        if self.is_in_office and not is_ours:
            self._end_term("Another broker is the controller.")
        if self.term is None and (node is None or is_ours):
            self._run(node)

    def _run(self, replaces: Node | None) -> None:
        term: Term

        def stopped(why: str) -> None:
            if self.term is term:
                self._end_term(why)
                self._watching.look()

        def in_office(why_not: str | None) -> None:
            if self.term is not term:
                term.stop("The term has ended.")
            elif why_not is not None:
                self._end_term(why_not)
                self._watching.look()
            else:
                self.is_in_office = True
                self._brokers = watch_children(
                    self._store, znodes.BROKER_IDS, lambda found: self._brokers_found(term, found)
                )
                self._brokers.look()

        term = self.term = self._new_term(stopped)
        term.take_office(replaces, in_office)

    def _brokers_found(self, term: Term, nodes: list[tuple[str, Node]]) -> None:
        brokers = {
            BrokerId(int(name)): znodes.decode_broker(
                BrokerId(int(name)), node.creation_id, node.data
            )
            for name, node in nodes
        }

        def settled(is_done: bool) -> None:
            if not is_done and self.term is term and self._brokers is not None:
                self._brokers.look()

        if self.term is term:
            term.brokers_seen(brokers, settled)

    def _end_term(self, why: str) -> None:
        term, self.term = self.term, None
        self.is_in_office = False
        if self._brokers is not None:
            self._brokers.stop()
            self._brokers = None
        if term is not None:
            term.stop(why)
