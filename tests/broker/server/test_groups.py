"""Groups in a whole broker: over the wire, over a restart, and while things go wrong."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.group.shard import GroupShard
from broker.model.error_code import ErrorCode
from broker.model.errors import DiskFullError, StorageError
from broker.model.internal_topics import CONSUMER_OFFSETS
from broker.model.transaction_marker import TransactionMarker
from broker.protocol.api_versions import SERVED, ApiKey
from broker.records.builder import build_batch
from broker.records.compression import Codec
from broker.records.control import build_marker
from broker.records.header import peek_header
from broker.records.record import Record
from broker.replication.partition import Partition
from broker.server import coordinator_host, coordinator_log, tasks
from broker.server.handlers import HANDLERS
from tests.broker.server.running import Running, on_loop, running
from tests.support import group_requests as groups
from tests.support import record_batches, requests
from tests.support.wire import Wire

QUICK = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "3"}


def quick(directory: Path, **settings: str) -> Any:
    return running(directory, **{**QUICK, **settings})


async def prepared(r: Running, partitions: int = 2) -> None:
    await r.call(requests.create_topic, "t", partitions=partitions)
    await r.call(groups.find, "g")


# --- Over the wire ----------------------------------------------------------------------------


@on_loop
async def test_the_first_who_asks_makes_the_offsets_topic(tmp_path: Path) -> None:
    async with quick(tmp_path, offsets_topic_segment_bytes="1048576") as r:
        answer = await r.request("offset_fetch", 7, group_id="g", topics=None)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        assert (await r.call(groups.list_groups)).groups == []
        found = await r.request("find_coordinator", 1, key="g", key_type=0)
        assert (found.error_code, found.node_id, found.port) == (0, 1, r.address[1])
        topic = r.broker.image.topics[CONSUMER_OFFSETS]
        assert len(topic.partitions) == 3
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "1048576",
        }


@on_loop
async def test_coordinators_that_there_are_not(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        for key_type, code in ((2, 15), (3, 42)):
            answer = await r.request(
                "find_coordinator", 6, key_type=key_type, coordinator_keys=["a", "b"]
            )
            assert [each.error_code for each in answer.coordinators] == [code, code]
        answer = await r.request("find_coordinator", 5, key_type=2, coordinator_keys=["a"])
        assert answer.coordinators[0].error_code == 42
        assert CONSUMER_OFFSETS not in r.broker.image.topics


@on_loop
async def test_every_version_of_a_members_requests(tmp_path: Path) -> None:
    def live(wire: Wire, version: int) -> None:
        def at(key: ApiKey) -> int:
            return min(max(version, SERVED[key].min_version), SERVED[key].max_version)

        name = f"g{version}"
        joined = groups.join(wire, name, version=at(ApiKey.JOIN_GROUP))
        assert (joined.error_code, joined.generation_id) == (0, 1)
        fields: dict[str, Any] = {"group_id": name, "generation_id": 1}
        synced = wire.request(
            "sync_group",
            at(ApiKey.SYNC_GROUP),
            **fields,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": joined.member_id, "assignment": b"mine"}],
        )
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        beat = wire.request("heartbeat", at(ApiKey.HEARTBEAT), **fields, member_id=joined.member_id)
        assert beat.error_code == 0
        described = wire.request("describe_groups", at(ApiKey.DESCRIBE_GROUPS), groups=[name])
        (group,) = described.groups
        assert (group.group_state, group.protocol_data) == ("Stable", "range")
        assert group.members[0].client_host == "/127.0.0.1"
        listed = wire.request("list_groups", at(ApiKey.LIST_GROUPS))
        assert name in [each.group_id for each in listed.groups]
        left = wire.request(
            "leave_group",
            at(ApiKey.LEAVE_GROUP),
            group_id=name,
            member_id=joined.member_id,
            members=[{"member_id": joined.member_id, "group_instance_id": None}],
        )
        assert left.error_code == 0
        assert [each.error_code for each in getattr(left, "members", [])] in ([], [0])
        if version != 3:  # the tests' schemas have no request of that version
            deleted = wire.request(
                "delete_groups", at(ApiKey.DELETE_GROUPS), groups_names=[name, name]
            )
            assert [each.error_code for each in deleted.results] == [0]

    async with quick(tmp_path) as r:
        await prepared(r)
        for version in range(10):
            await r.call(live, version)


@on_loop
async def test_offsets_by_name_and_by_id_in_every_version(tmp_path: Path) -> None:
    def live(wire: Wire) -> None:
        topic_id = requests.topic_id(wire, "t")
        for version in range(2, 11):
            topic: dict[str, Any] = {"topic_id": topic_id} if version == 10 else {"name": "t"}
            partition = {
                "partition_index": 1,
                "committed_offset": version,
                "committed_leader_epoch": 3,
                "committed_metadata": "m",
            }
            answer = wire.request(
                "offset_commit",
                version,
                group_id="g",
                generation_id_or_member_epoch=-1,
                member_id="",
                retention_time=-1,
                topics=[{**topic, "partitions": [partition, {**partition, "partition_index": 9}]}],
            )
            (told,) = answer.topics
            assert [(each.partition_index, each.error_code) for each in told.partitions] == [
                (9, 3),
                (1, 0),
            ]
            for fetch in range(1, 11):
                asked: dict[str, Any] = {"topic_id": topic_id} if fetch == 10 else {"name": "t"}
                asked["partition_indexes"] = [1]
                group = {"group_id": "g", "topics": [asked], "member_epoch": -1}
                named = {"groups": [group]} if fetch >= 8 else {"group_id": "g", "topics": [asked]}
                answer = wire.request("offset_fetch", fetch, **named)
                (told,) = answer.topics if fetch < 8 else answer.groups[0].topics
                (found,) = told.partitions
                assert (found.committed_offset, found.metadata) == (version, "m")
                if fetch >= 5:
                    assert found.committed_leader_epoch == (3 if version >= 6 else -1)

    async with quick(tmp_path) as r:
        await prepared(r)
        await r.call(live)


@on_loop
async def test_clients_do_not_write_to_the_offsets_topic(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        await prepared(r)
        data = record_batches.batch([b"v"], key=b"k", timestamp=requests.now_ms())
        answer = await r.call(requests.try_produce, CONSUMER_OFFSETS, data)
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@on_loop
async def test_ten_thousand_groups_are_listed_in_turns_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quick(tmp_path) as r:
        await prepared(r)

        def fill(wire: Wire) -> None:
            for number in range(10_000):
                assert groups.commit(wire, f"group-{number}", "t", {0: number}) == [0]

        await r.call(fill)
        turns = 0
        pass_on = tasks.Turn.pass_on

        async def counted(turn: tasks.Turn) -> None:
            nonlocal turns
            turns += 1
            await pass_on(turn)

        monkeypatch.setattr(tasks, "TURN_NS", 0)  # every group takes a turn of its own
        monkeypatch.setattr(tasks.Turn, "pass_on", counted)
        listed = await r.call(groups.list_groups)
        assert len(listed.groups) == 10_000
        assert turns >= 10_000


# --- Restart ----------------------------------------------------------------------------------


@on_loop
async def test_offsets_and_a_stable_group_are_there_after_a_restart(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        await prepared(r)
        member = await r.call(groups.become_member, "g")
        assert await r.call(member.commit, "t", {0: 5, 1: 6}) == [0, 0]
        assert await r.call(groups.commit, "other", "t", {0: 9}) == [0]
    async with quick(tmp_path) as r:
        assert await r.call(groups.committed, "g") == {("t", 0): 5, ("t", 1): 6}
        assert await r.call(groups.committed, "other") == {("t", 0): 9}
        assert await r.call(member.heartbeat) == 0
        group = await r.call(groups.describe, "g")
        assert group.group_state == "Stable"
        assert group.members[0].member_assignment == member.assignment
        assert await r.call(member.commit, "t", {0: 7}) == [0]


@on_loop
async def test_a_member_that_does_not_come_back_is_removed(tmp_path: Path) -> None:
    async with quick(tmp_path, group_min_session_timeout_ms="100") as r:
        await prepared(r)
        await r.call(groups.become_member, "g", session_ms=200)
    async with quick(tmp_path, group_min_session_timeout_ms="100") as r:

        def until_empty(wire: Wire) -> None:
            while groups.describe(wire, "g").group_state != "Empty":
                time.sleep(0.01)

        await asyncio.wait_for(r.call(until_empty), 30)


@on_loop
async def test_deletions_outlast_a_restart(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        await prepared(r)
        for group_id in ("gone", "less"):
            assert await r.call(groups.commit, group_id, "t", {0: 5, 1: 6}) == [0, 0]
        await r.request("delete_groups", 2, groups_names=["gone"])
        await r.request(
            "offset_delete",
            0,
            group_id="less",
            topics=[{"name": "t", "partitions": [{"partition_index": 1}]}],
        )
    async with quick(tmp_path) as r:
        assert await r.call(groups.committed, "gone") == {}
        assert await r.call(groups.committed, "less") == {("t", 0): 5}
        listed = await r.call(groups.list_groups)
        assert [each.group_id for each in listed.groups] == ["less"]


@on_loop
async def test_offsets_of_a_deleted_topic_go_also_when_the_broker_is_stopped_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quick(tmp_path) as r:
        await prepared(r)
        await r.call(requests.create_topic, "gone")
        await r.call(requests.create_topic, "forgotten")
        for topic in ("t", "gone", "forgotten"):
            assert await r.call(groups.commit, "g", topic, {0: 5}) == [0]
        await r.call(requests.delete_topic, "gone")
        shard = r.broker.coordination.groups
        index = shard.index_of("g")
        hosted = shard.runtime.hosted(index)
        assert hosted is not None
        await r.until(lambda: "gone" not in hosted.shard.offsets.of_group("g"))
        monkeypatch.setattr(r.broker.coordination, "_spawn_forgetting", lambda deleted: None)
        await r.call(requests.delete_topic, "forgotten")
        assert "forgotten" in hosted.shard.offsets.of_group("g")
    async with quick(tmp_path) as r:

        def until_forgotten(wire: Wire) -> None:
            while set(groups.committed(wire, "g")) != {("t", 0)}:
                time.sleep(0.01)

        await asyncio.wait_for(r.call(until_forgotten), 30)


@on_loop
async def test_loading_holds_up_nobody_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quick(tmp_path, offsets_topic_num_partitions="1") as r:
        await prepared(r)
        member = await r.call(groups.become_member, "g", session_ms=30_000)

        def fill(wire: Wire) -> None:
            for number in range(3_000):
                assert groups.commit(wire, f"group-{number % 10}", "t", {0: number}) == [0]

        await r.call(fill)
    monkeypatch.setattr(coordinator_log, "LOAD_BYTES", 4096)
    may_read = threading.Event()
    read = coordinator_log.LoadingLog._read

    async def slow(self: Any, region: Any) -> bytes:
        await asyncio.to_thread(may_read.wait)
        return await read(self, region)

    monkeypatch.setattr(coordinator_log.LoadingLog, "_read", slow)
    async with quick(tmp_path) as r:
        answer = await r.request("offset_fetch", 7, group_id="group-1", topics=None)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        listed = await r.call(groups.list_groups)
        assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        described = await r.call(groups.describe, "g")
        assert described.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await r.call(member.heartbeat) == 0
        assert await r.call(groups.commit, "group-1", "t", {0: 1}) == [14]
        may_read.set()
        for number in range(10):
            assert await r.call(groups.committed, f"group-{number}") == {("t", 0): 2990 + number}
        assert await r.call(member.heartbeat) == 0


@on_loop
async def test_batches_of_every_kind_are_loaded(tmp_path: Path) -> None:
    """Compressed ones, transactions committed and aborted, damaged records: what a Kafka that was
    here before may have left."""
    from broker.coordinator.group.records import CommittedOffset, offset_record
    from broker.model.ids import ZERO_TOPIC_ID

    def record(offset: int, group: str, committed: int) -> Record:
        value = CommittedOffset(committed, -1, "", requests.now_ms(), -1, ZERO_TOPIC_ID)
        return Record(offset, requests.now_ms(), *offset_record(group, "t", 0, value))

    batches = [
        build_batch([record(n, f"zip-{n}", n) for n in range(3)], codec=codec)
        for codec in (Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY)
    ]
    for producer_id in (7, 8):
        batches.append(
            build_batch(
                [record(0, f"txn-{producer_id}", 5)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        )
    now_ms = requests.now_ms()
    batches += [
        build_marker(TransactionMarker(7, 0, True, 0), now_ms),
        build_marker(TransactionMarker(8, 0, False, 0), now_ms),
        build_batch(
            [
                Record(0, now_ms, b"\0", b"no key"),
                Record(1, now_ms, b"\0\1\0\3cut", b"\0\1"),
                Record(2, now_ms, None, b"null key"),
                record(3, "last", 9),
            ]
        ),
    ]
    async with quick(tmp_path, offsets_topic_num_partitions="1") as r:
        await prepared(r)
        partition = r.broker.replicas.find(CONSUMER_OFFSETS, 0)
        for batch in batches:
            r.broker.replicas.append_own(partition, memoryview(batch), peek_header(batch), now_ms)
    async with quick(tmp_path) as r:
        for number in range(3):
            assert await r.call(groups.committed, f"zip-{number}") == {("t", 0): number}
        assert await r.call(groups.committed, "txn-7") == {("t", 0): 5}
        assert await r.call(groups.committed, "txn-8") == {}
        assert await r.call(groups.committed, "last") == {("t", 0): 9}


@on_loop
async def test_a_fault_while_loading_leaves_no_shard_that_loads_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quick(tmp_path, offsets_topic_num_partitions="1") as r:
        await prepared(r)
        assert await r.call(groups.commit, "g", "t", {0: 5}) == [0]

    def fail(self: Any, *record: Any) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(GroupShard, "replay", fail)
    async with quick(tmp_path) as r:
        await r.until(lambda: not r.broker.coordination.groups.runtime.all_hosted())
        assert await r.call(groups.commit, "g", "t", {0: 6}) == [ErrorCode.NOT_COORDINATOR]
    monkeypatch.undo()
    async with quick(tmp_path) as r:
        assert await r.call(groups.committed, "g") == {("t", 0): 5}


@on_loop
async def test_a_fault_in_one_groups_timer_stops_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quick(tmp_path, group_min_session_timeout_ms="100") as r:
        await prepared(r)
        timers = r.broker.coordination.groups.runtime.timers

        def fail(now_ms: int) -> None:
            raise RuntimeError("a fault of ours")

        await r.call(groups.become_member, "g", session_ms=300)
        timers.set("broken", r.broker.clock.monotonic_ms(), fail)
        await r.until(lambda: all_groups(r)[0].state.value == "Empty")
        assert r.broker.tasks.troubles["a timer of groups"].failures >= 1


# --- What goes wrong --------------------------------------------------------------------------


@on_loop
async def test_an_offset_is_told_once_the_disk_has_it(tmp_path: Path) -> None:
    """The offsets topic with ``flush.messages=1``."""
    async with quick(tmp_path, log_flush_interval_messages="1") as r:
        await prepared(r)
        may_sync = threading.Event()
        r.broker.replicas._flushes._background = Slow(r.broker.threads, may_sync)  # type: ignore[assignment]
        commit = asyncio.ensure_future(r.call(groups.commit, "g", "t", {0: 5}))
        hosted = r.broker.coordination.groups.runtime.hosted
        index = r.broker.coordination.groups.index_of("g")
        await r.until(lambda: hosted(index).shard.offsets.count == 1)  # type: ignore[union-attr]
        fetch = asyncio.ensure_future(r.call(groups.committed, "g"))
        await asyncio.sleep(0.05)
        assert not commit.done()
        assert not fetch.done()
        may_sync.set()
        assert await commit == [0]
        assert await fetch == {("t", 0): 5}


class Slow:
    """Threads whose syncs wait for the test."""

    def __init__(self, threads: Any, may_sync: threading.Event) -> None:
        self._threads = threads
        self._may_sync = may_sync
        self.can_datasync = False

    def flush(self, work: Any, then: Any) -> None:
        def run() -> Any:
            self._may_sync.wait()
            return work()

        self._threads.flush(run, then)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threads, name)


@on_loop
async def test_a_commit_that_the_disk_does_not_take_in_time(tmp_path: Path) -> None:
    async with quick(
        tmp_path, log_flush_interval_messages="1", offsets_commit_timeout_ms="50"
    ) as r:
        await prepared(r)
        may_sync = threading.Event()
        r.broker.replicas._flushes._background = Slow(r.broker.threads, may_sync)  # type: ignore[assignment]
        assert await r.call(groups.commit, "g", "t", {0: 5}) == [15]
        may_sync.set()
        assert await r.call(groups.committed, "g") == {("t", 0): 5}


@pytest.mark.interpreted
@on_loop
async def test_a_disk_without_room_refuses_commits_and_joins_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(*_: Any) -> None:
        raise DiskFullError("no room")

    async with quick(tmp_path) as r:
        await prepared(r)
        member = await r.call(groups.become_member, "g")
        assert await r.call(member.commit, "t", {0: 5}) == [0]
        monkeypatch.setattr(Partition, "append", append)
        assert await r.call(member.commit, "t", {0: 6}) == [ErrorCode.NOT_COORDINATOR]
        joined = await r.call(groups.join, "new")
        assert joined.error_code == ErrorCode.NOT_COORDINATOR
        assert await r.call(member.heartbeat) == 0
        assert await r.call(groups.committed, "g") == {("t", 0): 5}
        monkeypatch.undo()
        assert await r.call(member.commit, "t", {0: 6}) == [0]


@on_loop
async def test_below_the_floor_groups_go_on(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        await prepared(r)
        r.broker.logs.is_below_floor = lambda topic_partition: True  # type: ignore[method-assign]
        member = await r.call(groups.become_member, "g")
        assert await r.call(member.commit, "t", {0: 6}) == [0]
        assert await r.call(groups.committed, "g") == {("t", 0): 6}


@on_loop
async def test_the_offsets_topic_is_deleted_and_made_anew(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        await prepared(r)
        member = await r.call(groups.become_member, "g")
        await r.call(member.commit, "t", {0: 5})
        waiting = asyncio.ensure_future(r.call(groups.join, "g"))
        await r.until(lambda: any(g.awaiting_join_count for g in all_groups(r)))
        await r.call(requests.delete_topic, CONSUMER_OFFSETS)
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert await r.call(member.heartbeat) == ErrorCode.NOT_COORDINATOR
        await r.call(groups.find, "g")
        assert await r.call(groups.committed, "g") == {}
        assert await r.call(member.heartbeat) == ErrorCode.UNKNOWN_MEMBER_ID
        again = await r.call(groups.become_member, "g")
        assert again.generation_id == 1


def all_groups(r: Running) -> list[Any]:
    return [
        group
        for hosted in r.broker.coordination.groups.runtime.all_hosted()
        for group in hosted.shard.groups.values()
    ]


@on_loop
async def test_the_disk_fails_and_nobody_is_left_waiting(tmp_path: Path) -> None:
    async with quick(tmp_path, log_flush_interval_messages="1") as r:
        await prepared(r)
        member = await r.call(groups.become_member, "g")
        joining = asyncio.ensure_future(r.call(groups.join, "g"))
        await r.until(lambda: any(g.awaiting_join_count for g in all_groups(r)))
        may_sync = threading.Event()
        r.broker.replicas._flushes._background = Slow(r.broker.threads, may_sync)  # type: ignore[assignment]
        committing = asyncio.ensure_future(r.call(groups.commit, "other", "t", {0: 5}))
        await r.until(lambda: any(g.group_id == "other" for g in all_groups(r)))
        (directory,) = r.broker.logs.directories
        r.broker.replicas.take_offline(StorageError(directory, "the test says so"))
        assert await committing == [ErrorCode.NOT_COORDINATOR]
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
        assert await r.call(member.heartbeat) == ErrorCode.NOT_COORDINATOR
        assert len(r.broker.coordination.groups.runtime.timers) == 0
        may_sync.set()


@on_loop
async def test_the_offsets_topic_grows(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        await prepared(r)
        answer = await r.request(
            "create_partitions",
            3,
            topics=[{"name": CONSUMER_OFFSETS, "count": 5, "assignments": None}],
            timeout=10_000,
        )
        assert answer.results[0].error_code == 0
        await r.call(groups.find, "g")
        assert len(r.broker.coordination.groups.runtime.all_hosted()) == 5
        for number in range(20):
            assert await r.call(groups.commit, f"g{number}", "t", {0: number}) == [0]


@on_loop
async def test_a_client_that_goes_away_while_it_joins_leaves_a_member_behind(
    tmp_path: Path,
) -> None:
    async with quick(tmp_path) as r:
        await prepared(r)
        first = await r.call(groups.become_member, "g")

        def join_and_go(wire: Wire) -> None:
            wire.send(
                "join_group",
                3,
                group_id="g",
                session_timeout=10_000,
                rebalance_timeout=20_000,
                member_id="",
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": groups.subscription("t")}],
            )

        await r.call(join_and_go)
        await r.until(lambda: len(all_groups(r)[0].members) == 2)
        assert await r.call(first.heartbeat) == ErrorCode.REBALANCE_IN_PROGRESS
        joined = await r.call(groups.join, "g", first.member_id)
        assert (joined.error_code, len(joined.members)) == (0, 2)


@on_loop
async def test_sessions_do_not_end_because_the_loop_was_held_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat has arrived while a handler ran for longer than the session."""
    monkeypatch.setattr(coordinator_host, "LATE_MS", 100)
    handler = HANDLERS[ApiKey.LIST_GROUPS]
    is_held = threading.Event()

    def hold(*arguments: Any) -> Any:
        is_held.set()
        time.sleep(0.8)
        return handler(*arguments)

    monkeypatch.setitem(HANDLERS, ApiKey.LIST_GROUPS, hold)
    async with quick(tmp_path, group_min_session_timeout_ms="100") as r:
        await prepared(r)
        member = await r.call(groups.become_member, "g", session_ms=400)
        with Wire(r.address, timeout=30) as wire:
            assert await asyncio.to_thread(member.heartbeat, wire) == 0

            def beat() -> int:
                is_held.wait()
                return member.heartbeat(wire)

            beating = asyncio.ensure_future(asyncio.to_thread(beat))
            await r.call(groups.list_groups)
            assert await beating == 0


@on_loop
async def test_expired_offsets_go_by_themselves(tmp_path: Path) -> None:
    async with quick(tmp_path, offsets_retention_check_interval_ms="100") as r:
        await commit_for_a_moment(r)
        await r.until(lambda: not all_groups(r))
        assert await r.call(groups.committed, "g") == {}


@on_loop
async def test_expired_offsets_go_when_somebody_asks_who_is_told(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        await commit_for_a_moment(r)
        found: dict[str, int] = {}
        while not found:  # the millisecond may not be over yet
            found = await r.broker.coordination.expire_offsets()
        assert found == {"g": 2}, "the offset, and its group"
        assert await r.broker.coordination.expire_offsets() == {}
        assert await r.call(groups.committed, "g") == {}


async def commit_for_a_moment(r: Running) -> None:
    await prepared(r)
    answer = await r.request(
        "offset_commit",
        4,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time=1,
        topics=[
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
                ],
            }
        ],
    )
    assert answer.topics[0].partitions[0].error_code == 0
