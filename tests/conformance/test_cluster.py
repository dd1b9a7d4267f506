"""Three brokers and a real ZooKeeper: who is there, who is controller, who leads, and what a kill costs.

Partitions have one replica each here; `test_replication.py` is about those of several.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from appliance import control
from broker.server.cluster.private_wire import PrivateKey, encode_request
from tests.support import judge, processes, requests
from tests.support.cluster import Cluster
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.replicated import next_values
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
TOPIC_ALREADY_EXISTS = 36
INVALID_REPLICATION_FACTOR = 38


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of tests that kill nobody."""
    with Cluster(tmp_path_factory.mktemp("cluster"), zookeeper, "/lasting") as cluster:
        yield cluster


def create_topic(cluster: Cluster, partitions: int) -> str:
    """By a client that looks for the controller; returns when every broker knows it."""
    name = requests.new_topic_name()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def is_created() -> bool:
        """ZooKeeper may be on its way back."""
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    processes.wait_until(is_created, 60, name, every=0.2)

    def is_known() -> bool:
        for number, broker in cluster.brokers.items():
            if broker.process is not None:
                (topic,) = cluster.metadata(number, name).topics
                if len(topic.partitions) != partitions:
                    return False
        return True

    processes.wait_until(is_known, 30, f"{name} on every broker")
    return name


def leaders_of(cluster: Cluster, number: int, topic: str) -> dict[int, int]:
    (found,) = cluster.metadata(number, topic).topics
    return {partition.partition_index: partition.leader_id for partition in found.partitions}


def produce_values(
    cluster: Cluster,
    topic: str,
    values: list[str],
    partition: int = -1,
    *,
    is_idempotent: bool = True,
) -> None:
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": is_idempotent}
    )
    for value in values:
        producer.produce(
            topic,
            value,
            **({} if partition < 0 else {"partition": partition}),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failures == []


def consume_values(cluster: Cluster, topic: str, count: int, group: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        found = next_values(consumer, count)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def test_every_broker_knows_the_others_and_the_controller(cluster: Cluster) -> None:
    told = [cluster.metadata(number) for number in cluster.brokers]
    expected = {(number, broker.port) for number, broker in cluster.brokers.items()}
    assert [{(each.node_id, each.port) for each in answer.brokers} for answer in told] == [
        expected
    ] * 3
    assert len({answer.cluster_id for answer in told}) == 1
    assert len({answer.controller_id for answer in told}) == 1


def test_each_compares_its_clock_with_the_others(cluster: Cluster) -> None:
    """All of them have this machine's."""
    for number, broker in cluster.brokers.items():
        told = control.ask(broker.data, "clocks")["brokers"]
        assert [each["broker_id"] for each in told] == sorted({1, 2, 3} - {number})
        for each in told:
            assert abs(each["ahead_ms"]) <= each["doubt_ms"] + 1


def test_partitions_are_spread_and_each_is_served_by_its_leader(cluster: Cluster) -> None:
    topic = create_topic(cluster, partitions=6)
    leaders = leaders_of(cluster, 1, topic)
    assert sorted(leaders.values()) == [1, 1, 2, 2, 3, 3]
    values = [str(number) for number in range(600)]
    produce_values(cluster, topic, values)
    assert sorted(consume_values(cluster, topic, 600, f"g-{topic}"), key=int) == values
    elsewhere = leaders[0] % 3 + 1
    with Wire(cluster.brokers[elsewhere].address) as wire:
        answer = requests.try_produce(wire, topic, requests.record_batches.batch([b"x"]))
        assert answer.error_code == NOT_LEADER_OR_FOLLOWER


def test_groups_are_coordinated_by_the_leaders_of_their_partitions(cluster: Cluster) -> None:
    topic = create_topic(cluster, partitions=2)
    produce_values(cluster, topic, ["a", "b"])
    groups = [f"{topic}-{number}" for number in range(6)]
    coordinators = set()
    for group in groups:
        assert sorted(consume_values(cluster, topic, 2, group)) == ["a", "b"]
        with Wire(cluster.brokers[1].address) as wire:
            found = wire.request("find_coordinator", 4, coordinator_keys=[group], key_type=0)
        coordinators.add(found.coordinators[0].node_id)
    assert len(coordinators) > 1
    produce_values(cluster, topic, ["c"])
    # What was committed is remembered by whoever coordinates.
    for group in groups:
        assert consume_values(cluster, topic, 1, group) == ["c"]


def test_producer_ids_are_unique_in_the_cluster(cluster: Cluster) -> None:
    ids = []
    for broker in cluster.brokers.values():
        for _ in range(3):
            with Wire(broker.address) as wire:
                ids.append(requests.init_producer(wire)[0])
    assert len(set(ids)) == len(ids)


def test_any_broker_makes_topics_and_no_more_replicas_than_there_can_be(
    cluster: Cluster,
) -> None:
    def created(name: str, number: int, replication_factor: int) -> int:
        with Wire(cluster.brokers[number].address, timeout=30) as wire:
            wanted = {
                "name": name,
                "num_partitions": 1,
                "replication_factor": replication_factor,
            }
            answer = wire.request("create_topics", 7, timeout=30000, topics=[wanted])
        code: int = answer.topics[0].error_code
        return code

    for number in cluster.brokers:
        name = requests.new_topic_name()
        assert created(name, number, 4) == INVALID_REPLICATION_FACTOR
        assert created(name, number, 1) == 0
        assert created(name, number, 1) == TOPIC_ALREADY_EXISTS


def test_settings_of_a_topic_are_changed_and_told_by_any_broker(cluster: Cluster) -> None:
    topic = create_topic(cluster, partitions=3)
    for number, broker in cluster.brokers.items():
        value = str(number * 1_000_000)
        with Wire(broker.address, timeout=30) as wire:
            requests.alter_config(wire, topic, "retention.ms", value)

        def is_told(value: str = value) -> bool:
            told = []
            for each in cluster.brokers.values():
                with Wire(each.address) as wire:
                    told.append(requests.topic_config(wire, topic, "retention.ms").value)
            return told == [value] * 3

        processes.wait_until(is_told, 30, "the setting on every broker")


def test_a_client_makes_a_topic_by_asking_for_it_wherever(cluster: Cluster) -> None:
    for number in cluster.brokers:
        name = requests.new_topic_name()
        with Wire(cluster.brokers[number].address, timeout=30) as wire:
            answer = wire.request(
                "metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=True
            )
        assert answer.topics[0].error_code == 0
        produce_values(cluster, name, ["a"])


def test_a_stranger_is_told_nothing(cluster: Cluster) -> None:
    pull = encode_request(PrivateKey.PULL_IMAGE, 1, {"epoch": -1, "version": -1})
    hello = encode_request(PrivateKey.PROVE, 1, {"nonce": "00"})
    proof = encode_request(PrivateKey.PROVE, 2, {"proof": "00"})
    for frames in ([pull], [proof], [hello, pull], [hello, proof]):
        with Wire(cluster.brokers[1].address) as wire:
            for frame in frames:
                wire.send_bytes(frame)
                if frame is hello:
                    wire.receive_frame()
            assert wire.is_closed_by_peer()


def ended(broker: OdradekBroker) -> str:
    """What a broker that does not start says."""
    command = [sys.executable, "-m", "broker", "--data", str(broker.data)]
    command += ["--listen", f"127.0.0.1:{judge.free_port()}"]
    for key, value in broker.properties.items():
        command += ["--property", f"{key}={value}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_a_number_that_is_taken_is_refused_with_where_the_other_is(
    cluster: Cluster, tmp_path: Path
) -> None:
    taken = cluster.brokers[2]
    rival = OdradekBroker(tmp_path, taken.properties)
    told = ended(rival)
    assert f"node 2 is another broker already, at 127.0.0.1:{taken.port}" in told
    since = re.search(r", since ([-0-9]+ [:0-9]+) UTC; give this one a node.id of its own", told)
    assert since is not None
    registered = datetime.strptime(since[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    assert time.time() - 600 < registered <= time.time()
    assert taken.process is not None
    assert cluster.metadata(2).controller_id > 0


def test_a_data_directory_keeps_its_kind_of_metadata(
    cluster: Cluster, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with OdradekBroker(tmp_path) as alone:
        alone.stop()
        joining = {"zookeeper.connect": f"{zookeeper.address}/lasting", "node.id": "9"}
        told = ended(OdradekBroker(tmp_path, joining))
        assert "holds the metadata of a cluster of its own" in told
    with Cluster(tmp_path / "of-one", zookeeper, "/of-one", count=1) as one:
        one.brokers[1].stop()
        alone = OdradekBroker(tmp_path / "of-one" / "broker-1", {"node.id": "1"})
        assert "belongs to a cluster in ZooKeeper: set zookeeper.connect" in ended(alone)


def test_a_killed_controller_is_followed_and_comes_back_with_its_records(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    # Long enough that it is the refusal on its address which ends the killed one's office.
    properties = {"zookeeper.session.timeout.ms": "6000"}
    with Cluster(tmp_path, zookeeper, "/killed", properties=properties) as cluster:
        topic = create_topic(cluster, partitions=3)
        leaders = leaders_of(cluster, 1, topic)
        for partition, leader in leaders.items():
            produce_values(cluster, topic, [f"before-{leader}"], partition)
        killed = cluster.controller()
        others = [number for number in cluster.brokers if number != killed]
        (orphan,) = (index for index, leader in leaders.items() if leader == killed)

        cluster.brokers[killed].kill9()
        processes.wait_until(
            lambda: all(cluster.metadata(each).controller_id in others for each in others),
            30,
            "another controller",
        )
        cluster.wait_for_brokers(*others)

        def is_without_leader() -> bool:
            (told,) = cluster.metadata(others[0], topic).topics
            codes = {each.partition_index: each.error_code for each in told.partitions}
            return codes == {i: LEADER_NOT_AVAILABLE if i == orphan else 0 for i in leaders}

        processes.wait_until(is_without_leader, 30, "the partition without a leader")
        for index in leaders.keys() - {orphan}:
            produce_values(cluster, topic, [f"after-{leaders[index]}"], index)

        cluster.brokers[killed].start()
        cluster.wait_for_brokers(*cluster.brokers)
        produce_values(cluster, topic, [f"after-{killed}"], orphan)
        found = consume_values(cluster, topic, 6, "g")
        assert sorted(found) == sorted(
            f"{when}-{number}" for when in ("before", "after") for number in cluster.brokers
        )


def test_the_cluster_works_on_while_zookeeper_is_away(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        properties = {"zookeeper.session.timeout.ms": "30000"}
        with Cluster(tmp_path, zookeeper, "", properties=properties) as cluster:
            topic = create_topic(cluster, partitions=3)
            controller = cluster.controller()
            zookeeper.kill9()
            for index in range(3):
                # A producer id comes from ZooKeeper.
                produce_values(cluster, topic, [str(index)], index, is_idempotent=False)
            zookeeper.start()
            create_topic(cluster, partitions=1)
            assert cluster.controller() == controller
            assert sorted(consume_values(cluster, topic, 3, "g")) == ["0", "1", "2"]


def test_a_stopped_broker_is_gone_at_once_and_one_that_hangs_after_its_session(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with Cluster(tmp_path, zookeeper, "/stopped") as cluster:
        cluster.brokers[3].stop()
        assert not (cluster.brokers[3].data / "metadata" / "zookeeper-session").exists()
        cluster.wait_for_brokers(1, 2)
        cluster.brokers[3].start()
        cluster.wait_for_brokers(1, 2, 3)
        hanging = cluster.brokers[cluster.controller()]
        number = int(hanging.properties["node.id"])
        assert hanging.process is not None
        hanging.process.send_signal(signal.SIGSTOP)
        try:
            others = [each for each in cluster.brokers if each != number]
            processes.wait_until(
                lambda: all(
                    {b.node_id for b in cluster.metadata(each).brokers} == set(others)
                    for each in others
                ),
                60,
                "the others' cluster",
            )
        finally:
            hanging.process.send_signal(signal.SIGCONT)
        cluster.wait_for_brokers(1, 2, 3)
        assert cluster.controller() != number
