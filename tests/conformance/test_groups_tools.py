"""Groups by the command line: Apache Kafka's tools, and kcat."""

import datetime
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import apache, groups, judge, processes, requests
from tests.support.consumer_groups import describe
from tests.support.groups import Member, commit, committed_offset
from tests.support.requests import create_topic
from tests.support.routing import OURS, Site, connect, shared_site
from tests.support.wire import Wire

NewMember = Callable[..., Member]
broker = shared_site()
our_broker = shared_site(OURS)


def run(broker: Site, tool: str, *args: object, timeout: float = 60) -> apache.ToolRun:
    return apache.run_tool(tool, ["--bootstrap-server", broker.bootstrap, *args], timeout=timeout)


def consumer_groups(broker: Site, *args: object) -> apache.ToolRun:
    done = run(broker, "consumer.group.ConsumerGroupCommand", *args)
    assert "Exception" not in done.stdout + done.stderr, done
    return done


def rows(done: apache.ToolRun) -> list[dict[str, str]]:
    """The tables that the tool prints, without its headings' spaces."""
    found: list[dict[str, str]] = []
    heading: list[str] = []
    for line in done.lines:
        words = line.split()
        if words and words[0] == "GROUP":
            heading = [word for word in words if word != "GROUP"]
            heading.insert(0, "GROUP")
        elif heading and len(words) >= len(heading):
            found.append(dict(zip(heading, words, strict=False)))
    return found


def test_a_group_is_listed_and_described(
    broker: Site, wire: Wire, group: str, new_member: NewMember
) -> None:
    topic = create_topic(wire, partitions=2)
    requests.produce_values(wire, topic, [b"v"] * 10)
    member = new_member(protocols={"range": groups.subscription([topic])})
    member.join_alone(groups.assignment({topic: [0, 1]}))
    assert member.commit(topic, 4) == 0
    assert group in consumer_groups(broker, "--list").lines
    listed = consumer_groups(broker, "--list", "--state", "stable", "--type", "classic")
    assert any(line.split() == [group, "Classic", "Stable"] for line in listed.lines), listed
    found = {
        row["PARTITION"]: row
        for row in rows(consumer_groups(broker, "--describe", "--group", group))
    }
    assert (found["0"]["CURRENT-OFFSET"], found["0"]["LOG-END-OFFSET"]) == ("4", "10")
    assert found["0"]["LAG"] == "6"
    assert found["0"]["CONSUMER-ID"] == member.member_id
    assert found["1"]["CURRENT-OFFSET"] == "-"
    (state,) = rows(consumer_groups(broker, "--describe", "--group", group, "--state"))
    assert state["GROUP"] == group
    shown = consumer_groups(broker, "--describe", "--group", group, "--state").stdout
    assert "range" in shown
    assert "Stable" in shown
    (row,) = rows(consumer_groups(broker, "--describe", "--group", group, "--members"))
    assert (row["CONSUMER-ID"], row["#PARTITIONS"]) == (member.member_id, "2")


RESETS: list[tuple[str, int]] = [
    ("--to-earliest", 2),
    ("--to-offset 999", 20),
    ("--shift-by -3", 7),
    ("--to-datetime {middle}", 12),
    ("--from-file {file}", 9),
]
MORE_RESETS: list[tuple[str, int]] = [
    ("--to-latest", 20),
    ("--to-current", 10),
    ("--to-offset 7", 7),
    ("--to-offset 0", 2),
    ("--shift-by 5", 15),
    ("--shift-by 500", 20),
    ("--by-duration PT1H", 12),
]


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        *(pytest.param(*one, id=one[0]) for one in RESETS),
        *(pytest.param(*one, id=one[0], marks=pytest.mark.slow) for one in MORE_RESETS),
    ],
)
def test_every_target_of_a_reset(
    broker: Site, wire: Wire, group: str, tmp_path: Path, target: str, wanted: int
) -> None:
    topic = create_topic(wire)
    now = requests.now_ms()
    for age_ms in (2 * 3600_000, 600_000):
        for index in range(10 if age_ms > 3600_000 else 8):
            data = requests.record_batches.batch([b"v"], timestamp=now - age_ms + index)
            requests.produce(wire, topic, data)
        if age_ms > 3600_000:
            for _ in range(2):  # offsets 10 and 11 are old as well
                data = requests.record_batches.batch([b"v"], timestamp=now - age_ms + 20)
                requests.produce(wire, topic, data)
    assert requests.end_offset(wire, topic) == 20
    requests.delete_records(wire, topic, 2)
    assert commit(wire, group, topic, 10) == 0
    middle = datetime.datetime.fromtimestamp((now - 3600_000) / 1000, datetime.UTC)
    file = tmp_path / "plan.csv"
    file.write_text(f"{topic},0,9\n")
    places = {"{middle}": middle.strftime("%Y-%m-%dT%H:%M:%S.000"), "{file}": str(file)}
    spelt = [places.get(word, word) for word in target.split()]
    common = ["--reset-offsets", "--group", group, "--topic", topic, *spelt]
    planned = rows(consumer_groups(broker, *common, "--dry-run"))
    assert [(row["TOPIC"], row["NEW-OFFSET"]) for row in planned] == [(topic, str(wanted))]
    assert committed_offset(wire, group, topic) == 10
    done = rows(consumer_groups(broker, *common, "--execute"))
    assert [(row["TOPIC"], row["NEW-OFFSET"]) for row in done] == [(topic, str(wanted))]
    assert committed_offset(wire, group, topic) == wanted


def test_a_group_with_members_is_not_reset(
    broker: Site, wire: Wire, group: str, new_member: NewMember
) -> None:
    topic = create_topic(wire)
    member = new_member(protocols={"range": groups.subscription([topic])})
    member.join_alone(groups.assignment({topic: [0]}))
    member.commit(topic, 1)
    done = consumer_groups(
        broker,
        *("--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute"),
    )
    assert "inactive, but the current state is Stable" in done.stdout + done.stderr, done
    assert committed_offset(wire, group, topic) == 1


def test_groups_and_offsets_are_deleted(broker: Site, wire: Wire, group: str) -> None:
    topic, other = create_topic(wire), create_topic(wire)
    commit(wire, group, topic, 1)
    commit(wire, group, other, 1)
    shown = consumer_groups(broker, "--delete-offsets", "--group", group, "--topic", topic)
    assert "Successful" in shown.stdout
    assert committed_offset(wire, group, topic) == -1
    assert committed_offset(wire, group, other) == 1
    shown = consumer_groups(broker, "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful." in shown.stdout
    assert group not in groups.list_groups(wire)
    again = run(broker, "consumer.group.ConsumerGroupCommand", "--delete", "--group", group)
    assert "GroupIdNotFoundException" in again.stdout + again.stderr


def test_an_unknown_group_is_said_to_be_so(broker: Site, wire: Wire, group: str) -> None:
    done = run(
        broker, "consumer.group.ConsumerGroupCommand", "--describe", "--group", f"no-{group}"
    )
    assert f"Group no-{group} not found" in done.stdout + done.stderr


def test_the_console_consumer_in_a_group(broker: Site, wire: Wire, group: str) -> None:
    topic = create_topic(wire, partitions=2)
    for partition in range(2):
        requests.produce_values(wire, topic, [b"v"] * 5, partition=partition)
    for expected in (10, 0):
        done = run(
            broker,
            "consumer.ConsoleConsumer",
            *("--topic", topic, "--group", group, "--from-beginning"),
            *(("--max-messages", 10) if expected else ("--timeout-ms", 3000)),
        )
        assert f"Processed a total of {expected} messages" in done.stdout + done.stderr, done
    assert committed_offset(wire, group, topic) == 5
    assert committed_offset(wire, group, topic, partition=1) == 5
    groups.wait_for_state(wire, group, "Empty")


def test_the_verifiable_pair(broker: Site, wire: Wire, group: str) -> None:
    requests.init_producer(wire)
    topic = create_topic(wire, partitions=3)
    sent = run(broker, "VerifiableProducer", "--topic", topic, "--max-messages", 300)
    assert sent.stdout.count('"name":"producer_send_success"') == 300
    read = run(
        broker,
        "VerifiableConsumer",
        *("--topic", topic, "--group-id", group, "--max-messages", 300),
        *("--reset-policy", "earliest"),
    )
    counts = re.findall(r'"name":"records_consumed","count":(\d+)', read.stdout)
    assert sum(map(int, counts)) == 300, read
    groups.wait_for_coordinator(wire, group)
    told = [committed_offset(wire, group, topic, partition=index) for index in range(3)]
    assert sum(offset for offset in told if offset > 0) == 300


def test_consumer_perf_and_end_to_end_latency(broker: Site, wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    requests.init_producer(wire)
    for _ in range(10):
        requests.produce_values(wire, topic, [b"v" * 100] * 100)
    done = run(
        broker,
        "ConsumerPerformance",
        *("--topic", topic, "--group", group, "--num-records", 1000, "--timeout", 20000),
    )
    last = [word.strip() for word in done.lines[-1].split(",")]
    assert last[4] == "1000", done
    latency = run(
        broker,
        "EndToEndLatency",
        *("--topic", create_topic(wire), "--num-records", 20),
        *("--producer-acks", "all", "--record-size", 100),
    )
    assert "Avg latency" in latency.stdout, latency


def kcat(broker: Site, *args: object) -> list[str]:
    program = judge.program("kcat", "a package of that name in Debian")
    done = subprocess.run(
        [program, "-b", broker.bootstrap, "-m", "20", *map(str, args)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def test_kcat_in_a_group(broker: Site, wire: Wire, group: str) -> None:
    topic = create_topic(wire, partitions=3)
    for partition in range(3):
        requests.produce_values(wire, topic, [b"a", b"b"], partition=partition)
    common = ("-X", "auto.offset.reset=earliest", "-q", "-f", "%p %o %s\n", "-G", group, topic)
    found = kcat(broker, "-c", 6, *common)
    assert sorted(found) == [f"{part} {at} {'ab'[at]}" for part in range(3) for at in range(2)]
    processes.wait_until(
        lambda: (
            [committed_offset(wire, group, topic, partition=index) for index in range(3)]
            == [2, 2, 2]
        ),
        20,
        "kcat's commits",
    )
    groups.wait_for_state(wire, group, "Empty")
    requests.produce_values(wire, topic, [b"c"], partition=1)
    assert kcat(broker, "-c", 1, *common) == ["1 2 c"]


@pytest.mark.parametrize(
    ("tool", "missing"),
    [
        ("consumer.group.ShareGroupCommand", "SHARE_GROUP_DESCRIBE"),
        ("streams.StreamsGroupCommand", "STREAMS_GROUP_DESCRIBE"),
    ],
)
def test_tools_for_groups_of_other_kinds_are_refused_cleanly(
    our_broker: Site, tool: str, missing: str
) -> None:
    listed = run(our_broker, tool, "--list")
    assert (listed.status, listed.stdout.split(), listed.stderr) == (0, [], "")
    described = run(our_broker, tool, "--describe", "--group", groups.new_group_name())
    assert f"The node does not support {missing}" in described.stdout


def test_a_consumer_of_the_newer_protocol_reads_and_leaves(our_broker: Site) -> None:
    with connect(our_broker) as wire:
        topic = create_topic(wire)
        group = groups.new_group(wire)
    run(our_broker, "VerifiableProducer", "--topic", topic, "--max-messages", 3)
    done = run(
        our_broker,
        "VerifiableConsumer",
        *("--topic", topic, "--group-id", group, "--max-messages", 3),
        *("--group-protocol", "consumer", "--reset-policy", "earliest"),
    )
    assert "partitions_assigned" in done.stdout, done
    assert '"name":"shutdown_complete"' in done.stdout, done
    with connect(our_broker) as wire:
        assert describe(wire, group).group_state == "Empty"
