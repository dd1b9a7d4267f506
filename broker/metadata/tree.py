"""The tree itself, in memory: evaluates operations, remembers how to take them back.

Nodes are immutable and kept flat by path, so that a copy of the tree is one dictionary copy and
equal nodes are shared (the empty parents of all partitions are one object). Not durable: the
local store journals the effects that ``apply`` returns, and takes them back when that fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from broker.metadata.store import (
    ANY_VERSION,
    NO_SESSION,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    OperationResult,
    RefusalReason,
    Refused,
    SetData,
)

#: Bytes of a node's data. ZooKeeper allows 1 MiB for a whole packet by default.
MAX_DATA_BYTES = 4 * 1024 * 1024

ROOT = "/"


class Effect(NamedTuple):
    """One node before and after; None where there is none."""

    path: str
    before: Node | None
    after: Node | None


class Applied(NamedTuple):
    results: tuple[OperationResult, ...]
    effects: list[Effect]


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or ROOT


def check_path(path: str) -> None:
    """Paths come from our own code: a bad one is a fault of ours, not of a client."""
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\x00" in path:
        raise ValueError(f"not a path of the tree: {path!r}")


class Tree:
    """Nodes by path. The root always exists and holds nothing."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {ROOT: Node(b"", 0, 0)}
        # An only child is kept as its bare name: a partition's parent has just "state" below it,
        # and a set for each of them would double the memory of the tree.
        self._children: dict[str, str | set[str]] = {}

    # Reading

    def get(self, path: str) -> Node | None:
        return self.nodes.get(path)

    def children(self, path: str) -> list[str]:
        names = self._children.get(path)
        if names is None:
            return []
        return [names] if isinstance(names, str) else sorted(names)

    def subtree(self, path: str) -> list[tuple[str, Node]]:
        """The node and all below it, parents before children, siblings sorted."""
        node = self.nodes.get(path)
        if node is None:
            return []
        found: list[tuple[str, Node]] = []
        stack = [path]
        while stack:
            current = stack.pop()
            found.append((current, self.nodes[current]))
            prefix = current if current != ROOT else ""
            stack.extend(f"{prefix}/{name}" for name in reversed(self.children(current)))
        return found

    # Changing

    def apply(
        self, operations: Sequence[Operation], submission_id: int, session_id: int
    ) -> Applied | Refused:
        """All of the operations, or none of them."""
        application = Application(self, operations, submission_id, session_id)
        application.go_on(len(operations) + 1)
        if application.refused is not None:
            return application.refused
        return Applied(tuple(application.results), application.effects)

    def apply_one(
        self, operation: Operation, submission_id: int, session_id: int, effects: list[Effect]
    ) -> OperationResult | RefusalReason:
        """For ``Application``: what it changed stands in ``effects`` afterwards."""
        if isinstance(operation, Create):
            return self._create(operation, submission_id, session_id, effects)
        if isinstance(operation, SetData):
            return self._set(operation, effects)
        if isinstance(operation, Delete):
            return self._delete(operation, effects)
        return self._check(operation)

    def take_back(self, effects: Sequence[Effect]) -> None:
        for effect in reversed(effects):
            self.put(effect.path, effect.before)

    def put(self, path: str, node: Node | None) -> None:
        """Set or remove without any rule: for replay and for taking back."""
        known = path in self.nodes
        if node is None:
            if known:
                del self.nodes[path]
                self._unlink(path)
            return
        self.nodes[path] = node
        if not known:
            self._link(path)

    def drop_ephemerals(self) -> None:
        """The processes that owned them are gone."""
        for path in [path for path, node in self.nodes.items() if node.owner != NO_SESSION]:
            self.put(path, None)

    def _create(
        self, operation: Create, submission_id: int, session_id: int, effects: list[Effect]
    ) -> OperationResult | RefusalReason:
        path = operation.path
        check_path(path)
        parent_path = parent_of(path)
        parent = self.nodes.get(parent_path)
        if parent is None:
            return RefusalReason.NO_NODE
        if parent.owner != NO_SESSION:
            return RefusalReason.NO_CHILDREN_FOR_EPHEMERALS
        if len(operation.data) > MAX_DATA_BYTES:
            return RefusalReason.TOO_LARGE
        if operation.is_sequential:
            path = f"{path}{parent.next_sequence:010d}"
        if path in self.nodes:
            return RefusalReason.NODE_EXISTS
        if operation.is_sequential:
            counted = parent._replace(next_sequence=parent.next_sequence + 1)
            effects.append(Effect(parent_path, parent, counted))
            self.nodes[parent_path] = counted
        owner = session_id if operation.is_ephemeral else NO_SESSION
        node = _shared(effects, Node(operation.data, 0, submission_id, owner))
        effects.append(Effect(path, None, node))
        self.nodes[path] = node
        self._link(path)
        return OperationResult(path, 0)

    def _set(self, operation: SetData, effects: list[Effect]) -> OperationResult | RefusalReason:
        node = self.nodes.get(operation.path)
        if node is None:
            return RefusalReason.NO_NODE
        if operation.version not in (ANY_VERSION, node.version):
            return RefusalReason.BAD_VERSION
        if len(operation.data) > MAX_DATA_BYTES:
            return RefusalReason.TOO_LARGE
        after = node._replace(data=operation.data, version=node.version + 1)
        effects.append(Effect(operation.path, node, after))
        self.nodes[operation.path] = after
        return OperationResult(operation.path, after.version)

    def _delete(self, operation: Delete, effects: list[Effect]) -> OperationResult | RefusalReason:
        node = self.nodes.get(operation.path)
        if node is None or operation.path == ROOT:
            return RefusalReason.NO_NODE
        if operation.version not in (ANY_VERSION, node.version):
            return RefusalReason.BAD_VERSION
        if operation.path in self._children:
            return RefusalReason.NOT_EMPTY
        effects.append(Effect(operation.path, node, None))
        self.put(operation.path, None)
        return OperationResult(operation.path, node.version)

    def _check(self, operation: Check) -> OperationResult | RefusalReason:
        node = self.nodes.get(operation.path)
        if node is None:
            return RefusalReason.NO_NODE
        if operation.version not in (ANY_VERSION, node.version):
            return RefusalReason.BAD_VERSION
        return OperationResult(operation.path, node.version)

    def _link(self, path: str) -> None:
        slash = path.rindex("/")
        parent, name = path[:slash] or ROOT, sys.intern(path[slash + 1 :])
        names = self._children.get(parent)
        if names is None:
            self._children[parent] = name
        elif isinstance(names, str):
            self._children[parent] = {names, name}
        else:
            names.add(name)

    def _unlink(self, path: str) -> None:
        slash = path.rindex("/")
        parent, name = path[:slash] or ROOT, path[slash + 1 :]
        names = self._children[parent]
        if isinstance(names, str):
            del self._children[parent]
            return
        names.discard(name)
        if len(names) == 1:
            self._children[parent] = names.pop()


class Application:
    """Operations on their way into the tree, some at a time: all of them, or none in the end.

    Whoever looks at the tree between two steps sees a part of them.
    """

    __slots__ = ("_left", "_session_id", "_submission_id", "_tree", "effects", "refused", "results")

    def __init__(
        self, tree: Tree, operations: Iterable[Operation], submission_id: int, session_id: int
    ) -> None:
        self._tree = tree
        self._left = iter(operations)
        self._submission_id = submission_id
        self._session_id = session_id
        self.effects: list[Effect] = []
        self.results: list[OperationResult] = []
        #: Why nothing came of it: what had been done is taken back then.
        self.refused: Refused | None = None

    def go_on(self, count: int) -> bool:
        """The next ``count`` operations; gives whether that was the end."""
        if self.refused is not None:
            return True
        apply_one = self._tree.apply_one
        effects, results = self.effects, self.results
        wanted = len(results) + count
        for operation in islice(self._left, count):
            result = apply_one(operation, self._submission_id, self._session_id, effects)
            if isinstance(result, RefusalReason):
                self.refuse(Refused(result, len(results), operation.path))
                return True
            results.append(result)
        return len(results) < wanted

    def refuse(self, refused: Refused) -> None:
        self._tree.take_back(self.effects)
        self.effects = []
        self.refused = refused


def _shared(effects: list[Effect], node: Node) -> Node:
    """The node just created in the same submission, when it is equal (partition parents)."""
    for effect in effects[-2:]:
        if effect.after == node:
            return effect.after
    return node
