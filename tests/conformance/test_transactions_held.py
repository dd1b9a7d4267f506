"""Requests amid the end of a transaction: its markers wait for a follower that is stopped.

Apache Kafka and three brokers of ours are asked the same, a request of each kind and version under each name that a
producer may have. What Apache Kafka 4.4 says is the table below.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench import clusters
from tests.support import groups, processes, requests
from tests.support.transactions import (
    CONCURRENT_TRANSACTIONS,
    TRANSACTION_KEY,
    TransactionalProducer,
    committed_values,
    describe,
    settled,
    wait_for_coordinator,
    wait_for_state,
)
from tests.support.wire import Wire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: Nobody is missed while it is stopped.
PATIENT = {
    "replica.lag.time.max.ms": "120000",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "6",
}
FOR_APACHE = PATIENT | {"broker.session.timeout.ms": "120000"}
FOR_OURS = PATIENT | {"zookeeper.session.timeout.ms": "120000"}
NUMBERS = (1, 2, 3)
GROUP_KEY = 0

NOT_ENOUGH_REPLICAS, INVALID_EPOCH, INVALID_STATE, UNKNOWN_ID, FENCED = 19, 47, 48, 49, 90

#: Requests (and versions) that look at the name before they look whether the end is under way.
NAME_FIRST = ("end 1", "end 4", "verify 5", "produce 11", "offsets 3")
#: Those that say it as partitions and groups do, and as clients did that do not know PRODUCER_FENCED.
AS_PARTITIONS = ("end 1", "produce", "offsets")


def told_of_a_name(request: str, code: int) -> int:
    return INVALID_EPOCH if code == FENCED and request.startswith(AS_PARTITIONS) else code


def amid_markers(request: str, name: str) -> int:
    if name == "own" or not request.startswith(NAME_FIRST):
        return NOT_ENOUGH_REPLICAS if request == "produce 11" else CONCURRENT_TRANSACTIONS
    return told_of_a_name(request, UNKNOWN_ID if name == "stranger" else FENCED)


def after_markers(request: str, name: str, is_commit: bool) -> int:
    """Under names that are not the producer's own."""
    if name == "before":
        if request in ("end 5 commit", "end 5 abort"):  # the end, repeated
            return 0 if request.endswith("commit") is is_commit else INVALID_STATE
        if request == "init 5":
            return 0
    if request == "init 5":
        return FENCED
    return told_of_a_name(request, UNKNOWN_ID if name == "stranger" else FENCED)


class Site:
    """Three brokers, of which one coordinates and leads, and another follows and is stopped."""

    def __init__(self, nodes: Mapping[int, clusters.Node]) -> None:
        self.nodes = nodes
        self.bootstrap = ",".join(node.bootstrap for node in nodes.values())
        with Wire(nodes[1].address) as wire:
            self.controller = wire.request("metadata", 9, topics=[]).controller_id
        self.leader = next(each for each in NUMBERS if each != self.controller)
        self.follower = next(each for each in NUMBERS if each not in (self.controller, self.leader))

    def key(self, key_type: int) -> str:
        """That the leader coordinates."""
        with Wire(self.nodes[self.leader].address) as wire:

            def coordinator(key: str) -> int:
                answer = wire.request(
                    "find_coordinator", 4, key_type=key_type, coordinator_keys=[key]
                )
                (found,) = answer.coordinators
                return int(found.node_id) if found.error_code == 0 else -1

            found: list[str] = []

            def is_found() -> bool:
                found.append(requests.new_topic_name())
                return coordinator(found[-1]) == self.leader

            processes.wait_until(is_found, 60, "a key that the leader coordinates")
            return found[-1]

    def create_topic(self) -> str:
        name = requests.new_topic_name()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        assignment = [[self.leader, self.follower]] * 2
        admin.create_topics([NewTopic(name, 2, replica_assignment=assignment)])[name].result(30)

        def is_in_sync() -> bool:
            with Wire(self.nodes[self.leader].address) as wire:
                (found,) = wire.request("metadata", 9, topics=[{"name": name}]).topics
            return len(found.partitions) == 2 and all(
                len(each.isr_nodes) == 2 and each.leader_id == self.leader
                for each in found.partitions
            )

        processes.wait_until(is_in_sync, 60, f"the replicas of {name}")
        return name

    @contextmanager
    def stopped_follower(self) -> Iterator[None]:
        pid = self.nodes[self.follower].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module", params=["odradek", "apache"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "odradek":
        with clusters.odradek(directory, FOR_OURS) as nodes:
            yield Site(nodes)
    else:
        own = dict.fromkeys(NUMBERS, FOR_APACHE)
        with clusters.kafka(directory, own, kind=clusters.SmallKafkaNode) as nodes:
            yield Site(nodes)


#: Names: what is added to the producer id and to the epoch.
NAMES = {"own": (0, 0), "before": (0, -1), "before that": (0, -2), "after": (0, 1),
         "stranger": (1000, 0)}  # fmt: skip


def ask(known: TransactionalProducer, name: str, topic: str, group: str) -> dict[str, int]:
    """Every request that names a producer, under that name."""
    wire = known.wire
    producer = TransactionalProducer(wire, known.transactional_id)
    producer.producer_id = known.producer_id + NAMES[name][0]
    producer.epoch = known.epoch + NAMES[name][1]
    named = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}

    def batched(verify_only: bool) -> int:
        transaction = {
            "transactional_id": producer.transactional_id,
            "verify_only": verify_only,
            "topics": [{"name": topic, "partitions": [1]}],
            **named,
        }
        answer = wire.request("add_partitions_to_txn", 5, transactions=[transaction])
        (told,) = answer.results_by_transaction
        code: int = told.topic_results[0].results_by_partition[0].partition_error_code
        return code

    return {
        "end 1 commit": producer.try_end(True, version=1),
        "end 1 abort": producer.try_end(False, version=1),
        "end 4 commit": producer.try_end(True, version=4),
        "end 4 abort": producer.try_end(False, version=4),
        "end 5 commit": producer.try_end_and_raise(True)[0],
        "end 5 abort": producer.try_end_and_raise(False)[0],
        "add 3": producer.try_add(topic, 1, version=3)[0],
        "add 5": batched(verify_only=False),
        "verify 5": batched(verify_only=True),
        "add offsets 4": producer.add_offsets(group, version=4),
        "produce 11": producer.produce(topic, [b"x"], partition=1, version=11),
        "produce 12": producer.produce(topic, [b"x"], partition=1, version=12),
        "offsets 3": producer.commit_offset(group, topic, 1, version=3),
        "offsets 5": producer.commit_offset(group, topic, 1, version=5),
        "init 5": producer.try_init(version=5, **named),  # the last, as it may begin something
    }


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("is_raising", [True, False])
def test_requests_of_each_kind_while_markers_are_on_their_way(
    site: Site, is_raising: bool, is_commit: bool
) -> None:
    topic, group, key = site.create_topic(), site.key(GROUP_KEY), site.key(TRANSACTION_KEY)
    outcome = "Commit" if is_commit else "Abort"
    with Wire(site.nodes[site.leader].address, timeout=60) as wire:
        groups.wait_for_coordinator(wire, group)
        wait_for_coordinator(wire, key)
        producer = TransactionalProducer(wire, key).init(version=5)
        for _ in range(2):
            producer.end_and_raise(False)
        if not is_raising:
            producer.add(topic, 0)
        version = 12 if is_raising else 11
        assert settled(partial(producer.produce, topic, [b"v"], version=version)) == 0
        with site.stopped_follower():
            if is_raising:
                producer.end_and_raise(is_commit)
            else:
                producer.end(is_commit)
            for name in NAMES:
                told = ask(producer, name, topic, group)
                assert told == {each: amid_markers(each, name) for each in told}, name
            heir = TransactionalProducer(wire, key)
            assert heir.try_init(version=5) == CONCURRENT_TRANSACTIONS
            found = describe(wire, key)
            assert found.transaction_state == f"Prepare{outcome}"
            assert (found.producer_id, found.producer_epoch) == (
                producer.producer_id,
                producer.epoch,
            )
            assert [(each.topic, each.partitions) for each in found.topics] == [(topic, [0])]
        wait_for_state(wire, key, f"Complete{outcome}")
        # The one before is asked last: its init is the producer's own (KIP-360).
        for name in ("before that", "after", "stranger", "before"):
            told = ask(producer, name, topic, group)
            expected = {each: after_markers(each, name, is_commit) for each in told}
            assert told == expected, name
        assert committed_values(wire, topic) == ([b"v"] if is_commit else [])
        # A leader tells offsets once its followers have answered it.
        processes.wait_until(
            lambda: requests.end_offset(wire, topic, partition=1) >= 0, 30, "the latest offset"
        )
        assert requests.end_offset(wire, topic, partition=1) == 0
        assert groups.committed_offset(wire, group, topic) == -1
