"""Metadata: answers of any size in turns of the loop, each topic as it is then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.requests import NewTopic, TopicReference
from broker.model.ids import BrokerId
from broker.server import tasks
from broker.server.handlers import metadata
from broker.server.tasks import called_back
from tests.broker.server.running import Running, on_loop, running
from tests.support.wire import Wire

UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, INVALID_TOPIC = 3, 5, 17


async def create(r: Running, *names: str, partitions: int = 1) -> None:
    topics = [NewTopic(name, partition_count=partitions) for name in names]
    results = await called_back(r.broker.controller.create_topics, topics, False)
    assert all(result.is_success for result in results)


def names_of(answer: Any) -> list[str]:
    return [topic.name for topic in answer.topics]


@pytest.fixture
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "TOPICS_AT_ONCE", 3)
    monkeypatch.setattr(metadata, "PARTITIONS_AT_ONCE", 3)
    monkeypatch.setattr(tasks, "TURN_NS", 0)


@pytest.mark.usefixtures("small_turns")
@on_loop
async def test_many_topics_are_told_in_many_turns(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        names = [f"t{number}" for number in range(50)]
        await create(r, *names)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        for _ in range(2):  # encoded anew, and known
            turns = 0
            answer = await r.request("metadata", 12, topics=None)
            assert sorted(names_of(answer)) == sorted(names)
            assert turns >= 50
        counting.cancel()


@pytest.mark.usefixtures("small_turns")
@pytest.mark.parametrize("version", [0, 1, 4, 5, 7, 8, 9, 12])
def test_a_large_topic_encoded_in_portions_has_the_bytes_that_it_has_in_one(
    version: int, tmp_path: Path
) -> None:
    @on_loop
    async def compare() -> None:
        async with running(tmp_path) as r:
            await create(r, "large", partitions=10)
            topic = r.broker.image.topics["large"]
            *portions, whole = metadata.FragmentCache().get_in_steps(version, topic, True)
            assert portions == [None] * 4
            assert whole == metadata.FragmentCache().get(version, topic, True)
            answer = await r.request("metadata", version, topics=[{"name": "large"}])
            (told,) = answer.topics
            assert [p.partition_index for p in told.partitions] == list(range(10))

    compare()


@pytest.mark.usefixtures("small_turns")
@on_loop
async def test_a_topic_deleted_between_two_turns_is_left_out_and_forgotten(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as r:
        await create(r, *(f"t{number}" for number in range(20)))
        cache = r.broker.fragments
        known, seen = cache.get, []

        def get(version: int, topic: Any, with_operations: bool) -> bytes:
            seen.append(topic.name)
            if len(seen) == 3:
                r.broker.controller.delete_topics([TopicReference(name="t19")], lambda _: None)
            return known(version, topic, with_operations)

        cache.get = get  # type: ignore[method-assign]
        for _ in range(2):
            await r.request("metadata", 12, topics=None)
        await r.until(lambda: "t19" not in r.broker.image.topics)
        answer = await r.request("metadata", 12, topics=None)
        assert "t19" not in names_of(answer)
        assert all("t19" not in fragments for fragments in cache._by_layout.values())


@on_loop
async def test_what_is_missing_is_told_in_the_order_of_the_request(tmp_path: Path) -> None:
    async with running(tmp_path, auto_create_topics_enable="false") as r:
        await create(r, "here")
        answer = await r.request(
            "metadata", 9, topics=[{"name": "gone"}, {"name": "here"}, {"name": "a/b"}]
        )
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("gone", UNKNOWN_TOPIC_OR_PARTITION),
            ("here", 0),
            ("a/b", INVALID_TOPIC),
        ]


@on_loop
async def test_clients_that_ask_for_a_new_topic_at_once_all_find_it_whole(tmp_path: Path) -> None:
    """Never a part of its partitions, nor a leader that is not there yet (C175, C176)."""
    async with running(tmp_path, num_partitions="7") as r:

        def ask(wire: Wire) -> Any:
            (topic,) = wire.request(
                "metadata", 9, topics=[{"name": "anew"}], allow_auto_topic_creation=True
            ).topics
            return topic.error_code, len(topic.partitions), {p.leader_id for p in topic.partitions}

        answers = await asyncio.gather(*(r.call(ask) for _ in range(10)))
        assert set(map(str, answers)) == {str((0, 7, {1}))}


@on_loop
async def test_a_changed_topic_is_encoded_anew(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        await create(r, "grows")
        assert len((await r.request("metadata", 12, topics=None)).topics[0].partitions) == 1
        await r.request(
            "create_partitions",
            3,
            timeout=1000,
            validate_only=False,
            topics=[{"name": "grows", "count": 4, "assignments": None}],
        )
        assert len((await r.request("metadata", 12, topics=None)).topics[0].partitions) == 4


@on_loop
async def test_a_broker_that_seems_dead_leads_nothing_until_it_is_known_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as r:
        await create(r, "here")
        own = BrokerId(r.broker.config.node_id)

        async def told() -> tuple[int, int]:
            (topic,) = (await r.request("metadata", 9, topics=[{"name": "here"}])).topics
            (partition,) = topic.partitions
            return partition.leader_id, partition.error_code

        assert await told() == (own, 0)
        r.broker.fragments.on_doubted(frozenset({own}))
        assert await told() == (-1, LEADER_NOT_AVAILABLE)
        r.broker.fragments.on_doubted(frozenset())
        assert await told() == (own, 0)


@pytest.mark.usefixtures("small_turns")
@on_loop
async def test_what_was_encoded_while_a_broker_came_to_be_doubted_is_not_kept(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as r:
        await create(r, "large", partitions=10)
        topic, cache = r.broker.image.topics["large"], r.broker.fragments
        steps = cache.get_in_steps(9, topic, False)
        assert next(steps) is None
        cache.on_doubted(frozenset({BrokerId(r.broker.config.node_id)}))
        *_, mixed = steps
        assert not cache.is_known(9, topic, False)
        assert cache.get(9, topic, False) != mixed
