"""``__consumer_offsets`` as Apache Kafka's own tools read it, and what is left of it after `kill -9`."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import apache, dump_log, group_requests, processes
from tests.support.apache import run_tool
from tests.support.group_requests import Membership
from tests.support.odradek import OdradekBroker
from tests.support.requests import create_topic, end_offset
from tests.support.wire import Wire, WireError

OFFSETS = "__consumer_offsets"
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[OdradekBroker]:
    """A broker with a group of members, one that is empty, one deleted, and a plain committer."""
    broker = OdradekBroker(tmp_path / "b", SETTINGS)
    with broker, Wire(broker.address) as wire:
        create_topic(wire, "t", partitions=2)
        group_requests.find(wire, "members")
        member = group_requests.become_member(wire, "members", session_ms=30_000)
        assert member.commit(wire, "t", {0: 11, 1: 12}) == [0, 0]
        left = group_requests.become_member(wire, "left")
        left.leave(wire)
        assert group_requests.commit(wire, "plain", "t", {1: 13}, metadata="note ü") == [0]
        assert group_requests.commit(wire, "gone", "t", {1: 13}) == [0]
        wire.request("delete_groups", 2, groups_names=["gone"])
        yield broker
        broker.stop()


def logs_of(broker: OdradekBroker) -> list[Path]:
    return sorted(broker.logs.glob(f"{OFFSETS}-*/*.log"))


def test_the_dump_log_tool_decodes_every_record(filled: OdradekBroker) -> None:
    run = run_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        ["--offsets-decoder", "--files", ",".join(map(str, logs_of(filled)))],
    ).ok()
    records = []
    for line in run.lines:
        if " payload: " in line or " key: " in line:
            key = json.loads(line.split(" key: ", 1)[1].split(" payload: ")[0])
            payload = line.split(" payload: ", 1)[1] if " payload: " in line else "<DELETE>"
            records.append((key, None if payload == "<DELETE>" else json.loads(payload)))
    assert not [line for line in run.lines if "Failed" in line or "unknown" in line.lower()]
    offsets = {
        (key["data"]["group"], key["data"]["partition"]): value
        for key, value in records
        if key["type"] == "1"
    }
    assert {
        place: None if value is None else (value["data"]["offset"], value["data"]["metadata"])
        for place, value in offsets.items()
    } == {
        ("members", 0): (11, ""),
        ("members", 1): (12, ""),
        ("plain", 1): (13, "note ü"),
        ("gone", 1): None,
    }
    assert {value["version"] for value in offsets.values() if value} == {"4"}
    groups = {key["data"]["group"]: value for key, value in records if key["type"] == "2"}
    assert set(groups) == {"members", "left", "gone"}
    assert groups["gone"] is None
    assert groups["left"]["data"]["generation"] == 2
    assert groups["left"]["data"]["members"] == []
    members = groups["members"]["data"]
    assert (members["protocolType"], members["protocol"]) == ("consumer", "range")
    assert members["leader"] == members["members"][0]["memberId"]


def test_the_files_are_sound(filled: OdradekBroker) -> None:
    filled.kill9()
    filled.start()
    filled.stop()
    dump_log.check(filled.logs)
    filled.start()


def test_console_consumers_formatters_read_the_topic(filled: OdradekBroker) -> None:
    def read(formatter: str) -> list[Any]:
        found = []
        for partition in range(2):
            # Of one partition, the consumer is in no group of its own, which would write here too.
            with Wire(filled.address) as wire:
                count = end_offset(wire, OFFSETS, partition=partition)
            run = run_tool(
                "consumer.ConsoleConsumer",
                [
                    *("--bootstrap-server", filled.bootstrap, "--topic", OFFSETS),
                    *("--partition", partition, "--offset", "earliest"),
                    *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
                    *("--timeout-ms", "8000", "--max-messages", count),
                ],
            )
            decoder, text = json.JSONDecoder(), run.stdout.strip()
            while text:  # the formatters put no line ends
                value, end = decoder.raw_decode(text)
                found.append(value)
                text = text[end:].lstrip()
        return found

    offsets = read("OffsetsMessageFormatter")
    told = [
        (each["key"]["data"]["group"], each["value"]["data"]["offset"])
        for each in offsets
        if each["value"] is not None
    ]
    assert sorted(told) == [("gone", 13), ("members", 11), ("members", 12), ("plain", 13)]
    groups = read("GroupMetadataMessageFormatter")
    assert {each["key"]["data"]["group"] for each in groups} == {
        "members",
        "left",
        "gone",
    }


class Committer(threading.Thread):
    """Commits rising offsets of one group, and keeps what was acknowledged."""

    def __init__(self, address: tuple[str, int], group_id: str) -> None:
        super().__init__()
        self.address = address
        self.group_id = group_id
        self.acknowledged = self.sent = 0
        self.ends = False

    def run(self) -> None:
        while not self.ends:
            try:
                with Wire(self.address, timeout=10) as wire:
                    while not self.ends:
                        self.sent += 1
                        codes = group_requests.commit(wire, self.group_id, "t", {0: self.sent})
                        if codes == [0]:
                            self.acknowledged = self.sent
                        else:
                            assert codes[0] in group_requests.NOT_READY, codes
            except (OSError, WireError):
                time.sleep(0.01)


def test_no_committed_offset_is_lost_or_goes_back_when_the_broker_is_killed(
    tmp_path: Path,
) -> None:
    dice = random.Random(11)
    broker = OdradekBroker(tmp_path / "b", SETTINGS)
    with broker:
        with Wire(broker.address) as wire:
            create_topic(wire, "t")
            group_requests.find(wire, "c0")
        committers = [Committer(broker.address, f"c{number}") for number in range(3)]
        for each in committers:
            each.start()
        try:
            for _ in range(6):
                time.sleep(0.2 + dice.random() / 2)
                broker.kill9()
                acknowledged = [each.acknowledged for each in committers]
                broker.start()
                with Wire(broker.address) as wire:
                    for each, least in zip(committers, acknowledged, strict=True):
                        found = group_requests.committed(wire, each.group_id)["t", 0]
                        assert least <= found <= each.sent
        finally:
            for each in committers:
                each.ends = True
            for each in committers:
                each.join(30)
        assert all(each.acknowledged > 100 for each in committers)


def test_a_stable_group_is_as_before_when_the_broker_is_killed(tmp_path: Path) -> None:
    broker = OdradekBroker(tmp_path / "b", SETTINGS)
    with broker:
        with Wire(broker.address) as wire:
            create_topic(wire, "t")
            group_requests.find(wire, "g")
            member = group_requests.become_member(wire, "g", session_ms=6_000)
        for _ in range(3):
            broker.kill9()
            broker.start()
            with Wire(broker.address) as wire:
                assert beats(wire, member) == 0
                group = group_requests.describe(wire, "g")
                assert group.group_state == "Stable"
                assert [each.member_id for each in group.members] == [member.member_id]
                assert group.members[0].member_assignment == member.assignment


def beats(wire: Wire, member: Membership) -> int:
    """The heartbeat's code once the group is loaded."""
    processes.wait_until(
        lambda: group_requests.describe(wire, member.group_id).error_code == 0, 30, "the group"
    )
    return member.heartbeat(wire)


def test_a_member_of_an_apache_tool_goes_on_through_a_kill(tmp_path: Path) -> None:
    """The console consumer in a group: the same member, the same generation, no rebalance."""
    broker = OdradekBroker(tmp_path / "b", SETTINGS)
    with broker:
        with Wire(broker.address) as wire:
            create_topic(wire, "t", partitions=2)
        tool = apache.start_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            ["--bootstrap-server", broker.bootstrap, "--topic", "t", "--group", "g"],
        )
        try:

            def state() -> tuple[str, list[tuple[str, bytes]]]:
                with Wire(broker.address) as wire:
                    group_requests.find(wire, "g")
                    group = group_requests.describe(wire, "g")
                members = [(each.member_id, each.member_assignment) for each in group.members]
                return group.group_state, members

            processes.wait_until(lambda: state()[0] == "Stable", 60, "a stable group")
            before = state()
            broker.kill9()
            broker.start()
            processes.wait_until(lambda: state()[0] == "Stable", 30, "the group after the kill")
            assert state() == before
            time.sleep(4)  # longer than it takes to notice, and to heartbeat
            assert state() == before
        finally:
            tool.send_signal(signal.SIGKILL)
            tool.wait()
            for pipe in (tool.stdin, tool.stdout):
                if pipe is not None:
                    pipe.close()
