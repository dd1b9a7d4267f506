"""FindCoordinator, ListGroups, DescribeGroups, DeleteGroups, and the topic that groups live in."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import apache, groups, processes, record_batches, requests
from tests.support.fixtures import Broker
from tests.support.groups import (
    GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP,
    Member,
    commit,
    rebalance,
)
from tests.support.requests import create_topic
from tests.support.wire import Wire

NewMember = Callable[..., Member]
OFFSETS_TOPIC = "__consumer_offsets"
INVALID_TOPIC, TOPIC_ALREADY_EXISTS, INVALID_REQUEST = 17, 36, 42
NO_OPERATIONS_ASKED = -(1 << 31)


# ----------------------------------------------------------------------------- FindCoordinator


@pytest.mark.parametrize("version", range(4))
def test_old_versions_find_one_coordinator(
    wire: Wire, broker: Broker, group: str, version: int
) -> None:
    found = wire.request("find_coordinator", version, key=group, key_type=0)
    (node,) = wire.request("metadata", 1, topics=[]).brokers
    assert found.error_code == 0
    assert (found.node_id, found.host, found.port) == (node.node_id, "127.0.0.1", broker.port)


@pytest.mark.parametrize("version", range(4, 7))
def test_new_versions_find_many(wire: Wire, broker: Broker, group: str, version: int) -> None:
    other = groups.new_group_name()
    answer = wire.request(
        "find_coordinator", version, key_type=0, coordinator_keys=[group, other, group, ""]
    )
    (node,) = wire.request("metadata", 1, topics=[]).brokers
    assert [found.key for found in answer.coordinators] == [group, other, group, ""]
    for found in answer.coordinators:
        assert found.error_code == 0
        assert (found.node_id, found.host, found.port) == (
            node.node_id,
            "127.0.0.1",
            broker.port,
        )
    assert wire.request("find_coordinator", version, coordinator_keys=[]).coordinators == []


@pytest.mark.parametrize("key_type", [3, 7, -1])
def test_there_are_no_other_kinds_of_coordinators(wire: Wire, group: str, key_type: int) -> None:
    found = wire.request("find_coordinator", 3, key=group, key_type=key_type)
    assert (found.error_code, found.node_id, found.port) == (INVALID_REQUEST, -1, -1)
    answer = wire.request("find_coordinator", 4, key_type=key_type, coordinator_keys=[group])
    (found,) = answer.coordinators
    assert (found.error_code, found.node_id, found.host) == (INVALID_REQUEST, -1, "")


# ----------------------------------------------------------------------------------- listing


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists(wire: Wire, group: str, new_member: NewMember, version: int) -> None:
    topic = create_topic(wire)
    simple = groups.new_group(wire)
    assert commit(wire, simple, topic, 1) == 0
    new_member().join_alone()
    listed = groups.list_groups(wire, version=version)
    assert listed[group].protocol_type == "consumer"
    assert listed[simple].protocol_type == ""
    if version >= 4:
        assert (listed[group].group_state, listed[simple].group_state) == ("Stable", "Empty")
    if version >= 5:
        assert (listed[group].group_type, listed[simple].group_type) == ("classic", "classic")


def test_groups_are_listed_by_state_and_type(wire: Wire, group: str, new_member: NewMember) -> None:
    topic = create_topic(wire)
    empty = groups.new_group(wire)
    assert commit(wire, empty, topic, 1) == 0
    new_member().join_alone()
    mine = {group, empty}

    def listed(states: list[str], types: list[str]) -> set[str]:
        return mine & set(groups.list_groups(wire, states_filter=states, types_filter=types))

    assert listed([], []) == mine
    assert listed(["Stable"], []) == {group}
    assert listed(["stable"], []) == {group}
    assert listed(["Empty", "Stable"], []) == mine
    assert listed(["PreparingRebalance", "Dead"], []) == set()
    assert listed(["no such state"], []) == set()
    assert listed([], ["classic"]) == mine
    assert listed([], ["Classic"]) == mine
    assert listed([], ["consumer"]) == set()
    assert listed([], ["no such type"]) == set()
    assert listed([], ["consumer", "classic"]) == mine
    assert listed(["Empty"], ["classic"]) == {empty}


def test_a_group_is_listed_in_every_state(wire: Wire, group: str, new_member: NewMember) -> None:
    def listed_state() -> str | None:
        entry = groups.list_groups(wire).get(group)
        return None if entry is None else entry.group_state

    assert listed_state() is None
    first, second = new_member(), new_member()
    first.join()
    assert listed_state() == "CompletingRebalance"
    first.sync()
    assert listed_state() == "Stable"
    second.ask_for_id()
    second.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    assert listed_state() == "PreparingRebalance"
    second.wire.close()
    first.leave()
    second.wire = Wire(first.wire.socket.getpeername())
    second.leave()
    groups.wait_for_state(wire, group, "Empty")
    assert listed_state() == "Empty"
    groups.delete_groups(wire, [group])
    assert listed_state() is None


# --------------------------------------------------------------------------------- describing


@pytest.mark.parametrize("version", range(7))
def test_every_version_describes(
    wire: Wire, group: str, new_member: NewMember, version: int
) -> None:
    members = [new_member(client_id="one"), new_member(client_id="two", instance="i")]
    rebalance(members)
    shown = groups.describe(wire, group, version=version)
    assert (shown.error_code, shown.group_state) == (0, "Stable")
    assert (shown.protocol_type, shown.protocol_data) == ("consumer", "range")
    found = {entry.member_id: entry for entry in shown.members}
    assert set(found) == {member.member_id for member in members}
    for index, (member, client) in enumerate(zip(members, ("one", "two"), strict=True)):
        entry = found[member.member_id]
        assert (entry.client_id, entry.client_host) == (client, "/127.0.0.1")
        assert (entry.member_metadata, entry.member_assignment) == (b"meta", b"%d" % index)
        if version >= 4:
            assert entry.group_instance_id == member.instance
    if version >= 3:
        assert shown.authorized_operations == NO_OPERATIONS_ASKED
    if version >= 6:
        assert shown.error_message is None


@pytest.mark.parametrize("version", range(3, 7))
def test_operations_are_told_when_asked_for(
    wire: Wire, group: str, new_member: NewMember, version: int
) -> None:
    new_member().join_alone()
    shown = groups.describe(wire, group, version=version, include_authorized_operations=True)
    operations = {index for index in range(32) if shown.authorized_operations >> index & 1}
    read, delete, describe, describe_configs, alter_configs = 3, 6, 8, 10, 11
    assert operations == {read, delete, describe, describe_configs, alter_configs}


@pytest.mark.parametrize("version", range(7))
def test_unknown_groups_are_described_as_dead(wire: Wire, group: str, version: int) -> None:
    shown = groups.describe(wire, group, version=version)
    assert shown.error_code == (GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert (shown.group_state, shown.protocol_type, shown.protocol_data) == ("Dead", "", "")
    assert shown.members == []
    if version >= 6:
        assert group in shown.error_message


def test_between_join_and_sync_members_have_no_metadata_yet(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    member, waiting = new_member(), new_member()
    member.ask_for_id()
    assert groups.describe(wire, group).members == []  # who only has an id is no member
    member.join()
    shown = groups.describe(wire, group)
    assert (shown.group_state, shown.protocol_data) == ("CompletingRebalance", "")
    (entry,) = shown.members
    assert (entry.member_metadata, entry.member_assignment) == (b"", b"")
    member.sync({member.member_id: b"a"})
    waiting.ask_for_id()
    waiting.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    shown = groups.describe(wire, group)
    assert (shown.protocol_type, shown.protocol_data) == ("consumer", "")
    assert len(shown.members) == 2
    found = {(entry.member_metadata, entry.member_assignment) for entry in shown.members}
    assert found <= {(b"", b""), (b"", b"a")}


def test_an_empty_group_is_described(wire: Wire, group: str, new_member: NewMember) -> None:
    new_member().join_alone().leave()
    shown = groups.describe(wire, group)
    assert (shown.error_code, shown.group_state, shown.members) == (0, "Empty", [])
    assert (shown.protocol_type, shown.protocol_data) == ("consumer", "")
    topic = create_topic(wire)
    simple = groups.new_group(wire)
    commit(wire, simple, topic, 1)
    shown = groups.describe(wire, simple)
    assert (shown.group_state, shown.protocol_type, shown.protocol_data) == ("Empty", "", "")


def test_many_are_described_at_once(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    commit(wire, group, topic, 1)
    other = groups.new_group_name()
    answer = wire.request("describe_groups", 5, groups=[other, group, ""])
    found = {entry.group_id: (entry.error_code, entry.group_state) for entry in answer.groups}
    assert found[group] == (0, "Empty")
    assert found[other] == (0, "Dead")
    assert set(found) == {group, other, ""}
    assert wire.request("describe_groups", 5, groups=[]).groups == []


# ----------------------------------------------------------------------------------- deleting


@pytest.mark.parametrize("version", range(3))
def test_every_version_deletes(wire: Wire, group: str, version: int) -> None:
    topic = create_topic(wire)
    assert commit(wire, group, topic, 1) == 0
    assert groups.delete_groups(wire, [group], version=version) == {group: 0}
    assert group not in groups.list_groups(wire)
    assert groups.committed_offset(wire, group, topic) == -1
    assert groups.delete_groups(wire, [group], version=version) == {group: GROUP_ID_NOT_FOUND}


def test_the_newest_version_has_room_for_a_message(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    assert commit(wire, group, topic, 1) == 0
    unknown = groups.new_group_name()
    wire.send_frame(
        b"\0\x2a\0\3\0\0\0\7\0\5judge\0"
        + bytes([3, len(group) + 1])
        + group.encode()
        + bytes([len(unknown) + 1])
        + unknown.encode()
        + b"\0"
    )
    answer = wire.receive_frame()
    assert answer[:10] == b"\0\0\0\7\0\0\0\0\0\3"
    position, found = 10, {}
    for _ in range(2):
        size = answer[position] - 1
        name = answer[position + 1 : position + 1 + size].decode()
        position += 1 + size
        code = int.from_bytes(answer[position : position + 2], "big")
        length = answer[position + 2]
        position += 3
        message = None
        if length:
            message = answer[position : position + length - 1].decode()
            position += length - 1
        assert answer[position] == 0
        position += 1
        found[name] = (code, message)
    assert answer[position:] == b"\0"
    assert found[group] == (0, None)
    assert found[unknown] == (GROUP_ID_NOT_FOUND, None)


def test_groups_with_members_are_not_deleted(wire: Wire, group: str, new_member: NewMember) -> None:
    member = new_member()
    member.join()
    assert groups.delete_groups(wire, [group]) == {group: NON_EMPTY_GROUP}
    member.sync()
    assert groups.delete_groups(wire, [group]) == {group: NON_EMPTY_GROUP}
    assert member.heartbeat() == 0
    member.leave()
    assert groups.delete_groups(wire, [group]) == {group: 0}
    assert groups.state(wire, group) == "Dead"
    # A new group under the old name starts from the beginning.
    member.member_id = ""
    assert member.join().generation_id == 1


def test_each_group_of_a_request_is_judged_apart(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    topic = create_topic(wire)
    alive = new_member().join_alone()
    simple, unknown = groups.new_group(wire), groups.new_group_name()
    assert commit(wire, simple, topic, 1) == 0
    assert groups.delete_groups(wire, [group, simple, unknown]) == {
        group: NON_EMPTY_GROUP,
        simple: 0,
        unknown: GROUP_ID_NOT_FOUND,
    }
    assert alive.heartbeat() == 0
    assert groups.delete_groups(wire, []) == {}


def test_a_topic_may_be_deleted_under_a_group(
    wire: Wire, broker: Broker, group: str, new_member: NewMember
) -> None:
    # C065
    topic = create_topic(wire)
    data = groups.subscription([topic])
    members = [new_member(protocols={"range": data}) for _ in range(3)]
    rebalance(members)
    assert members[0].commit(topic, 1) == 0
    with Wire(broker.address) as other:
        for connection in (wire, other):
            connection.send("delete_topics", 6, timeout=30000, topics=[{"name": topic}])
        found = sorted(connection.receive().responses[0].error_code for connection in (wire, other))
    assert found in ([0, 3], [0, 0])
    processes.wait_until(
        lambda: requests.describe_topic(wire, topic).error_code == 3, 30, "the deletion"
    )
    assert [member.heartbeat() for member in members] == [0, 0, 0]
    assert members[0].commit(topic, 2) == 3
    assert groups.delete_groups(wire, [group]) == {group: NON_EMPTY_GROUP}
    groups.leave(wire, group, [(member.member_id, None) for member in members])
    assert groups.delete_groups(wire, [group]) == {group: 0}
    assert groups.delete_groups(wire, [group]) == {group: GROUP_ID_NOT_FOUND}


@pytest.mark.parametrize("version", [0, 2])
def test_the_empty_group_name_may_be_deleted(wire: Wire, version: int) -> None:
    topic = create_topic(wire)
    groups.wait_for_coordinator(wire, "")
    assert commit(wire, "", topic, 1) == 0
    assert groups.state(wire, "") == "Empty"
    assert "" in groups.list_groups(wire)
    assert groups.delete_groups(wire, [""], version=version) == {"": 0}


# ------------------------------------------------------------------------- the topic of offsets


def test_the_topic_of_offsets_is_internal_and_compacted(wire: Wire, group: str) -> None:
    topic = requests.describe_topic(wire, OFFSETS_TOPIC)
    assert (topic.error_code, topic.is_internal) == (0, True)
    assert len(topic.partitions) == 4
    found = requests.describe_configs(wire, requests.TOPIC_RESOURCE, OFFSETS_TOPIC)
    configs = {entry.name: entry for entry in found.configs}
    for name, value in (
        ("cleanup.policy", "compact"),
        ("segment.bytes", "104857600"),
        ("compression.type", "producer"),
    ):
        assert (configs[name].value, configs[name].config_source) == (value, 1), name
    every = wire.request("metadata", 12, topics=None).topics
    assert OFFSETS_TOPIC in {entry.name for entry in every}


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_clients_do_not_write_to_it(wire: Wire, group: str, version: int) -> None:
    known = requests.topic_id(wire, OFFSETS_TOPIC)
    named: str | uuid.UUID = known if version >= 13 else OFFSETS_TOPIC
    before = requests.end_offset(wire, OFFSETS_TOPIC)
    data = record_batches.batch([b"v"], timestamp=requests.now_ms())
    answer = requests.try_produce(wire, named, data, version=version)
    assert answer.error_code == INVALID_TOPIC, answer
    assert requests.end_offset(wire, OFFSETS_TOPIC) == before


def test_it_cannot_be_created(wire: Wire, group: str) -> None:
    answer = wire.request(
        "create_topics",
        7,
        timeout=30000,
        topics=[{"name": OFFSETS_TOPIC, "num_partitions": 1, "replication_factor": 1}],
    )
    assert answer.topics[0].error_code == TOPIC_ALREADY_EXISTS


def test_it_is_created_by_looking_for_a_coordinator(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        assert requests.describe_topic(wire, OFFSETS_TOPIC).error_code == 3
        assert groups.list_groups(wire) == {}
        found = wire.request("find_coordinator", 4, coordinator_keys=["g"]).coordinators[0]
        assert found.error_code in (0, groups.COORDINATOR_NOT_AVAILABLE)
        if found.error_code:
            assert (found.node_id, found.port) == (-1, -1)
        groups.wait_for_coordinator(wire, "g")
        assert len(requests.describe_topic(wire, OFFSETS_TOPIC).partitions) == 4


def partition_of(group: str) -> int:
    """Java's hash of the UTF-16 units, its absolute value, by the number of partitions."""
    value = 0
    for unit in group.encode("utf-16-be").hex(" ", 2).split():
        value = (value * 31 + int(unit, 16)) & 0xFFFFFFFF
    return abs(value - (1 << 32) if value >> 31 else value) % 4


def test_groups_live_in_the_partition_of_their_hash(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    # With so many random names some have a negative, odd hash, where a mask and abs() differ.
    for name in (f"{groups.new_group_name()} ä 𝄞", *(groups.new_group_name() for _ in range(30))):
        partition = partition_of(name)
        groups.wait_for_coordinator(wire, name)
        before = requests.end_offset(wire, OFFSETS_TOPIC, partition=partition)
        assert commit(wire, name, topic, 1) == 0
        found = requests.read_all(wire, OFFSETS_TOPIC, partition=partition, start=before)
        assert any(name.encode() in (record.key or b"") for record in found), name


def formatted(broker: Broker, formatter: str, partition: int, start: int, count: int) -> list[str]:
    run = apache.run_tool(
        "consumer.ConsoleConsumer",
        [
            "--bootstrap-server",
            broker.bootstrap,
            "--topic",
            OFFSETS_TOPIC,
            "--partition",
            partition,
            "--offset",
            start,
            "--max-messages",
            count,
            "--timeout-ms",
            "15000",
            "--formatter",
            f"org.apache.kafka.tools.consumer.{formatter}",
        ],
    )
    return run.lines


def test_apaches_formatters_read_the_offsets(
    broker: Broker, wire: Wire, group: str, new_member: NewMember
) -> None:
    topic = create_topic(wire, partitions=2)
    partition = partition_of(group)
    start = requests.end_offset(wire, OFFSETS_TOPIC, partition=partition)
    member = new_member(instance="inst").join_alone()
    assert member.commit(topic, 42, partition=1, metadata="meta 42", leader_epoch=3) == 0
    count = requests.end_offset(wire, OFFSETS_TOPIC, partition=partition) - start
    where = (partition, start, count)
    shown = formatted(broker, "OffsetsMessageFormatter", *where)
    (line,) = [line for line in shown if group in line]
    for part in (
        f'"topic":"{topic}","partition":1',
        '"offset":42',
        '"leaderEpoch":3',
        '"metadata":"meta 42"',
        '"topicId":"',
    ):
        assert part in line, line
    shown = formatted(broker, "GroupMetadataMessageFormatter", *where)
    line = [line for line in shown if group in line][-1]
    for part in (
        '"protocolType":"consumer","generation":1,"protocol":"range"',
        f'"leader":"{member.member_id}"',
        '"groupInstanceId":"inst"',
        '"clientId":"judge","clientHost":"/127.0.0.1"',
        f'"rebalanceTimeout":60000,"sessionTimeout":{groups.SESSION_MS}',
    ):
        assert part in line, line


def test_deleted_things_leave_tombstones(wire: Wire, group: str, new_member: NewMember) -> None:
    topic = create_topic(wire)
    new_member().join_alone().leave()
    assert commit(wire, group, topic, 1) == 0
    partition = partition_of(group)
    start = requests.end_offset(wire, OFFSETS_TOPIC, partition=partition)
    assert groups.delete_groups(wire, [group]) == {group: 0}
    found: list[Any] = [
        record
        for record in requests.read_all(wire, OFFSETS_TOPIC, partition=partition, start=start)
        if group.encode() in record.key
    ]
    assert [record.value for record in found] == [None, None]
    assert {int.from_bytes(record.key[:2], "big") for record in found} == {1, 2}
