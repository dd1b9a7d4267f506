"""Every client consumes in a group: commits, rebalances, restarts, resets."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import clients, foreign, groups, members, processes, requests
from tests.support import record_batches as rb
from tests.support.clients import Message
from tests.support.fixtures import Broker
from tests.support.members import MemberProcess, read_by, wait_until_shared
from tests.support.requests import create_topic, now_ms
from tests.support.wire import Wire

EVERY = ("confluent-kafka", "aiokafka", "kafka-python", "java", "franz-go", "sarama", "kafka-go")
ALL = (*EVERY, "kafkajs")
TELLING = [name for name in ALL if name not in members.TELLS_NO_ASSIGNMENT]
LATER = ("kafka-python", "sarama", "kafkajs")  # where each test waits for a session to end
LATER_JAVA = pytest.param("java", marks=pytest.mark.slow)  # its processes take their time
Start = Callable[..., MemberProcess]


@pytest.fixture
def start(broker: Broker, group: str, tmp_path: Path) -> Iterator[Start]:
    """Starts members of `group` on the broker; they are killed at the end."""
    with members.started() as running:

        def one(client: str, topic: str, **options: Any) -> MemberProcess:
            running.append(
                MemberProcess(client, broker.bootstrap, group, topic, tmp_path, **options)
            )
            return running[-1]

        yield one


def produce(wire: Wire, topic: str, partitions: int, count: int) -> None:
    for partition in range(partitions):
        requests.produce_values(
            wire, topic, [b"%d" % index for index in range(count)], partition=partition
        )


def offsets(wire: Wire, group: str, topic: str, partitions: int) -> list[int]:
    (entry,) = groups.fetch_group(wire, group, {topic: range(partitions)}).topics
    return [part.committed_offset for part in entry.partitions]


def wait_for_commits(wire: Wire, group: str, topic: str, wanted: list[int]) -> None:
    processes.wait_until(
        lambda: offsets(wire, group, topic, len(wanted)) == wanted, 180, f"commits {wanted}"
    )


def wait_for_records(members: Sequence[MemberProcess], count: int) -> None:
    """A member may commit before what it printed was read here; that it read no more is the caller's."""
    processes.wait_until(
        lambda: sum(len(member.records) for member in members) >= count, 180, f"{count} records"
    )


@pytest.mark.parametrize("client", ALL)
def test_a_group_reads_commits_and_goes_on_where_it_was(
    wire: Wire, group: str, start: Start, client: str
) -> None:
    topic = create_topic(wire, partitions=3)
    produce(wire, topic, 3, 100)
    first = start(client, topic)
    wait_for_commits(wire, group, topic, [100] * 3)
    wait_for_records([first], 300)
    assert sorted(first.records) == [(part, at) for part in range(3) for at in range(100)]
    first.stop()
    groups.wait_for_state(wire, group, "Empty")  # it left, nobody waited for its session
    produce(wire, topic, 3, 10)
    second = start(client, topic)
    wait_for_commits(wire, group, topic, [110] * 3)
    wait_for_records([second], 30)
    assert sorted(second.records) == [(part, at) for part in range(3) for at in range(100, 110)]


@pytest.mark.parametrize(
    "client",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LATER)) for name in TELLING],
)
def test_two_share_and_the_one_left_takes_over(
    wire: Wire, group: str, start: Start, client: str
) -> None:
    topic = create_topic(wire, partitions=4)
    first = start(client, topic)
    wait_until_shared([first], 4)
    second = start(client, topic)
    wait_until_shared([first, second], 4)
    produce(wire, topic, 4, 50)
    wait_for_commits(wire, group, topic, [50] * 4)
    wait_for_records([first, second], 200)
    assert read_by([first, second]) == {(part, at) for part in range(4) for at in range(50)}
    second.kill()
    wait_until_shared([first], 4)
    produce(wire, topic, 4, 50)
    wait_for_commits(wire, group, topic, [100] * 4)
    first.stop()
    groups.wait_for_state(wire, group, "Empty")


@pytest.mark.parametrize("client", ["confluent-kafka", LATER_JAVA, "franz-go"])
def test_cooperative_members_keep_what_they_have(
    wire: Wire, group: str, start: Start, client: str
) -> None:
    topic = create_topic(wire, partitions=6)
    crew = [start(client, topic, balancer="cooperative")]
    wait_until_shared(crew, 6)
    before = set(crew[0].owned)
    crew.append(start(client, topic, balancer="cooperative"))
    wait_until_shared(crew, 6)
    assert crew[0].owned < before
    assert len(crew[0].owned) == 3
    kept = set(crew[0].owned)
    crew.pop().stop()
    wait_until_shared(crew, 6)
    assert kept < crew[0].owned


@pytest.mark.parametrize(
    "client",
    [
        "confluent-kafka",
        "aiokafka",
        "franz-go",
        LATER_JAVA,
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("kafka-python", "sarama")),
    ],
)
def test_a_static_member_that_dies_and_returns_disturbs_nobody(
    wire: Wire, group: str, start: Start, client: str
) -> None:
    # C055
    topic = create_topic(wire, partitions=4)
    options: dict[str, Any] = {"session": 20_000}
    first = start(client, topic, instance="one", **options)
    wait_until_shared([first], 4)
    second = start(client, topic, instance="two", **options)
    wait_until_shared([first, second], 4)
    processes.wait_until(lambda: groups.state(wire, group) == "Stable", 30, "a stable group")
    owned, count = set(second.owned), first.assignment_count
    second.kill()
    again = start(client, topic, instance="two", **options)
    wait_until_shared([first, again], 4)
    assert again.owned == owned
    assert first.assignment_count == count
    shown = groups.describe(wire, group)
    assert {entry.group_instance_id for entry in shown.members} == {"one", "two"}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka", "franz-go", "sarama", "kafkajs"])
def test_members_whose_offset_is_gone_reset(
    wire: Wire, group: str, start: Start, client: str, reset: str
) -> None:
    # C188
    topic = create_topic(wire)
    for _ in range(10):
        requests.produce_values(wire, topic, [b"v"])
    requests.delete_records(wire, topic, 5)
    assert groups.commit(wire, group, topic, 2) == 0
    member = start(client, topic, reset=reset)

    def has_read() -> bool:
        if reset == "latest":
            requests.produce_values(wire, topic, [b"late"])
        return bool(member.records)

    processes.wait_until(has_read, 180, "a record", every=0.2)
    if reset == "earliest":
        assert member.records[0] == (0, 5)
    else:
        assert member.records[0][1] >= 10
    processes.wait_until(lambda: groups.committed_offset(wire, group, topic) > 5, 20, "a commit")


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-go", "kafkajs"])
def test_batches_that_end_in_nothing_are_committed_to_their_end(
    wire: Wire, group: str, start: Start, client: str
) -> None:
    # C178
    topic = create_topic(wire)
    now = now_ms()
    full, empty, null = (
        rb.Record(b"k", b"v", now),
        rb.Record(b"", b"", now),
        rb.Record(timestamp=now),
    )
    for batch in ([full] * 9 + [empty], [empty] * 10, [empty], [full] * 9 + [null]):
        requests.produce(wire, topic, rb.batch(batch))
    member = start(client, topic)
    wait_for_commits(wire, group, topic, [31])
    wait_for_records([member], 31)
    assert member.records == [(0, offset) for offset in range(31)]


@pytest.mark.parametrize("client", EVERY)  # kafkajs gives up at once, on Apache Kafka too
def test_a_member_may_come_before_its_topic(
    wire: Wire, group: str, start: Start, client: str
) -> None:
    # C175
    topic = requests.new_topic_name()
    member = start(client, topic)
    time.sleep(2)  # let it find nothing
    if requests.describe_topic(wire, topic).error_code:
        create_topic(wire, topic, partitions=3)
    else:  # the client had it created
        grown = wire.request(
            "create_partitions", 3, timeout=30000, topics=[{"name": topic, "count": 3}]
        )
        assert grown.results[0].error_code == 0, grown
        requests.wait_for_leaders(wire, topic, 3)
    for partition in range(3):
        requests.produce_values(wire, topic, [b"first"], partition=partition)
    wait_for_commits(wire, group, topic, [1, 1, 1])
    wait_for_records([member], 3)
    assert sorted(set(member.records)) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafkajs_reads_what_others_write(broker: Broker, wire: Wire, codec: str) -> None:
    # C174: a plain batch stays plain, and kafkajs reads every codec that it was given
    groups.wait_for_coordinator(wire, "any")
    topic = create_topic(wire)
    now = now_ms()
    sent = [
        Message(b"value %d" % index + b"." * 200, b"key", now + index, (("a", b"1"), ("b", b"2")))
        for index in range(50)
    ]
    for writer in (clients.ConfluentKafka(), foreign.ForeignClient("franz-go")):
        writer.write(broker.bootstrap, topic, sent, codec=codec)
    stored = list(rb.batches(requests.fetch(wire, topic, 0).records))
    assert {rb.CODEC_NAMES[batch.codec] for batch in stored} == {codec}
    found = foreign.ForeignClient("kafkajs").read(broker.bootstrap, topic, 90, start=10)
    assert found == (sent + sent)[10:]
