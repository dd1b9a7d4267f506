"""A move into ZooKeeper that is killed at every step: at most one store is ever in charge, and it goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.adopt.disk import Disk
from broker.metadata import znodes
from broker.metadata.store import Create, Done, Operation, Unknown
from broker.model.ids import BrokerId
from broker.server.cluster import moving
from broker.server.cluster.joining import agree
from broker.server.cluster.moving_marks import MovingMarks
from broker.server.data_directory import IN_ZOOKEEPER, claim_for_zookeeper, refuse_without_zookeeper
from broker.server.start_error import StartError
from tests.support.simulated_zookeeper import SimulatedStore, ZooKeeperServer

CONNECT = "127.0.0.1:2181/odradek"
CLUSTER_ID = "moving-cluster"
STATE = znodes.encode_partition_state(znodes.PartitionState(BrokerId(1), 4, 7, (BrokerId(1),)))
NODES = {
    "/brokers": b"",
    "/brokers/topics": b"",
    "/brokers/topics/a": b"{}",
    "/brokers/topics/a/partitions": b"",
    "/brokers/topics/a/partitions/0": b"",
    "/brokers/topics/a/partitions/0/state": STATE,
    "/config": b"",
    "/config/topics": b"",
    "/config/topics/a": b'{"version":1,"config":{"retention.ms":"1"}}',
    znodes.CONTROLLER_EPOCH: b"7",
}


class Killed(BaseException):
    """The process is gone."""


class Fuse:
    """Kills at the step of this number, before or after it is done."""

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.steps = 0

    def step(self) -> None:
        if self.steps == self.at:
            raise Killed
        self.steps += 1


class LoopSchedule:
    now_ms = 0

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)


class DyingStore(SimulatedStore):
    """Its process may be killed with each write, and what was under way then happens or not."""

    fuse = Fuse()
    died: asyncio.Future[None]

    def submit(self, operations: Any, done: Any) -> None:
        made: list[Operation] = list(operations)
        try:
            self.fuse.step()
        except Killed as killed:
            self.died.set_exception(killed)
            return
        super().submit(made, lambda outcome: self._answered(outcome, done))

    def _answered(self, outcome: Any, done: Any) -> None:
        try:
            self.fuse.step()
        except Killed as killed:
            self.died.set_exception(killed)
        else:
            done(outcome)


class World:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = directory
        self.metadata = directory / "metadata"
        self.metadata.mkdir(parents=True)
        (self.metadata / "journal-1").write_bytes(b"journal")
        (self.metadata / "snapshot-1").write_bytes(b"snapshot")
        self.schedule = LoopSchedule()
        self.server = ZooKeeperServer(self.schedule)
        self.fuse = Fuse()
        for name in ("write", "sync_directory"):
            self._wire(monkeypatch, Disk, name)
        for name in ("rename", "replace", "unlink"):
            self._wire(monkeypatch, Path, name)

    def _wire(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*arguments: Any, **named: Any) -> Any:
            self.fuse.step()
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, step)

    def run(self, *, abandons: bool = False, kills_at: int = -1) -> bool:
        """As the program does; False when it was killed. Raises StartError."""
        self.fuse = Fuse(kills_at)

        async def program() -> None:
            store = DyingStore(self.server, self.schedule)
            store.fuse = self.fuse
            store.died = asyncio.get_running_loop().create_future()
            work = asyncio.ensure_future(self._work(store, abandons=abandons))
            await asyncio.wait([work, store.died], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                store.died.cancel()
                work.result()
            else:
                work.cancel()
                store.died.result()

        try:
            asyncio.run(program())
        except Killed:
            return False
        return True

    async def _work(self, store: SimulatedStore, *, abandons: bool) -> None:
        marks = MovingMarks(self.data, CONNECT)
        if marks.is_moved:
            return
        if abandons:
            await moving.abandon(self.read, store, marks)
        else:
            await moving.move(self.read, store, marks, lambda done, total: None)

    async def read(self) -> tuple[str, dict[str, bytes]]:
        names = {path.name for path in self.metadata.iterdir()}
        assert {"journal-1", "snapshot-1"} <= names, "the local store is not whole"
        return CLUSTER_ID, NODES

    @property
    def is_live(self) -> bool:
        return znodes.CLUSTER_ID in self.server.tree.nodes

    @property
    def starts_alone(self) -> bool:
        return starts(lambda: refuse_without_zookeeper(self.metadata))

    @property
    def starts_in_cluster(self) -> bool:
        return self.is_live and starts(lambda: claim_for_zookeeper(self.metadata))

    def check_moved(self) -> None:
        tree = {path: node.data for path, node in self.server.tree.nodes.items()}
        assert {path: data for path, data in tree.items() if path in NODES} == NODES
        assert tree.keys() - NODES.keys() == {
            *("/", "/cluster", znodes.CLUSTER_ID, znodes.CLUSTER_SECRET)
        }
        assert not self.starts_alone
        assert self.starts_in_cluster
        assert f"zookeeper.connect={CONNECT}\n" in (self.data / "broker.properties").read_text()
        assert (self.metadata / "moved-to-zookeeper" / "journal-1").read_bytes() == b"journal"
        assert sorted(path.name for path in self.metadata.iterdir()) == [
            IN_ZOOKEEPER,
            "moved-to-zookeeper",
        ]


def starts(check: Callable[[], None]) -> bool:
    try:
        check()
    except StartError:
        return False
    return True


@pytest.fixture
def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], World]:
    made: list[World] = []

    def make() -> World:
        monkeypatch.undo()
        made.append(World(tmp_path / str(len(made)), monkeypatch))
        return made[-1]

    return make


def call(world: World, work: Callable[[SimulatedStore], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        return await work(SimulatedStore(world.server, world.schedule))

    return asyncio.run(run())


def test_a_move_leaves_the_cluster_in_zookeeper_and_the_local_store_aside(
    worlds: Callable[[], World],
) -> None:
    world = worlds()
    assert world.starts_alone
    assert world.run()
    world.check_moved()
    assert world.run()  # once more: nothing to do
    world.check_moved()


def test_killed_at_any_step_one_store_is_in_charge_and_the_move_goes_on(
    worlds: Callable[[], World],
) -> None:
    step, outcomes = 0, set()
    while True:
        world = worlds()
        was_killed = not world.run(kills_at=step)
        in_charge = (world.starts_alone, world.starts_in_cluster)
        assert in_charge != (True, True), step
        assert not (world.starts_alone and world.is_live), step
        outcomes.add((was_killed, *in_charge))
        # And killed again at the next steps, too.
        world.run(kills_at=1)
        assert world.run()
        world.check_moved()
        if not was_killed:
            break
        step += 1
    assert step > 15
    assert outcomes == {
        (True, True, False),  # nothing is decided yet
        (True, False, False),  # waits to be called again
        (True, False, True),  # only the mark's removal was not synced
        (False, False, True),
    }


def test_killed_at_any_step_it_is_taken_back_unless_it_is_done(
    worlds: Callable[[], World],
) -> None:
    step, abandoned, refused = 0, 0, 0
    while not (world := worlds()).run(kills_at=step):
        step += 1
        if world.starts_in_cluster:
            continue
        if world.is_live:
            refused += 1
            with pytest.raises(StartError, match="the move is done"):
                world.run(abandons=True)
            assert world.run()
            world.check_moved()
            continue
        abandoned += 1
        for again in range(4):
            world.run(abandons=True, kills_at=again)
        assert world.run(abandons=True)
        assert world.starts_alone
        assert set(world.server.tree.nodes) == {"/"}
    assert abandoned > 5
    assert refused > 5


def test_what_came_too_late_does_not_make_the_copy_valid(worlds: Callable[[], World]) -> None:
    """The last step of a killed move waits in the network while the move is taken back."""
    world = worlds()
    late: list[list[Operation]] = []

    class LateStore(SimulatedStore):
        def submit(self, operations: Any, done: Any) -> None:
            made: list[Operation] = list(operations)
            if Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(CLUSTER_ID)) in made:
                late.append(made)
                asyncio.get_running_loop().call_soon(done, Unknown("lost"))
            else:
                super().submit(made, done)

    async def interrupted() -> None:
        store = LateStore(world.server, world.schedule)
        marks = MovingMarks(world.data, CONNECT)
        await moving.move(world.read, store, marks, lambda done, total: None)

    with pytest.raises(StartError, match="call it again"):
        asyncio.run(interrupted())
    assert world.run(abandons=True, kills_at=2) is False
    world.server.submit(1, late[0])
    assert not world.is_live
    assert world.run(abandons=True)
    world.server.submit(1, late[0])
    assert not world.is_live


def test_what_changed_in_the_local_store_since_is_staged_anew(worlds: Callable[[], World]) -> None:
    world = worlds()

    async def stage_something_else(store: SimulatedStore) -> None:
        marker = {"cluster_id": CLUSTER_ID}
        outcome = await moving.called_back(
            store.submit,
            [
                Create("/cluster"),
                Create(znodes.CLUSTER_MOVING, moving.json.dumps(marker).encode()),
                Create("/brokers", b"old"),
                Create("/brokers/gone", b"old"),
                Create("/brokers/gone/too", b"old"),
            ],
        )
        assert isinstance(outcome, Done)

    call(world, stage_something_else)
    assert world.run()
    world.check_moved()


def test_a_place_that_is_taken_is_refused(worlds: Callable[[], World]) -> None:
    for nodes, words in (
        ([Create("/kafka")], "holds something else there"),
        (
            [Create("/cluster"), Create(znodes.CLUSTER_ID, znodes.encode_cluster_id("other"))],
            "another cluster, other, is in ZooKeeper",
        ),
        (
            [Create("/cluster"), Create(znodes.CLUSTER_MOVING, b'{"cluster_id":"other"}')],
            "cluster other is being moved there",
        ),
        (
            [Create("/cluster"), Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(CLUSTER_ID))],
            "moved from another directory",
        ),
    ):
        world = worlds()
        world.server.submit(1, list(nodes))
        with pytest.raises(StartError, match=words):
            world.run()
        assert world.starts_alone


def test_no_cluster_is_founded_where_one_is_being_moved(
    worlds: Callable[[], World], tmp_path: Path
) -> None:
    world = worlds()
    assert not world.run(kills_at=4)
    with pytest.raises(StartError, match="is being moved there"):
        call(world, lambda store: agree(store, [str(tmp_path)]))
    assert not world.is_live
