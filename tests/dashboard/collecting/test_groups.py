"""Groups of the snapshot, against real brokers and real consumers; the clock is the test's own.

`Ticks` makes the collector's tick: topics with their ends, then the groups.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from broker.model.ids import TopicPartition
from dashboard.cluster import BrokerView
from dashboard.collecting.by_library import collect
from dashboard.collecting.group_memory import GroupMemory
from dashboard.collecting.groups import collect_groups
from dashboard.collecting.problems import ProblemMemory
from dashboard.gateway import Gateway
from dashboard.snapshots import ClusterSnapshot, GroupState
from tests.support import judge, processes
from tests.support.apache import ApacheKafka
from tests.support.fixtures import Broker
from tests.support.members import MemberProcess, started

pytestmark = pytest.mark.conformance
NewName = Callable[[], str]
MINUTE_MS = 60_000
START_MS = 1_700_000_000_000


class Ticks:
    """A collector that ticks when it is told to, at times that it is told."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.memory = GroupMemory()
        self.snapshot: ClusterSnapshot | None = None

    def tick(self, now_ms: int, brokers: list[BrokerView] | None = None) -> dict[str, GroupState]:
        seen = collect(self.gateway, now_ms, self.snapshot, dict, ProblemMemory())
        asked = self.gateway.cluster().brokers if brokers is None else brokers
        groups, taken_ms = collect_groups(
            self.gateway, asked, seen.topics, now_ms, self.snapshot, self.memory
        )
        self.snapshot = ClusterSnapshot(
            now_ms, seen.cluster_id, None, seen.brokers, seen.topics, groups, taken_ms
        )
        return groups

    def tick_until(self, group: str, is_so: Callable[[GroupState], bool]) -> GroupState:
        """What is read beside the ticks shows at one of the next."""
        assert self.snapshot is not None
        start_ms = self.snapshot.taken_ms
        found: list[GroupState] = []

        def ticks() -> bool:
            found.append(self.tick(start_ms + 1000 * (1 + len(found)))[group])
            return is_so(found[-1])

        processes.wait_until(ticks, 60, f"another state of {group}")
        return found[-1]


@pytest.fixture
def ticks(gateway: Gateway) -> Ticks:
    return Ticks(gateway)


@pytest.fixture
def topic(gateway: Gateway, new_topic_name: NewName) -> str:
    name = new_topic_name()
    gateway.create_topics([name], partitions=1)
    return name


def put(broker: Broker, topic: str, count: int, timestamp_ms: int = 0, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0, timestamp=timestamp_ms)
    assert producer.flush(30) == 0


class Reader:
    """A confluent-kafka consumer that reads and commits when told."""

    def __init__(self, broker: Broker, group: str, topic: str, **settings: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "client.id": "the-reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self.consumer.subscribe([topic])

    def read(self, count: int) -> None:
        messages: list[Any] = []

        def has_all() -> bool:
            messages.extend(
                m for m in self.consumer.consume(count - len(messages), 0.1) if not m.error()
            )
            return len(messages) == count

        processes.wait_until(has_all, 60, f"{count} records")
        self.consumer.commit(messages[-1], asynchronous=False)


@pytest.fixture
def reader(broker: Broker, topic: str, new_topic_name: NewName) -> Iterator[Callable[..., Reader]]:
    readers: list[Reader] = []

    def start(group: str, **settings: Any) -> Reader:
        readers.append(Reader(broker, group, topic, **settings))
        return readers[-1]

    yield start
    for one in readers:
        one.consumer.close()


def test_a_consumer_that_stopped_falls_behind_with_every_tick(
    ticks: Ticks, broker: Broker, topic: str, reader: Callable[..., Reader]
) -> None:
    """Lag is of the log's end at the tick, not of the last commit; nobody is there: stopped."""
    group = f"g {topic} <&>"
    put(broker, topic, 20)
    one = reader(group)
    one.read(20)
    state = ticks.tick(START_MS)[group]
    assert (state.state, state.member_count, state.lag, state.status) == ("Stable", 1, 0, "ok")
    (member,) = state.members
    assert (member.client_id, member.assignment) == ("the-reader", (TopicPartition(topic, 0),))
    assert state.partitions[0].client_id == "the-reader"

    one.consumer.close()
    put(broker, topic, 5)
    state = ticks.tick(START_MS + MINUTE_MS)[group]
    assert (state.state, state.member_count, state.lag, state.status) == ("Empty", 0, 5, "ok")
    assert state.lag_ms is not None
    assert 0 <= state.lag_ms <= MINUTE_MS
    put(broker, topic, 5)
    state = ticks.tick(START_MS + 2 * MINUTE_MS)[group]
    assert (state.lag, state.status) == (10, "stop")
    assert "no member reads the partition" in state.reason
    assert state.trend == pytest.approx(10 / 120)

    again = reader(group)
    again.read(10)
    state = ticks.tick(START_MS + 3 * MINUTE_MS)[group]
    assert (state.lag, state.lag_ms, state.status) == (0, 0, "ok")


def test_a_member_that_commits_nothing_is_stalled(
    ticks: Ticks, broker: Broker, topic: str, reader: Callable[..., Reader]
) -> None:
    put(broker, topic, 20)
    reader(topic).read(10)
    assert [ticks.tick(START_MS + at * MINUTE_MS)[topic].status for at in range(4)] == [
        "ok", "ok", "stall", "stall"
    ]  # fmt: skip


def test_a_group_that_was_set_back_went_back(
    ticks: Ticks, gateway: Gateway, broker: Broker, topic: str
) -> None:
    key = TopicPartition(topic, 0)
    put(broker, topic, 20)
    gateway.groups.alter_offsets(topic, {key: 15})
    ticks.tick(START_MS)
    gateway.groups.alter_offsets(topic, {key: 5})

    state = ticks.tick(START_MS + MINUTE_MS)[topic]

    assert (state.lag, state.status) == (15, "rewind")
    assert "from 15 to 5" in state.reason


def test_kafka_python_is_seen_too(ticks: Ticks, broker: Broker, topic: str, tmp_path: Path) -> None:
    put(broker, topic, 3)
    with started() as members:
        member = MemberProcess("kafka-python", broker.bootstrap, topic, topic, tmp_path)
        members.append(member)
        processes.wait_until(lambda: member.committed.get(0) == 3, 180, "a commit")
        put(broker, topic, 2)
        processes.wait_until(lambda: member.committed.get(0) == 5, 60, "a commit")
        state = ticks.tick(START_MS)[topic]
    assert (state.state, state.lag, state.assignor) == ("Stable", 0, "range")
    assert "kafka-python" in (state.partitions[0].client_id or "")
    assert state.partitions[0].host


def test_groups_of_the_newer_protocol(
    ticks: Ticks, broker: Broker, topic: str, reader: Callable[..., Reader]
) -> None:
    if not isinstance(broker, ApacheKafka):
        pytest.skip("our broker serves the classic protocol only")
    put(broker, topic, 3)
    reader(topic, **{"group.protocol": "consumer"}).read(2)

    state = ticks.tick(START_MS)[topic]

    assert (state.group_type, state.state, state.lag) == ("consumer", "Stable", 1)
    (member,) = state.members
    assert member.epoch is not None
    assert member.target == (TopicPartition(topic, 0),)


def test_the_first_unread_record_tells_how_old_it_is(
    ticks: Ticks, gateway: Gateway, broker: Broker, topic: str
) -> None:
    """What was there before the first look is only "at least" so old, until it is read."""
    hour_ms = 60 * MINUTE_MS
    now_ms = int(time.time() * 1000)
    put(broker, topic, 5, timestamp_ms=now_ms - 2 * hour_ms)
    put(broker, topic, 5, timestamp_ms=now_ms - hour_ms)
    gateway.groups.alter_offsets(topic, {TopicPartition(topic, 0): 5})
    state = ticks.tick(now_ms)[topic]
    assert (state.lag_ms, state.lag_ms_is) == (0, "at least")

    state = ticks.tick_until(topic, lambda found: found.lag_ms_is == "exact")

    assert ticks.snapshot is not None
    assert state.lag_ms == ticks.snapshot.taken_ms - (now_ms - hour_ms)
    assert ticks.memory.wanted_probes([state], 10) == []


def test_markers_of_transactions_are_nothing_to_read(
    ticks: Ticks, gateway: Gateway, broker: Broker, topic: str
) -> None:
    """A consumer that has read all stays one marker behind: neither stopped nor late."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"x", partition=0)
    producer.commit_transaction(30)
    gateway.groups.alter_offsets(topic, {TopicPartition(topic, 0): 3})
    ticks.tick(START_MS)

    state = ticks.tick_until(topic, lambda found: found.lag_ms_is == "exact")

    assert (state.lag, state.lag_ms) == (1, 0)
    assert ticks.tick(START_MS + 60 * MINUTE_MS)[topic].status == "ok"


def test_a_coordinator_that_does_not_answer_leaves_its_groups_stale(
    ticks: Ticks, gateway: Gateway, broker: Broker, topic: str
) -> None:
    put(broker, topic, 7)
    gateway.groups.alter_offsets(topic, {TopicPartition(topic, 0): 5})
    (real,) = gateway.cluster().brokers
    ticks.tick(START_MS)
    nowhere = BrokerView(real.broker_id, "127.0.0.1", judge.free_port())
    put(broker, topic, 3)

    state = ticks.tick(START_MS + MINUTE_MS, [nowhere])[topic]

    assert state.stale_since_ms == START_MS + MINUTE_MS
    assert "does not answer" in (state.failure or "")
    assert (state.lag, state.taken_ms) == (5, START_MS)
    state = ticks.tick(START_MS + 2 * MINUTE_MS, [nowhere])[topic]
    assert state.stale_since_ms == START_MS + MINUTE_MS
    state = ticks.tick(START_MS + 3 * MINUTE_MS)[topic]
    assert (state.stale_since_ms, state.failure, state.taken_ms) == (
        None,
        None,
        START_MS + 3 * MINUTE_MS,
    )


def test_a_group_that_was_deleted_is_gone(ticks: Ticks, gateway: Gateway, topic: str) -> None:
    gateway.groups.alter_offsets(topic, {TopicPartition(topic, 0): 0})
    assert topic in ticks.tick(START_MS)
    gateway.groups.delete([topic])
    assert topic not in ticks.tick(START_MS + MINUTE_MS)


def test_by_the_library_where_plain_sockets_cannot_be_used(
    library_only: Gateway, broker: Broker, topic: str
) -> None:
    put(broker, topic, 9)
    library_only.groups.alter_offsets(topic, {TopicPartition(topic, 0): 4})

    state = Ticks(library_only).tick(START_MS)[topic]

    assert (state.state, state.lag, state.coordinator) == ("Empty", 5, None)
