"""The collector against real brokers: what a snapshot tells, and what it tells when one falls silent."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.clock import SystemClock
from dashboard.broker_api import BrokerApi
from dashboard.collecting.events import EventMemory
from dashboard.collecting.problems import ProblemMemory
from dashboard.collector import Collector
from dashboard.gateway import Gateway
from dashboard.samples import Samples
from dashboard.snapshots import ClusterSnapshot, SnapshotShelf
from tests.support.fixtures import Broker
from tests.support.odradek import OdradekBroker
from tests.support.requests import create_topic, delete_records, delete_topic, produce_values
from tests.support.wire import Wire

Look = Callable[[], ClusterSnapshot]


@pytest.fixture
def collector_of(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    made: list[Collector] = []

    def make(broker: Broker, *, is_local: bool = True) -> Collector:
        collector = Collector(
            lambda: Gateway(broker.bootstrap, timeout_s=1.5),
            SnapshotShelf(),
            SystemClock(),
            api=BrokerApi(broker.data) if is_local and isinstance(broker, OdradekBroker) else None,
            samples=Samples(tmp_path / "samples.db"),
            problems=ProblemMemory(tmp_path / "problems.json"),
        )
        made.append(collector)
        return collector

    yield make
    for collector in made:
        collector.close()


def looks(collector: Collector) -> Look:
    def look() -> ClusterSnapshot:
        collector.wake()
        collector._shelf.has_changed = True
        collector.tick()
        collector.follow()
        snapshot = collector._shelf.peek()
        assert snapshot is not None
        return snapshot

    return look


@pytest.fixture(params=["control_socket", "kafka_protocol"])
def look(
    broker: Broker, request: pytest.FixtureRequest, collector_of: Callable[..., Collector]
) -> Look:
    """One tick and what follows it; against Apache Kafka both ways are one."""
    return looks(collector_of(broker, is_local=request.param == "control_socket"))


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.address) as wire:
        yield wire


def test_a_snapshot_follows_offsets_sizes_and_rates(broker: Broker, wire: Wire, look: Look) -> None:
    name = create_topic(wire, partitions=3)
    look()
    produce_values(wire, name, [b"x" * 1000] * 5, partition=1)
    topic = look().topics[name]

    assert [(one.log_start_offset, one.high_watermark) for one in topic.partitions] == [
        (0, 0), (0, 5), (0, 0),
    ]  # fmt: skip
    assert topic.record_count == 5
    assert topic.size_bytes == topic.partitions[1].size_bytes
    assert topic.size_bytes is not None
    assert topic.size_bytes > 5000
    assert topic.records_in_rate is not None
    assert topic.records_in_rate > 0
    assert topic.bytes_in_rate is not None
    assert topic.bytes_in_rate > 0

    delete_records(wire, name, 3, partition=1)
    look()
    topic = look().topics[name]
    assert topic.partitions[1].log_start_offset == 3
    assert topic.records_in_rate == 0

    delete_topic(wire, name)
    assert name not in look().topics


def test_a_snapshot_tells_brokers_and_settings(broker: Broker, wire: Wire, look: Look) -> None:
    name = create_topic(wire, configs={"min.insync.replicas": "2", "cleanup.policy": "compact"})
    look()
    snapshot = look()

    (only,) = snapshot.brokers.values()
    assert only.is_controller
    assert (only.host, only.port) == broker.address
    assert only.leader_count == only.replica_count == snapshot.partition_count
    assert only.disk_total_bytes is not None
    assert only.disk_used_bytes is not None
    assert 0 < only.disk_used_bytes < only.disk_total_bytes
    topic = snapshot.topics[name]
    assert (topic.min_isr, topic.cleanup_policy) == (2, "compact")
    (problem,) = [one for one in snapshot.problems if one.topic == name]
    assert (problem.kind, problem.min_isr, problem.isr) == ("under_min_isr", 2, (only.broker_id,))


def test_idle_topics_are_not_made_anew(broker: Broker, wire: Wire, look: Look) -> None:
    name, busy = create_topic(wire), create_topic(wire)
    for _ in range(3):
        before = look().topics[name]
    produce_values(wire, busy, [b"x"])

    # Over the control socket what happened in the last second is told once more.
    assert look().topics[name] == before


def test_history_is_kept(
    broker: Broker, wire: Wire, collector_of: Callable[..., Collector]
) -> None:
    collector = collector_of(broker)
    look = looks(collector)
    name = create_topic(wire)
    produce_values(wire, name, [b"x" * 100])
    look()
    snapshot = look()

    assert collector._samples is not None
    sizes = collector._samples.read(f"topic.size:{name}", snapshot.taken_ms, snapshot.taken_ms)
    assert sizes[0][1] == snapshot.topics[name].size_bytes


def test_counters_of_our_own_broker_tell_bytes_out(
    odradek_broker: OdradekBroker, collector_of: Callable[..., Collector]
) -> None:
    from tests.support.requests import fetch

    look = looks(collector_of(odradek_broker))
    with Wire(odradek_broker.address) as wire:
        name = create_topic(wire)
        produce_values(wire, name, [b"x" * 1000])
        look()
        fetch(wire, name, 0)
    snapshot = look()

    assert snapshot.node is not None
    assert snapshot.bytes_out_rate
    assert snapshot.topics[name].bytes_out_rate
    assert snapshot.topics[name].bytes_in_rate == 0


def test_a_broker_that_falls_silent_makes_every_row_stale_and_comes_back(
    odradek_broker: OdradekBroker, collector_of: Callable[..., Collector]
) -> None:
    look = looks(collector_of(odradek_broker))
    with Wire(odradek_broker.address) as wire:
        name = create_topic(wire, partitions=2)
        produce_values(wire, name, [b"x"])
    fresh = look()
    assert fresh.stale_since_ms is None

    os.kill(odradek_broker.pid, signal.SIGSTOP)
    try:
        first = look()
        second = look()
    finally:
        os.kill(odradek_broker.pid, signal.SIGCONT)
    assert first.failure is not None
    assert first.topics[name].stale_since_ms == second.topics[name].stale_since_ms is not None
    assert first.topics[name].partitions[0].high_watermark == 1
    assert all(one.stale_since_ms for one in first.topics[name].partitions)
    assert all(one.stale_since_ms for one in first.brokers.values())

    back = look()
    assert back.stale_since_ms is None
    assert back.topics[name].stale_since_ms is None
    assert [one.stale_since_ms for one in back.brokers.values()] == [None]


def test_a_restarted_broker_is_asked_on_new_connections(
    odradek_broker: OdradekBroker, collector_of: Callable[..., Collector]
) -> None:
    look = looks(collector_of(odradek_broker))
    with Wire(odradek_broker.address) as wire:
        name = create_topic(wire)
        produce_values(wire, name, [b"x"] * 3)
    look()
    odradek_broker.restart()
    look()
    snapshot = look()

    assert snapshot.stale_since_ms is None
    assert snapshot.topics[name].partitions[0].high_watermark == 3
    assert snapshot.bytes_in_rate == 0


def test_an_offline_partition_is_so_since_the_broker_found_out_over_restarts_of_both(
    odradek_broker: OdradekBroker, collector_of: Callable[..., Collector]
) -> None:
    broker = odradek_broker
    with Wire(broker.address) as wire:
        name = create_topic(wire, configs={"segment.bytes": "1048576"})
        for _ in range(3):
            produce_values(wire, name, [b"x" * 600_000])
    broker.stop()
    (broker.logs / ".kafka_cleanshutdown").unlink()
    os.truncate(max((broker.logs / f"{name}-0").glob("*.log")), 200)
    broker.start()
    (told,) = broker.control("offline")["partitions"]
    (partition,) = broker.control("partitions", topic=name)["partitions"]
    assert partition["offline_since_ms"] == told["since_ms"] > broker.control("node")["started_ms"]
    (problem,) = looks(collector_of(broker))().problems
    assert (problem.kind, problem.reason) == ("offline", told["reason"])
    assert (problem.since_ms, problem.is_since_known) == (told["since_ms"], True)

    broker.restart()
    (later,) = broker.control("offline")["partitions"]
    assert later["since_ms"] > told["since_ms"]
    (again,) = looks(collector_of(broker))().problems
    assert (again.since_ms, again.is_since_known) == (told["since_ms"], True)


def test_a_fault_of_one_that_follows_a_look_is_not_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []

    def fail(snapshot: ClusterSnapshot, _: Any) -> None:
        raise RuntimeError("a fault of ours")

    shelf = SnapshotShelf()
    shelf.put(ClusterSnapshot(7, None, 1, {}, {}))
    observers = (fail, lambda snapshot, _: seen.append(snapshot.taken_ms))
    gateway: Any = None
    collector = Collector(lambda: gateway, shelf, SystemClock(), observers)
    collector._gateway = gateway = object()
    collector.follow()
    assert seen == [7]
    assert "what follows a look failed" in caplog.text


def test_a_look_whose_events_cannot_be_told_is_a_look_that_failed() -> None:
    class Broken(EventMemory):
        def look(self, *_: Any) -> Any:
            raise RuntimeError("a fault of ours")

    shelf = SnapshotShelf()
    collector = Collector(lambda: None, shelf, SystemClock(), events=Broken())  # type: ignore[arg-type,return-value]
    collector._look = lambda now_ms: ClusterSnapshot(now_ms, None, 1, {}, {})  # type: ignore[method-assign]
    assert not collector.tick()
    snapshot = shelf.peek()
    assert snapshot is not None
    assert snapshot.failure == "RuntimeError: a fault of ours"
