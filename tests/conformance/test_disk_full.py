"""A full disk (C030): writes get a retriable error, everything else goes on, nothing is lost."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import groups, judge, processes, requests
from tests.support.groups import Member, committed_offset
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import batch
from tests.support.requests import create_topic, end_offset, now_ms, read_all, try_produce
from tests.support.wire import Struct, Wire

MIB = 1 << 20
STORAGE_ERROR = 56
RETRIABLE = (14, 15, 16)  # what clients retry a commit for
# No floor, so that the file system itself says no.
NO_FLOOR = {
    "odradek.disk.floor.bytes": "0",
    "odradek.disk.floor.replication.bytes": "0",
    "log.segment.delete.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
}


def mount_tmpfs(where: Path) -> None:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(where)], capture_output=True
    )
    if done.returncode:
        judge.missing(f"a tmpfs cannot be mounted here: {done.stderr.decode().strip()}")


def mount_loop(where: Path, image: Path) -> None:
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    made = subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], capture_output=True)
    if made.returncode:
        judge.missing(f"mkfs.ext4: {made.stderr.decode().strip()}")
    done = subprocess.run(["mount", "-o", "loop", str(image), str(where)], capture_output=True)
    if done.returncode:
        judge.missing(f"a file cannot be mounted here: {done.stderr.decode().strip()}")


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    if os.getuid() != 0:
        judge.missing("only root can mount a small file system")
    where = tmp_path / "disk"
    where.mkdir()
    if request.param == "tmpfs":
        mount_tmpfs(where)
    else:
        judge.program("mkfs.ext4", "package e2fsprogs")
        mount_loop(where, tmp_path / "image")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


@pytest.fixture
def broker(small_disk: Path, tmp_path: Path) -> Iterator[OdradekBroker]:
    made = OdradekBroker(tmp_path / "broker", NO_FLOOR, data=small_disk / "data")
    yield made.start()
    made.close()


def produce_megabyte(wire: Wire, topic: str, turn: int) -> Struct:
    value = b"%06d" % turn + os.urandom(900_000)
    return try_produce(wire, topic, batch([value], timestamp=now_ms()))


def fill(wire: Wire, topic: str) -> int:
    """Write until it fails; the number of acknowledged batches."""
    for turn in range(100):
        answer = produce_megabyte(wire, topic, turn)
        if answer.error_code:
            assert answer.error_code == STORAGE_ERROR, answer
            assert answer.base_offset == -1
            return turn
    raise AssertionError("the disk is not full after 100 MB")


def use_up(path: Path) -> None:
    """Take every byte that is left."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


def check_numbers(wire: Wire, topic: str, count: int) -> None:
    found = [record.value[:6] for record in read_all(wire, topic) if record.value]
    assert found == [b"%06d" % turn for turn in range(count)]


def test_writes_fail_retriably_and_resume_when_there_is_room(broker: OdradekBroker) -> None:
    with Wire(broker.address) as wire:
        ballast = create_topic(wire, configs={"segment.bytes": str(MIB)})
        for turn in range(20):
            assert produce_megabyte(wire, ballast, turn).error_code == 0
        name = create_topic(wire, configs={"segment.bytes": str(8 * MIB)})
        count = fill(wire, name)
        assert count > 20
        with Wire(broker.address) as other:
            for _ in range(3):
                assert produce_megabyte(wire, name, count).error_code == STORAGE_ERROR
                check_numbers(other, name, count)
                check_numbers(other, ballast, 20)
                assert end_offset(other, name) == count
        # Room comes back by deleting a topic, which must work on a full disk.
        requests.delete_topic(wire, ballast)

        def is_writable() -> bool:
            return produce_megabyte(wire, name, count).error_code == 0

        processes.wait_until(is_writable, 30, "writing again", every=0.2)
        for turn in range(count + 1, count + 6):
            assert produce_megabyte(wire, name, turn).error_code == 0
        check_numbers(wire, name, count + 6)


def test_retention_and_record_deletion_work_on_a_full_disk(broker: OdradekBroker) -> None:
    with Wire(broker.address) as wire:
        name = create_topic(wire, configs={"segment.bytes": str(2 * MIB)})
        count = fill(wire, name)
        assert requests.delete_records(wire, name, count // 2).error_code == 0
        processes.wait_until(
            lambda: produce_megabyte(wire, name, count).error_code == 0,
            60,
            "writing again",
            every=0.2,
        )


@pytest.mark.parametrize("way", ["stop", "kill9"])
def test_a_restart_on_a_full_disk_comes_up_readable(
    broker: OdradekBroker, small_disk: Path, way: str
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * (20 * MIB))
    with Wire(broker.address) as wire:
        name = create_topic(wire, configs={"segment.bytes": str(4 * MIB)})
        idle = create_topic(wire)
        requests.produce_values(wire, idle, [b"idle"])
        count = fill(wire, name)
    # Not a byte is left.
    use_up(small_disk / "last")
    getattr(broker, way)()
    broker.start()
    with Wire(broker.address) as wire:
        check_numbers(wire, name, count)
        assert [record.value for record in read_all(wire, idle)] == [b"idle"]
        assert produce_megabyte(wire, name, count).error_code == STORAGE_ERROR
        ballast.unlink()
        (small_disk / "last").unlink(missing_ok=True)
        processes.wait_until(
            lambda: produce_megabyte(wire, name, count).error_code == 0,
            30,
            "writing again",
            every=0.2,
        )
        check_numbers(wire, name, count + 1)


def test_readers_do_not_notice_a_full_disk(broker: OdradekBroker) -> None:
    from confluent_kafka import TopicPartition

    from tests.support.clients import ConfluentKafka

    with Wire(broker.address) as wire:
        name = create_topic(wire, configs={"segment.bytes": str(4 * MIB)})
        count = fill(wire, name)
    consumer = ConfluentKafka().consumer(broker.bootstrap)
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        found: list[bytes] = []
        end = time.monotonic() + 60
        while len(found) < count and time.monotonic() < end:
            for message in consumer.consume(100, 0.2):
                assert message.error() is None, message.error()
                found.append(message.value()[:6])
        assert found == [b"%06d" % turn for turn in range(count)]
    finally:
        consumer.close()


def test_tiny_batches_fill_the_last_page(broker: OdradekBroker, small_disk: Path) -> None:
    with Wire(broker.address) as wire:
        name = create_topic(wire)
        requests.produce_values(wire, name, [b"0"])
        use_up(small_disk / "ballast")
        count = 1
        for _ in range(5000):
            answer = try_produce(wire, name, batch([b"%d" % count], timestamp=now_ms()))
            if answer.error_code:
                assert answer.error_code == STORAGE_ERROR
                break
            count += 1
        found = [record.value for record in read_all(wire, name)]
        assert found == [b"%d" % index for index in range(count)]
        (small_disk / "ballast").unlink()
        processes.wait_until(
            lambda: try_produce(wire, name, batch([b"x"], timestamp=now_ms())).error_code == 0,
            30,
            "writing again",
            every=0.1,
        )
        assert end_offset(wire, name) == count + 1


def test_below_the_floor_clients_stop_and_administration_goes_on(
    small_disk: Path, tmp_path: Path
) -> None:
    free = os.statvfs(small_disk)
    room = free.f_bavail * free.f_frsize - 20 * MIB
    floor = {**NO_FLOOR, "odradek.disk.floor.bytes": str(room)}
    with OdradekBroker(tmp_path / "floor", floor, data=small_disk / "data") as broker:
        with Wire(broker.address) as wire:
            name = create_topic(wire, configs={"segment.bytes": str(2 * MIB)})
            count = 0  # the guard may look before the last of them
            while count < 26 and produce_megabyte(wire, name, count).error_code == 0:
                count += 1
            assert count >= 10
            tiny = create_topic(wire)

            def is_refused() -> bool:
                answer = try_produce(wire, tiny, batch([b"x"], timestamp=now_ms()))
                assert answer.error_code in (0, STORAGE_ERROR), answer
                return bool(answer.error_code)

            processes.wait_until(is_refused, 60, "the floor's guard", every=0.2)
            check_numbers(wire, name, count)
            other = create_topic(wire)
            requests.delete_topic(wire, other)
            # Small retention frees room by itself.
            requests.alter_config(wire, name, "retention.bytes", str(5 * MIB))
            processes.wait_until(
                lambda: produce_megabyte(wire, name, count).error_code == 0,
                60,
                "writing again",
                every=0.2,
            )
        broker.stop()


def test_a_group_lives_through_a_full_disk(broker: OdradekBroker, small_disk: Path) -> None:
    # C030: commits that find no room are refused retriably; none that was acknowledged is lost.
    ballast = small_disk / "ballast"
    with Wire(broker.address) as wire:
        name = create_topic(wire)
        group = groups.new_group(wire)
        with Member(broker.address, group) as member:
            member.join_alone()
            assert member.commit(name, 1) == 0
            use_up(ballast)
            acknowledged, refused = 1, 0
            for offset in range(2, 400):
                code = member.commit(name, offset)
                assert code == 0 or code in RETRIABLE, code
                acknowledged = acknowledged if code else offset
                refused += bool(code)
                if refused > 20:
                    break
            assert refused, "the disk was not full"
            processes.wait_until(lambda: member.heartbeat() == 0, 30, "the coordinator")
            groups.wait_for_coordinator(wire, group)
            assert committed_offset(wire, group, name) == acknowledged
            ballast.unlink()
            processes.wait_until(
                lambda: member.commit(name, 1000) == 0, 30, "commits again", every=0.1
            )
            broker.kill9()
            broker.start()
        with Wire(broker.address) as again:
            groups.wait_for_coordinator(again, group)
            assert committed_offset(again, group, name) == 1000
            assert groups.state(again, group) == "Stable"


def test_below_the_floor_groups_go_on(small_disk: Path, tmp_path: Path) -> None:
    # C030
    free = os.statvfs(small_disk)
    floor = {
        **NO_FLOOR,
        "odradek.disk.floor.bytes": str(free.f_bavail * free.f_frsize - 10 * MIB),
        "group.initial.rebalance.delay.ms": "0",
    }
    with OdradekBroker(tmp_path / "floor", floor, data=small_disk / "data") as broker:
        with Wire(broker.address) as wire:
            name, tiny = create_topic(wire), create_topic(wire)
            group = groups.new_group(wire)
            with Member(broker.address, group) as member:
                member.join_alone()
                for count in range(14):  # the guard may look before the last of them
                    if produce_megabyte(wire, name, count).error_code:
                        break
                processes.wait_until(
                    lambda: bool(
                        try_produce(wire, tiny, batch([b"x"], timestamp=now_ms())).error_code
                    ),
                    60,
                    "the floor's guard",
                    every=0.2,
                )
                for offset in range(50):
                    assert member.commit(name, offset) == 0
                assert member.join().error_code == 0
                assert member.sync({member.member_id: b"all"}) == b"all"
                assert committed_offset(wire, group, name) == 49
        broker.stop()
