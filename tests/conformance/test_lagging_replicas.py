"""Who lags behind a leader and since when: told by the leader, shown by the command line, honest after a failover."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import schema
from broker.protocol.api_versions import ApiKey
from broker.protocol.codec import Cursor, entity_codec
from tests.support import apache, processes
from tests.support.cluster import Cluster
from tests.support.odradek import REPOSITORY
from tests.support.replicated import create_topic, partitions_of, produce_values, wait_for_isr
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
UNSUPPORTED_VERSION = 35


def odradek(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """By way of brokers that answer: one that is frozen would be waited for."""
    command = [sys.executable, "-m", "appliance", "-b", answering(cluster), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)


def answering(cluster: Cluster) -> str:
    return ",".join(
        broker.bootstrap
        for broker in cluster.running
        if Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T"
    )


def described(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    found = odradek(cluster, "topic", "describe", topic, "--format", "json")
    assert found.returncode == 0, found.stderr
    lagging: list[dict[str, Any]] = json.loads(found.stdout)["data"][0]["lagging"]
    return lagging


def broker_row(cluster: Cluster, number: int) -> dict[str, Any]:
    done = odradek(cluster, "cluster", "info", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = {row["id"]: row for row in json.loads(done.stdout)["data"][0]["broker_list"]}
    assert rows.keys() == cluster.brokers.keys()
    found: dict[str, Any] = rows[number]
    return found


def describe_quorum(address: tuple[str, int], version: int, topics: list[dict[str, Any]]) -> Any:
    """As a client reads it that does not know the field of ours."""
    with Wire(address) as wire:
        wire.send("describe_quorum", version, topics=topics)
        frame = wire.receive_frame()
    cursor = Cursor(memoryview(frame), 5)
    answer = entity_codec(schema.response_type(ApiKey.DESCRIBE_QUORUM, version)).read(cursor)
    assert cursor.position == len(frame)
    return answer


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wait_for_isr_at(cluster: Cluster, number: int, topic: str, isr: set[int]) -> None:
    """As one broker tells it: others may be frozen."""
    processes.wait_until(
        lambda: all(set(each.isr_nodes) == isr for each in partitions_of(cluster, topic, number)),
        60,
        f"the ISR {isr} of {topic} on broker {number}",
    )


def test_each_partition_is_told_of_by_its_leader_and_kafkas_tool_hears_that_there_is_no_quorum(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with Cluster(tmp_path, zookeeper, "/quorum") as cluster:
        topic = create_topic(cluster, 2)
        produce_values(cluster, topic, ["x"] * 7, 0)
        first, second = partitions_of(cluster, topic)
        leader = first.leader_id
        asked = [
            {"topic_name": topic, "partitions": [{"partition_index": each} for each in (0, 1, 9)]},
            {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]},
        ]
        for version in range(3):
            answer = describe_quorum(cluster.brokers[leader].address, version, asked)
            assert answer.error_code.value == 0
            (ours, kraft) = answer.topics
            led, other, missing = ours.partitions
            assert (led.error_code.value, led.leader_id) == (0, leader)
            assert led.leader_epoch == first.leader_epoch
            assert [each.replica_id for each in led.current_voters] == list(first.replica_nodes)
            assert {each.log_end_offset for each in led.current_voters} == {7}
            expected = 0 if second.leader_id == leader else NOT_LEADER_OR_FOLLOWER
            assert (other.error_code.value, other.leader_id) == (expected, second.leader_id)
            assert missing.error_code.value == UNKNOWN_TOPIC_OR_PARTITION
            assert kraft.partitions[0].error_code.value == UNSUPPORTED_VERSION
            if version:
                for each in led.current_voters:
                    assert each.last_caught_up_timestamp > 0
                    assert (each.last_fetch_timestamp == -1) == (each.replica_id == leader)
            if version == 2:
                assert {node.node_id for node in answer.nodes} == set(cluster.brokers)
        tool = apache.run_tool(
            "MetadataQuorumCommand",
            ["--bootstrap-server", cluster.bootstrap, "describe", "--status"],
        )
        assert tool.status != 0
        assert "There is no KRaft quorum" in tool.stdout + tool.stderr


@pytest.mark.slow
def test_a_replica_that_hangs_or_died_is_named_with_how_far_it_is_behind_and_since_when(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with Cluster(tmp_path, zookeeper, "/lagging") as cluster:
        topic = create_topic(cluster)
        (partition,) = partitions_of(cluster, topic)
        leader = partition.leader_id
        lagging, other = (each for each in partition.replica_nodes if each != leader)
        assert described(cluster, topic) == []
        info = odradek(
            cluster, "cluster", "info", "--data", str(cluster.brokers[leader].data)
        ).stdout
        assert re.search(
            rf"ZOOKEEPER-SESSION +connected since [\d:]+, \d+ s ago \(broker {leader}, ", info
        )
        assert re.search(rf"(?m)^ *{leader} .* 200 +0 +alive$", info), info
        began_ms = now_ms()
        produce_values(cluster, topic, ["x"] * 10)

        hanging = cluster.brokers[lagging].process
        assert hanging is not None
        stopped_ms = now_ms()
        hanging.send_signal(signal.SIGSTOP)
        try:
            produce_values(cluster, topic, ["y"] * 25)
            wait_for_isr_at(cluster, leader, topic, {leader, other})
            (told,) = described(cluster, topic)
            assert (told["topic"], told["partition"], told["broker"]) == (topic, 0, lagging)
            assert (told["lag"], told["since_is_exact"]) == (25, True)
            assert began_ms <= told["since_ms"] <= stopped_ms
            status = odradek(cluster, "status")
            assert status.returncode == 10
            assert f"{topic}-0 on broker {lagging} (25 behind, since " in status.stdout
            assert "LAGGING  BEHIND  SINCE" in odradek(cluster, "topic", "describe", topic).stdout
        finally:
            hanging.send_signal(signal.SIGCONT)
        wait_for_isr(cluster, topic, set(cluster.brokers))
        assert described(cluster, topic) == []

        # Another leader has never heard of who was gone before it led.
        cluster.brokers[lagging].kill9()
        wait_for_isr(cluster, topic, {leader, other})
        (told,) = described(cluster, topic)
        assert (told["broker"], told["lag"], told["since_is_exact"]) == (lagging, 0, True)
        row = broker_row(cluster, lagging)
        assert (row["state"], row["gone_since_is_exact"]) == ("gone", True)
        assert (row["partitions"], row["leaders"], row["not_in_sync"]) == (1, 0, 1)
        assert (row["host"], row["size"], row["skew"]) == (None, None, None)
        assert stopped_ms < row["gone_since_ms"] <= now_ms()
        info = odradek(cluster, "cluster", "info").stdout
        assert re.search(rf"(?m)^ *{lagging} .* gone since [\d:]+, \d+ s ago$", info), info
        cluster.brokers[leader].kill9()
        wait_for_isr(cluster, topic, {other})
        found = {each["broker"]: each for each in described(cluster, topic)}
        assert found.keys() == {leader, lagging}
        for told in found.values():
            assert (told["lag"], told["since_is_exact"]) == (None, False)
            assert stopped_ms < told["since_ms"] <= now_ms()
            assert broker_row(cluster, told["broker"])["gone_since_is_exact"] is False
        assert "since before " in odradek(cluster, "status").stdout
        assert (
            len(re.findall("gone since before ", odradek(cluster, "cluster", "info").stdout)) == 2
        )
