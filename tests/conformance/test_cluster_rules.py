"""What a cluster promises beside that nothing is lost: leases, too few replicas, who is fenced, who leads, who watches.

Real brokers and ZooKeepers, one cluster a test, as each needs settings of its own.
"""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from broker.metadata.zookeeper_session import SessionFile
from tests.support import apache, groups, judge, processes, requests
from tests.support.certificates import make_certificates
from tests.support.cluster import Cluster, odradek
from tests.support.record_batches import batch
from tests.support.replicated import (
    Load,
    consume_values,
    create_topic,
    partitions_of,
    produce_values,
    wait_for_equal_logs,
    wait_for_isr,
)
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR = 6, 16
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND = 19, 20
#: Nobody's session ends while a test runs.
LONG_SESSION = {"zookeeper.session.timeout.ms": "60000"}


def cluster_of(zookeeper: ZooKeeper, directory: Path, properties: Mapping[str, str]) -> Cluster:
    return Cluster(directory, zookeeper, f"/{directory.name}", properties=properties)


@contextmanager
def frozen(cluster: Cluster, numbers: Collection[int]) -> Iterator[None]:
    running = [cluster.brokers[number].process for number in numbers]
    for process in running:
        assert process is not None
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in running:
            assert process is not None
            process.send_signal(signal.SIGCONT)


@contextmanager
def zookeeper_client(cluster: Cluster) -> Iterator[KazooClient]:
    """In the cluster's chroot."""
    client = KazooClient(cluster.brokers[1].properties["zookeeper.connect"])
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def group_at(cluster: Cluster, number: int) -> str:
    """One that this broker coordinates."""
    with Wire(cluster.brokers[number].address, timeout=30) as wire:
        while True:
            group = groups.new_group_name()
            if groups.find_coordinator(wire, group).node_id == number:
                groups.wait_for_coordinator(wire, group)
                return group


def test_a_leader_that_hears_of_no_follower_answers_nothing_from_its_own_memory(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """It cannot know that nobody else leads: whoever is silent may have elected another."""
    with cluster_of(zookeeper, tmp_path, LONG_SESSION) as cluster:
        topic = create_topic(cluster)
        (partition,) = partitions_of(cluster, topic)
        leader = partition.leader_id
        group = group_at(cluster, leader)
        with Wire(cluster.brokers[leader].address, timeout=30) as wire:
            assert groups.commit(wire, group, topic, 1) == 0
            record = batch([b"before"])
            assert requests.try_produce(wire, topic, record, acks=1).error_code == 0
            wait_for_equal_logs(cluster, topic)
            with frozen(cluster, set(cluster.brokers) - {leader}):
                processes.wait_until(
                    lambda: (
                        requests.try_produce(wire, topic, record, acks=1).error_code
                        == NOT_LEADER_OR_FOLLOWER
                    ),
                    30,
                    "the end of the lease",
                )
                latest = requests.list_offset(wire, topic, requests.LATEST)
                assert latest.error_code == NOT_LEADER_OR_FOLLOWER
                assert groups.fetch_group(wire, group).error_code == NOT_COORDINATOR
                assert groups.commit(wire, group, topic, 2) == NOT_COORDINATOR
                # What was committed stays readable: it is the same wherever it is led.
                assert b"before" in bytes(requests.fetch(wire, topic, 0).records)
            processes.wait_until(
                lambda: requests.try_produce(wire, topic, record, acks=1).error_code == 0,
                30,
                "the lease again",
            )
            processes.wait_until(
                lambda: groups.commit(wire, group, topic, 3) == 0, 30, "the coordinator again"
            )
        (after,) = partitions_of(cluster, topic)
        assert (after.leader_id, after.leader_epoch) == (leader, partition.leader_epoch)


def described(cluster: Cluster, filter_: str, topic: str) -> list[str]:
    """As Kafka's tool finds partitions with that filter."""
    arguments = ["--bootstrap-server", cluster.bootstrap, "--describe", filter_]
    lines = apache.run_tool("TopicCommand", arguments).ok().lines
    return [line for line in lines if f"Topic: {topic}" in line]


def test_too_few_replicas_in_sync_are_told_before_and_after_an_append(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    properties = {**LONG_SESSION, "replica.lag.time.max.ms": "2000"}
    with cluster_of(zookeeper, tmp_path, properties) as cluster:
        controller = cluster.controller()
        follower = next(number for number in cluster.brokers if number != controller)
        # Led by the controller, which writes the ISR down while the follower sleeps.
        topic = create_topic(cluster, 1, {"min.insync.replicas": "2"}, [controller, follower])
        assert partitions_of(cluster, topic)[0].leader_id == controller
        record = batch([b"x"])
        with Wire(cluster.brokers[controller].address, timeout=60) as wire:
            assert requests.try_produce(wire, topic, record).error_code == 0
            wait_for_equal_logs(cluster, topic, [controller, follower])
            assert described(cluster, "--at-min-isr-partitions", topic) != []
            with frozen(cluster, [follower]):
                told = requests.try_produce(wire, topic, record)
                assert told.error_code == NOT_ENOUGH_REPLICAS_AFTER_APPEND
                told = requests.try_produce(wire, topic, record)
                assert told.error_code == NOT_ENOUGH_REPLICAS
                processes.wait_until(
                    lambda: requests.try_produce(wire, topic, record, acks=1).error_code == 0,
                    30,
                    "the lease of a leader that is alone",
                )
            wait_for_isr(cluster, topic, {controller, follower})
            assert requests.try_produce(wire, topic, record).error_code == 0
            # Dead rather than asleep: Kafka's tool would wait half a minute for the answer of one that sleeps.
            cluster.brokers[follower].kill9()
            wait_for_isr(cluster, topic, {controller})
            assert requests.try_produce(wire, topic, record).error_code == NOT_ENOUGH_REPLICAS
            for filter_ in ("--under-min-isr-partitions", "--under-replicated-partitions"):
                (line,) = described(cluster, filter_, topic)
                assert f"Isr: {controller}" in line
            assert described(cluster, "--at-min-isr-partitions", topic) == []
            cluster.brokers[follower].start()
            wait_for_isr(cluster, topic, {controller, follower})
            assert described(cluster, "--under-min-isr-partitions", topic) == []


def test_a_dead_broker_is_fenced_long_before_its_session_ends_and_never_out_of_the_last_place(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with (
        cluster_of(zookeeper, tmp_path, LONG_SESSION) as cluster,
        zookeeper_client(cluster) as store,
    ):
        killed = next(number for number in cluster.brokers if number != cluster.controller())
        others = set(cluster.brokers) - {killed}
        shared = create_topic(cluster, 3)
        lone = create_topic(cluster, 1, replicas=[killed])
        with Load(cluster, shared, partitions=3) as load:
            load.wait_for_more(100)
            cluster.brokers[killed].kill9()
            cluster.wait_for_brokers(*others)
            wait_for_isr(cluster, shared, others)
            load.wait_for_more(300)
            # ZooKeeper still has it: it was the refusal on its address.
            assert store.exists(f"/brokers/ids/{killed}") is not None
            state = json.loads(store.get(f"/brokers/topics/{lone}/partitions/0/state")[0])
            assert (state["leader"], state["isr"]) == (-1, [killed])
            assert {each.leader_id for each in partitions_of(cluster, shared)} <= others
            # Nor may it be elected while it is fenced, even where it is preferred.
            preferred = next(
                each.partition_index
                for each in partitions_of(cluster, shared)
                if each.replica_nodes[0] == killed
            )
            with Wire(cluster.brokers[cluster.controller()].address, timeout=30) as wire:
                wanted = {"topic": shared, "partitions": [preferred]}
                answer = wire.request(
                    "elect_leaders", 2, election_type=0, topic_partitions=[wanted], timeout=30000
                )
            ((told,),) = (each.partition_result for each in answer.replica_election_results)
            assert told.error_code == 80  # PREFERRED_LEADER_NOT_AVAILABLE
            cluster.brokers[killed].start()
            cluster.wait_for_brokers(*cluster.brokers)
            wait_for_isr(cluster, shared, set(cluster.brokers))
        assert load.failures == []
        produce_values(cluster, lone, ["again"])
        assert consume_values(cluster, lone, 1) == ["again"]


def test_a_broker_that_stops_hands_its_leaderships_over_before_it_goes(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """ZooKeeper numbers its writes: each partition had its next leader before the registration went."""
    with (
        cluster_of(zookeeper, tmp_path, LONG_SESSION) as cluster,
        zookeeper_client(cluster) as store,
    ):
        topic = create_topic(cluster, 6)
        stopped = next(number for number in cluster.brokers if number != cluster.controller())
        led = [
            each.partition_index
            for each in partitions_of(cluster, topic)
            if each.leader_id == stopped
        ]
        assert led
        with Load(cluster, topic, partitions=6) as load:
            load.wait_for_more(100)
            cluster.brokers[stopped].stop()
            load.wait_for_more(100)
        assert load.failures == []
        gone_at = store.exists("/brokers/ids").pzxid
        assert store.exists(f"/brokers/ids/{stopped}") is None
        for index in range(6):
            value, stat = store.get(f"/brokers/topics/{topic}/partitions/{index}/state")
            state = json.loads(value)
            assert stopped not in (state["leader"], *state["isr"])
            assert stat.mzxid < gone_at


def test_the_preferred_leader_leads_again_by_the_clock(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    properties = {
        "leader.imbalance.check.interval.seconds": "1",
    }
    with cluster_of(zookeeper, tmp_path, properties) as cluster:
        topic = create_topic(cluster, 3)
        preferred = {
            each.partition_index: each.replica_nodes[0] for each in partitions_of(cluster, topic)
        }

        def leaders() -> dict[int, int]:
            return {each.partition_index: each.leader_id for each in partitions_of(cluster, topic)}

        assert leaders() == preferred
        away = next(number for number in cluster.brokers if number != cluster.controller())
        with Load(cluster, topic, partitions=3) as load:
            cluster.brokers[away].kill9()
            processes.wait_until(lambda: away not in leaders().values(), 30, "others to lead")
            cluster.brokers[away].start()
            processes.wait_until(lambda: leaders() == preferred, 60, "the preferred leaders")
            load.wait_for_more(100)
        assert load.failures == []


def test_replicas_are_spread_over_racks(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    cluster = cluster_of(zookeeper, tmp_path, {})
    racks = {1: "a", 2: "a", 3: "b"}
    for number, broker in cluster.brokers.items():
        broker.properties["broker.rack"] = racks[number]
    with cluster:
        assert {each.node_id: each.rack for each in cluster.metadata(1).brokers} == racks
        name = requests.new_topic_name()
        with Wire(cluster.brokers[1].address, timeout=30) as wire:
            wanted = {"name": name, "num_partitions": 6, "replication_factor": 2}
            made = wire.request("create_topics", 7, timeout=30000, topics=[wanted])
            assert made.topics[0].error_code == 0
        processes.wait_until(lambda: len(partitions_of(cluster, name)) == 6, 30, name)
        for each in partitions_of(cluster, name):
            assert {racks[number] for number in each.replica_nodes} == {"a", "b"}


def four_letters(zookeeper: ZooKeeper, word: bytes) -> list[str]:
    with socket.create_connection((zookeeper.host, zookeeper.port), 10) as connection:
        connection.sendall(word)
        return connection.makefile("r").read().splitlines()


def watched_nodes(zookeeper: ZooKeeper) -> dict[int, set[str]]:
    """By session, the nodes whose data it watches; ZooKeeper tells nobody's watches of children."""
    found: dict[int, set[str]] = {}
    session = 0
    for line in four_letters(zookeeper, b"wchc"):
        if line.startswith("0x"):
            session = int(line, 16)
        elif line.strip():
            found.setdefault(session, set()).add(line.strip())
    return found


def watch_count(zookeeper: ZooKeeper) -> int:
    """Those of children, too."""
    told = dict(line.split("\t") for line in four_letters(zookeeper, b"mntr") if "\t" in line)
    return int(told["zk_watch_count"])


def test_nobody_but_the_controller_watches_more_than_the_controller_and_itself(
    tmp_path: Path,
) -> None:
    """It watches the list of brokers; topics and settings only it writes. However many topics there are."""
    settings = {"4lw.commands.whitelist": "srvr,wchc,mntr"}
    with (
        ZooKeeper(tmp_path / "zookeeper", settings) as zookeeper,
        Cluster(tmp_path, zookeeper, "") as cluster,
    ):
        for _ in range(3):
            create_topic(cluster, 3)

        def is_so() -> bool:
            by_session = watched_nodes(zookeeper)
            for number, broker in cluster.brokers.items():
                saved = SessionFile(broker.data / "metadata" / "zookeeper-session").read()
                assert saved is not None
                if by_session.get(saved.session_id) != {"/controller", f"/brokers/ids/{number}"}:
                    return False
            return len(by_session) == 3 and watch_count(zookeeper) == 2 * 3 + 1

        processes.wait_until(is_so, 30, "as few watches as that")
        old = cluster.controller()
        cluster.brokers[old].stop()
        cluster.wait_for_brokers(*set(cluster.brokers) - {old})
        cluster.brokers[old].start()
        cluster.wait_for_brokers(*cluster.brokers)
        assert cluster.controller() != old
        processes.wait_until(is_so, 30, "as few watches under the next controller")


def test_a_cluster_speaks_to_zookeeper_by_tls_with_a_digest_below_a_path(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    secure = judge.free_port()
    authority = certificates.authority.with_suffix(".pem")
    authority.write_text(certificates.authority.read_text())
    settings = {
        "secureClientPort": str(secure),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(certificates.server),
        "ssl.trustStore.location": str(authority),
        "ssl.trustStore.type": "PEM",
    }
    properties = {
        "zookeeper.connect": f"127.0.0.1:{secure}/secured",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(certificates.authority),
        "zookeeper.ssl.keystore.location": str(certificates.client),
        "odradek.zookeeper.digest": "odradek:secret",
    }
    with (
        ZooKeeper(tmp_path / "zookeeper", settings) as zookeeper,
        Cluster(tmp_path, zookeeper, "", properties=properties) as cluster,
    ):
        topic = create_topic(cluster, configs={"min.insync.replicas": "2"})
        with Load(cluster, topic) as load:
            load.wait_for_more(100)
            killed = cluster.controller()
            cluster.brokers[killed].kill9()
            load.wait_for_more(100)
            cluster.brokers[killed].start()
            cluster.wait_for_brokers(*cluster.brokers)
            wait_for_isr(cluster, topic, set(cluster.brokers))
        assert load.failures == []
        stranger = KazooClient(zookeeper.address)
        stranger.start(30)
        try:
            for path in (
                f"/secured/brokers/ids/{killed}",
                "/secured/controller",
                f"/secured/brokers/topics/{topic}",
            ):
                with pytest.raises(NoAuthError):
                    stranger.get(path)
                with pytest.raises(NoAuthError):
                    stranger.set(path, b"{}")
        finally:
            stranger.stop()
            stranger.close()


def test_a_replica_whose_log_lost_its_tail_is_made_whole_before_it_is_in_sync(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """Killed, its last segment torn amid a batch; killed again while it was being made whole."""
    with cluster_of(zookeeper, tmp_path, {}) as cluster:
        topic = create_topic(
            cluster, 1, {"segment.bytes": str(1 << 20), "min.insync.replicas": "2"}
        )
        values = [f"{number} {'x' * 1000}" for number in range(4000)]
        produce_values(cluster, topic, values)
        (partition,) = partitions_of(cluster, topic)
        torn = next(each for each in partition.replica_nodes if each != partition.leader_id)
        broker = cluster.brokers[torn]
        wait_for_equal_logs(cluster, topic)
        broker.kill9()
        *whole, last = sorted(broker.logs.glob(f"{topic}-0/*.log"))
        assert len(whole) >= 3
        with last.open("r+b") as segment:
            segment.truncate(last.stat().st_size // 2 + 7)
        broker.start()
        broker.kill9()
        produce_values(cluster, topic, ["meanwhile"])
        broker.start()
        wait_for_isr(cluster, topic, set(cluster.brokers))
        wait_for_equal_logs(cluster, topic)
        # It leads what it was given back.
        for number in set(cluster.brokers) - {torn}:
            cluster.brokers[number].stop()
        processes.wait_until(
            lambda: partitions_of(cluster, topic)[0].leader_id == torn, 30, f"{torn} to lead"
        )
        assert consume_values(cluster, topic, 4001) == [*values, "meanwhile"]


def test_brokers_that_come_get_replicas_of_internal_topics_and_are_offered_those_of_others(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    cluster = cluster_of(zookeeper, tmp_path, {})
    first, *others = cluster.brokers.values()
    try:
        first.start()
        with Wire(first.address, timeout=30) as wire:
            group = groups.new_group(wire)
            topic = requests.create_topic(wire, partitions=2)
            assert groups.commit(wire, group, topic, 7) == 0

        def replicas(name: str) -> set[int]:
            return {len(each.replica_nodes) for each in partitions_of(cluster, name)}

        assert replicas("__consumer_offsets") == {1}
        for broker in others:
            broker.start()
        cluster.wait_for_brokers(*cluster.brokers)
        done = odradek(cluster, "join", "--execute")
        assert done.returncode == 0, done.stderr
        assert "--user-topics raises them too" in done.stderr
        assert replicas("__consumer_offsets") == {3}
        assert replicas(topic) == {1}
        wait_for_isr(cluster, "__consumer_offsets", set(cluster.brokers))
        # Now it outlives the broker that had all of it.
        first.kill9()
        cluster.wait_for_brokers(2, 3)
        with Wire(others[0].address, timeout=30) as wire:
            coordinator = groups.find_coordinator(wire, group).node_id
        with Wire(cluster.brokers[coordinator].address, timeout=30) as wire:
            groups.wait_for_coordinator(wire, group)
            assert groups.committed_offset(wire, group, topic) == 7
    finally:
        cluster.__exit__()
