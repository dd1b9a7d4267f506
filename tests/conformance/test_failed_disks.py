"""Disks that fail, are gone or full: others lead, nothing acknowledged is lost. Real processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.support import processes, requests
from tests.support.cluster import Cluster
from tests.support.faults import EXIT_FAILED, faulty_cluster, plant, wait_for_end
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import batch
from tests.support.replicated import (
    consume_values,
    create_topic,
    log_bytes,
    partitions_of,
    produce_values,
    wait_for_isr,
)
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

STORAGE_ERROR = 56
FLOOR = "odradek.disk.floor.replication.bytes"


@pytest.fixture
def cluster(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    lag = {"replica.lag.time.max.ms": "2000"}
    with faulty_cluster(zookeeper, tmp_path, **lag) as cluster:
        yield cluster


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_broker_whose_disk_fails_ends_and_others_go_on(cluster: Cluster, role: str) -> None:
    """Alone in the cluster it would answer KAFKA_STORAGE_ERROR to all, and keep its leadership."""
    topic = create_topic(cluster, configs={"min.insync.replicas": "2"})
    (partition,) = partitions_of(cluster, topic)
    before = [f"before {number}" for number in range(20)]
    produce_values(cluster, topic, before)
    followers = sorted(set(cluster.brokers) - {partition.leader_id})
    failing = partition.leader_id if role == "leader" else followers[0]
    broker = cluster.brokers[failing]
    file = plant(broker, "write", None)
    amid = [f"amid {number}" for number in range(200)]
    produce_values(cluster, topic, amid)
    assert wait_for_end(broker) == EXIT_FAILED
    output = broker.output.read_text()
    assert re.search(r"this broker ends, .*log directory .* has failed: .*injected", output)
    wait_for_isr(cluster, topic, set(cluster.brokers) - {failing})
    with pytest.raises(AssertionError, match="no log directory works"):
        broker.start()
    assert wait_for_end(broker) == 1
    file.unlink()
    broker.start()
    wait_for_isr(cluster, topic, set(cluster.brokers))
    after = [f"after {number}" for number in range(20)]
    produce_values(cluster, topic, after)
    assert consume_values(cluster, topic, 240) == before + amid + after


@pytest.fixture
def two_disks(tmp_path: Path) -> Iterator[OdradekBroker]:
    disks = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with OdradekBroker(tmp_path, {"log.dirs": disks}) as broker:
        yield broker


def filled_topics(two_disks: OdradekBroker) -> list[str]:
    with Wire(two_disks.address) as wire:
        topics = [requests.create_topic(wire) for _ in range(4)]
        for topic in topics:
            requests.produce_values(wire, topic, [b"x"] * 5)
    return topics


def test_what_lies_on_a_disk_that_is_gone_is_not_begun_anew(
    two_disks: OdradekBroker, tmp_path: Path
) -> None:
    """Empty logs on the other disk would say that nothing was ever written."""
    topics = filled_topics(two_disks)
    lost = {path.name[:-2] for path in (tmp_path / "b").glob("*-0")}
    assert 0 < len(lost) < len(topics)
    two_disks.stop()
    (tmp_path / "b").rename(tmp_path / "pulled out")
    (tmp_path / "b").write_text("not a directory")
    two_disks.start()
    with Wire(two_disks.address) as wire:
        for topic in topics:
            answer = requests.try_produce(wire, topic, batch([b"y"], timestamp=requests.now_ms()))
            assert answer.error_code == (STORAGE_ERROR if topic in lost else 0)
        new = requests.create_topic(wire)
        requests.produce_values(wire, new, [b"x"] * 6)
    two_disks.stop()
    (tmp_path / "b").unlink()
    (tmp_path / "pulled out").rename(tmp_path / "b")
    two_disks.start()
    with Wire(two_disks.address) as wire:
        ends = {topic: requests.end_offset(wire, topic) for topic in [*topics, new]}
    assert ends == {topic: 5 if topic in lost else 6 for topic in [*topics, new]}


def test_an_empty_disk_takes_no_place_of_one_with_records(
    two_disks: OdradekBroker, tmp_path: Path
) -> None:
    """It may not be mounted; what was lost is begun anew only if somebody says so."""
    topics = filled_topics(two_disks)
    lost = {path.name[:-2] for path in (tmp_path / "b").glob("*-0")}
    two_disks.stop()
    (tmp_path / "b").rename(tmp_path / "not mounted")
    (tmp_path / "b").mkdir()
    for _ in range(2):
        with pytest.raises(AssertionError, match=f"b is empty, but {len(lost)} partitions"):
            two_disks.start()
        assert wait_for_end(two_disks) == 1
    two_disks.properties["odradek.log.dirs.begin.empty"] = "true"
    two_disks.start()
    with Wire(two_disks.address) as wire:
        ends = {topic: requests.end_offset(wire, topic) for topic in topics}
    assert ends == {topic: 0 if topic in lost else 5 for topic in topics}
    # The old disk turns up beside what was begun anew: which of them counts is for somebody to say.
    two_disks.stop()
    begun = next(path for name in lost for path in tmp_path.glob(f"?/{name}-0"))
    other = tmp_path / ("b" if begun.parent.name == "a" else "a")
    (tmp_path / "not mounted" / begun.name).rename(other / begun.name)
    with pytest.raises(AssertionError, match=f"{begun.name} lies in .* and in "):
        two_disks.start()
    assert wait_for_end(two_disks) == 1


def test_a_broker_of_a_cluster_begins_empty_if_others_have_all_that_it_had(
    cluster: Cluster,
) -> None:
    replicated = create_topic(cluster, configs={"min.insync.replicas": "2"})
    alone = create_topic(cluster, replicas=[2])
    produce_values(cluster, replicated, ["x"] * 20)
    produce_values(cluster, alone, ["x"] * 20)
    broker = cluster.brokers[2]
    broker.stop()
    broker.data.rename(broker.directory / "lost")
    with pytest.raises(AssertionError, match=f"only this broker has .*{alone}-0"):
        broker.start()
    assert wait_for_end(broker) == 1
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([alone])[alone].result(30)
    broker.start()
    wait_for_isr(cluster, replicated, set(cluster.brokers))
    assert consume_values(cluster, replicated, 20) == ["x"] * 20


def set_floor(cluster: Cluster, number: int, value: str | None) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(FLOOR, value or "", incremental_operation=how)
    resource = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(30)


def test_a_follower_below_the_second_floor_waits_for_room(cluster: Cluster) -> None:
    topic = create_topic(cluster, configs={"min.insync.replicas": "2"})
    (partition,) = partitions_of(cluster, topic)
    number = next(each for each in cluster.brokers if each != partition.leader_id)
    broker = cluster.brokers[number]
    set_floor(cluster, number, str(1 << 60))

    def is_waiting() -> bool:
        produce_values(cluster, topic, ["x"], acks=1, **{"enable.idempotence": False})
        return f"{topic}-0 cannot follow" in broker.output.read_text()

    processes.wait_until(is_waiting, 60, "one that waits for room")
    held = log_bytes(cluster, number, topic)
    wait_for_isr(cluster, topic, set(cluster.brokers) - {number})
    # Both ways of acknowledging go on: what waits for room does not count, and costs no lease.
    produce_values(cluster, topic, ["x"] * 10)
    produce_values(cluster, topic, ["x"] * 10, acks=1, **{"enable.idempotence": False})
    assert log_bytes(cluster, number, topic) == held
    assert broker.process is not None
    assert broker.process.poll() is None
    set_floor(cluster, number, None)
    wait_for_isr(cluster, topic, set(cluster.brokers))
    assert log_bytes(cluster, number, topic) == log_bytes(cluster, partition.leader_id, topic)
