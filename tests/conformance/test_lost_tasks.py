"""Background work that ends by an error: it begins again, or the broker ends and says so. Real processes, planted faults."""

from __future__ import annotations

import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import judge, processes, requests
from tests.support.cluster import Cluster
from tests.support.faults import EXIT_FAILED, faulty_cluster, make_faulty, plant, wait_for_end
from tests.support.groups import Member, new_group, wait_for_state
from tests.support.odradek import OdradekBroker
from tests.support.replicated import (
    consume_values,
    create_topic,
    partitions_of,
    produce_values,
    wait_for_isr,
)
from tests.support.transactions import TransactionalProducer
from tests.support.transactions import wait_for_state as wait_for_transaction
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper


def troubles(broker: OdradekBroker) -> dict[str, dict[str, Any]]:
    return {each["task"]: each for each in broker.control("node")["task_troubles"]}


def wait_for_trouble(broker: OdradekBroker, task: str, what: str) -> dict[str, Any]:
    processes.wait_until(
        lambda: troubles(broker).get(task, {}).get(what, 0) > 0, 60, f"{what} of {task}"
    )
    return troubles(broker)[task]


@pytest.fixture
def cluster(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    with faulty_cluster(zookeeper, tmp_path) as cluster:
        yield cluster


def change_the_image(cluster: Cluster) -> None:
    with Wire(cluster.brokers[cluster.controller()].address, timeout=30) as wire:
        new = {"name": requests.new_topic_name(), "num_partitions": 1, "replication_factor": 3}
        wire.request("create_topics", 7, timeout=30_000, topics=[new])


def test_what_replicates_begins_again_after_an_error(cluster: Cluster) -> None:
    topic = create_topic(cluster)
    (partition,) = partitions_of(cluster, topic)
    leader = cluster.brokers[partition.leader_id]
    followers = [each for each in partition.replica_nodes if each != partition.leader_id]
    for number in followers:
        plant(cluster.brokers[number], "fetch", 1)
    cluster.brokers[followers[0]].kill9()
    cluster.brokers[followers[0]].start()
    plant(leader, "propose", 2)
    wait_for_isr(cluster, topic, set(cluster.brokers))
    produce_values(cluster, topic, ["x"] * 10)
    proposing = wait_for_trouble(leader, "propose ISRs", "restarts")
    assert "injected: propose" in proposing["last_error"]
    name = f"fetch from broker {partition.leader_id}"
    fetching = wait_for_trouble(cluster.brokers[followers[0]], name, "restarts")
    assert "injected: fetch" in fetching["last_error"]


def test_who_follows_the_metadata_begins_again_after_an_error(cluster: Cluster) -> None:
    controller = cluster.brokers[cluster.controller()]
    others = [each for each in cluster.brokers.values() if each is not controller]
    for broker in others:
        plant(broker, "pull", 1)
    controller.stop()
    # One of them is the next controller, and the other asks it.
    processes.wait_until(
        lambda: any(troubles(each).get("pull the image", {}).get("restarts") for each in others),
        60,
        "one that asks again",
    )
    controller.start()
    cluster.wait_for_brokers(*cluster.brokers)
    create_topic(cluster)


def test_a_broker_that_cannot_apply_an_image_ends_and_others_lead(cluster: Cluster) -> None:
    topic = create_topic(cluster, 3)
    number = next(each for each in cluster.brokers if each != cluster.controller())
    broker = cluster.brokers[number]
    file = plant(broker, "apply", None)
    change_the_image(cluster)
    assert wait_for_end(broker) == EXIT_FAILED
    output = broker.output.read_text()
    assert (
        "this broker ends, to be started anew: an image of the cluster cannot be applied" in output
    )
    wait_for_isr(cluster, topic, set(cluster.brokers) - {number})
    assert number not in {each.leader_id for each in partitions_of(cluster, topic)}
    file.unlink()
    broker.start()
    wait_for_isr(cluster, topic, set(cluster.brokers))


def test_a_broker_that_breaks_off_amid_an_event_of_zookeeper_ends(cluster: Cluster) -> None:
    controller = cluster.controller()
    number = next(each for each in cluster.brokers if each != controller)
    (other,) = cluster.brokers.keys() - {number, controller}
    broker = cluster.brokers[number]
    plant(broker, "event", 1)
    cluster.brokers[controller].stop()
    assert wait_for_end(broker) == EXIT_FAILED
    assert "an event of the metadata store could not be taken" in broker.output.read_text()
    cluster.wait_for_brokers(other)
    broker.start()
    cluster.wait_for_brokers(number, other)


def test_a_broker_that_cannot_propose_isrs_ends_and_another_leads(cluster: Cluster) -> None:
    topic = create_topic(cluster)
    (partition,) = partitions_of(cluster, topic)
    broker = cluster.brokers[partition.leader_id]
    follower = next(each for each in partition.replica_nodes if each != partition.leader_id)
    plant(broker, "propose", None)
    cluster.brokers[follower].kill9()
    cluster.brokers[follower].start()  # it has caught up, and waits to be let into the ISR again
    assert wait_for_end(broker) == EXIT_FAILED
    assert "task propose ISRs failed 9 times in a row" in broker.output.read_text()
    wait_for_isr(cluster, topic, set(cluster.brokers) - {partition.leader_id})
    produce_values(cluster, topic, ["x"] * 10)


def test_a_broker_that_cannot_fetch_ends_and_its_next_life_follows(cluster: Cluster) -> None:
    topic = create_topic(cluster)
    (partition,) = partitions_of(cluster, topic)
    follower = next(each for each in partition.replica_nodes if each != partition.leader_id)
    broker = cluster.brokers[follower]
    file = plant(broker, "fetch", None)
    cluster.brokers[
        partition.leader_id
    ].kill9()  # the connection is lost, and the fetcher begins anew
    assert wait_for_end(broker) == EXIT_FAILED
    assert re.search(
        r"task fetch from broker \d failed 9 times in a row.*injected: fetch",
        broker.output.read_text(),
    )
    file.unlink()
    cluster.brokers[partition.leader_id].start()
    broker.start()
    wait_for_isr(cluster, topic, set(cluster.brokers))


def test_a_partition_that_cannot_be_followed_keeps_no_other_from_its_replicas(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """Many partitions of the same leader follow on, and it is told; the broker lives on."""
    with faulty_cluster(zookeeper, tmp_path, **{"replica.lag.time.max.ms": "3000"}) as cluster:
        odd, even = create_topic(cluster), create_topic(cluster, 6)
        (partition,) = partitions_of(cluster, odd)
        number = next(each for each in partition.replica_nodes if each != partition.leader_id)
        broker = cluster.brokers[number]
        file = plant(broker, "follow", None)
        file.write_text(odd)
        produce_values(cluster, odd, ["x"])  # acks=all: it waits until the ISR has shrunk
        wait_for_isr(cluster, odd, set(cluster.brokers) - {number})
        produce_values(cluster, even, [str(value) for value in range(600)])
        wait_for_isr(cluster, even, set(cluster.brokers))
        name = f"fetch from broker {partition.leader_id}"
        found = wait_for_trouble(broker, name, "failures")
        assert "injected: follow" in found["last_error"]
        assert found["restarts"] == 0
        assert f"{odd}-0 cannot follow broker {partition.leader_id}" in broker.output.read_text()
        file.unlink()
        wait_for_isr(cluster, odd, set(cluster.brokers))


def test_a_stop_after_a_failure_that_hangs_ends_nevertheless(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    cluster = faulty_cluster(zookeeper, tmp_path)
    for broker in cluster.brokers.values():
        plant(broker, "hang", None)
    with cluster:
        topic = create_topic(cluster)
        produce_values(cluster, topic, ["before"])
        number = next(each for each in cluster.brokers if each != cluster.controller())
        broker = cluster.brokers[number]
        failing = plant(broker, "apply", None)
        change_the_image(cluster)
        assert wait_for_end(broker) == EXIT_FAILED
        assert "and it cannot stop in order" in broker.output.read_text()
        wait_for_isr(cluster, topic, set(cluster.brokers) - {number})
        produce_values(cluster, topic, ["after"])
        failing.unlink()
        broker.start()
        wait_for_isr(cluster, topic, set(cluster.brokers))
        assert consume_values(cluster, topic, 2) == ["before", "after"]
        for each in cluster.brokers.values():
            (Path(each.program[1]) / "hang").unlink()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OdradekBroker]:
    broker = OdradekBroker(
        tmp_path,
        {
            "log.retention.check.interval.ms": "200",
            "group.min.session.timeout.ms": "100",
            "group.initial.rebalance.delay.ms": "0",
            "odradek.metrics.listen": f"127.0.0.1:{judge.free_port()}",
        },
    )
    make_faulty(broker)
    with broker:
        yield broker


def exposition(broker: OdradekBroker) -> str:
    address = broker.properties["odradek.metrics.listen"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_retention_and_flushes_by_the_clock_go_on_after_an_error(broker: OdradekBroker) -> None:
    assert 'odradek_task_failures_total{task=""} 0' in exposition(broker)
    plant(broker, "retention", 1)
    assert "injected" in wait_for_trouble(broker, "retention", "failures")["last_error"]
    before = broker.control("node")["retention"]["last_run_ms"]
    processes.wait_until(
        lambda: broker.control("node")["retention"]["last_run_ms"] > before, 60, "another run"
    )
    plant(broker, "flush", 1)
    wait_for_trouble(broker, "flushing by the clock", "failures")
    with Wire(broker.address) as wire:
        topic = requests.create_topic(wire, configs={"flush.ms": "10"})
        requests.produce_values(wire, topic, [b"x"])
    processes.wait_until(
        lambda: broker.control("partitions", topic=topic)["partitions"][0]["flushed_offset"] == 1,
        60,
        "the flush",
    )
    assert 'odradek_task_failures_total{task="retention"} 1' in exposition(broker)


def test_timers_of_groups_and_transactions_fire_again_after_an_error(broker: OdradekBroker) -> None:
    plant(broker, "session", 1)
    plant(broker, "timeout", 1)
    with Wire(broker.address) as wire:
        topic = requests.create_topic(wire)
        group = new_group(wire)
        with Member(broker.address, group, session_timeout=200) as member:
            member.join_alone()
        producer = TransactionalProducer(wire).init(timeout_ms=300)
        producer.add(topic, 0)
        wait_for_state(wire, group, "Empty")
        wait_for_transaction(wire, producer.transactional_id, "CompleteAbort")
    found = troubles(broker)
    assert {each["failures"] for each in found.values()} == {1}
    assert {name for name in found if name.startswith("a timer of ")} == set(found)
    assert len(found) == 2


def test_a_client_that_could_not_be_admitted_is_hung_up_on_and_the_next_is_served(
    broker: OdradekBroker,
) -> None:
    plant(broker, "accept", 1)
    with Wire(broker.address) as wire:
        assert wire.is_closed_by_peer()
    with Wire(broker.address) as wire:
        requests.create_topic(wire)
    assert troubles(broker)["callbacks of the loop"]["failures"] == 1


def test_a_clean_stop_after_a_failure_that_was_got_over_is_no_failure(
    broker: OdradekBroker,
) -> None:
    plant(broker, "retention", 1)
    wait_for_trouble(broker, "retention", "failures")
    assert broker.process is not None
    broker.process.send_signal(signal.SIGTERM)
    assert wait_for_end(broker) == 0
    assert not re.search("this broker ends", broker.output.read_text())
