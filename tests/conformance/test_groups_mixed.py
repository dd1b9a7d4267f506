"""Groups of real clients of both protocols, who come and die, as does the broker, or whichever of three the group
depends on: the group changes its protocol on the way, and everything is read."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import (
    apache,
    consumer_groups,
    foreign,
    groups,
    judge,
    processes,
    replicated,
    requests,
    routing,
)
from tests.support.cluster import Cluster
from tests.support.job import Job
from tests.support.odradek import OdradekBroker
from tests.support.routing import connect
from tests.support.wire import WireError

PARTITIONS = 6
ROUNDS = 12
VALUES = 60
MOST_MEMBERS = 4
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "2",
    **{
        f"group.consumer.{end}{what}.ms": value
        for end in ("min.", "")
        for what, value in (("session.timeout", "6000"), ("heartbeat.interval", "500"))
    },
}
MEMBER = apache.POM.with_name("GroupMember.java")


def by_librdkafka() -> list[str]:
    return [sys.executable, "-m", "tests.support.group_member"]


def by_java() -> list[str]:
    judge.program("javac", "a Java development kit compiles the Java member of groups")
    libs = apache.require_jars()
    options = ["-Xmx128M", *apache.SMALL_JVM, "-cp", apache.class_path(libs, with_log=False)]
    return ["java", *options, str(MEMBER)]


def by_franz_go() -> list[str]:
    return foreign.require("group-member")


PROGRAMS = (by_librdkafka, by_java, by_franz_go)
PROTOCOLS = ("classic", "consumer")


class Members:
    """Those of one group: what all of them read, also who is dead by now."""

    def __init__(
        self, broker: OdradekBroker | Cluster, group: str, topic: str, directory: Path
    ) -> None:
        self._arguments = (broker.bootstrap, group, topic)
        self._directory = directory
        self._outputs: list[Path] = []
        self.running: list[tuple[str, Job]] = []

    def add(self, program: Callable[[], list[str]], protocol: str) -> None:
        output = self._directory / f"{len(self._outputs)}-{program.__name__}-{protocol}.txt"
        job = Job([*program(), *self._arguments, protocol], output)
        job.start()
        self._outputs.append(output)
        self.running.append((protocol, job))

    def kill(self, index: int) -> None:
        _, job = self.running.pop(index)
        job.kill()

    def keep_alive(self) -> None:
        for _, job in self.running:
            job.keep_alive()

    def read(self) -> set[str]:
        """Whole lines only: who is killed may leave half a one."""
        found: set[str] = set()
        for output in self._outputs:
            text = output.read_text() if output.exists() else ""
            found.update(text[: text.rfind("\n") + 1].split())
        return found

    def count(self, protocol: str) -> int:
        return sum(each == protocol for each, _ in self.running)


broker = routing.one_or_three(SETTINGS)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(3))
def test_everything_is_read_whoever_comes_and_dies(
    broker: OdradekBroker | Cluster, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    produced: set[str] = set()
    with connect(broker) as wire:
        group, topic = groups.new_group(wire), requests.create_topic(wire, partitions=PARTITIONS)
    members = Members(broker, group, topic, tmp_path)

    def has_read_all() -> bool:
        members.keep_alive()
        return produced <= members.read()

    def produce(round_: int) -> None:
        for partition in range(PARTITIONS):
            values = [f"{round_}-{partition}-{n}" for n in range(VALUES // PARTITIONS)]
            replicated.produce_values(broker, topic, values, partition)
            produced.update(values)

    try:
        # Classic first, then both, at last the newer one alone: the online upgrade.
        members.add(by_librdkafka, "classic")
        members.add(by_java, "classic")
        types = []
        for round_ in range(ROUNDS):
            produce(round_)
            processes.wait_until(has_read_all, 120, f"all values of round {round_}", every=0.1)
            types.append(type_of(broker, group))
            fate = dice.choice(("come", "come", "die", "die", "broker"))
            if fate == "broker":
                kill_and_start(broker, group, topic, dice)
            elif fate == "die" and len(members.running) > 1:
                members.kill(dice.randrange(len(members.running)))
            else:
                if len(members.running) >= MOST_MEMBERS:
                    members.kill(dice.randrange(len(members.running)))
                members.add(dice.choice(PROGRAMS), dice.choice(PROTOCOLS))
        for _ in range(members.count("classic")):
            members.add(dice.choice(PROGRAMS), "consumer")
            members.kill(
                next(i for i, (each, _) in enumerate(members.running) if each == "classic")
            )
        if not members.running:
            members.add(by_java, "consumer")
        produce(ROUNDS)
        processes.wait_until(has_read_all, 120, "all values of the newer protocol", every=0.1)
        processes.wait_until(
            lambda: is_shared_out(broker, group, len(members.running)), 60, "peace"
        )
        assert (types[0], type_of(broker, group)) == ("classic", "consumer")
        processes.wait_until(
            lambda: is_all_committed(broker, group, topic, produced), 60, "commits"
        )
    finally:
        for _, job in members.running:
            job.kill()


def kill_and_start(
    broker: OdradekBroker | Cluster, group: str, topic: str, dice: random.Random
) -> None:
    if isinstance(broker, OdradekBroker):
        broker.kill9()
        broker.start()
        return
    partition = dice.randrange(PARTITIONS)
    find = dice.choice(
        (
            lambda cluster: routing.coordinator(cluster, group, routing.GROUP_KEY),
            lambda cluster: routing.leader(cluster, topic, partition),
        )
    )
    broker.brokers[routing.kill(broker, find)].start()


def type_of(broker: OdradekBroker | Cluster, group: str) -> str:
    with connect(broker, timeout=60) as wire:
        groups.wait_for_coordinator(wire, group)
        listed = wire.request("list_groups", 5, states_filter=[], types_filter=[]).groups
    (found,) = [each.group_type for each in listed if each.group_id == group]
    return str(found)


def is_shared_out(broker: OdradekBroker | Cluster, group: str, count: int) -> bool:
    """Each partition has one owner, and everybody who lives is a member, and no one else."""
    with connect(broker, timeout=60) as wire:
        found = consumer_groups.describe(wire, group)
    owned = Counter(
        partition
        for member in found.members
        for each in member.assignment.topic_partitions
        for partition in each.partitions
    )
    return len(found.members) == count and owned == Counter(range(PARTITIONS))


def is_all_committed(
    broker: OdradekBroker | Cluster, group: str, topic: str, produced: set[str]
) -> bool:
    try:
        with connect(broker, timeout=60) as wire:
            found = sum(
                groups.committed_offset(wire, group, topic, partition=each)
                for each in range(PARTITIONS)
            )
    except (WireError, OSError, AssertionError):
        return False
    return found == len(produced)
