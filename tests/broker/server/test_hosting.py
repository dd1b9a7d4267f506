"""From images to directories: in turns of the loop, in order, and never in the controller's way."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import pytest

from broker.metadata.requests import NewTopic, TopicReference
from broker.server import tasks
from broker.server.hosting import produce_rules
from broker.server.tasks import called_back
from tests.broker.server.running import Running, on_loop, running
from tests.broker.storage.build import config
from tests.support import requests

KAFKA_STORAGE_ERROR = 56


def directories(data: Path) -> Counter[str]:
    """How many partition directories there are of each kind."""
    kinds: Counter[str] = Counter()
    for entry in (data / "logs").iterdir():
        if entry.is_dir():
            _, _, kind = entry.name.rpartition("-")
            kinds["live" if kind.isdigit() else kind] += 1
    return kinds


async def create(r: Running, name: str, partitions: int = 1) -> None:
    """Created, and every directory made."""
    (result,) = await called_back(
        r.broker.controller.create_topics, [NewTopic(name, partition_count=partitions)], False
    )
    assert result.is_success, result
    await r.until(lambda: all(r.broker.replicas.topics[name].partitions))


async def delete(r: Running, name: str) -> None:
    (result,) = await called_back(r.broker.controller.delete_topics, [TopicReference(name=name)])
    assert result.is_success, result


@on_loop
async def test_directories_of_many_partitions_are_made_and_renamed_in_many_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "TURN_NS", 0)
    async with running(tmp_path) as r:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await create(r, "many", 120)
        assert turns >= 120
        assert directories(tmp_path)["live"] == 120
        turns = 0
        await delete(r, "many")
        await r.broker.deletions_done()
        assert turns >= 120
        assert directories(tmp_path) == {"delete": 120}
        counting.cancel()


@on_loop
async def test_a_topic_made_anew_at_once_never_meets_the_old_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "TURN_NS", 0)
    async with running(tmp_path) as r:
        await create(r, "again", 30)
        for index in range(30):
            await r.call(requests.produce_values, "again", [b"old"], partition=index)
        await asyncio.gather(
            called_back(r.broker.controller.delete_topics, [TopicReference(name="again")]),
            called_back(
                r.broker.controller.create_topics, [NewTopic("again", partition_count=40)], False
            ),
        )
        for index in range(40):
            assert await r.call(requests.end_offset, "again", partition=index) == 0
        await r.broker.deletions_done()
        assert directories(tmp_path) == {"delete": 30, "live": 40}


@on_loop
async def test_a_directory_that_cannot_be_renamed_does_not_hold_up_the_controller(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as r:
        await create(r, "lost", 2)
        await create(r, "kept")
        shutil.rmtree(tmp_path / "logs" / "lost-1")
        answer = await r.request(
            "delete_topics", 6, timeout=1000, topics=[{"name": "lost"}, {"name": "kept"}]
        )
        assert [each.error_code for each in answer.responses] == [0, 0]
        # Its log directory cannot be trusted any more; the metadata goes on.
        answer = await r.request(
            "create_topics",
            7,
            timeout=1000,
            topics=[{"name": "next", "num_partitions": 1, "replication_factor": 1}],
        )
        assert answer.topics[0].error_code == 0
        data = requests.record_batches.batch([b"v"], timestamp=requests.now_ms())
        part = await r.call(requests.try_produce, "next", data)
        assert part.error_code == KAFKA_STORAGE_ERROR


@on_loop
async def test_another_log_directory_takes_over_from_one_that_failed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with running(tmp_path, log_dirs=f"{first},{second}") as r:
        await create(r, "lost", 2)
        shutil.rmtree(first / next(p.name for p in first.iterdir() if p.name.startswith("lost-")))
        await delete(r, "lost")
        await r.broker.deletions_done()
        await create(r, "next", 4)
        assert {p.name for p in second.iterdir() if p.name.startswith("next-")} == {
            f"next-{index}" for index in range(4)
        }


@on_loop
async def test_new_defaults_of_the_broker_hold_for_all_topics_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "TURN_NS", 0)
    async with running(tmp_path) as r:
        for number in range(50):
            await create(r, f"t{number}")
        answer = await r.call(
            requests.alter_config, "", "log.retention.ms", "4711", resource_type=4
        )
        assert answer.error_code == 0
        found = [topic.partitions[0].log.config for topic in r.broker.replicas.topics.values()]
        assert {each.retention_ms for each in found} == {4711}


@on_loop
async def test_new_defaults_without_any_topic_are_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        answer = await r.call(
            requests.alter_config, "", "log.retention.ms", "4711", resource_type=4
        )
        assert answer.error_code == 0


@on_loop
async def test_a_stop_while_directories_are_made_is_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as r:
        await called_back(
            r.broker.controller.create_topics, [NewTopic("many", partition_count=2000)], False
        )
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
    async with running(tmp_path) as r:
        await r.until(lambda: all(r.broker.replicas.topics["many"].partitions))
        assert directories(tmp_path)["live"] == 2000


@on_loop
async def test_a_stop_waits_for_deletions_and_the_next_start_finds_nothing_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as r:
        await create(r, "gone", 50)
        monkeypatch.setattr(tasks, "TURN_NS", 0)
        await delete(r, "gone")
    assert directories(tmp_path) == {"delete": 50}
    async with running(tmp_path) as r:
        assert "gone" not in r.broker.replicas.topics
        await r.until(lambda: not directories(tmp_path))


def test_a_batch_may_not_decompress_without_bound() -> None:
    rules = produce_rules(config())
    assert rules.max_decompressed_bytes <= 64 * 1024 * 1024


@pytest.mark.interpreted
@on_loop
async def test_a_fault_at_one_directory_leaves_the_others_to_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as r:
        faults: list[object] = []
        r.broker.loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
        materialise = r.broker.replicas.materialise

        def fail_once(name: str, index: int) -> None:
            if not faults and index == 1:
                raise RuntimeError("a fault of ours")
            materialise(name, index)

        monkeypatch.setattr(r.broker.replicas, "materialise", fail_once)
        await called_back(
            r.broker.controller.create_topics, [NewTopic("t", partition_count=4)], False
        )
        topic = r.broker.replicas.topics["t"]
        await r.until(lambda: all(topic.partitions[index] for index in (0, 2, 3)))
        assert [str(fault) for fault in faults] == ["a fault of ours"]
