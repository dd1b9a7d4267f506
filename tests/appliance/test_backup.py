"""Backups of brokers that are written to meanwhile, brought back and compared record by record."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from appliance.backup.target import Changed, Damaged, Target
from broker.model.data_layout import LAYOUT, RESTORING_NAME
from tests.appliance.conftest import Odradek
from tests.support import groups, judge, processes, record_batches, requests
from tests.support.odradek import REPOSITORY, ControlError, OdradekBroker
from tests.support.transactions import TransactionalProducer, committed_values
from tests.support.wire import Wire

SETTINGS = {"log.segment.bytes": "1048576", "transaction.state.log.num.partitions": "2",
            "offsets.topic.num.partitions": "2"}  # fmt: skip


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OdradekBroker]:
    with OdradekBroker(tmp_path / "node", SETTINGS) as broker:
        (broker.data / "secret_key").write_text("do-not-tell\n")
        (broker.data / "imported.json").write_text('{"orders": "there as here"}')
        (broker.data / "user-reports").mkdir()
        (broker.data / "user-reports" / "baskets.py").write_text("REPORT = None\n")
        (broker.data / "odradek.json").write_text(json.dumps({"layout": LAYOUT, "version": "0.1"}))
        with closing(sqlite3.connect(broker.data / "odradek.db")) as database:
            database.execute("CREATE TABLE schedules (name TEXT)")
            database.execute("INSERT INTO schedules VALUES ('nightly')")
            database.commit()
        yield broker


@pytest.fixture
def wire(node: OdradekBroker) -> Iterator[Wire]:
    with Wire(node.address) as wire:
        yield wire


def fill(wire: Wire, topic: str, megabytes: int) -> None:
    for number in range(megabytes * 4):
        requests.produce_values(wire, topic, [b"%d " % number + os.urandom(250_000)])


def producers_of(wire: Wire, topic: str, partition: int = 0) -> list[tuple[int, ...]]:
    answer = wire.request(
        "describe_producers", 0, topics=[{"name": topic, "partition_indexes": [partition]}]
    )
    (found,) = answer.topics[0].partitions
    assert found.error_code == 0
    return sorted(
        (each.producer_id, each.producer_epoch, each.last_sequence,
         each.current_txn_start_offset)
        for each in found.active_producers
    )  # fmt: skip


def test_a_node_that_is_written_to_comes_back_whole(
    odradek: Odradek, node: OdradekBroker, wire: Wire, tmp_path: Path
) -> None:
    busy = requests.create_topic(wire, partitions=3)
    quiet = requests.create_topic(wire, configs={"retention.ms": "-1"})
    trimmed = requests.create_topic(wire)
    moved = requests.create_topic(wire)
    fill(wire, quiet, 3)
    requests.produce_values(wire, trimmed, [b"a", b"b", b"c"])
    requests.delete_records(wire, trimmed, 2)
    group = groups.new_group(wire)
    assert groups.commit(wire, group, quiet, 7) == 0
    ended = TransactionalProducer(wire).init()
    ended.add(moved, 0)
    assert ended.produce(moved, [b"kept"]) == 0
    ended.end(is_commit=True)
    under_way = TransactionalProducer(wire).init()
    under_way.add(moved, 0)
    assert under_way.produce(moved, [b"under way"]) == 0

    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.support.crash_writer", node.bootstrap, "writer", "none",
         "400", "3", busy],
        cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        processes.wait_until(
            lambda: all(requests.end_offset(wire, busy, partition=n) > 50 for n in range(3)),
            60, "records of the writer",
        )  # fmt: skip
        target = tmp_path / "target"
        before = {n: requests.end_offset(wire, busy, partition=n) for n in range(3)}
        first = odradek("backup", "create", target, "--data", node.data, "--format", "json").ok()
        second = odradek("backup", "create", target, "--data", node.data, "--format", "json").ok()
    finally:
        assert writer.stdin is not None
        writer.stdin.close()
        assert writer.wait(60) == 0
    assert first.data[0]["new_bytes"] > 3_000_000
    assert second.data[0]["new_bytes"] < first.data[0]["new_bytes"]
    assert [row["backup"] for row in odradek("backup", "list", target, "--format", "json").data] == [
        first.data[0]["backup"], second.data[0]["backup"],
    ]  # fmt: skip
    assert "is whole" in odradek("backup", "verify", target).ok().out

    data = tmp_path / "elsewhere" / "data"
    done = odradek("backup", "restore", target, "--data", data, "--backup", first.data[0]["backup"])
    assert f"odradek serve --data {data}" in done.ok().out
    assert (data / "secret_key").read_text() == "do-not-tell\n"
    assert (data / "imported.json").read_text() == '{"orders": "there as here"}'
    assert (data / "user-reports" / "baskets.py").read_text() == "REPORT = None\n"
    with closing(sqlite3.connect(data / "odradek.db")) as database:
        assert database.execute("SELECT name FROM schedules").fetchall() == [("nightly",)]
    with (
        OdradekBroker(tmp_path / "elsewhere", SETTINGS, data=data) as again,
        Wire(again.address) as restored,
    ):
        for topic in (busy, quiet, trimmed, moved):
            assert requests.topic_id(restored, topic) == requests.topic_id(wire, topic)
        for partition, least in before.items():
            found = requests.read_all(restored, busy, partition=partition)
            assert len(found) >= least
            assert found == requests.read_all(wire, busy, partition=partition)[: len(found)]
        assert requests.read_all(restored, quiet) == requests.read_all(wire, quiet)
        assert requests.topic_config(restored, quiet, "retention.ms").value == "-1"
        assert requests.start_offset(restored, trimmed) == 2
        assert [each.value for each in requests.read_all(restored, trimmed, start=2)] == [b"c"]
        assert groups.committed_offset(restored, group, quiet) == 7
        assert producers_of(restored, moved) == producers_of(wire, moved)
        assert committed_values(restored, moved) == [b"kept"]
        # The transaction under way is there too, and can be ended.
        under_way.wire = restored
        under_way.end(is_commit=True)
        assert committed_values(restored, moved) == [b"kept", b"under way"]
        assert committed_values(wire, moved) == [b"kept"]
        requests.produce_values(restored, quiet, [b"next"])
        assert requests.end_offset(restored, quiet) == requests.end_offset(wire, quiet) + 1


def test_a_killed_backup_is_gone_on_with(
    odradek: Odradek, node: OdradekBroker, wire: Wire, tmp_path: Path
) -> None:
    topic = requests.create_topic(wire)
    fill(wire, topic, 8)
    target = tmp_path / "target"
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", "backup", "create", target, "--data", node.data],
        cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    known = target / "known.jsonl"
    try:
        processes.wait_until(
            lambda: process.poll() is not None
            or (known.exists() and known.read_bytes().count(b'.log"') > 1),
            60, "some files",
        )  # fmt: skip
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (target / "tmp" / "left").write_bytes(b"half")
    whole_lines = known.read_text().rpartition("\n")[0].splitlines()
    lines = [json.loads(line) for line in whole_lines]
    copied = sum(size for name, size, *_ in lines if name.endswith(".log"))
    assert copied > 1_000_000
    with known.open("a") as file:
        file.write('["torn')
    done = odradek("backup", "create", target, "--data", node.data, "--format", "json").ok()
    (row,) = done.data
    assert row["new_bytes"] <= row["bytes"] - copied
    assert not list((target / "tmp").iterdir())
    odradek("backup", "verify", target).ok()


def test_damage_is_told_and_not_restored(
    odradek: Odradek, node: OdradekBroker, wire: Wire, tmp_path: Path
) -> None:
    topic = requests.create_topic(wire)
    fill(wire, topic, 2)
    target = tmp_path / "target"
    odradek("backup", "create", target, "--data", node.data).ok()
    largest = max(
        (path for path in (target / "objects").rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    content = bytearray(largest.read_bytes())
    content[1000] ^= 1
    largest.write_bytes(content)
    done = odradek("backup", "verify", target)
    assert done.code == 1
    assert "its bytes have changed" in done.err
    assert f"logs/{topic}-0/" in done.err
    data = tmp_path / "data"
    done = odradek("backup", "restore", target, "--data", data)
    assert done.code == 1
    assert "is damaged in the backup" in done.err
    # What came of it is not served, and may be restored over.
    assert (data / RESTORING_NAME).exists()
    refused = odradek(
        "serve", "--data", data, "--only", "broker", "--listen", f"127.0.0.1:{judge.free_port()}"
    )
    assert refused.code == 1
    assert "being restored" in refused.err
    content[1000] ^= 1
    largest.write_bytes(content)
    odradek("backup", "restore", target, "--data", data).ok()
    assert not (data / RESTORING_NAME).exists()
    again = odradek("backup", "restore", target, "--data", data)
    assert again.code == 1
    assert "is not empty" in again.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_full_disk_costs_one_line_and_is_gone_on_from(
    odradek: Odradek, node: OdradekBroker, wire: Wire, tmp_path: Path
) -> None:
    """In a mount namespace of its own, which is gone with the process."""
    topic = requests.create_topic(wire)
    fill(wire, topic, 4)
    target = tmp_path / "target"
    target.mkdir()
    command = (
        'mount -t tmpfs -o size=2m none "$1" && "$2" -m appliance backup create "$1" --data "$3";'
        ' code=$?; mount -o remount,size=64m "$1" && "$2" -m appliance backup create "$1" --data "$3"'
        ' && "$2" -m appliance backup verify "$1" && exit $code'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, "sh", target, sys.executable, node.data],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith(f"error: no room is left at {target}"), done.stderr
    assert "Traceback" not in done.stderr
    assert "is whole" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_restore_or_a_start_on_a_full_disk_says_so_and_what_to_do(
    odradek: Odradek, node: OdradekBroker, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    odradek("backup", "create", target, "--data", node.data).ok()
    (tmp_path / "small").mkdir()
    script = (
        "cd $1; mount -t tmpfs -o size=20k none small;"
        ' "$2" -m appliance backup restore target --data small/data; echo $? >&2;'
        ' "$2" -m appliance serve --data small/new; echo $? >&2;'
        ' "$2" -m appliance support-bundle small/bundle.tar.gz --data none >/dev/null; echo $? >&2;'
        " mount -o remount,size=64m small;"
        ' "$2" -m appliance backup restore target --data small/data; echo $? >&2; ls small'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", tmp_path, sys.executable],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    said = done.stderr.splitlines()
    assert [line for line in said if line.isdigit()] == ["1", "1", "1", "0"], done.stderr
    assert "error: no room is left at small/data" in said
    assert "  Make room there and call it again: it begins anew." in said
    assert "  Make room there, or choose another one with --data DIR." in said
    assert "error: small/bundle.tar.gz: No space left on device" in said
    assert "bundle.tar.gz" not in done.stdout.split()  # no half of one


def test_the_commands_of_the_page_work_as_they_stand_there(
    odradek: Odradek, node: OdradekBroker, tmp_path: Path
) -> None:
    page = (REPOSITORY / "docs" / "backup.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("odradek ")]
    assert len(lines) == 6
    places = {
        "/mnt/backups": str(tmp_path / "backups"),
        "data": str(node.data),
        "restored": str(tmp_path / "restored"),
    }
    for line in lines:
        words = [places.get(word, word) for word in line.split()[1:]]
        if words[0] != "serve":  # what comes of it is served by another test
            odradek(*words).ok()
    assert (tmp_path / "restored" / "metadata").is_dir()


def test_without_a_broker_there_is_no_backup(odradek: Odradek, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    done = odradek("backup", "create", tmp_path / "target", "--data", tmp_path / "data")
    assert done.code == 3
    assert "no broker runs" in done.err


def test_pruning_takes_what_only_old_backups_need(
    node: OdradekBroker, wire: Wire, odradek: Odradek, tmp_path: Path
) -> None:
    target = tmp_path / "backups"
    requests.create_topic(wire, "t")
    for number in range(3):
        fill(wire, "t", 1)
        assert odradek("backup", "create", target, "--data", node.data).ok()
        if number == 1:  # what the first two hold alone
            (node.data / "secret_key").write_text("another\n")
    names = sorted(path.stem for path in (target / "manifests").iterdir())
    refused = odradek("backup", "prune", target, "--keep", "1")
    assert refused.code == 2
    assert len(list((target / "manifests").iterdir())) == 3
    before = len(list((target / "objects").glob("*/*")))
    (target / "objects" / "00").mkdir(exist_ok=True)
    (target / "objects" / "00" / "00left").write_text("by one that was killed")
    done = odradek("--format", "json", "backup", "prune", target, "--keep", "1", "--yes")
    assert {row["backup"]: row["outcome"] for row in json.loads(done.out)["data"]} == {
        **dict.fromkeys(names[:2], "removed"),
        names[2]: "kept",
    }
    assert len(list((target / "objects").glob("*/*"))) < before
    assert not (target / "objects" / "00" / "00left").exists()
    assert odradek("backup", "verify", target).ok()
    # The next one copies again what it needs and only the old ones had.
    (node.data / "secret_key").write_text("do-not-tell\n")
    assert odradek("backup", "create", target, "--data", node.data).ok()
    assert odradek("backup", "verify", target).ok()


def test_other_peoples_directories_are_left_alone(odradek: Odradek, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").touch()
    for line in (["create"], ["list"], ["verify"], ["prune", "--keep", "1"], ["restore"]):
        done = odradek("backup", *line, tmp_path / "photos")
        assert done.code == 1, done.err
        assert "backups" in done.err
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["1.jpg"]


def test_a_cut_stays_where_it_was_until_compaction_passes_it(
    node: OdradekBroker, wire: Wire
) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    topic = requests.create_topic(wire, configs=settings)

    def write(key: str) -> None:
        data = record_batches.batch(
            [record_batches.Record(key=key.encode(), value=b"v" * 100)], timestamp=requests.now_ms()
        )
        requests.produce(wire, topic, data)

    write("a")
    write("b")
    cut = node.control("backup_cut")["id"]
    asked = {"id": cut, "topic": topic, "partition": 0}
    before = node.control("backup_files", **asked)
    write("a")
    assert node.control("backup_files", **asked) == before
    assert (before["end_offset"], len(before["segments"])) == (2, 1)
    node.control("compact", topics=[topic], roll=True)
    processes.wait_until(
        lambda: node.control("backup_files", **asked).get("is_compacted_beyond", False),
        60, "the end of the compaction",
    )  # fmt: skip
    node.control("backup_end", id=cut)
    with pytest.raises(ControlError, match="cut is gone"):
        node.control("backup_files", **asked)


def test_what_is_damaged_is_copied_anew_once_it_is_removed(
    odradek: Odradek, node: OdradekBroker, wire: Wire, tmp_path: Path
) -> None:
    """Of two backups that share it both are whole then."""
    topic = requests.create_topic(wire)
    fill(wire, topic, 3)
    target = tmp_path / "target"
    names = []
    for _ in range(2):
        (row,) = odradek("backup", "create", target, "--data", node.data, "--format", "json").data
        names.append(row["backup"])
    sealed = json.loads((target / "known.jsonl").read_text().splitlines()[0])
    (damaged,) = target.glob(f"objects/*/{sealed[-1]}")
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    done = odradek("backup", "verify", target)
    assert done.code == 1
    assert str(damaged) in done.err
    assert f"Remove the damaged files: the next `odradek backup create {target}`" in done.err
    damaged.unlink()
    odradek("backup", "create", target, "--data", node.data).ok()
    for name in names:
        assert "is whole" in odradek("backup", "verify", target, "--backup", name).ok().out


def test_one_damaged_manifest_does_not_hide_the_others(
    odradek: Odradek, node: OdradekBroker, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    for _ in range(2):
        odradek("backup", "create", target, "--data", node.data).ok()
    first, second = sorted((target / "manifests").iterdir())
    os.truncate(second, second.stat().st_size - 1)
    listed = odradek("backup", "list", target, "--format", "json")
    assert listed.code == 1
    assert [row["backup"] for row in listed.data] == [first.stem]
    assert [error["code"] for error in json.loads(listed.out)["errors"]] == ["DAMAGED"]
    for command in (["verify"], ["restore", "--data", tmp_path / "no"]):
        done = odradek("backup", command[0], target, *command[1:])
        assert done.code == 1
        assert f"{second} is damaged" in done.err
        assert "--backup names another one" in done.err
    assert not (tmp_path / "no").exists()
    odradek("backup", "restore", target, "--backup", first.stem, "--data", tmp_path / "yes").ok()
    (target / "odradek-backup.json").write_text('{"for')
    done = odradek("backup", "verify", target, "--backup", first.stem)
    assert done.code == 1
    assert '{"format": 1}' in done.err
    (target / "odradek-backup.json").write_text('{"format": 1}')
    odradek("backup", "verify", target, "--backup", first.stem).ok()


def test_a_backup_of_a_newer_version_is_refused(
    odradek: Odradek, node: OdradekBroker, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    odradek("backup", "create", target, "--data", node.data).ok()
    (path,) = (target / "manifests").iterdir()
    manifest = json.loads(path.read_bytes().partition(b"\n")[2])
    body = json.dumps({**manifest, "layout": LAYOUT + 1, "version": "9.0"}).encode()
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    done = odradek("backup", "restore", target, "--data", tmp_path / "no")
    assert done.code == 1
    assert "of Odradek 9.0, which is newer" in done.err
    assert "with that version or a later one" in done.err
    assert not (tmp_path / "no").exists()
    (target / "odradek-backup.json").write_text('{"format": 2}')
    for line in (["create", "--data", node.data], ["list"], ["verify"], ["restore"]):
        done = odradek("backup", line[0], target, *line[1:])
        assert done.code == 1
        assert "of a newer Odradek" in done.err


def test_backups_and_data_do_not_lie_one_in_the_other(
    odradek: Odradek, node: OdradekBroker, tmp_path: Path
) -> None:
    (tmp_path / "by-another-name").symlink_to(node.data)
    for inside in (node.data / "backups", node.data, tmp_path / "by-another-name" / "logs" / "x"):
        done = odradek("backup", "create", inside, "--data", node.data)
        assert done.code == 1
        assert "lie one in the other" in done.err
    assert not (node.data / "backups").exists()
    target = tmp_path / "target"
    odradek("backup", "create", target, "--data", node.data).ok()
    done = odradek("backup", "restore", target, "--data", target / "objects" / "data")
    assert done.code == 1
    assert "lie one in the other" in done.err
    assert not (target / "objects" / "data").exists()
    odradek("backup", "verify", target).ok()


def test_each_backup_is_as_the_node_was_whatever_was_cleaned_between_them(
    odradek: Odradek, node: OdradekBroker, wire: Wire, tmp_path: Path
) -> None:
    """Retention has removed segments and compaction has replaced some when the second one is made."""
    small = {"segment.bytes": "1048576", "file.delete.delay.ms": "0"}
    empty = requests.create_topic(wire, partitions=2)
    kept = requests.create_topic(wire, configs={**small, "retention.bytes": "-1"})
    keyed = requests.create_topic(
        wire, configs={**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    )
    fill(wire, kept, 5)
    for number in range(300):
        data = record_batches.batch(
            [record_batches.Record(key=b"%d" % (number % 3), value=b"%d" % number)],
            timestamp=requests.now_ms(),
        )
        requests.produce(wire, keyed, data)

    def state(wire: Wire) -> list[object]:
        partitions = [(empty, 0), (empty, 1), (kept, 0), (keyed, 0)]
        return [
            (
                requests.start_offset(wire, topic, partition=index),
                requests.end_offset(wire, topic, partition=index),
                requests.read_all(wire, topic, partition=index, start=requests.start_offset(wire, topic, partition=index)),
            )
            for topic, index in partitions
        ]  # fmt: skip

    target = tmp_path / "target"
    rows, states = [], []
    for number in range(2):
        if number:
            requests.alter_config(wire, kept, "retention.bytes", "1500000")
            node.control("retention", topics=[kept])
            node.control("compact", topics=[keyed], roll=True)
            processes.wait_until(lambda: requests.start_offset(wire, kept) > 0, 60, "retention")
            processes.wait_until(
                lambda: len(requests.read_all(wire, keyed)) <= 4, 60, "compaction"
            )  # fmt: skip
        states.append(state(wire))
        (row,) = odradek("backup", "create", target, "--data", node.data, "--format", "json").data
        rows.append(row)
        odradek("backup", "verify", target).ok()
    assert states[0] != states[1]
    assert rows[1]["new_bytes"] < rows[1]["bytes"]
    for row, before in zip(rows, states, strict=True):
        place = tmp_path / row["backup"]
        odradek(
            "backup", "restore", target, "--data", place / "data", "--backup", row["backup"]
        ).ok()
        assert (place / "data").stat().st_mode & 0o777 == 0o700
        with (
            OdradekBroker(place, SETTINGS, data=place / "data") as again,
            Wire(again.address) as restored,
        ):
            assert state(restored) == before


def test_what_got_shorter_or_was_damaged_is_noticed(tmp_path: Path) -> None:
    target = Target(tmp_path / "target")
    target.open_to_write()
    source = tmp_path / "source"
    source.write_bytes(b"x" * 100)
    descriptor = os.open(source, os.O_RDONLY)
    content = target.put_file(descriptor, 60)
    assert (content.size, content.new_bytes) == (60, 60)
    assert target.put_bytes(b"x" * 60).new_bytes == 0
    with pytest.raises(Changed):
        target.put_file(descriptor, 101)
    os.close(descriptor)
    assert b"".join(target.read_object(content.sha256, 60)) == b"x" * 60
    target.object_path(content.sha256).write_bytes(b"x" * 59)
    with pytest.raises(Damaged, match="59 bytes instead of 60"):
        list(target.read_object(content.sha256, 60))
    target.close()
