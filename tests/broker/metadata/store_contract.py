"""What every adapter of the metadata store promises (``broker/metadata/store.py``), as tests.

An adapter's test class inherits ``StoreContract`` and makes ``World``: a store on a clean slate,
its turns, and how its session ends or its process starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from broker.metadata.store import (
    Check,
    Create,
    Delete,
    Done,
    MetadataStore,
    Node,
    Operation,
    OperationResult,
    RefusalReason,
    Refused,
    SetData,
)
from tests.support.turns import Turns


class World(Protocol):
    store: MetadataStore
    turns: Turns

    def restart(self) -> None:
        """The process stops and starts again: a new store on what the old one left."""


class StoreContract:
    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError

    # Nodes

    def test_a_created_node_is_read_with_version_zero(self, world: World) -> None:
        assert submit(world, Create("/a", b"1")) == Done((OperationResult("/a", 0),))
        node = get(world, "/a")
        assert (node.data, node.version, node.owner) == (b"1", 0, 0)

    def test_what_does_not_exist_is_none(self, world: World) -> None:
        assert get(world, "/a") is None
        assert ask(world, world.store.children, "/a") is None
        assert ask(world, world.store.read_subtree, "/a") == []

    def test_setting_raises_the_version_and_keeps_the_creation_id(self, world: World) -> None:
        submit(world, Create("/a", b"1"))
        created = get(world, "/a")
        assert submit(world, SetData("/a", b"2", 0)) == Done((OperationResult("/a", 1),))
        assert submit(world, SetData("/a", b"3")) == Done((OperationResult("/a", 2),))
        assert get(world, "/a") == created._replace(data=b"3", version=2)

    def test_a_node_created_anew_starts_at_version_zero_with_a_greater_creation_id(
        self, world: World
    ) -> None:
        submit(world, Create("/a", b"1"))
        first = get(world, "/a")
        submit(world, SetData("/a", b"2"))
        submit(world, Delete("/a", 1))
        submit(world, Create("/a", b"1"))
        second = get(world, "/a")
        assert second.version == 0
        assert second.creation_id > first.creation_id

    def test_creation_ids_are_never_reused_by_a_later_process(self, world: World) -> None:
        ids = []
        for _ in range(3):
            submit(world, Create("/a", is_ephemeral=True))
            ids.append(get(world, "/a").creation_id)
            world.restart()
        assert ids == sorted(set(ids))

    @pytest.mark.parametrize(
        ("operation", "reason"),
        [
            (Create("/a"), RefusalReason.NODE_EXISTS),
            (Create("/b/c"), RefusalReason.NO_NODE),
            (Create("/e/c"), RefusalReason.NO_CHILDREN_FOR_EPHEMERALS),
            (Create("/b", bytes(4 * 1024 * 1024 + 1)), RefusalReason.TOO_LARGE),
            (SetData("/b", b""), RefusalReason.NO_NODE),
            (SetData("/a", b"", 1), RefusalReason.BAD_VERSION),
            (SetData("/a", bytes(4 * 1024 * 1024 + 1)), RefusalReason.TOO_LARGE),
            (Delete("/b"), RefusalReason.NO_NODE),
            (Delete("/a/child", 1), RefusalReason.BAD_VERSION),
            (Delete("/a"), RefusalReason.NOT_EMPTY),
            (Check("/b"), RefusalReason.NO_NODE),
            (Check("/a", 1), RefusalReason.BAD_VERSION),
        ],
    )
    def test_an_operation_that_does_not_fit_is_refused(
        self, world: World, operation: Operation, reason: RefusalReason
    ) -> None:
        submit(world, Create("/a"), Create("/a/child"), Create("/e", is_ephemeral=True))
        before = everything(world)
        outcome = submit(world, Create("/x"), operation, Create("/y"))
        assert outcome == Refused(reason, 1, operation.path)
        assert everything(world) == before

    def test_operations_of_a_submission_see_those_before_them(self, world: World) -> None:
        outcome = submit(
            world,
            Create("/a", b"1"),
            Create("/a/b"),
            SetData("/a", b"2", 0),
            Check("/a", 1),
            Delete("/a/b", 0),
            Create("/a/b", b"new"),
        )
        assert isinstance(outcome, Done)
        assert [result.version for result in outcome.results] == [0, 0, 1, 1, 0, 0]
        assert get(world, "/a/b").data == b"new"

    def test_a_check_alone_changes_nothing(self, world: World) -> None:
        submit(world, Create("/a"))
        before = everything(world)
        assert isinstance(submit(world, Check("/a", 0)), Done)
        assert isinstance(submit(world), Done)
        assert everything(world) == before

    def test_sequential_nodes_get_growing_numbers_that_are_not_reused(self, world: World) -> None:
        submit(world, Create("/q"))
        paths = []
        for _ in range(3):
            outcome = submit(world, Create("/q/n_", is_sequential=True))
            assert isinstance(outcome, Done)
            paths.append(outcome.results[0].path)
            submit(world, Delete(paths[-1]))
            world.restart()
        assert paths == ["/q/n_0000000000", "/q/n_0000000001", "/q/n_0000000002"]

    def test_children_are_names_in_order(self, world: World) -> None:
        submit(world, *(Create(path) for path in ("/a", "/a/c", "/a/b", "/a/b/d", "/ab")))
        assert ask(world, world.store.children, "/a") == ["b", "c"]
        assert ask(world, world.store.children, "/a/c") == []
        submit(world, Delete("/a/c"))
        assert ask(world, world.store.children, "/a") == ["b"]

    def test_a_subtree_is_read_parents_first(self, world: World) -> None:
        made = ("/a", "/a/c", "/a/c/e", "/a/b", "/a/b/d", "/a/b/d/f", "/ab")
        submit(world, *(Create(path, path.encode()) for path in made))
        found = ask(world, world.store.read_subtree, "/a")
        paths = [path for path, _ in found]
        assert sorted(paths) == sorted(made[:-1])
        assert [node.data.decode() for _, node in found] == paths
        assert all(paths.index(path.rpartition("/")[0]) < paths.index(path) for path in paths[1:])
        assert paths.index("/a/b") < paths.index("/a/c")

    def test_what_is_done_is_there_after_a_restart(self, world: World) -> None:
        submit(world, Create("/a", b"1"), Create("/a/b", b"\x00\xff"), Create("/c"))
        submit(world, SetData("/a", b"2"), Delete("/c"))
        before = everything(world)
        world.restart()
        assert everything(world) == before

    # Callbacks

    def test_callbacks_come_later_and_in_the_order_of_the_calls(self, world: World) -> None:
        seen: list[Any] = []
        store = world.store
        store.submit([Create("/a", b"1")], lambda o: seen.append(type(o)))
        store.get("/a", lambda node: seen.append(node and node.data))
        store.submit([Create("/a")], lambda o: seen.append(type(o)))
        store.submit([SetData("/a", b"2")], lambda o: seen.append(type(o)))
        store.children("/", lambda names: seen.append("a" in (names or ())))
        store.get("/a", lambda node: seen.append(node and node.data))
        assert seen == []
        world.turns.run()
        assert seen == [Done, b"1", Refused, Done, True, b"2"]

    def test_a_callback_may_use_the_store(self, world: World) -> None:
        seen: list[Any] = []

        def created(_: object) -> None:
            world.store.submit([SetData("/a", b"2")], lambda _: world.store.get("/a", seen.append))
            assert not seen

        world.store.submit([Create("/a")], created)
        world.turns.run()
        assert [node.data for node in seen] == [b"2"]

    # Sessions

    def test_ephemeral_nodes_end_with_their_session(self, world: World) -> None:
        submit(world, Create("/a"), Create("/a/e", b"1", is_ephemeral=True))
        assert get(world, "/a/e").owner == world.store.session_id != 0
        session_id = world.store.session_id
        world.restart()
        assert get(world, "/a/e") is None
        assert ask(world, world.store.children, "/a") == []
        assert world.store.session_id != session_id
        assert isinstance(submit(world, Create("/a/e", is_ephemeral=True)), Done)
        world.restart()
        assert get(world, "/a/e") is None

    # Watches

    @pytest.mark.parametrize(
        "operations",
        [[Create("/n")], [SetData("/a", b"2")], [Delete("/a")], [Delete("/a"), Create("/a")]],
        ids=["created", "set", "deleted", "created anew"],
    )
    def test_a_watch_fires_once_after_a_change(
        self, world: World, operations: list[Operation]
    ) -> None:
        submit(world, Create("/a"), Create("/b"))
        fired: list[str] = []
        watch_data(world, operations[0].path, lambda: fired.append("data"))
        watch_data(world, "/b", lambda: fired.append("other"))
        world.turns.run()
        submit(world, Check("/b"), SetData("/b", b"") if fired else Check("/b"))
        assert fired == []
        submit(world, *operations)
        assert fired == ["data"]
        submit(world, Create("/a/x") if operations[0] == Create("/n") else Create("/z"))
        assert fired == ["data"]

    def test_a_watch_of_children_fires_for_each_that_comes_or_goes(self, world: World) -> None:
        submit(world, Create("/a"), Create("/a/b"))
        fired: list[str] = []

        def arm() -> None:
            world.store.children("/a", lambda _: None, lambda: fired.append("children"))
            world.turns.run()

        arm()
        submit(world, SetData("/a", b"1"), SetData("/a/b", b"1"), Create("/a/b/c"))
        assert fired == []
        submit(world, Create("/a/d"))
        assert fired == ["children"]
        arm()
        submit(world, Delete("/a/d"))
        assert fired == ["children"] * 2

    def test_a_refused_submission_fires_nothing(self, world: World) -> None:
        submit(world, Create("/a"))
        fired: list[str] = []
        watch_data(world, "/a", lambda: fired.append("data"))
        submit(world, SetData("/a", b"1"), Check("/b"))
        assert fired == []


def ask(world: World, method: Callable[..., None], *arguments: Any) -> Any:
    answers: list[Any] = []
    method(*arguments, answers.append)
    world.turns.run()
    (answer,) = answers
    return answer


def submit(world: World, *operations: Operation) -> Any:
    return ask(world, world.store.submit, operations)


def get(world: World, path: str) -> Any:
    return ask(world, world.store.get, path)


def everything(world: World) -> list[tuple[str, Node]]:
    found: list[tuple[str, Node]] = ask(world, world.store.read_subtree, "/")
    return found


def watch_data(world: World, path: str, fired: Callable[[], None]) -> None:
    world.store.get(path, lambda _: None, fired)
    world.turns.run()
