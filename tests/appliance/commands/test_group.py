"""Consumer groups from the command line; their members are consumers of this process."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from broker.clock import SystemClock
from tests.appliance.commands.test_completion import completed
from tests.appliance.conftest import Done, Odradek
from tests.support import groups
from tests.support.fixtures import Broker
from tests.support.wire import Wire

Join = Callable[..., Consumer]


@pytest.fixture
def group(new_topic_name: Callable[[], str]) -> str:
    return new_topic_name().replace("t-", "g-")


@pytest.fixture
def filled(on_broker: Odradek, topic: str) -> str:
    """Ten records in partition 0, four in partition 1, none in partition 2."""
    for partition, count in ((0, 10), (1, 4)):
        lines = b"".join(b"%d\n" % number for number in range(count))
        # An idempotent producer takes half a second to start, which is not what is tested here.
        on_broker(
            "produce", topic, "-p", partition, "-X", "enable.idempotence=false", stdin=lines
        ).ok()
    return topic


@pytest.fixture
def join(broker: Broker) -> Iterator[Join]:
    """Make a member of a group, and wait until it has its partitions."""
    members: list[Consumer] = []

    def start(group: str, topic: str, **properties: str) -> Consumer:
        assigned: list[object] = []
        member = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "client.id": "test-member",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in properties.items()},
            }
        )
        members.append(member)
        member.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
        deadline = time.monotonic() + 60
        while not assigned:
            assert time.monotonic() < deadline, "the group gave out no partitions"
            member.poll(0.1)
        return member

    yield start
    for member in members:
        member.close()


@pytest.fixture
def committed(on_broker: Odradek, group: str, filled: str) -> str:
    """A group without members that has read some of both partitions with records."""
    on_broker("group", "seek", group, "--to", 3, "--topic", f"{filled}:0,1", "--execute").ok()
    return group


def offsets(on_broker: Odradek, group: str) -> dict[int, int]:
    (found,) = on_broker("group", "describe", group, "--format", "json").ok().data
    return {row["partition"]: row["current_offset"] for row in found["offset_list"]}


# list and describe


def test_groups_are_listed_with_their_lag(
    on_broker: Odradek, committed: str, join: Join, filled: str, new_topic_name: Callable[[], str]
) -> None:
    active = new_topic_name()
    join(active, filled)
    rows = {row["group"]: row for row in on_broker("group", "list", "--format", "json").ok().data}
    assert rows[committed].pop("seconds_behind") >= 0
    assert rows[committed] == {
        "group": committed,
        "state": "Empty",
        "type": "classic",
        "members": 0,
        "topics": 1,
        "lag": 8,
        "broker": 1,
    }
    assert (rows[active]["state"], rows[active]["members"]) == ("Stable", 1)
    head = on_broker("group", "ls").ok().lines[0].split()
    assert head == [
        "GROUP",
        "STATE",
        "TYPE",
        "MEMBERS",
        "TOPICS",
        "LAG",
        "SECONDS-BEHIND",
        "BROKER",
    ]


def test_a_group_is_as_far_behind_as_the_oldest_record_that_it_has_not_read(
    on_broker: Odradek, broker: Broker, group: str, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    now_ms = SystemClock().wall_ms()
    for hours in (3, 2, 1):
        producer.produce(topic, b"x", partition=0, timestamp=now_ms - hours * 3_600_000)
    assert producer.flush(30) == 0
    names = [f"{group}-{at}" for at in range(4)]
    for at, name in enumerate(names):
        on_broker("group", "seek", name, "--to", at, "--topic", f"{topic}:0,1", "--execute").ok()
    rows = on_broker("group", "list", "-r", f"{group}-.*", "--format", "json").ok().data
    behind = {row["group"]: row["seconds_behind"] for row in rows}
    assert [behind[name] // 3600 for name in names] == [3, 2, 1, 0]
    assert behind[names[3]] == 0
    (found,) = on_broker("group", "describe", names[1], "--format", "json").ok().data
    ages = [row["seconds_behind"] for row in found["offset_list"]]
    assert [age // 3600 for age in ages] == [2, 0]
    assert found["seconds_behind"] == ages[0]
    head = on_broker("group", "describe", names[1]).ok().out
    assert "SECONDS-BEHIND" in head
    classic = on_broker("group", "describe", names[1], "--format", "kafka").ok().out
    assert "SECONDS-BEHIND" not in classic


def test_groups_are_chosen_by_state_type_pattern_and_lag(
    on_broker: Odradek, committed: str, join: Join, filled: str, new_topic_name: Callable[[], str]
) -> None:
    active = new_topic_name()
    join(active, filled)

    def listed(*arguments: object) -> set[str]:
        done = on_broker("group", "list", *arguments, "--format", "json").ok()
        return {row["group"] for row in done.data}

    assert committed in listed("-s", "empty")
    assert active not in listed("-s", "empty")
    assert {committed, active} <= listed("-s", "Empty,STABLE", "--type", "classic")
    assert listed("-r", f"{committed[:-1]}.") == {committed}
    assert committed in listed("--lag-over", 7)
    assert committed not in listed("--lag-over", 8)
    assert on_broker("group", "list", "-s", "bored").code == 2
    assert on_broker("group", "list", "-r", "(").code == 2


def test_a_description_has_state_members_offsets_and_lag(
    on_broker: Odradek, committed: str, join: Join, filled: str
) -> None:
    join(committed, filled, group_instance_id="first")
    (found,) = on_broker("group", "describe", committed, "-a", "--format", "json").ok().data
    summary = ("state", "type", "assignor", "coordinator", "members", "lag")
    assert [found[key] for key in summary] == ["Stable", "classic", "range", 1, 1, 8]
    rows = {row["partition"]: row for row in found["offset_list"]}
    assert rows.keys() == {0, 1, 2}
    assert {key: rows[0][key] for key in ("current_offset", "log_end_offset", "lag")} == {
        "current_offset": 3,
        "log_end_offset": 10,
        "lag": 7,
    }
    # Assigned, but nothing was committed yet.
    assert (rows[2]["current_offset"], rows[2]["lag"], rows[2]["log_end_offset"]) == (None, None, 0)
    (member,) = found["member_list"]
    assert member["consumer_id"] == rows[2]["consumer_id"]
    assert (member["instance_id"], member["client_id"]) == ("first", "test-member")
    assert member["assignment"] == [f"{filled}:0,1,2"]
    (of_topic,) = found["topic_list"]
    assert of_topic.pop("seconds_behind") == found["seconds_behind"] >= 0
    assert of_topic == {"group": committed, "topic": filled, "partitions": 3, "lag": 8}


def test_only_what_was_asked_for_is_described(on_broker: Odradek, committed: str) -> None:
    text = on_broker("group", "describe", committed).ok()
    assert text.lines[0].split() == ["GROUP", committed]
    assert "CURRENT-OFFSET" in text.out
    state = on_broker("group", "describe", committed, "--state").ok()
    assert "STATE" in state.out
    assert "CURRENT-OFFSET" not in state.out
    by_topic = on_broker("group", "describe", committed, "-t").ok()
    assert by_topic.lines[0].split() == ["TOPIC", "PARTITIONS", "LAG", "SECONDS-BEHIND"]


def test_a_group_that_does_not_exist_says_what_to_do(on_broker: Odradek, group: str) -> None:
    for command in ("describe", "delete"):
        done = on_broker("group", command, group, "--yes", "--format", "json")
        assert done.code == 1
        assert done.document["errors"][0]["code"] == "GROUP_ID_NOT_FOUND"
        assert "odradek group list" in done.err
    assert on_broker("group", "describe").code == 2
    assert on_broker("group", "describe", "-r", f"{group}.").code == 1


def test_a_deleted_topic_leaves_the_rest_of_a_description(
    on_broker: Odradek, group: str, filled: str, new_topic_name: Callable[[], str]
) -> None:
    other = new_topic_name()
    on_broker("topic", "create", other).ok()
    on_broker(
        "group", "seek", group, "--to", "start", "--topic", filled, "--topic", other, "--execute"
    ).ok()
    on_broker("topic", "delete", other, "--yes").ok()
    (found,) = on_broker("group", "describe", group, "--format", "json").ok().data
    ends = {row["topic"]: row["log_end_offset"] for row in found["offset_list"]}
    assert ends.get(other) is None
    assert filled in ends


def test_groups_are_completed_from_the_cluster(broker: Broker, committed: str) -> None:
    assert completed(f"-b {broker.bootstrap} group describe {committed[:-1]}") == [committed]
    assert completed(f"-b {broker.bootstrap} consume t -g {committed[:-1]}") == [committed]


# seek


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to", "start"], {0: 0, 1: 0}),
        (["--to", "end"], {0: 10, 1: 4}),
        (["--to", "current"], {0: 3, 1: 3}),
        (["--to", "6"], {0: 6, 1: 4}),
        (["--to", "-1"], {0: 9, 1: 3}),
        (["--to", "+2"], {0: 2, 1: 2}),
        (["--to", "-1h"], {0: 0, 1: 0}),
        (["--to", "@-1h"], {0: 0, 1: 0}),
        (["--to", "P1DT1H"], {0: 0, 1: 0}),
        (["--to", "@2100-01-01"], {0: 10, 1: 4}),
        (["--shift-by", "2"], {0: 5, 1: 4}),
        (["--shift-by", "-9"], {0: 0, 1: 0}),
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 4}),
        (["--to-current"], {0: 3, 1: 3}),
        (["--to-offset", "0"], {0: 0, 1: 0}),
        (["--to-datetime", "2100-01-01T00:00:00.000"], {0: 10, 1: 4}),
        (["--by-duration", "PT1M"], {0: 0, 1: 0}),
    ],
)
def test_every_place_to_go_to(
    arguments: list[str], expected: dict[int, int], on_broker: Odradek, committed: str
) -> None:
    dry = on_broker("group", "seek", committed, *arguments, "--format", "json").ok()
    assert {row["partition"]: row["new_offset"] for row in dry.data} == expected
    assert "dry run" in dry.err
    assert offsets(on_broker, committed) == {0: 3, 1: 3}
    done = on_broker("group", "reset", committed, *arguments, "--execute", "--format", "json").ok()
    assert done.data == dry.data
    assert offsets(on_broker, committed) == expected


def test_what_would_be_done_is_shown(on_broker: Odradek, committed: str, filled: str) -> None:
    done = on_broker("group", "seek", committed, "--to", "end", "--topic", f"{filled}:1-2").ok()
    assert [line.split() for line in done.lines] == [
        ["GROUP", "TOPIC", "PARTITION", "PRIOR-OFFSET", "NEW-OFFSET", "DELTA"],
        [committed, filled, "1", "3", "4", "1"],
        [committed, filled, "2", "-", "0", "-"],
    ]


def test_places_outside_the_log_are_remarked_upon(on_broker: Odradek, committed: str) -> None:
    beyond = on_broker("group", "seek", committed, "--to", "1700000000").ok()
    assert "lies beyond the end 10, which is taken; for a time write @1700000000" in beyond.err
    assert "no record is as new" in on_broker("group", "seek", committed, "--to", "-0s").ok().err


def test_offsets_travel_through_a_file(
    on_broker: Odradek, committed: str, filled: str, tmp_path: Path
) -> None:
    kept = on_broker("group", "seek", committed, "--to", "current", "--export").ok()
    assert kept.lines == [f"{filled},0,3", f"{filled},1,3"]
    path = tmp_path / "offsets.csv"
    path.write_text(kept.out)
    on_broker("group", "seek", committed, "--to", "end", "--execute").ok()
    on_broker("group", "seek", committed, "--from-file", path, "--execute").ok()
    assert offsets(on_broker, committed) == {0: 3, 1: 3}
    path.write_text(f"{filled} 0 5\n")
    on_broker("group", "seek", committed, "--to-file", path, "--execute").ok()
    assert offsets(on_broker, committed) == {0: 5, 1: 3}


def test_a_file_with_groups_names_them_itself(
    on_broker: Odradek, committed: str, group: str, filled: str, tmp_path: Path
) -> None:
    other = f"{group}-2"
    path = tmp_path / "offsets.csv"
    path.write_text(f"{committed},{filled},0,1\n{other},{filled},1,2\n")
    done = on_broker("group", "seek", "--from-file", path, "--execute", "--export").ok()
    assert done.out == path.read_text()
    assert offsets(on_broker, other) == {1: 2}


@pytest.mark.parametrize("text", ["t,0", "t,x,1", "t,0,-1", "a,b,c,0,1", "t,0,1\nt,0,2", ",0,1"])
def test_what_is_no_plan_is_refused(
    text: str, on_broker: Odradek, group: str, tmp_path: Path
) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(text)
    done = on_broker("group", "seek", group, "--from-file", path)
    assert done.code == 2
    assert "line " in done.err


def test_a_group_goes_where_another_one_is(on_broker: Odradek, committed: str, group: str) -> None:
    copy = f"{group}-copy"
    on_broker("group", "seek", copy, "--to-group", committed, "--execute").ok()
    assert offsets(on_broker, copy) == {0: 3, 1: 3}
    nobody = on_broker("group", "seek", copy, "--to-group", f"{group}-nobody", "--execute")
    assert nobody.code == 1
    assert "NO_COMMITTED_OFFSET" in nobody.err


def test_a_group_with_members_is_left_alone(
    on_broker: Odradek, committed: str, group: str, filled: str, join: Join
) -> None:
    join(committed, filled)
    other = f"{group}-2"
    on_broker("group", "seek", other, "--to", 1, "--topic", filled, "--execute").ok()
    done = on_broker(
        "group", "seek", committed, other, "--to", "end", "--execute", "--format", "json"
    )
    assert done.code == 1
    assert [error["code"] for error in done.document["errors"]] == ["NON_EMPTY_GROUP"]
    assert f"odradek group describe {committed} --members" in done.err
    assert offsets(on_broker, committed) == {0: 3, 1: 3, 2: None}
    assert offsets(on_broker, other) == {0: 10, 1: 4, 2: 0}


def test_a_group_of_another_kind_of_client_is_moved_once_it_is_empty(
    on_broker: Odradek, broker: Broker, group: str, filled: str
) -> None:
    """As Kafka Connect's: a tool that joins as a consumer would be refused by its members."""
    with Wire(broker.address) as wire:
        groups.wait_for_coordinator(wire, group)
    seek = ["group", "seek", group, "--to", 2, "--topic", f"{filled}:0", "--execute"]
    with groups.Member(
        broker.address, group, protocols={"sessioned": b"x"}, protocol_type="connect"
    ) as worker:
        worker.join_alone()
        assert worker.commit(filled, 7) == 0
        refused = on_broker(*seek)
        assert refused.code == 1
        assert offsets(on_broker, group)[0] == 7
        worker.leave()
    on_broker(*seek).ok()
    assert offsets(on_broker, group)[0] == 2
    read = on_broker("consume", filled, "-g", group, "-e", "-q", "-f", "%p:%v ").ok()
    assert min(one for one in read.out.split() if one.startswith("0:")) == "0:2"


def test_what_is_committed_is_seen_at_once_and_after_a_restart(
    odradek: Odradek, own_broker: Broker, new_topic_name: Callable[[], str]
) -> None:
    def run(*arguments: object, stdin: bytes = b"") -> Done:
        return odradek("-b", own_broker.bootstrap, *arguments, stdin=stdin)

    name = new_topic_name()
    run("topic", "create", name, "-p", 1).ok()
    run("produce", name, "-p", 0, stdin=b"x\n" * 1000).ok()
    run("group", "seek", name, "--to", 500, "--topic", name, "--execute").ok()
    before = run("group", "describe", name, "--format", "json").ok().data
    assert (before[0]["state"], before[0]["offset_list"][0]["current_offset"]) == ("Empty", 500)
    own_broker.restart()
    (after,) = run("group", "describe", name, "--format", "json").ok().data
    assert (after["state"], after["offset_list"][0]["current_offset"]) == ("Empty", 500)
    beyond = run("group", "seek", name, "--to", 5000, "--topic", name, "--execute").ok()
    assert "1000" in beyond.err
    missing = run("group", "seek", name, "--to", 1, "--topic", f"{name}:7", "--execute")
    assert missing.code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in missing.err
    assert offsets(run, name) == {0: 1000}


def test_an_error_leaves_the_whole_group_alone(
    on_broker: Odradek, committed: str, filled: str
) -> None:
    for scope in (f"{filled}:0,9", "no-such-topic"):
        done = on_broker(
            "group", "seek", committed, "--to", "end", "--execute",
            "--topic", f"{filled}:0", "--topic", scope,
        )  # fmt: skip
        assert done.code == 1
        assert "UNKNOWN_TOPIC_OR_PARTITION" in done.err
    shifted = on_broker("group", "seek", committed, "--shift-by", 1, "--topic", filled, "--execute")
    assert shifted.code == 1
    assert "nothing is committed" in shifted.err
    assert offsets(on_broker, committed) == {0: 3, 1: 3}


def test_all_groups_are_moved_together(on_broker: Odradek, committed: str, filled: str) -> None:
    done = on_broker("group", "seek", "--all-groups", "--to", "start", "--topic", filled)
    assert committed in done.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["g"],
        ["--to", "end"],
        ["g", "--to", "nowhere"],
        ["g", "--to", "end", "--shift-by", "1"],
        ["g", "--to", "end", "--execute", "--dry-run"],
        ["g", "--to", "end", "--all-topics", "--topic", "t"],
        ["g", "--to", "end", "--topic", "t:x"],
        ["g", "--by-duration", "1h"],
    ],
)
def test_wrong_words_of_seek_are_wrong_usage(arguments: list[str], odradek: Odradek) -> None:
    assert odradek("-b", "127.0.0.1:1", "group", "seek", *arguments).code == 2


def test_a_group_without_offsets_wants_topics(on_broker: Odradek, group: str) -> None:
    done = on_broker("group", "seek", group, "--to", "end")
    assert done.code == 1
    assert "--topic TOPIC" in done.err


# delete


def test_deleting_a_group_wants_to_be_confirmed(on_broker: Odradek, committed: str) -> None:
    assert on_broker("group", "delete", committed).code == 2
    on_broker("group", "delete", committed, "--dry-run").ok()
    assert offsets(on_broker, committed) == {0: 3, 1: 3}
    on_broker("group", "delete", committed, "--yes").ok()
    assert on_broker("group", "delete", committed, "--yes").code == 1
    accepted = on_broker("group", "rm", committed, "--yes", "--if-exists").ok()
    assert accepted.lines[1].split() == [committed, "OK", "(GROUP_ID_NOT_FOUND)"]


def test_groups_with_members_are_not_deleted(
    on_broker: Odradek, committed: str, group: str, filled: str, join: Join
) -> None:
    active = f"{group}-2"
    join(active, filled)
    dry = on_broker("group", "delete", committed, active, "--dry-run")
    assert dry.code == 1
    assert "NON_EMPTY_GROUP" in dry.out
    done = on_broker("group", "delete", "-r", f"{group}(-2)?", "--yes", "--format", "json")
    assert done.code == 1
    assert {row["group"]: row["status"] for row in done.data} == {
        committed: "OK",
        active: "NON_EMPTY_GROUP",
    }


def test_committed_offsets_are_forgotten(on_broker: Odradek, committed: str, filled: str) -> None:
    scope = ["--topic", f"{filled}:1"]
    assert on_broker("group", "delete-offsets", committed, *scope).code == 2
    dry = on_broker("group", "delete-offsets", committed, "-t", filled, "--dry-run").ok()
    assert len(dry.lines) == 3
    on_broker("group", "delete-offsets", committed, *scope, "--yes").ok()
    assert offsets(on_broker, committed) == {0: 3}
    gone = on_broker("group", "offset-delete", f"{committed}x", *scope, "--yes")
    assert gone.code == 1
    assert "GROUP_ID_NOT_FOUND" in gone.err
    missing = on_broker("group", "delete-offsets", committed, "-t", "no-such-topic", "--yes")
    assert missing.code == 1


def test_offsets_of_a_topic_that_is_read_are_kept(
    on_broker: Odradek, committed: str, filled: str, join: Join
) -> None:
    join(committed, filled)
    done = on_broker("group", "delete-offsets", committed, "-t", f"{filled}:0", "--yes")
    assert done.code == 1
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in done.out


# consume -g


def test_a_group_reads_on_from_where_it_was(on_broker: Odradek, group: str, filled: str) -> None:
    read = ["consume", filled, "-g", group, "-q", "-f", r"%p:%o\n"]
    first = on_broker(*read, "-n", 5).ok().lines
    assert len(first) == 5
    committed = offsets(on_broker, group)
    assert sum(committed.values()) == 5
    rest = on_broker(*read, "-e").ok().lines
    assert sorted(first + rest) == sorted(
        [f"0:{number}" for number in range(10)] + [f"1:{number}" for number in range(4)]
    )
    assert on_broker(*read, "-e").ok().lines == []
    assert offsets(on_broker, group).items() >= {0: 10, 1: 4}.items()


def test_what_a_filter_left_out_is_read_all_the_same(
    on_broker: Odradek, group: str, filled: str
) -> None:
    done = on_broker("consume", filled, "-g", group, "-e", "--grep", "9", "-q").ok()
    assert [json.loads(line)["value"] for line in done.lines] == ["9"]
    assert offsets(on_broker, group).items() >= {0: 10, 1: 4}.items()


def test_a_new_group_may_begin_at_the_end(on_broker: Odradek, group: str, filled: str) -> None:
    done = on_broker("consume", filled, "-g", group, "-o", "end", "-e", "-q").ok()
    assert done.out == ""


def test_two_members_share_the_partitions(
    on_broker: Odradek, group: str, filled: str, join: Join
) -> None:
    on_broker("produce", filled, "-p", 2, stdin=b"x\ny\n").ok()
    other = join(group, filled)
    stop = threading.Event()

    def stay() -> None:
        """A member has to take part in rebalances; this one reads nothing of its share."""
        while not stop.is_set():
            other.pause(other.assignment())
            other.poll(0.05)

    thread = threading.Thread(target=stay)
    thread.start()
    try:
        done = on_broker("consume", filled, "-g", group, "-e", "-q", "-f", r"%p:%o\n").ok()
        seen = offsets(on_broker, group)
    finally:
        stop.set()
        thread.join(30)
    ours = {int(line.partition(":")[0]) for line in done.lines}
    assert ours in ({0, 1}, {2})
    counts = {0: 10, 1: 4, 2: 2}
    assert sorted(done.lines) == sorted(f"{p}:{at}" for p in ours for at in range(counts[p]))
    assert {p: at for p, at in seen.items() if at is not None} == {p: counts[p] for p in ours}


@pytest.mark.parametrize("arguments", [["-p", "1"], ["-o", "5"], ["-o", "@-1h"], ["-o", "-3"]])
def test_a_group_says_itself_what_is_read(arguments: list[str], odradek: Odradek) -> None:
    done = odradek("-b", "127.0.0.1:1", "consume", "t", "-g", "g", *arguments)
    assert done.code == 2
    assert "-g" in done.err
