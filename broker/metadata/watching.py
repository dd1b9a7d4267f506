"""Reads something of the store now and after each change of it, also after a lost connection.

One look at a time; what changes while it is under way makes another one. A look that failed is
repeated when the session is connected again (``on_connected``).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.metadata.store import Failed, MetadataStore, Node


class Watching:
    """``begin(on_change, ended)`` starts one look, and ``ended`` is called at its end."""

    def __init__(self, begin: Callable[[Callable[[], None], Callable[[], None]], None]) -> None:
        self._begin = begin
        self._is_looking = False
        self._is_again = False
        self.is_stopped = False

    def look(self) -> None:
        if self.is_stopped:
            return
        if self._is_looking:
            self._is_again = True
            return
        self._is_looking, self._is_again = True, False
        self._begin(self.look, self._ended)

    def _ended(self) -> None:
        """A look that failed is repeated, too, when the connection came back under way."""
        self._is_looking = False
        if self._is_again:
            self.look()

    def on_connected(self) -> None:
        self.look()

    def stop(self) -> None:
        self.is_stopped = True


def watch_node(store: MetadataStore, path: str, found: Callable[[Node | None], None]) -> Watching:
    """``found`` for every look that got an answer."""

    def begin(on_change: Callable[[], None], ended: Callable[[], None]) -> None:
        def received(node: Node | Failed | None) -> None:
            if not isinstance(node, Failed) and not watching.is_stopped:
                found(node)
            ended()

        store.get(path, received, on_change)

    watching = Watching(begin)
    return watching


def watch_children(
    store: MetadataStore, path: str, found: Callable[[list[tuple[str, Node]]], None]
) -> Watching:
    """``found`` with the children as (name, node). A child that was deleted and created anew
    between two looks is there, with another ``creation_id``."""

    def begin(on_change: Callable[[], None], ended: Callable[[], None]) -> None:
        def listed(names: list[str] | Failed | None) -> None:
            if isinstance(names, Failed):
                ended()
            else:
                store.read_subtree(path, received)

        def received(nodes: list[tuple[str, Node]] | Failed) -> None:
            if not isinstance(nodes, Failed) and not watching.is_stopped:
                found([(name[len(path) + 1 :], node) for name, node in nodes[1:]])
            ended()

        # The watch before the look: what comes after it is seen, or makes another look.
        store.children(path, listed, on_change)

    watching = Watching(begin)
    return watching
