"""Adoptions of directories made by hand: what is taken, what is refused, what a kill leaves."""

import fcntl
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.adopt.adoption import Adopted, Options, adopt
from broker.adopt.disk import Disk
from broker.adopt.judgement import UNKNOWN_PRODUCER_IDS
from broker.adopt.plan import Mode
from broker.adopt.refusal import Refusal
from broker.config.properties import parse_properties
from broker.metadata.files import DiskDirectory
from broker.metadata.image import ClusterImage
from broker.metadata.load import read_image
from broker.metadata.local_store import LocalStore
from broker.model.ids import TopicPartition
from broker.storage.checkpoints import encode_topic_id, parse_offsets, parse_partition_metadata
from broker.storage.producer_snapshot import SnapshotEntry, encode_snapshot
from tests.broker.adopt import kafka_directory as made
from tests.broker.adopt.kafka_directory import KafkaDirectory, batch
from tests.support.turns import Turns

ORDERS, LINES = uuid.UUID(int=1001), uuid.UUID(int=1002)
TP = TopicPartition


@pytest.fixture
def kafka(tmp_path: Path) -> KafkaDirectory:
    """Two topics: ``orders`` with two partitions and a setting, ``lines`` without any."""
    kafka = KafkaDirectory(tmp_path / "kafka")
    kafka.metadata(
        [
            made.topic_record("orders", ORDERS),
            made.config_record(2, "orders", "retention.ms", "5000"),
            *(made.partition_record(ORDERS, index, leader_epoch=3) for index in (0, 1)),
            made.topic_record("lines", LINES),
            made.partition_record(LINES, 0, leader_epoch=2),
            made.leader_record(LINES, 0, -1),
            made.producer_ids_record(4000),
            made.feature_record("metadata.version", 25),
            made.config_record(4, "", "message.max.bytes", "2000000"),
            made.config_record(4, "1", "log.cleaner.threads", "2"),
        ]
    )
    kafka.partition(
        "orders",
        0,
        ORDERS,
        segments=[[batch(0), batch(3)], [batch(6)], [batch(9)]],
        bases=[0, 6, 9],
        recovery_point=12,
        log_start=2,
    )
    kafka.partition("orders", 1, ORDERS, segments=[[]], recovery_point=0)
    kafka.partition("lines", 0, LINES, segments=[[batch(0)]], recovery_point=3)
    return kafka


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def take(data: Path, *sources: KafkaDirectory, disk: Disk | None = None, **options: Any) -> Adopted:
    paths = [source.path for source in sources]
    return adopt(Options(paths, data, **options), disk or Disk(), lambda *_: None)


def stored(data: Path) -> ClusterImage:
    """What the metadata store says."""
    turns = Turns()
    store = LocalStore(DiskDirectory(str(data / "metadata")), turns.run_blocking, turns.post)
    store.open()
    images: list[ClusterImage | None] = []
    read_image(store, images.append)
    turns.run()
    store.close()
    assert images[0] is not None
    return images[0]


def files(path: Path) -> dict[str, tuple[bytes, int]]:
    """Content and modification time of every file below ``path``."""
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def contents(path: Path) -> dict[str, bytes]:
    return {name: content for name, (content, _) in files(path).items()}


# What is taken -----------------------------------------------------------------------------------


def test_the_store_holds_what_the_metadata_log_says(kafka: KafkaDirectory, data: Path) -> None:
    take(data, kafka)
    image = stored(data)
    assert image.cluster_id == made.CLUSTER_ID
    assert {topic.name: topic.topic_id for topic in image.topics.values()} == {
        "orders": ORDERS,
        "lines": LINES,
    }
    orders = image.topics["orders"]
    assert orders.configs == {"retention.ms": "5000"}
    assert [p.leader_epoch for p in orders.partitions] == [3, 3]
    assert {p.leader_id for p in orders.partitions} == {1}
    assert image.next_producer_id == 4000
    assert image.default_broker_configs == {"message.max.bytes": "2000000"}
    assert image.broker_configs == {1: {"log.cleaner.threads": "2"}}
    assert image.features_epoch == -1  # finalised by the first start


def test_a_partition_without_a_leader_is_led_in_the_next_epoch(
    kafka: KafkaDirectory, data: Path
) -> None:
    take(data, kafka)
    # Epoch 2, then the stop named no leader (3), now this node is elected (4).
    assert stored(data).topics["lines"].partitions[0].leader_epoch == 4


def test_no_leader_epoch_lies_below_what_the_log_has_seen(tmp_path: Path, data: Path) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka")
    kafka.metadata([made.topic_record("t", ORDERS), made.partition_record(ORDERS, 0)])
    kafka.partition("t", 0, ORDERS, epochs=[(0, 0), (9, 4)])
    take(data, kafka)
    assert stored(data).topics["t"].partitions[0].leader_epoch == 9


@pytest.mark.parametrize("mode", Mode)
def test_every_byte_of_a_partition_is_there(kafka: KafkaDirectory, data: Path, mode: Mode) -> None:
    before = contents(kafka.path)
    take(data, kafka, mode=mode)
    found = contents(data / "logs")
    for name, content in before.items():
        if name.startswith(("orders-", "lines-")):
            assert found[name] == content
    assert found["meta.properties"] == before["meta.properties"]
    assert found[".kafka_cleanshutdown"] == before[".kafka_cleanshutdown"]
    points = parse_offsets(found["recovery-point-offset-checkpoint"])
    assert points == {TP("orders", 0): 12, TP("orders", 1): 0, TP("lines", 0): 3}
    assert parse_offsets(found["log-start-offset-checkpoint"]) == {TP("orders", 0): 2}
    assert not (data / "adopting").exists()


@pytest.mark.parametrize("mode", [Mode.LINK, Mode.COPY])
def test_kafkas_directory_stays_as_it_was(kafka: KafkaDirectory, data: Path, mode: Mode) -> None:
    before = files(kafka.path)
    take(data, kafka, mode=mode)
    assert files(kafka.path) == before


def test_sealed_segments_are_linked_and_the_rest_is_copied(
    kafka: KafkaDirectory, data: Path
) -> None:
    take(data, kafka)
    links = {
        path.name: path.stat().st_nlink
        for path in (data / "logs" / "orders-0").iterdir()
        if path.suffix in (".log", ".index")
    }
    sealed = {f"{0:020d}.log", f"{6:020d}.log"}
    assert {name for name, count in links.items() if count > 1} == sealed
    assert all(
        path.stat().st_mtime_ns == (kafka.path / "orders-0" / path.name).stat().st_mtime_ns
        for path in (data / "logs" / "orders-0").iterdir()
    )


def test_nothing_is_linked_where_everything_shall_be_copied(
    kafka: KafkaDirectory, data: Path
) -> None:
    take(data, kafka, mode=Mode.COPY)
    assert {path.stat().st_nlink for path in data.rglob("*.log")} == {1}


class DistantDisk(Disk):
    """The data directory is on another file system than Kafka's."""

    def is_one_file_system(self, file: Path, directory: Path) -> bool:
        return False

    def link(self, source: Path, target: Path) -> bool:
        return False


def test_on_another_file_system_everything_is_copied(kafka: KafkaDirectory, data: Path) -> None:
    before = contents(kafka.path / "orders-0")
    take(data, kafka, disk=DistantDisk())
    assert contents(data / "logs" / "orders-0") == before
    assert {path.stat().st_nlink for path in data.rglob("*.log")} == {1}


def test_nothing_is_moved_to_another_file_system(kafka: KafkaDirectory, data: Path) -> None:
    assert "different file systems" in refused(data, kafka, mode=Mode.MOVE, disk=DistantDisk())


def test_after_a_kill_only_what_lies_below_the_recovery_point_is_linked(
    tmp_path: Path, data: Path
) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka", is_clean=False)
    kafka.metadata([made.topic_record("t", ORDERS), made.partition_record(ORDERS, 0)])
    path = kafka.partition(
        "t",
        0,
        ORDERS,
        segments=[[batch(0)], [batch(3)], [batch(6)]],
        bases=[0, 3, 6],
        recovery_point=4,
    )
    for base in (3, 6):
        os.truncate(path / f"{base:020d}.index", 10 << 20)
        os.truncate(path / f"{base:020d}.timeindex", 10 << 20)
    report = take(data, kafka).report
    assert not report.was_clean
    found = data / "logs" / "t-0"
    assert not (data / "logs" / ".kafka_cleanshutdown").exists()
    assert {p.name for p in found.glob("*.log") if p.stat().st_nlink > 1} == {f"{0:020d}.log"}
    # Preallocated indexes full of zeros are of no use to anybody.
    assert {p.name for p in found.glob("*index")} == {f"{0:020d}.index", f"{0:020d}.timeindex"}
    assert (data / "logs" / ".odradek_boot").exists()


def test_a_moved_directory_is_empty_and_no_kafka_starts_on_it(
    kafka: KafkaDirectory, data: Path
) -> None:
    inode = (kafka.path / "orders-0").stat().st_ino
    take(data, kafka, mode=Mode.MOVE)
    assert (data / "logs" / "orders-0").stat().st_ino == inode
    assert not (kafka.path / "meta.properties").exists()
    assert not list(kafka.path.glob("orders-*"))
    assert (kafka.path / "__cluster_metadata-0").exists()


def test_holes_stay_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.seek(64 << 20)
        file.write(b"end")
        file.truncate(128 << 20)
    counted: list[int] = []
    Disk().copy(source, target, counted.append)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks * 512 < 1 << 20
    assert sum(counted) < 1 << 20


def test_a_partition_that_kafka_gave_no_id_yet_gets_it(tmp_path: Path, data: Path) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka", is_clean=False)
    kafka.metadata([made.topic_record("t", ORDERS), made.partition_record(ORDERS, 0)])
    kafka.partition("t", 0)
    take(data, kafka)
    found = (data / "logs" / "t-0" / "partition.metadata").read_bytes()
    assert parse_partition_metadata(found) == ORDERS


def test_a_partition_without_a_directory_is_told(kafka: KafkaDirectory, data: Path) -> None:
    for path in (kafka.path / "orders-1").iterdir():
        path.unlink()
    (kafka.path / "orders-1").rmdir()
    report = take(data, kafka).report
    assert any("orders-1" in note for note in report.notes)
    assert len(stored(data).topics["orders"].partitions) == 2


def test_directories_of_several_disks_become_one(tmp_path: Path, data: Path) -> None:
    first, second = KafkaDirectory(tmp_path / "a"), KafkaDirectory(tmp_path / "b")
    first.metadata(
        [
            made.topic_record("t", ORDERS),
            made.partition_record(ORDERS, 0, directories=[first.directory_id]),
            made.partition_record(ORDERS, 1, directories=[second.directory_id]),
        ]
    )
    first.partition("t", 0, ORDERS, recovery_point=1)
    second.partition("t", 1, ORDERS, recovery_point=2)
    take(data, first, second)
    found = parse_offsets((data / "logs" / "recovery-point-offset-checkpoint").read_bytes())
    assert found == {TP("t", 0): 1, TP("t", 1): 2}
    assert {path.name for path in (data / "logs").glob("t-*")} == {"t-0", "t-1"}


def test_a_broker_beside_its_controller(tmp_path: Path, data: Path) -> None:
    broker = KafkaDirectory(tmp_path / "broker", node_id=1)
    controller = KafkaDirectory(tmp_path / "controller", node_id=3000, is_clean=False)
    broker.metadata([made.topic_record("t", ORDERS)])  # it had not heard of the partition yet
    controller.metadata([made.topic_record("t", ORDERS), made.partition_record(ORDERS, 0)])
    broker.partition("t", 0, ORDERS)
    report = take(data, broker, controller).report
    assert (report.node_id, report.partition_count, report.was_clean) == (1, 1, True)


# Retention ---------------------------------------------------------------------------------------


def test_a_topic_whose_retention_is_not_found_is_held_and_named(
    kafka: KafkaDirectory, data: Path
) -> None:
    report = take(data, kafka).report
    assert report.held == ("lines",)
    assert stored(data).topics["lines"].configs == {
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }


def test_with_kafkas_settings_nothing_is_held(
    kafka: KafkaDirectory, data: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(
        "node.id=1\nprocess.roles=broker,controller\nlog.dirs=/var/kafka\nlog.retention.hours=24\n"
        "listeners=PLAINTEXT://:9092\nssl.keystore.password=secret\nlog.segment.bytes=${env:X}\n"
    )
    report = take(data, kafka, config=settings).report
    assert report.held == ()
    assert stored(data).topics["lines"].configs == {}
    written = parse_properties((data / "broker.properties").read_text())
    assert written == {"node.id": "1", "log.retention.hours": "24"}
    assert report.settings_left == ("listeners", "log.segment.bytes", "ssl.keystore.password")


@pytest.mark.parametrize(
    "record",
    [
        made.config_record(4, "", "log.retention.ms", "1"),
        made.config_record(4, "1", "log.retention.ms", "1"),
        made.config_record(2, "t", "cleanup.policy", "compact"),
        made.config_record(2, "t", "retention.ms", "7"),
    ],
    ids=["all brokers", "this broker", "compacted", "its own"],
)
def test_retention_that_the_metadata_tells_is_kept(
    tmp_path: Path, data: Path, record: bytes
) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka")
    kafka.metadata([made.topic_record("t", ORDERS), made.partition_record(ORDERS, 0), record])
    kafka.partition("t", 0, ORDERS)
    assert take(data, kafka).report.held == ()


# What is left --------------------------------------------------------------------------------------


def test_leftovers_are_named_and_left(kafka: KafkaDirectory, data: Path) -> None:
    names = ["x-0.0123-delete", "y-0.0123-future", "z-0.0123-stray"]
    for name in names:
        (kafka.path / name).mkdir()
    kafka.partition("unknown", 0, uuid.UUID(int=4711))
    report = take(data, kafka).report
    left = {Path(name).name for name, _ in report.leftovers}
    assert left == {*names, "unknown-0"}
    assert not list((data / "logs").glob("unknown*"))
    assert (kafka.path / "unknown-0").exists()


def test_what_has_no_place_here_is_counted(tmp_path: Path, data: Path) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka")
    entry = made.frame(
        18,
        0,
        uuid.UUID(int=5).bytes
        + bytes((2,))
        + made.text("t")
        + bytes((3,))
        + made.text("User:a")
        + made.text("*")
        + bytes((3, 3))
        + b"\0",
    )
    kafka.metadata([entry, made.config_record(32, "g", "consumer.session.timeout.ms", "1")])
    report = take(data, kafka).report
    assert report.not_taken == {"access control entry": 1, "group setting": 1}


def test_salvage_takes_topics_that_the_metadata_does_not_know(
    kafka: KafkaDirectory, data: Path
) -> None:
    unknown = uuid.UUID(int=4711)
    kafka.partition("unknown", 1, unknown, epochs=[(0, 0), (6, 4)])
    report = take(data, kafka, is_salvage=True).report
    assert report.unlisted == ("unknown",)
    topic = stored(data).topics["unknown"]
    assert topic.topic_id == unknown
    assert [p.leader_epoch for p in topic.partitions] == [0, 6]
    assert topic.configs == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }


def test_salvage_without_any_metadata_gives_out_no_producer_id_twice(
    tmp_path: Path, data: Path
) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka")
    path = kafka.partition("t", 0, ORDERS)
    entry = SnapshotEntry(UNKNOWN_PRODUCER_IDS + 77, 0, 0, 0, 0, 0, 0, -1)
    (path / f"{5:020d}.snapshot").write_bytes(encode_snapshot([entry]))
    (path / f"{4:020d}.snapshot").write_bytes(b"damaged")
    with pytest.raises(Refusal, match="__cluster_metadata-0"):
        take(data, kafka)
    report = take(data, kafka, is_salvage=True).report
    assert report.next_producer_id > UNKNOWN_PRODUCER_IDS + 77
    assert stored(data).next_producer_id == report.next_producer_id


# Compactions that were interrupted -----------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
def test_a_swap_is_brought_to_its_end(tmp_path: Path, data: Path, mode: Mode) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka", is_clean=False)
    kafka.metadata([made.topic_record("t", ORDERS), made.partition_record(ORDERS, 0)])
    path = kafka.partition(
        "t",
        0,
        ORDERS,
        segments=[[batch(0), batch(3)], [batch(6), batch(9)], [batch(12)]],
        bases=[0, 6, 12],
    )
    # The cleaner made one segment of the first two and was killed before it renamed it.
    (path / f"{0:020d}.log.swap").write_bytes(batch(3) + batch(9))
    (path / f"{0:020d}.index.swap").touch()
    (path / f"{0:020d}.timeindex.swap").touch()
    (path / f"{6:020d}.log.deleted").write_bytes(batch(6))
    take(data, kafka, mode=mode)
    found = contents(data / "logs" / "t-0")
    logs = {name: content for name, content in found.items() if name.endswith(".log")}
    assert logs == {f"{0:020d}.log": batch(3) + batch(9), f"{12:020d}.log": batch(12)}
    assert not any(name.endswith(".swap") for name in found)


def test_a_swap_behind_an_unfinished_cleaning_is_dropped(tmp_path: Path, data: Path) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka", is_clean=False)
    kafka.metadata([made.topic_record("t", ORDERS), made.partition_record(ORDERS, 0)])
    path = kafka.partition("t", 0, ORDERS, segments=[[batch(0)], [batch(3)]], bases=[0, 3])
    (path / f"{0:020d}.log.cleaned").write_bytes(batch(0))
    (path / f"{3:020d}.log.swap").write_bytes(batch(4, 1))
    take(data, kafka)
    found = contents(data / "logs" / "t-0")
    assert found[f"{3:020d}.log"] == batch(3)
    assert not any(name.endswith((".swap", ".cleaned")) for name in found)


# Refusals ------------------------------------------------------------------------------------------


def refused(data: Path, *sources: KafkaDirectory, **options: Any) -> str:
    """The message; neither side was touched."""
    before = [files(source.path) for source in sources]
    with pytest.raises(Refusal) as caught:
        take(data, *sources, **options)
    assert [files(source.path) for source in sources] == before
    assert not (data / "adopting").exists()
    assert not (data / "metadata").exists()
    return caught.value.message


HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_kafka_that_runs_is_refused(kafka: KafkaDirectory, data: Path) -> None:
    # Locks of this kind keep other processes out, not this one.
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(kafka.path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert "in use" in refused(data, kafka)
        holder.communicate()
    take(data, kafka)


def test_a_data_directory_in_use_is_refused(kafka: KafkaDirectory, data: Path) -> None:
    data.mkdir()
    with (data / "broker.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "in use" in refused(data, kafka)


@pytest.mark.parametrize("name", ["logs/x", "metadata/journal-1", "broker.properties"])
def test_a_data_directory_that_is_not_new_is_refused(
    kafka: KafkaDirectory, data: Path, name: str
) -> None:
    (data / name).parent.mkdir(parents=True)
    (data / name).touch()
    with pytest.raises(Refusal, match="is not new"):
        take(data, kafka)


def test_directories_of_two_clusters_are_refused(tmp_path: Path, data: Path) -> None:
    first = KafkaDirectory(tmp_path / "a")
    first.metadata([])
    second = KafkaDirectory(tmp_path / "b", cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    assert "different clusters" in refused(data, first, second)


def test_partitions_of_two_brokers_are_refused(tmp_path: Path, data: Path) -> None:
    first, second = KafkaDirectory(tmp_path / "a"), KafkaDirectory(tmp_path / "b", node_id=2)
    first.metadata([])
    first.partition("t", 0, ORDERS)
    second.partition("t", 1, ORDERS)
    assert "different brokers" in refused(data, first, second)


def test_a_partition_that_is_there_twice_is_refused(tmp_path: Path, data: Path) -> None:
    first, second = KafkaDirectory(tmp_path / "a"), KafkaDirectory(tmp_path / "b")
    first.metadata([])
    first.partition("t", 0, ORDERS)
    second.partition("t", 0, ORDERS)
    assert "twice" in refused(data, first, second)


def test_a_directory_of_zookeeper_days_is_refused(kafka: KafkaDirectory, data: Path) -> None:
    (kafka.path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    assert "ZooKeeper" in refused(data, kafka)


def test_a_directory_of_nobody_is_refused(tmp_path: Path, data: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(Refusal):
            adopt(Options([path], data), Disk(), lambda *_: None)


def test_a_partition_on_other_brokers_only_is_refused(tmp_path: Path, data: Path) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka")
    record = made.partition_record(ORDERS, 0, replicas=[2, 3], isr=[2, 3], leader=2)
    kafka.metadata([made.topic_record("t", ORDERS), record])
    assert "its replicas are on 2, 3" in refused(data, kafka)


def test_a_replica_out_of_sync_is_refused(tmp_path: Path, data: Path) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka")
    record = made.partition_record(ORDERS, 0, replicas=[1, 2], isr=[2], leader=2)
    kafka.metadata([made.topic_record("t", ORDERS), record])
    kafka.partition("t", 0, ORDERS)
    assert "not in sync" in refused(data, kafka)


def test_a_log_directory_that_was_not_named_is_missed(tmp_path: Path, data: Path) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka")
    elsewhere = uuid.uuid4()
    record = made.partition_record(ORDERS, 0, directories=[elsewhere])
    kafka.metadata([made.topic_record("t", ORDERS), record])
    assert encode_topic_id(elsewhere) in refused(data, kafka)


def test_records_of_an_old_format_are_refused(tmp_path: Path, data: Path) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka")
    kafka.metadata([made.topic_record("t", ORDERS), made.partition_record(ORDERS, 0)])
    old = bytearray(batch(0))
    old[16] = 1
    kafka.partition("t", 0, ORDERS, segments=[[bytes(old)]])
    assert "format 1" in refused(data, kafka)


def test_metadata_that_makes_no_sense_is_refused(tmp_path: Path, data: Path) -> None:
    kafka = KafkaDirectory(tmp_path / "kafka")
    kafka.metadata([made.partition_record(ORDERS, 0)])
    assert "metadata cannot be read" in refused(data, kafka)


def test_settings_of_another_node_are_refused(
    kafka: KafkaDirectory, data: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text("node.id=2\n")
    assert "node 2" in refused(data, kafka, config=settings)


def test_one_inside_the_other_is_refused(kafka: KafkaDirectory) -> None:
    with pytest.raises(Refusal, match="lies in"):
        take(kafka.path / "data", kafka)
    with pytest.raises(Refusal, match="lies in"):
        take(kafka.path.parent, kafka)


# Kills ---------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What a kill -9 is to the code that it hits."""


class MortalDisk(Disk):
    """Dies before its ``life``-th step; copies die half-way, too."""

    def __init__(self, life: int) -> None:
        self.life = life

    def _step(self) -> None:
        self.life -= 1
        if self.life < 0:
            raise Killed

    def make_directory(self, path: Path) -> None:
        self._step()
        super().make_directory(path)

    def remove_tree(self, path: Path) -> None:
        self._step()
        super().remove_tree(path)

    def remove_directory(self, path: Path) -> None:
        self._step()
        super().remove_directory(path)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> bool:
        self._step()
        return super().link(source, target)

    def copy(self, source: Path, target: Path, on_progress: Callable[[int], None]) -> None:
        try:
            self._step()
        except Killed:
            target.write_bytes(source.read_bytes()[:10])
            raise
        super().copy(source, target, on_progress)

    def write(self, path: Path, data: bytes) -> None:
        try:
            self._step()
        except Killed:
            path.with_name(f"{path.name}.tmp").write_bytes(data[: len(data) // 2])
            raise
        super().write(path, data)

    def sync_all(self, path: Path) -> None:
        self._step()


@pytest.mark.parametrize("mode", Mode)
def test_an_adoption_that_is_killed_goes_on_when_called_again(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.adopt.disk.RealFileSystem.sync_all", lambda *_: None)
    wanted: dict[str, bytes] | None = None
    life = 0
    is_over = False
    while not is_over:
        place = tmp_path / str(life)
        kafka = small_kafka(place / "kafka")
        source, data = files(kafka.path), place / "data"
        try:
            take(data, kafka, disk=MortalDisk(life), mode=mode)
            is_over = True
        except Killed:
            if mode is not Mode.MOVE:
                assert files(kafka.path) == source
            assert not (data / "logs").exists() or (data / "adopting").exists() or is_done(data)
            take(data, kafka, mode=mode)
        found = contents(data / "logs")
        assert wanted in (None, found)
        wanted = found
        assert not (data / "adopting").exists()
        assert sorted(stored(data).topics) == ["t", "u"]
        life += 1
    assert life > 20


def small_kafka(path: Path) -> KafkaDirectory:
    kafka = KafkaDirectory(path)
    (path / "meta.properties").write_text(
        f"version=1\nnode.id=1\ncluster.id={made.CLUSTER_ID}\ndirectory.id=AAAAAAAAAAAAAAAAAAAAZA\n"
    )
    kafka.metadata(
        [
            made.topic_record("t", ORDERS),
            made.partition_record(ORDERS, 0),
            made.topic_record("u", LINES),
            made.partition_record(LINES, 0),
        ]
    )
    path = kafka.partition("t", 0, ORDERS, segments=[[batch(0)], [batch(3)]], bases=[0, 3])
    (path / f"{0:020d}.log.swap").write_bytes(batch(0, 2))
    kafka.partition("u", 0, segments=[[batch(0)]])
    return kafka


def is_done(data: Path) -> bool:
    return (data / "adopted.json").exists()


def test_a_finished_adoption_is_not_done_again(kafka: KafkaDirectory, data: Path) -> None:
    first = take(data, kafka)
    before = files(data)
    again = take(data, kafka)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.report == first.report
    assert files(data) == before


def test_a_data_directory_of_another_adoption_is_refused(
    kafka: KafkaDirectory, data: Path, tmp_path: Path
) -> None:
    take(data, kafka)
    other = small_kafka(tmp_path / "other")
    with pytest.raises(Refusal, match="was made by adopting"):
        take(data, other)


def test_an_unfinished_adoption_belongs_to_its_directories(
    kafka: KafkaDirectory, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        take(data, kafka, disk=MortalDisk(6))
    other = small_kafka(tmp_path / "other")
    with pytest.raises(Refusal, match="unfinished adoption"):
        take(data, other)


def test_what_was_staged_is_thrown_away_when_kafka_ran_since(
    kafka: KafkaDirectory, data: Path
) -> None:
    with pytest.raises(Killed):
        take(data, kafka, disk=MortalDisk(40))
    assert (data / "adopting" / "logs" / "lines-0").exists()
    log = kafka.path / "lines-0" / f"{0:020d}.log"
    log.write_bytes(batch(0) + batch(3))
    take(data, kafka)
    assert contents(data / "logs" / "lines-0")[log.name] == batch(0) + batch(3)


def test_half_a_move_is_finished_even_when_called_without_it(
    kafka: KafkaDirectory, data: Path
) -> None:
    with pytest.raises(Killed):
        take(data, kafka, disk=MortalDisk(7), mode=Mode.MOVE)
    assert not (kafka.path / "meta.properties").exists()
    take(data, kafka)
    assert {path.name for path in (data / "logs").glob("*-[0-9]")} == {
        "lines-0",
        "orders-0",
        "orders-1",
    }


def test_a_full_disk_is_told_before_anything_is_done(
    kafka: KafkaDirectory, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.adopt.adoption.RealFileSystem.free_bytes", lambda *_: 1000)
    assert "1000 bytes free" in refused(data, kafka)
