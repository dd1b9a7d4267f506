"""The whole broker: the order of its start and of its stop, and what a stop may meet."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from broker.config.topic_config import DEFAULT_TOPIC_CONFIG
from broker.model.errors import DiskFullError
from broker.model.ids import TopicPartition
from broker.records import validation
from broker.replication import replica_manager
from broker.server.app import Broker
from broker.server.commands import COMMANDS
from broker.server.start_error import StartError, StartInterrupted
from broker.storage.context import OpeningInterrupted, StorageContext
from broker.storage.filesystem import RealFileSystem
from broker.storage.recovery import LoadRules, load_log
from tests.broker.server.running import on_loop, running
from tests.support import record_batches, requests
from tests.support.wire import Wire


def is_clean(directory: Path) -> bool:
    return (directory / "logs" / ".kafka_cleanshutdown").exists()


@on_loop
async def test_what_was_written_is_there_after_a_stop_and_a_start(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        await r.call(requests.create_topic, "orders", configs={"retention.ms": "-1"})
        await r.call(requests.produce_values, "orders", [b"a", b"b"])
        topic_id = await r.call(requests.topic_id, "orders")
        cluster_id = r.broker.cluster_id
    assert is_clean(tmp_path)
    async with running(tmp_path) as r:
        assert not is_clean(tmp_path)
        assert r.broker.cluster_id == cluster_id
        assert await r.call(requests.topic_id, "orders") == topic_id
        records = await r.call(requests.read_all, "orders")
        assert [record.value for record in records] == [b"a", b"b"]
        topic = r.broker.image.topics["orders"]
        assert topic.partitions[0].leader_epoch == 0  # a clean stop raises nothing


@on_loop
async def test_a_stop_waits_for_acknowledgements_under_way(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        await r.call(requests.create_topic, "orders", configs={"flush.messages": "1"})
        data = record_batches.batch([b"v"], timestamp=requests.now_ms())
        may_sync = threading.Event()
        r.broker.replicas._background = Slow(r.broker.threads, may_sync)  # type: ignore[assignment]
        r.broker.replicas._flushes._background = r.broker.replicas._background
        pending = asyncio.ensure_future(r.call(requests.try_produce, "orders", data))
        await r.until(
            lambda: any(c.is_producing for each in r.broker.listeners for c in each.connections)
        )
        stopping = asyncio.ensure_future(r.broker.stop())
        await asyncio.sleep(0)
        may_sync.set()
        answer = await pending
        assert answer.error_code == 0
        await stopping
        r.broker.stop = nothing  # type: ignore[method-assign]
    assert is_clean(tmp_path)


async def nothing() -> None:
    """It was stopped already."""


class Slow:
    """Threads whose syncs wait for a word; the kernel syncs nothing by itself."""

    can_datasync = False

    def __init__(self, threads: Any, may_sync: threading.Event) -> None:
        self._threads = threads
        self._may_sync = may_sync

    def flush(self, work: Any, then: Any) -> None:
        def wait_and_work() -> Any:
            self._may_sync.wait(30)
            return work()

        self._threads.flush(wait_and_work, then)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threads, name)


@on_loop
async def test_a_stop_waits_for_batches_that_are_walked_before_it_closes_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has gone, but the batch comes back and is appended: before the logs close."""
    may_walk, is_walking = threading.Event(), threading.Event()

    def walk(*arguments: Any) -> Any:
        is_walking.set()
        may_walk.wait(30)
        return validation.walk(*arguments)

    monkeypatch.setattr(replica_manager, "walk", walk)
    async with running(tmp_path) as r:
        await r.call(requests.create_topic, "orders", configs={"cleanup.policy": "compact"})
        records = [record_batches.Record(b"k", b"v" * 10_000, requests.now_ms())]
        data = record_batches.batch(records, codec=record_batches.GZIP)
        client = await asyncio.to_thread(Wire, r.address)
        client.send("produce", 9, **requests.produce_fields("orders", 0, data))
        await r.until(is_walking.is_set)
        client.close()
        stopping = asyncio.ensure_future(r.broker.stop())
        await asyncio.sleep(0.05)
        assert not is_clean(tmp_path)
        may_walk.set()
        await stopping
        r.broker.stop = nothing  # type: ignore[method-assign]
    assert is_clean(tmp_path)
    async with running(tmp_path) as r:
        assert await r.call(requests.end_offset, "orders") == 1
        assert len(await r.call(requests.read_all, "orders")) == 1


@on_loop
async def test_a_stop_does_not_wait_for_long_polls(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        await r.call(requests.create_topic, "orders")
        polling = asyncio.ensure_future(
            r.call(
                Wire.request, "fetch", 11,
                **requests.fetch_fields("orders", {0: 0}, max_wait=600_000),
            )
        )  # fmt: skip
        await r.until(
            lambda: any(c.is_waiting for each in r.broker.listeners for c in each.connections)
        )
    assert is_clean(tmp_path)
    with pytest.raises(Exception, match="closed"):
        await polling


@on_loop
async def test_a_stop_in_the_middle_of_metadata_changes_is_clean(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        client = await asyncio.to_thread(Wire, r.address)
        topics = [
            {"name": f"t{number}", "num_partitions": 3, "replication_factor": 1}
            for number in range(300)
        ]
        client.send("create_topics", 7, timeout=1000, topics=topics)
        await r.until(lambda: bool(r.broker.image.topics))
    client.close()
    assert is_clean(tmp_path)
    async with running(tmp_path) as r:
        made = len(r.broker.image.topics)
        assert 0 < made <= 300
        for name in tuple(r.broker.image.topics)[:: max(1, made // 5)]:
            assert await r.call(requests.produce_values, name, [b"v"]) == 0


@on_loop
async def test_a_start_that_fails_gives_everything_back(tmp_path: Path) -> None:
    async with running(tmp_path / "first") as r:
        port = r.address[1]
        with pytest.raises(StartError, match=f"{port}"):
            async with running(tmp_path / "second", listeners=f"PLAINTEXT://127.0.0.1:{port}"):
                pass
    assert not (tmp_path / "second" / "control.sock").exists()


@on_loop
async def test_clients_are_served_only_when_all_is_ready(tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "logs"),
    }
    broker = Broker(tmp_path, settings, asyncio.get_running_loop())
    starting = asyncio.ensure_future(broker.start())
    while not starting.done():
        assert not broker.listeners or broker.is_hosting
        await asyncio.sleep(0)
    await starting
    assert broker.is_ready
    await broker.stop()
    assert not broker.is_ready


# A start that meets trouble


def as_after_a_kill(directory: Path) -> None:
    """Neither the mark nor a recovery point is left."""
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (directory / "logs" / name).unlink()


@on_loop
async def test_a_stop_during_recovery_is_obeyed_and_the_next_start_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as r:
        await r.call(requests.create_topic, "orders", partitions=3)
        for index in range(3):
            await r.call(requests.produce_values, "orders", [b"v"], partition=index)
    as_after_a_kill(tmp_path)
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "logs")}
    broker = Broker(tmp_path, settings, asyncio.get_running_loop())

    def check(context: StorageContext) -> None:
        """The first look into a log is when the signal comes."""
        broker.loop.call_soon_threadsafe(broker.request_stop)
        while not context.is_interrupted:
            time.sleep(0.001)
        raise OpeningInterrupted

    with monkeypatch.context() as patched:
        patched.setattr(StorageContext, "check_interrupt", check)
        async with asyncio.timeout(20):
            with pytest.raises(StartInterrupted):
                await broker.start()
        await broker.abandon()
    assert broker.listeners == []
    assert not is_clean(tmp_path)
    async with running(tmp_path) as r:
        for index in range(3):
            assert await r.call(requests.end_offset, "orders", partition=index) == 1
        # It knows that the run before did not end in order.
        assert r.broker.image.topics["orders"].partitions[0].leader_epoch == 1


@on_loop
async def test_recovery_itself_looks_out_for_a_stop(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        await r.call(requests.create_topic, "orders")
        await r.call(requests.produce_values, "orders", [b"v"])
    as_after_a_kill(tmp_path)
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "logs")}
    broker = Broker(tmp_path, settings, asyncio.get_running_loop())
    broker.request_stop()
    with pytest.raises(StartInterrupted):
        await broker.start()
    await broker.abandon()
    context = StorageContext(RealFileSystem(), str(tmp_path / "logs"))
    context.is_interrupted = True
    rules = LoadRules(0, 0, was_clean=False, power_was_lost=False, now_ms=requests.now_ms())
    with pytest.raises(OpeningInterrupted):
        load_log(
            context, f"{tmp_path}/logs/orders-0", TopicPartition("orders", 0),
            DEFAULT_TOPIC_CONFIG, rules,
        )  # fmt: skip


@on_loop
async def test_a_start_on_a_full_disk_serves_and_makes_up_for_the_sync_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as r:
        await r.call(requests.create_topic, "orders", configs={"flush.messages": "1"})
        await r.call(requests.produce_values, "orders", [b"v"])
    as_after_a_kill(tmp_path)
    (tmp_path / "logs" / "orders-0" / "leader-epoch-checkpoint").unlink()
    known = RealFileSystem.open
    is_full = True

    def open_(self: RealFileSystem, path: str, *, create: bool = False, **options: Any) -> Any:
        if create and is_full and "leader-epoch" in path:
            raise DiskFullError("no space left on device")
        return known(self, path, create=create, **options)

    monkeypatch.setattr(RealFileSystem, "open", open_)
    async with asyncio.timeout(30):
        async with running(tmp_path) as r:
            assert await r.call(requests.end_offset, "orders") == 0  # not known to be on disk
            is_full = False
            partition = r.broker.replicas.find("orders", 0)
            await r.until(lambda: partition.high_watermark == 1)
            assert await r.call(requests.end_offset, "orders") == 1


@on_loop
async def test_groups_whose_partition_was_repaired_are_served_again(tmp_path: Path) -> None:
    async with running(tmp_path, offsets_topic_num_partitions="1") as r:
        await r.request("find_coordinator", 3, key="g", key_type=0)
        await r.until(lambda: "__consumer_offsets" in r.broker.image.topics)
        await r.until(lambda: len(r.broker.logs.logs) == 1)
    as_after_a_kill(tmp_path)
    # Two segments that overlap: no crash explains that.
    directory = tmp_path / "logs" / "__consumer_offsets-0"
    batch = record_batches.batch([b"v"], timestamp=requests.now_ms())
    (directory / f"{0:020d}.log").write_bytes(batch + b"torn")
    (directory / f"{1:020d}.log").write_bytes(batch)
    async with running(tmp_path, offsets_topic_num_partitions="1") as r:
        assert r.broker.coordination.groups.runtime.hosted(0) is None
        ask = {"topic": "__consumer_offsets", "partition": 0, "how": "set-aside"}
        with pytest.raises(ValueError, match="not offline"):
            await COMMANDS["repair"](r.broker, {**ask, "partition": 1})
        with pytest.raises(ValueError, match="how"):
            await COMMANDS["repair"](r.broker, {**ask, "how": "magic"})
        told = await COMMANDS["repair"](r.broker, ask)
        assert (told["start_offset"], told["end_offset"]) == (0, 0)
        assert r.broker.coordination.groups.runtime.hosted(0) is not None
        assert (await COMMANDS["offline"](r.broker, {}))["partitions"] == []
