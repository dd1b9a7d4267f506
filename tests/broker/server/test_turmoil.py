"""Many clients at once that do anything at any time; afterwards nothing of them is left behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.storage.filesystem import RealFile
from tests.broker.server.running import Running, on_loop, running
from tests.support import record_batches, requests
from tests.support.wire import ConnectionClosed, Wire

TOPICS = [f"t{number}" for number in range(6)]
CONFIGS = [
    ("flush.messages", "1"),
    ("flush.messages", "9223372036854775807"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"),
    ("compression.type", "zstd"),
    ("compression.type", "producer"),
    ("message.timestamp.type", "LogAppendTime"),
    ("retention.bytes", "0"),
    ("segment.bytes", "1048576"),
]


class Client:
    """One connection after the other, and whatever comes to its mind on it."""

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        self.address = address
        self.dice = random.Random(seed)
        self.session: tuple[int, int] = (0, 0)
        self.errors: set[int] = set()

    def run(self, count: int) -> None:
        left = count
        while left:
            self.session = (0, 0)
            with Wire(self.address, timeout=60) as wire:
                while left and self.dice.random() < 0.97:
                    left -= 1
                    act = self.dice.choice(self.acts())
                    try:
                        act(wire)
                    except (ConnectionClosed, ConnectionError):
                        break  # acks=0 went wrong

    def acts(self) -> list[Callable[[Wire], None]]:
        return [
            self.create, self.delete, self.grow, self.alter, self.pipeline, self.pipeline,
            self.fetch, self.fetch, self.fetch_and_leave, self.look_up, self.list_all,
            self.delete_records, self.leave_half_a_frame,
        ]  # fmt: skip

    def note(self, code: int) -> None:
        self.errors.add(code)

    def topic(self) -> str:
        return self.dice.choice(TOPICS)

    def create(self, wire: Wire) -> None:
        answer = wire.request(
            "create_topics", 7, timeout=1000,
            topics=[
                {
                    "name": self.topic(),
                    "num_partitions": self.dice.choice([1, 3, 20]),
                    "replication_factor": 1,
                }
            ],
        )  # fmt: skip
        self.note(answer.topics[0].error_code)

    def delete(self, wire: Wire) -> None:
        answer = wire.request("delete_topics", 6, timeout=1000, topics=[{"name": self.topic()}])
        self.note(answer.responses[0].error_code)

    def grow(self, wire: Wire) -> None:
        answer = wire.request(
            "create_partitions", 3, timeout=1000, validate_only=False,
            topics=[
                {"name": self.topic(), "count": self.dice.choice([2, 5, 30]), "assignments": None}
            ],
        )  # fmt: skip
        self.note(answer.results[0].error_code)

    def alter(self, wire: Wire) -> None:
        key, value = self.dice.choice(CONFIGS)
        if self.dice.random() < 0.2:
            self.note(
                requests.alter_config(
                    wire, "", "log.retention.ms", "600000", resource_type=4
                ).error_code
            )
        else:
            self.note(requests.alter_config(wire, self.topic(), key, value).error_code)

    def batch(self) -> bytes:
        size = self.dice.choice([1, 100, 5000, 100_000])
        records = [
            record_batches.Record(b"k", b"v" * size, requests.now_ms())
            for _ in range(self.dice.choice([1, 5]))
        ]
        return record_batches.batch(records, codec=self.dice.choice([0, 0, 1, 4]))

    def pipeline(self, wire: Wire) -> None:
        """Up to 30 produces without waiting, and sometimes something else behind them."""
        count = self.dice.choice([1, 3, 30])
        acks = self.dice.choice([-1, -1, 1, 0])
        for _ in range(count):
            fields = requests.produce_fields(
                self.topic(), self.dice.randrange(3), self.batch(), acks=acks
            )
            wire.send("produce", 9, answered=acks != 0, **fields)
        if self.dice.random() < 0.5:
            wire.send("metadata", 9, topics=[])
        while wire._expected:
            for topic in getattr(wire.receive(), "responses", []):
                self.note(topic.partition_responses[0].error_code)

    def fetch_fields(self, **options: Any) -> dict[str, Any]:
        session_id, epoch = self.session
        offsets = dict.fromkeys(range(self.dice.choice([1, 3])), self.dice.choice([0, 0, 1, 5]))
        return requests.fetch_fields(
            self.topic(), offsets, session_id=session_id, session_epoch=epoch,
            max_wait=self.dice.choice([0, 5, 50]), isolation_level=self.dice.choice([0, 1]),
            max_bytes=self.dice.choice([1, 1000, 1 << 20]), **options,
        )  # fmt: skip

    def fetch(self, wire: Wire) -> None:
        answer = wire.request("fetch", 11, **self.fetch_fields())
        self.note(answer.error_code)
        self.session = (
            (answer.session_id, self.session[1] + 1)
            if answer.session_id and not answer.error_code
            else (0, 0)
        )

    def fetch_and_leave(self, wire: Wire) -> None:
        """Never wait for the answer."""
        wire.send("fetch", 11, **{**self.fetch_fields(), "max_wait": 600_000, "min_bytes": 1 << 30})
        raise ConnectionClosed

    def look_up(self, wire: Wire) -> None:
        for timestamp in (-1, -2, -3, requests.now_ms() - 1000):
            self.note(requests.list_offset(wire, self.topic(), timestamp).error_code)

    def list_all(self, wire: Wire) -> None:
        wire.request("metadata", 12, topics=None)
        wire.request("describe_log_dirs", 4, topics=None)
        wire.request(
            "describe_topic_partitions", 0, topics=[], response_partition_limit=10, cursor=None
        )

    def delete_records(self, wire: Wire) -> None:
        self.note(requests.delete_records(wire, self.topic(), -1).error_code)

    def leave_half_a_frame(self, wire: Wire) -> None:
        wire.send_bytes(b"\x00\x03\x0d\x40" + bytes(self.dice.choice([0, 10, 100_000])))
        raise ConnectionClosed


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_left_behind(tmp_path: Path, seed: int) -> None:
    @on_loop
    async def test() -> None:
        loop = asyncio.get_running_loop()
        faults: list[Any] = []
        loop.set_exception_handler(lambda _, context: faults.append(context))
        async with running(tmp_path, auto_create_topics_enable="false") as r:
            clients = [Client(r.address, 100 * seed + number) for number in range(6)]
            await asyncio.gather(*(asyncio.to_thread(each.run, 120) for each in clients))
            await r.until(lambda: r.broker.quota.count == 0)
            await r.broker.threads.idle()
            check_nothing_is_left(r)
            await check_it_still_serves(r)
        assert faults == []
        known = {0, 1, 3, 22, 36, 37, 40, 42, 44, 70, 71, 87}
        assert set().union(*(each.errors for each in clients)) <= known | {100}

    test()


def check_nothing_is_left(r: Running) -> None:
    broker = r.broker
    assert broker.receive_budget.used_bytes == 0
    assert not broker.tasks._tasks
    (listening,) = broker.listeners
    assert not listening.connections
    assert not listening.stalled
    assert len(broker.fetch_sessions) <= 1000
    for partition in broker.replicas.partitions():
        assert not partition.fetch_waiters, partition.topic_partition
        assert not partition.pending_appends
        assert not partition._awaiting
        for segment in partition.log.segments:
            for file in segment.open_files():
                assert isinstance(file, RealFile)
                assert file.pins == 0, file.path
    assert not broker.replicas._flushes._state


async def check_it_still_serves(r: Running) -> None:
    def check(wire: Wire) -> None:
        for name in TOPICS:
            topic = requests.describe_topic(wire, name)
            for part in topic.partitions:
                index = part.partition_index
                start = requests.start_offset(wire, name, partition=index)
                requests.read_all(wire, name, partition=index, start=start)
        name = requests.create_topic(wire, "afterwards")
        assert requests.produce_values(wire, name, [b"v"]) == 0

    await r.call(check)
