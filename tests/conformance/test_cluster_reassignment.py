"""Partitions are moved, leaders elected and records deleted over several brokers, by Kafka's own tools."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.support import apache, processes, requests
from tests.support.apache import ToolRun
from tests.support.cluster import Cluster, odradek
from tests.support.replicated import (
    Load,
    consume_values,
    create_topic,
    end_offset,
    partitions_of,
    produce_values,
    wait_for_equal_logs,
)
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
REQUEST_TIMED_OUT = 7


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Whose brokers all run again when a test ends. No timer elects leaders, nobody waits long for a
    broker that is gone."""
    properties = {"auto.leader.rebalance.enable": "false"}
    directory = tmp_path_factory.mktemp("cluster")
    with Cluster(directory, zookeeper, "/moving", properties=properties) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def are_all_running(cluster: Cluster) -> Iterator[None]:
    """Also after a test that failed half way."""
    yield
    for broker in cluster.brokers.values():
        if broker.process is None:
            broker.start()
    cluster.wait_for_brokers(*cluster.brokers)


def reassign(cluster: Cluster, plan: Path | None, *flags: str) -> ToolRun:
    arguments = ["--bootstrap-server", cluster.bootstrap, *flags]
    if plan is not None:
        arguments += ["--reassignment-json-file", str(plan)]
    return apache.run_tool(REASSIGN, arguments).ok()


def write_plan(path: Path, topic: str, moves: dict[int, list[int]]) -> Path:
    partitions = [
        {"topic": topic, "partition": index, "replicas": replicas}
        for index, replicas in moves.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def replicas_of(cluster: Cluster, topic: str) -> dict[int, tuple[int, ...]]:
    return {p.partition_index: tuple(p.replica_nodes) for p in partitions_of(cluster, topic)}


def wait_for_replicas(cluster: Cluster, topic: str, replicas: dict[int, tuple[int, ...]]) -> None:
    processes.wait_until(
        lambda: replicas_of(cluster, topic) == replicas, 60, f"{topic} on {replicas}"
    )


def wait_for_isr(cluster: Cluster, topic: str, isr: dict[int, set[int]]) -> None:
    """As a running broker tells them, of each partition."""
    processes.wait_until(
        lambda: {p.partition_index: set(p.isr_nodes) for p in partitions_of(cluster, topic)} == isr,
        60,
        f"the ISR {isr} of {topic}",
    )


def wait_for_directories(cluster: Cluster, topic: str, held: dict[int, set[int]]) -> None:
    """By broker, the partitions that it holds; what is being deleted does not count."""

    def found() -> dict[int, set[int]]:
        return {
            number: {
                int(path.name.rpartition("-")[2])
                for path in cluster.brokers[number].logs.glob(f"{topic}-*")
                if not path.name.endswith("-delete")
            }
            for number in held
        }

    processes.wait_until(lambda: found() == held, 30, f"{topic} in the directories {held}")


def test_partitions_move_by_kafkas_tool_while_they_are_written_to(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = create_topic(cluster, 2, {"segment.bytes": str(1 << 20)}, replicas=[1, 2])
    produce_values(cluster, topic, [f"{number} {'x' * 2000}" for number in range(1500)])
    before = end_offset(cluster, topic, 0)
    plan = write_plan(tmp_path / "plan.json", topic, {0: [3, 2], 1: [3]})
    with Load(cluster, topic) as load:
        load.wait_for_more(200)
        told = reassign(cluster, plan, "--execute", "--throttle", "50000000").stdout
        assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in told

        def is_complete() -> bool:
            told = reassign(cluster, plan, "--verify").stdout
            return told.count("is completed.") == 2 and "Clearing topic-level throttles" in told

        processes.wait_until(is_complete, 60, f"{topic} where it is to be")
        load.wait_for_more(200)
    assert load.failures == []
    wait_for_replicas(cluster, topic, {0: (3, 2), 1: (3,)})
    wait_for_isr(cluster, topic, {0: {2, 3}, 1: {3}})
    assert "No partition reassignments found." in reassign(cluster, None, "--list").stdout
    with Wire(cluster.brokers[3].address) as wire:
        assert not requests.topic_config(wire, topic, "leader.replication.throttled.replicas").value
    wait_for_directories(cluster, topic, {1: set(), 2: {0}, 3: {0, 1}})
    wait_for_equal_logs(cluster, topic, (2, 3), partition=0)
    found = consume_values(cluster, topic, before + len(load.acknowledged))
    assert found[before:] == load.acknowledged


def test_a_move_is_held_up_by_its_throttle_listed_and_taken_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = create_topic(cluster, replicas=[1, 2])
    produce_values(cluster, topic, [f"{number} {'x' * 2000}" for number in range(3000)])
    plan = write_plan(tmp_path / "plan.json", topic, {0: [3, 2]})
    reassign(cluster, plan, "--execute", "--throttle", "1000")
    wait_for_replicas(cluster, topic, {0: (3, 2, 1)})
    listed = reassign(cluster, None, "--list").stdout
    assert f"{topic}-0: replicas: 3,2,1. adding: 3. removing: 1." in listed
    assert "is still in progress." in reassign(cluster, plan, "--verify").stdout
    given_up = odradek(cluster, "reassign", f"{topic}:0=3,2", "--execute", "--patience", "2s")
    assert given_up.returncode == 1
    assert "waits for its replica on broker 3" in given_up.stderr
    assert ".replication.throttled.rate of broker" in given_up.stderr
    assert "holds it at 1 KB/s" in given_up.stderr
    assert "--cancel" in given_up.stderr
    told = json.loads(odradek(cluster, "health", "--format", "json").stdout)["data"][0]
    (lagging,) = (each for each in told["lagging"] if each["topic"] == topic)
    assert (lagging["partition"], lagging["broker"]) == (0, 3)
    assert 0 < lagging["lag"] <= 3000
    told = reassign(cluster, plan, "--cancel").stdout
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in told
    wait_for_replicas(cluster, topic, {0: (2, 1)})  # Kafka, too, forgets who was preferred
    wait_for_isr(cluster, topic, {0: {1, 2}})
    wait_for_directories(cluster, topic, {1: {0}, 2: {0}, 3: set()})
    # The same without a throttle, and with one replica more.
    plan = write_plan(tmp_path / "plan.json", topic, {0: [3, 2, 1]})
    reassign(cluster, plan, "--execute")
    wait_for_isr(cluster, topic, {0: {1, 2, 3}})
    wait_for_replicas(cluster, topic, {0: (3, 2, 1)})
    wait_for_equal_logs(cluster, topic)


def elect(cluster: Cluster, topic: str, kind: str) -> ToolRun:
    arguments = ["--bootstrap-server", cluster.bootstrap, "--election-type", kind]
    return apache.run_tool(
        "LeaderElectionCommand", [*arguments, "--topic", topic, "--partition", 0]
    )


def leader_of(cluster: Cluster, topic: str) -> int:
    (partition,) = partitions_of(cluster, topic)
    return int(partition.leader_id)


def test_the_preferred_leader_is_elected_on_request(cluster: Cluster, tmp_path: Path) -> None:
    topic = create_topic(cluster, replicas=[1, 2, 3])
    plan = write_plan(tmp_path / "plan.json", topic, {0: [2, 3, 1]})
    reassign(cluster, plan, "--execute")
    wait_for_replicas(cluster, topic, {0: (2, 3, 1)})
    assert leader_of(cluster, topic) == 1
    told = elect(cluster, topic, "PREFERRED").ok().stdout
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in told
    processes.wait_until(lambda: leader_of(cluster, topic) == 2, 30, "the preferred leader")
    told = elect(cluster, topic, "PREFERRED").ok().stdout
    assert f"Valid replica already elected for partitions {topic}-0" in told


def test_who_was_not_in_sync_leads_only_if_that_is_asked_for_and_it_is_told(
    cluster: Cluster,
) -> None:
    topic = create_topic(cluster, replicas=[1, 2])
    produce_values(cluster, topic, ["on both"])
    cluster.brokers[2].kill9()
    wait_for_isr(cluster, topic, {0: {1}})
    produce_values(cluster, topic, ["on one"], acks="all")
    cluster.brokers[1].kill9()
    cluster.brokers[2].start()
    cluster.wait_for_brokers(2, 3)
    processes.wait_until(lambda: leader_of(cluster, topic) == -1, 30, "nobody leads")
    assert "The preferred leader was not available." in elect(cluster, topic, "PREFERRED").stdout
    assert unclean_elections(cluster, topic) == []
    shown = odradek(cluster, "elect", topic, "--unclean", "--format", "json")
    (planned,) = moves_of(shown, topic)
    assert (planned["leader"], planned["new_leader"], planned["status"]) == (None, 2, "planned")
    assert moves_of(odradek(cluster, "elect", topic, "--format", "json"), topic) == []
    assert leader_of(cluster, topic) == -1
    elect(cluster, topic, "UNCLEAN").ok()
    processes.wait_until(lambda: leader_of(cluster, topic) == 2, 30, "an unclean leader")
    assert unclean_elections(cluster, topic) != []
    produce_values(cluster, topic, ["afterwards"])
    assert consume_values(cluster, topic, 2) == ["on both", "afterwards"]
    cluster.brokers[1].start()
    wait_for_isr(cluster, topic, {0: {1, 2}})
    wait_for_equal_logs(cluster, topic, (1, 2))
    # Now by its settings, which may come when nobody leads already.
    cluster.brokers[2].kill9()
    wait_for_isr(cluster, topic, {0: {1}})
    cluster.brokers[1].kill9()
    cluster.brokers[2].start()
    cluster.wait_for_brokers(2, 3)
    processes.wait_until(lambda: leader_of(cluster, topic) == -1, 30, "nobody leads")
    with Wire(cluster.brokers[2].address, timeout=30) as wire:
        requests.alter_config(wire, topic, "unclean.leader.election.enable", "true")
    processes.wait_until(lambda: leader_of(cluster, topic) == 2, 30, "an unclean leader")
    cluster.brokers[1].start()
    wait_for_isr(cluster, topic, {0: {1, 2}})
    cluster.wait_for_brokers(1, 2, 3)


def unclean_elections(cluster: Cluster, topic: str) -> list[str]:
    return [
        line
        for broker in cluster.brokers.values()
        for line in broker.output.read_text().splitlines()
        if f"UNCLEAN ELECTION: {topic}-0" in line
    ]


def test_a_topic_grows_and_another_is_deleted_while_a_broker_is_down(cluster: Cluster) -> None:
    grown = create_topic(cluster, replicas=[1, 2])
    deleted = create_topic(cluster, replicas=[1, 2, 3])
    cluster.brokers[2].stop()
    cluster.wait_for_brokers(1, 3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_partitions([NewPartitions(grown, 3)])[grown].result(30)
    admin.delete_topics([deleted])[deleted].result(30)
    wait_for_directories(cluster, deleted, {1: set(), 2: {0}, 3: set()})
    processes.wait_until(lambda: len(partitions_of(cluster, grown)) == 3, 30, "three partitions")
    assert all(2 not in p.replica_nodes for p in partitions_of(cluster, grown)[1:])
    cluster.brokers[2].start()
    cluster.wait_for_brokers(1, 2, 3)
    wait_for_directories(cluster, deleted, {1: set(), 2: set(), 3: set()})
    wait_for_isr(cluster, grown, {0: {1, 2}, 1: {1, 3}, 2: {1, 3}})
    produce_values(cluster, grown, [str(number) for number in range(100)])


def test_records_are_deleted_when_every_follower_that_is_there_has_deleted_them(
    cluster: Cluster,
) -> None:
    topic = create_topic(cluster, replicas=[1, 2, 3])
    produce_values(cluster, topic, [str(number) for number in range(10)])
    assert delete_records(cluster, topic, 3).low_watermark == 3
    hanging = cluster.brokers[3]
    assert hanging.process is not None
    hanging.process.send_signal(signal.SIGSTOP)
    try:
        told = delete_records(cluster, topic, 5, timeout=300)
    finally:
        hanging.process.send_signal(signal.SIGCONT)
    assert (told.error_code, told.low_watermark) == (REQUEST_TIMED_OUT, 3)
    cluster.wait_for_brokers(1, 2, 3)
    wait_for_isr(cluster, topic, {0: {1, 2, 3}})
    told = delete_records(cluster, topic, 7)
    assert (told.error_code, told.low_watermark) == (0, 7)
    # A new replica begins there, in the midst of a batch.
    assert odradek(cluster, "reassign", f"{topic}:0=1,2", "--execute").returncode == 0
    wait_for_directories(cluster, topic, {1: {0}, 2: {0}, 3: set()})
    raised = odradek(cluster, "reassign", f"{topic}:0=1,2,3", "--execute", "--patience", "20s")
    assert raised.returncode == 0, raised.stderr
    wait_for_equal_logs(cluster, topic)


def delete_records(cluster: Cluster, topic: str, offset: int, timeout: int = 30000) -> Any:
    leader = leader_of(cluster, topic)
    with Wire(cluster.brokers[leader].address, timeout=40) as wire:
        wanted = {"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}
        answer = wire.request("delete_records", 2, timeout=timeout, topics=[wanted])
    ((told,),) = (each.partitions for each in answer.topics)
    return told


def moves_of(done: subprocess.CompletedProcess[str], topic: str) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [row for row in json.loads(done.stdout)["data"] if row["topic"] == topic]


@pytest.mark.slow
def test_a_broker_leaves_and_a_new_one_joins_under_load(cluster: Cluster) -> None:
    topic = create_topic(cluster, configs={"segment.bytes": str(1 << 20)}, replicas=[3, 1])
    before = [f"{number} {'x' * 1000}" for number in range(3000)]
    produce_values(cluster, topic, before)
    (planned,) = moves_of(odradek(cluster, "leave", "3", "--format", "json"), topic)
    assert (planned["new_replicas"], planned["status"]) == ([2, 1], "planned")
    assert replicas_of(cluster, topic) == {0: (3, 1)}
    with Load(cluster, topic) as load:
        load.wait_for_more(200)
        left = odradek(cluster, "leave", "3", "--execute", "--format", "json")
        (moved,) = moves_of(left, topic)
        assert (moved["new_replicas"], moved["status"]) == ([2, 1], "OK")
        assert "broker 3 holds nothing any more" in left.stderr
        wait_for_directories(cluster, topic, {1: {0}, 2: {0}, 3: set()})
        load.wait_for_more(200)
        cluster.brokers[3].stop()
        shutil.rmtree(cluster.brokers[3].data)  # so it is a new one
        cluster.brokers[3].start()
        cluster.wait_for_brokers(1, 2, 3)
        load.wait_for_more(200)
        offered = odradek(cluster, "join")
        assert "--user-topics raises them too" in offered.stderr
        joined = odradek(cluster, "join", "--user-topics", "--execute", "--format", "json")
        (moved,) = moves_of(joined, topic)
        assert (moved["new_replicas"], moved["status"]) == ([2, 1, 3], "OK")
        load.wait_for_more(200)
    assert load.failures == []
    wait_for_isr(cluster, topic, {0: {1, 2, 3}})
    wait_for_equal_logs(cluster, topic)
    found = consume_values(cluster, topic, len(before) + len(load.acknowledged))
    assert found == before + load.acknowledged
    unknown = odradek(cluster, "leave", "9")
    assert unknown.returncode == 2
    assert "there is no broker 9" in unknown.stderr


def test_the_command_line_moves_a_partition_and_has_its_first_replica_lead(
    cluster: Cluster,
) -> None:
    topic = create_topic(cluster, replicas=[1, 2, 3])
    assert odradek(cluster, "reassign", f"{topic}:0=2,3,1", "--execute").returncode == 0
    wait_for_replicas(cluster, topic, {0: (2, 3, 1)})
    assert leader_of(cluster, topic) == 1
    (planned,) = moves_of(odradek(cluster, "elect", topic, "--format", "json"), topic)
    assert (planned["leader"], planned["new_leader"], planned["status"]) == (1, 2, "planned")
    assert leader_of(cluster, topic) == 1
    done = odradek(cluster, "elect", topic, "--execute", "--format", "json")
    assert [each["status"] for each in moves_of(done, topic)] == ["OK"]
    processes.wait_until(lambda: leader_of(cluster, topic) == 2, 30, "the preferred leader")
    assert "nobody is to be elected" in odradek(cluster, "elect", topic).stderr
    assert moves_of(odradek(cluster, "elect", "--all", "--format", "json"), topic) == []
    refused = odradek(cluster, "reassign", f"{topic}:0=9", "--execute")
    assert refused.returncode == 1
    assert "INVALID_REPLICA_ASSIGNMENT" in refused.stdout
    assert odradek(cluster, "reassign", f"{topic}=1").returncode == 2
    assert odradek(cluster, "elect").returncode == 2
