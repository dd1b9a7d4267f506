"""The local store: the contract, and what only a journal on a disk can get wrong."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from broker.metadata import local_store
from broker.metadata.files import DiskDirectory, StoreDirectory
from broker.metadata.journal import CorruptStoreError
from broker.metadata.local_store import LocalStore
from broker.metadata.store import (
    Create,
    Delete,
    Done,
    Operation,
    RefusalReason,
    Refused,
    SetData,
    Unknown,
)
from broker.metadata.tree import Tree
from tests.broker.metadata.store_contract import StoreContract, everything, get, submit
from tests.support.memory_files import Crashed, MemoryDirectory
from tests.support.turns import Turns

JOURNAL = "journal-00000000000000000001"


class LocalWorld:
    def __init__(
        self,
        directory: StoreDirectory,
        dice: random.Random | None = None,
        **options: Any,
    ) -> None:
        self.directory = directory
        self.turns = Turns(dice)
        self.failures: list[str] = []
        self.options = options
        self.store = self._make()
        self.store.open()

    def _make(self) -> LocalStore:
        return LocalStore(
            self.directory,
            self.turns.run_blocking,
            self.turns.post,
            self.failures.append,
            **self.options,
        )

    def restart(self) -> None:
        self.turns.run()
        assert self.store.is_idle
        self.store.close()
        self.store = self._make()
        self.store.open()


class TestContract(StoreContract):
    @pytest.fixture
    def world(self) -> LocalWorld:
        return LocalWorld(MemoryDirectory())


class TestContractOnARealDisk(StoreContract):
    @pytest.fixture
    def world(self, tmp_path: Any) -> LocalWorld:
        return LocalWorld(DiskDirectory(str(tmp_path / "metadata")))


class TestContractWithASnapshotAfterEverySubmission(StoreContract):
    @pytest.fixture
    def world(self) -> LocalWorld:
        return LocalWorld(MemoryDirectory(), journal_bound_bytes=0, reserve_bytes=64)


@pytest.fixture(params=[1, 250])
def operations_a_turn(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most submissions are evaluated in many turns, or in one."""
    monkeypatch.setattr(local_store, "OPERATIONS_A_TURN", request.param)


class TestContractWithAnOperationATurn(StoreContract):
    @pytest.fixture
    def world(self, monkeypatch: pytest.MonkeyPatch) -> LocalWorld:
        monkeypatch.setattr(local_store, "OPERATIONS_A_TURN", 1)
        return LocalWorld(MemoryDirectory(), journal_bound_bytes=0, reserve_bytes=64)


def test_nobody_sees_a_part_of_a_submission_that_takes_many_turns() -> None:
    world = LocalWorld(MemoryDirectory())
    count = 3 * local_store.OPERATIONS_A_TURN
    seen: list[Any] = []
    world.store.submit((Create(f"/n{n}") for n in range(count)), lambda _: seen.append("made"))
    world.store.children("/", lambda names: seen.append(len(names)))  # type: ignore[arg-type]
    world.store.submit([Create("/n5")], seen.append)
    assert not world.store.is_idle
    turns = 0
    while world.turns.step():
        turns += 1
    assert turns >= 3
    assert seen == ["made", count, Refused(RefusalReason.NODE_EXISTS, 0, "/n5")]


def test_a_long_submission_that_fails_at_its_end_leaves_nothing() -> None:
    world = LocalWorld(MemoryDirectory())
    outcomes: list[Any] = []
    count = 3 * local_store.OPERATIONS_A_TURN
    world.store.submit([*(Create(f"/n{n}") for n in range(count)), Create("/n0")], outcomes.append)
    world.turns.run()
    assert outcomes == [Refused(RefusalReason.NODE_EXISTS, count, "/n0")]
    assert [path for path, _ in everything(world)] == ["/"]


def test_a_submission_beyond_the_bound_is_refused_and_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_store, "MAX_OPERATIONS", 1000)
    world = LocalWorld(MemoryDirectory())
    outcomes: list[Any] = []
    world.store.submit((Create(f"/n{n}") for n in range(5000)), outcomes.append)
    world.turns.run()
    assert outcomes == [Refused(RefusalReason.TOO_LARGE, -1, "")]
    assert [path for path, _ in everything(world)] == ["/"]


def test_a_full_disk_takes_back_what_is_being_evaluated() -> None:
    disk = MemoryDirectory()
    world = LocalWorld(disk, reserve_bytes=64)
    before = everything(world)
    disk.capacity = disk.used()
    outcomes: list[Any] = []
    count = 5 * local_store.OPERATIONS_A_TURN
    world.store.submit([Create("/a", bytes(8192))], outcomes.append)
    world.store.submit((Create(f"/a/n{n}") for n in range(count)), outcomes.append)
    while not outcomes:
        assert world.turns.step()
    disk.capacity = None
    world.store.submit([Create("/b")], outcomes.append)
    world.turns.run()
    full = Refused(RefusalReason.DISK_FULL, -1, "")
    assert outcomes[:2] == [full, full]
    assert isinstance(outcomes[2], Done)
    after = everything(world)
    assert [path for path, _ in after] == [*(path for path, _ in before), "/b"]
    world.restart()
    assert everything(world) == after


def test_submissions_of_one_turn_share_one_sync() -> None:
    disk = CountingDirectory()
    world = LocalWorld(disk)
    before = disk.syncs
    outcomes: list[Any] = []
    for n in range(1000):
        world.store.submit([Create(f"/n{n}")], outcomes.append)
    world.turns.run()
    assert [type(outcome) for outcome in outcomes] == [Done] * 1000
    assert disk.syncs == before + 1


class CountingDirectory(MemoryDirectory):
    syncs = 0

    def datasynced(self) -> None:
        self.syncs += 1


def test_nothing_is_done_before_it_is_synced() -> None:
    disk = MemoryDirectory()
    world = LocalWorld(disk)
    outcomes: list[Any] = []
    world.store.submit([Create("/a")], outcomes.append)
    while not outcomes:
        assert world.turns.step()
    for seed in range(20):
        assert get(LocalWorld(disk.after_crash(random.Random(seed))), "/a") is not None


# A full disk


def test_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    disk = MemoryDirectory()
    world = LocalWorld(disk, reserve_bytes=4096)
    assert isinstance(submit(world, Create("/a")), Done)
    before = everything(world)
    disk.capacity = disk.used()
    outcomes: list[Any] = []
    world.store.submit([Create("/b", bytes(8192))], outcomes.append)
    world.store.submit([SetData("/b", b"")], outcomes.append)
    world.store.get("/b", outcomes.append)
    world.turns.run()
    full = Refused(RefusalReason.DISK_FULL, -1, "")
    assert outcomes == [full, full, None]
    assert everything(world) == before
    assert world.failures == []
    disk.capacity = None
    assert isinstance(submit(world, Create("/b", bytes(8192))), Done)
    before = everything(world)
    world.restart()
    assert everything(world) == before


def test_small_changes_fit_into_the_reserve_of_a_full_disk() -> None:
    disk = MemoryDirectory()
    world = LocalWorld(disk)
    for n in range(100):
        submit(world, Create(f"/n{n}", bytes(100)))
    disk.capacity = disk.used()
    for n in range(100):
        assert isinstance(submit(world, Delete(f"/n{n}")), Done)
    world.restart()
    assert [path for path, _ in everything(world)] == ["/"]
    assert isinstance(submit(world, Create("/a")), Done)


def test_a_start_on_a_full_disk_with_a_torn_journal_works() -> None:
    disk = MemoryDirectory()
    world = LocalWorld(disk)
    submit(world, Create("/a"))
    left = disk.contents()
    end = len(left[JOURNAL].rstrip(b"\0"))
    left[JOURNAL] = left[JOURNAL][:end] + b"OJ01torn" + left[JOURNAL][end + 8 :]
    disk = MemoryDirectory(left)
    disk.capacity = disk.used()
    world = LocalWorld(disk)
    assert isinstance(submit(world, Create("/b")), Done)


def test_a_snapshot_that_finds_no_room_is_tried_again_later() -> None:
    disk = MemoryDirectory()
    world = LocalWorld(disk, journal_bound_bytes=2000, reserve_bytes=8192)
    disk.capacity = disk.used() + 100
    for n in range(60):
        assert isinstance(submit(world, Create(f"/n{n}")), Done)
    assert not [name for name in disk.names() if name.startswith("snapshot")]
    disk.capacity = None
    for n in range(60, 120):
        assert isinstance(submit(world, Create(f"/n{n}")), Done)
    assert [name for name in disk.names() if name.startswith("snapshot")]
    before = everything(world)
    world.restart()
    assert everything(world) == before


class Model:
    """The lasting nodes as the answers tell them: path to (data, version)."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}

    def done(self, operations: list[Operation], outcome: Done) -> None:
        for operation, result in zip(operations, outcome.results, strict=True):
            if isinstance(operation, Delete):
                self.nodes.pop(operation.path, None)
            elif isinstance(operation, SetData):
                if operation.path in self.nodes:
                    self.nodes[operation.path] = (operation.data, result.version)
            elif isinstance(operation, Create) and not operation.is_ephemeral:
                self.nodes[operation.path] = (operation.data, 0)


@pytest.mark.usefixtures("operations_a_turn")
@pytest.mark.parametrize("seed", range(10))
def test_what_was_answered_is_there_though_the_disk_was_full_now_and_then(seed: int) -> None:
    dice = random.Random(seed)
    disk, model = MemoryDirectory(), Model()
    creation_ids: list[int] = []
    refused = 0
    for _ in range(4):
        disk.capacity = None
        world = LocalWorld(disk, dice, journal_bound_bytes=3000, reserve_bytes=256)
        assert {
            path: (node.data, node.version) for path, node in everything(world)[1:]
        } == model.nodes

        def answered(operations: list[Operation], outcome: Any) -> None:
            nonlocal refused
            if isinstance(outcome, Done):
                model.done(operations, outcome)
            refused += outcome == Refused(RefusalReason.DISK_FULL, -1, "")

        for _ in range(80):
            operations = random_operations(dice, set(world.store._tree.nodes))
            world.store.submit(operations, lambda o, ops=operations: answered(ops, o))
            if dice.random() < 0.2:
                disk.capacity = disk.used() if disk.capacity is None else None
            for _ in range(dice.randrange(6)):
                world.turns.step()
        disk.capacity = None
        world.turns.run()
        assert isinstance(submit(world, Create("/last")), Done)
        creation_ids.append(get(world, "/last").creation_id)
        submit(world, Delete("/last"))
        world.restart()
        assert isinstance(submit(world, Create("/last")), Done)
        creation_ids.append(get(world, "/last").creation_id)
        submit(world, Delete("/last"))
        world.store.close()
        disk = MemoryDirectory(disk.contents())
    assert refused > 0
    assert creation_ids == sorted(set(creation_ids))


def test_a_snapshot_does_not_hold_what_may_yet_be_taken_back() -> None:
    disk = MemoryDirectory()
    world = LocalWorld(disk, journal_bound_bytes=0, reserve_bytes=64)
    world.store.submit([Create("/a")], lambda _: None)
    while sum(name.startswith("journal") for name in disk.names()) < 2:
        world.turns.step()
    outcomes: list[Any] = []
    world.store.submit([Create("/big", bytes(8192))], outcomes.append)
    disk.capacity = disk.used() + 1000
    while not outcomes:
        world.turns.step()
    assert outcomes == [Refused(RefusalReason.DISK_FULL, -1, "")]
    disk.capacity = None
    world.restart()
    assert [path for path, _ in everything(world)] == ["/", "/a"]
    assert [name for name in disk.names() if name.startswith("snapshot")]


# A failing disk


@pytest.mark.parametrize("offset", [1, 2], ids=["write", "sync"])
def test_a_failed_write_or_sync_is_final(offset: int) -> None:
    disk = MemoryDirectory()
    world = LocalWorld(disk)
    submit(world, Create("/a"))
    disk.fail_at[disk.operations + offset] = errno.EIO
    outcomes: list[Any] = []
    world.store.submit([Create("/b")], outcomes.append)
    world.turns.step()  # the frame takes only the first
    world.store.submit([Create("/c")], outcomes.append)
    world.store.get("/b", outcomes.append)
    world.turns.run()
    unavailable = Refused(RefusalReason.UNAVAILABLE, -1, "")
    assert isinstance(outcomes[0], Unknown)
    assert outcomes[1:] == [unavailable, None]
    assert len(world.failures) == 1
    assert submit(world, Create("/d")) == unavailable
    assert get(world, "/a") is not None
    for seed in range(20):
        left = LocalWorld(disk.after_crash(random.Random(seed)))
        assert get(left, "/a") is not None
        assert get(left, "/c") is None


def test_a_full_disk_that_shows_at_the_sync_is_final() -> None:
    disk = MemoryDirectory()
    world = LocalWorld(disk)
    disk.fail_at[disk.operations + 2] = errno.ENOSPC
    assert isinstance(submit(world, Create("/b")), Unknown)
    assert world.failures


# Damage


def journal_with(count: int) -> dict[str, bytes]:
    disk = MemoryDirectory()
    world = LocalWorld(disk)
    for n in range(count):
        submit(world, Create(f"/n{n}", b"x" * 50))
    return disk.contents()


def test_a_torn_last_frame_is_cut_at_every_byte() -> None:
    whole = journal_with(3)[JOURNAL]
    start = whole.rindex(b"OJ01")
    end = len(whole.rstrip(b"\0"))
    for cut in range(start, end):
        torn = whole[:cut].ljust(len(whole), b"\0")
        world = LocalWorld(MemoryDirectory({JOURNAL: torn}))
        assert [path for path, _ in everything(world)] == ["/", "/n0", "/n1"]
        assert isinstance(submit(world, Create("/n2")), Done)
        world.restart()
        assert len(everything(world)) == 4


def test_damage_before_the_last_frame_stops_the_start_at_every_byte() -> None:
    whole = journal_with(3)[JOURNAL]
    last = whole.rindex(b"OJ01")
    for position in range(last):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptStoreError):
            LocalWorld(MemoryDirectory({JOURNAL: bytes(damaged)}))


def test_bytes_behind_the_end_that_are_no_frame_are_wiped() -> None:
    whole = journal_with(1)[JOURNAL]
    end = len(whole.rstrip(b"\0"))
    dirty = whole[:end] + b"\0" * 100 + b"rubbish" + bytes(2000)
    disk = MemoryDirectory({JOURNAL: dirty})
    world = LocalWorld(disk)
    assert b"rubbish" not in disk.read(JOURNAL)
    assert [path for path, _ in everything(world)] == ["/", "/n0"]


def test_damage_of_a_snapshot_or_a_missing_journal_stops_the_start() -> None:
    disk = MemoryDirectory()
    world = LocalWorld(disk, journal_bound_bytes=500, reserve_bytes=64)
    for n in range(20):
        submit(world, Create(f"/n{n}"))
    left = disk.contents()
    (snapshot,) = [name for name in left if name.startswith("snapshot")]
    (journal,) = [name for name in left if name.startswith("journal")]
    for position in range(0, len(left[snapshot]), 7):
        damaged = bytearray(left[snapshot])
        damaged[position] ^= 0x40
        with pytest.raises(CorruptStoreError):
            LocalWorld(MemoryDirectory({**left, snapshot: bytes(damaged)}))
    with pytest.raises(CorruptStoreError):
        LocalWorld(MemoryDirectory({**left, snapshot: left[snapshot][:-10]}))
    with pytest.raises(CorruptStoreError):
        LocalWorld(MemoryDirectory({snapshot: left[snapshot]}))
    with pytest.raises(CorruptStoreError):
        LocalWorld(MemoryDirectory({journal: left[journal]}))


# Crashes


PATHS = [f"/{a}" for a in "abc"] + [f"/{a}/{b}" for a in "abc" for b in "xyz"]


def random_operations(dice: random.Random, known: set[str]) -> list[Operation]:
    """One to three that mostly fit the nodes that are there."""
    operations: list[Operation] = []
    for _ in range(dice.choice([1, 1, 2, 3])):
        path = dice.choice(PATHS)
        is_known = path in known
        if dice.random() < 0.05:
            is_known = not is_known
        if not is_known:
            is_ephemeral = path.count("/") > 1 and dice.random() < 0.2
            operations.append(Create(path, dice.randbytes(dice.randrange(60)), is_ephemeral))
        elif dice.random() < 0.7:
            operations.append(SetData(path, dice.randbytes(dice.choice([0, 50, 50, 5000]))))
        else:
            operations.append(Delete(path))
    return operations


def lasting(world: LocalWorld) -> dict[str, Any]:
    """What a restart leaves: creation ids may differ when unanswered submissions are lost."""
    return {path: node for path, node in everything(world) if node.owner == 0}


class Crashing:
    """One run of random submissions on a disk that stops at a given operation."""

    OPTIONS: dict[str, int] = {"journal_bound_bytes": 3000, "reserve_bytes": 1024}

    def __init__(self, seed: int, crash_at: int | None, *, is_full_at_times: bool = False) -> None:
        self.dice = random.Random(seed)
        self.is_full_at_times = is_full_at_times
        self.disk = MemoryDirectory()
        self.disk.crash_at = crash_at
        #: The tree after each submission, unless that was refused.
        self.history: list[dict[str, Any]] = [dict(Tree().nodes)]
        self.last_done = 0

    def run(self, submissions: int = 60) -> bool:
        """Whether it came to the end without a crash."""
        try:
            world = LocalWorld(self.disk, self.dice, **self.OPTIONS)
            for _ in range(submissions):
                number = len(self.history)
                operations = random_operations(self.dice, set(world.store._tree.nodes))
                world.store.submit(operations, lambda o, n=number: self._answered(o, n))
                self.history.append(dict(world.store._tree.nodes))
                if self.is_full_at_times and self.dice.random() < 0.2:
                    is_full = self.disk.capacity is not None
                    self.disk.capacity = None if is_full else self.disk.used()
                for _ in range(self.dice.randrange(6)):
                    world.turns.step()
            world.turns.run()
        except Crashed:
            return False
        return True

    def _answered(self, outcome: Any, number: int) -> None:
        if outcome == Refused(RefusalReason.DISK_FULL, -1, ""):
            self.history[number] = {}
        else:
            assert isinstance(outcome, Done | Refused)
            self.last_done = number

    def check(self, disk: MemoryDirectory) -> None:
        world = LocalWorld(disk, **self.OPTIONS)
        found = lasting(world)
        possible = [
            {path: node for path, node in state.items() if node.owner == 0}
            for state in self.history[self.last_done :]
        ]
        assert found in possible
        # And life goes on: nothing that was cut comes back.
        assert isinstance(submit(world, Create("/later")), Done)
        world.restart()
        expected = dict(found)
        later = lasting(world)
        assert later.pop("/later").version == 0
        assert later == expected


@pytest.mark.parametrize("is_full_at_times", [False, True], ids=["", "full at times"])
@pytest.mark.parametrize("seed", range(5))
def test_a_crash_before_any_operation_on_the_disk_loses_nothing_answered(
    seed: int, is_full_at_times: bool
) -> None:
    crash_at = 0
    is_over = False
    while not is_over:
        crash_at += 1
        run = Crashing(seed, crash_at, is_full_at_times=is_full_at_times)
        is_over = run.run()
        run.check(MemoryDirectory(run.disk.contents()))  # kill -9
        for power_loss in range(3):
            run.check(run.disk.after_crash(random.Random(power_loss)))
    assert crash_at > 50
