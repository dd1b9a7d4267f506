"""Groups of real clients through restarts, stalls and storms: public trouble, tried on both."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import groups, members, processes, requests
from tests.support.fixtures import SHARED_SETTINGS, Broker
from tests.support.groups import INCONSISTENT_GROUP_PROTOCOL, Member
from tests.support.members import MemberProcess, read_by, wait_until_shared
from tests.support.odradek import OdradekBroker
from tests.support.requests import create_topic
from tests.support.wire import Wire


@pytest.fixture
def crew() -> Iterator[list[MemberProcess]]:
    with members.started() as running:
        yield running


def settles(crew: list[MemberProcess], seconds: float) -> None:
    """Nobody is assigned anything anew for `seconds`."""
    before = [member.assignment_count for member in crew]
    time.sleep(seconds)
    assert [member.assignment_count for member in crew] == before


@pytest.mark.parametrize(
    ("client", "instance"),
    [
        ("confluent-kafka", "1"),
        pytest.param("confluent-kafka", "", marks=pytest.mark.slow),
        pytest.param("aiokafka", "1", marks=pytest.mark.slow),
        ("aiokafka", ""),
        pytest.param("franz-go", "1", marks=pytest.mark.slow),
        pytest.param("franz-go", "", marks=pytest.mark.slow),
    ],
)
def test_a_member_lives_through_restarts_of_its_broker(
    start_odradek: Callable[..., OdradekBroker],
    crew: list[MemberProcess],
    tmp_path: Path,
    client: str,
    instance: str,
) -> None:
    # C055
    broker = start_odradek(SHARED_SETTINGS)
    with Wire(broker.address) as wire:
        topic = create_topic(wire, partitions=2)
        group = groups.new_group(wire)
    member = MemberProcess(
        client, broker.bootstrap, group, topic, tmp_path, session=30_000, instance=instance
    )
    crew.append(member)
    wait_until_shared(crew, 2)
    written = 0
    for end in (broker.stop, broker.kill9, broker.kill9):
        with Wire(broker.address) as wire:
            for partition in range(2):
                requests.produce_values(wire, topic, [b"v"] * 10, partition=partition)
        written += 10
        end()
        broker.start()
        with Wire(broker.address) as wire:
            for partition in range(2):
                requests.produce_values(wire, topic, [b"v"] * 10, partition=partition)
            written += 10
            groups.wait_for_coordinator(wire, group)
            processes.wait_until(
                lambda: (
                    [
                        groups.committed_offset(wire, group, topic, partition=index)
                        for index in range(2)
                    ]
                    == [written] * 2
                ),
                60,
                f"commits of {written}",
                every=0.1,
            )
            (entry,) = groups.describe(wire, group).members
            assert entry.group_instance_id == (instance or None)
    assert member.is_running
    assert read_by(crew) == {(part, at) for part in range(2) for at in range(written)}
    # The group was stable all the while: nobody was assigned anything twice.
    assert member.assignment_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("client", ["kafka-python", "java"])
def test_a_member_that_comes_and_goes_stops_nobody(
    start_odradek: Callable[..., OdradekBroker],
    crew: list[MemberProcess],
    tmp_path: Path,
    client: str,
) -> None:
    # C053
    broker = start_odradek({**SHARED_SETTINGS, "group.initial.rebalance.delay.ms": "3000"})
    with Wire(broker.address) as wire:
        topic = create_topic(wire, partitions=4)
        group = groups.new_group(wire)

    def start() -> MemberProcess:
        crew.append(MemberProcess(client, broker.bootstrap, group, topic, tmp_path))
        return crew[-1]

    steady = start()
    wait_until_shared([steady], 4)
    for turn in range(6):
        guest = start()
        if turn % 2:
            wait_until_shared([steady, guest], 4, 20)
        else:
            time.sleep(1.0 + turn / 4)  # it may leave while the others join
        guest.stop()
        wait_until_shared([steady], 4, 15)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_thirty_cooperative_members_settle(
    broker: Broker, wire: Wire, group: str, crew: list[MemberProcess], tmp_path: Path
) -> None:
    # C064
    topic = create_topic(wire, partitions=60)

    def start() -> MemberProcess:
        return MemberProcess(
            "confluent-kafka",
            broker.bootstrap,
            group,
            topic,
            tmp_path,
            balancer="cooperative",
            session=10_000,
        )

    living = [start() for _ in range(30)]
    crew += living
    wait_until_shared(living, 60, 120)
    settles(living, 5)
    for member in living[:5]:
        member.kill()
    del living[:5]
    wait_until_shared(living, 60, 120)
    added = [start() for _ in range(5)]
    crew += added
    living += added
    wait_until_shared(living, 60, 120)
    settles(living, 5)
    assert {len(member.owned) for member in living} == {2}
    with Member(broker.address, group, protocols={"range": b""}) as odd:
        assert odd.try_join().error_code == INCONSISTENT_GROUP_PROTOCOL
    # A handful of rounds for each change, each of two rebalances, and not hundreds.
    assert max(member.assignment_count for member in living) < 40


@pytest.mark.slow
@pytest.mark.parametrize("client", ["aiokafka", "kafka-python"])
def test_members_that_stall_while_joining_settle_afterwards(
    broker: Broker, wire: Wire, group: str, crew: list[MemberProcess], tmp_path: Path, client: str
) -> None:
    # C189
    topic = create_topic(wire, partitions=10)
    for _ in range(5):
        crew.append(MemberProcess(client, broker.bootstrap, group, topic, tmp_path, session=6000))
    wait_until_shared(crew, 10, 180)  # kafka-python takes 40 s where nothing else runs
    for turn in range(3):
        stalled = crew[turn % 2].process, crew[2].process
        for process in stalled:
            process.send_signal(signal.SIGSTOP)
        guest = MemberProcess(client, broker.bootstrap, group, topic, tmp_path, session=6000)
        crew.append(guest)
        time.sleep(7)
        for process in stalled:
            process.send_signal(signal.SIGCONT)
        wait_until_shared(crew, 10, 60)
        settles(crew, 3)
        guest.stop()
        crew.remove(guest)
        wait_until_shared(crew, 10, 60)
