"""Coming from Apache Kafka, and going back.

*In*: a real Kafka is filled and asked for everything that it tells; then it is stopped, cleanly or
by kill -9, its directory is adopted, and our broker must tell the same. *Out*: our files take the
place of a fresh Kafka's files, after a clean stop of ours and after kill -9, and Kafka must tell what
we told. One Kafka is filled for all tests here.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import (
    adoptable,
    answers,
    dump_log,
    group_requests,
    processes,
    record_batches,
    requests,
)
from tests.support.answers import TopicAnswers
from tests.support.apache import ApacheKafka
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.wire import Wire

Answers = Mapping[str, TopicAnswers]
INTERNAL = {"__consumer_offsets", "__transaction_state"}


@dataclass
class Filled:
    """A Kafka's directory as its end left it, and what it had told before."""

    directory: Path
    settings: Path
    told: Answers
    producer_ids: set[int]
    is_clean: bool
    committed: dict[str, Any]


def copy(source: Path, target: Path) -> Path:
    """With holes and modification times."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
    return target


def producer_ids(told: Answers) -> set[int]:
    return {
        producer[0]
        for topic in told.values()
        for partition in topic.partitions
        for producer in partition.producers
    }


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Filled]:
    """One Kafka, stopped cleanly, started again, written to, killed."""
    place = tmp_path_factory.mktemp("kafka")
    kafka = ApacheKafka(place / "run", adoptable.PROPERTIES)
    settings = place / "run" / "server.properties"
    found = {}
    try:
        kafka.start()
        producers = adoptable.fill(kafka.address)
        committed = adoptable.committed_offsets(kafka.address)
        told = answers.observe(kafka.address, answers.topic_names(kafka.address))
        with pytest.raises(AssertionError, match="a Kafka that runs holds its lock"):
            adopt(kafka.data, place / "refused")
        kafka.stop()
        adoptable.close(producers)
        directory = copy(kafka.data, place / "stopped")
        found["stopped"] = Filled(directory, settings, told, producer_ids(told), True, committed)
        kafka.start()
        producers = adoptable.go_on(kafka.address)
        committed = adoptable.committed_offsets(kafka.address)
        told = answers.observe(kafka.address, answers.topic_names(kafka.address))
        kafka.kill9()
        adoptable.close(producers)
        directory = copy(kafka.data, place / "killed")
        found["killed"] = Filled(directory, settings, told, producer_ids(told), False, committed)
    finally:
        kafka.close()
    return found


def adopt(directory: Path, data: Path, *options: str) -> dict[str, Any]:
    """Through the command line, as people do it."""
    command = [sys.executable, "-m", "appliance", "--format", "json", "adopt"]
    command += [str(directory), "--data", str(data), *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)["data"][0]
    return report


def check_equal(told: Answers, found: Answers, *ignored: str) -> None:
    assert set(told) == set(found)
    differences = {
        name: texts
        for name in told
        if (texts := answers.differences(told[name], found[name], *ignored))
    }
    assert not differences


def checksums(path: Path) -> dict[str, tuple[str, int]]:
    return {
        str(file.relative_to(path)): (
            hashlib.sha256(file.read_bytes()).hexdigest(),
            file.stat().st_mtime_ns,
        )
        for file in path.rglob("*")
        if file.is_file() and file.suffix not in (".index", ".timeindex")
    }


# In --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_everything_is_as_kafka_told_it(
    kafkas: dict[str, Filled], end: str, tmp_path: Path
) -> None:
    filled = kafkas[end]
    before = checksums(filled.directory)
    report = adopt(filled.directory, tmp_path / "data", "--config", str(filled.settings))
    assert report["was_clean"] == filled.is_clean
    assert report["held"] == []
    assert any("gone-0" in name for name, _ in report["leftovers"])
    with OdradekBroker(tmp_path, data=tmp_path / "data") as broker:
        assert set(answers.topic_names(broker.address)) == set(filled.told)
        assert set(filled.told) >= INTERNAL
        found = answers.observe(broker.address, filled.told)
        # Segments below the log start may be removed whenever somebody likes.
        check_equal(filled.told, found, *([] if filled.is_clean else ["size"]))
        assert adoptable.committed_offsets(broker.address) == filled.committed
        for name, topic in found.items():
            before_epochs = filled.told[name].leader_epochs
            assert all(map(int.__gt__, topic.leader_epochs, before_epochs)), name
        with Wire(broker.address) as wire:
            producer_id, _ = requests.init_producer(wire)
            assert producer_id > max(filled.producer_ids)
            assert producer_id >= report["next_producer_id"]
            cluster = wire.request("describe_cluster", 1)
            assert (cluster.cluster_id, cluster.controller_id) == (report["cluster_id"], 1)
            for name in ("codecs", "plain", "transactions"):
                requests.produce_values(wire, name, [b"from here"])
        broker.stop()
        # The tool takes the holes of a compacted log for a fault.
        files = [p for p in dump_log.log_files(broker.logs) if p.parent.name != "compacted-0"]
        dump_log.check(broker.logs, files=files)
    # Whatever we did since: Kafka could still be started on its own directory.
    assert checksums(filled.directory) == before


@pytest.mark.slow
def test_topics_without_settings_are_held_where_kafkas_are_not_given(
    kafkas: dict[str, Filled], tmp_path: Path
) -> None:
    filled = kafkas["stopped"]
    report = adopt(filled.directory, tmp_path / "data")
    assert set(report["held"]) == {"again", "clients", "plain", "stamped", "trimmed"}
    with OdradekBroker(tmp_path, data=tmp_path / "data") as broker:
        broker.control("retention")
        found = answers.observe(broker.address, filled.told)
        check_equal(filled.told, found, "configs", "size")
        for name in report["held"]:
            assert found[name].configs["retention.ms"][0] == "-1"


def test_a_moved_directory_tells_the_same_and_goes_with_us(
    kafkas: dict[str, Filled], tmp_path: Path
) -> None:
    filled = kafkas["killed"]
    directory = copy(filled.directory, tmp_path / "kafka")
    adopt(directory, tmp_path / "data", "--config", str(filled.settings), "--move")
    left = {path.parent.name for path in directory.glob("*/*.log")}
    assert {name for name in left if not name.endswith("-delete")} == {"__cluster_metadata-0"}
    with OdradekBroker(tmp_path, data=tmp_path / "data") as broker:
        check_equal(filled.told, answers.observe(broker.address, filled.told), "size")


def test_a_broker_does_not_start_on_half_an_adoption(
    kafkas: dict[str, Filled], tmp_path: Path
) -> None:
    (tmp_path / "data" / "adopting").mkdir(parents=True)
    broker = OdradekBroker(tmp_path, data=tmp_path / "data")
    with pytest.raises(AssertionError, match="odradek adopt"):
        broker.start()
    adopt(kafkas["stopped"].directory, tmp_path / "data")


# Out -------------------------------------------------------------------------------------------


def write_here(broker: OdradekBroker, seed: int) -> None:
    """What our broker adds to the adopted topics, and to one that was born here."""
    adoptable.append_by_hand(broker.address, seed)
    with Wire(broker.address) as wire:
        for number in range(40):
            data = record_batches.batch([b"%d" % number * 20_000], timestamp=requests.now_ms())
            requests.produce(wire, "born", data)


def use_groups_here(broker: OdradekBroker) -> None:
    """Classic members join a group that was one of the newer protocol; another one is deleted."""
    with Wire(broker.address, timeout=60) as wire:
        group_requests.find(wire, "modern")
        processes.wait_until(
            lambda: group_requests.describe(wire, "modern").error_code == 0, 30, "the groups"
        )
        member = group_requests.become_member(wire, "modern")
        assert member.commit(wire, "clients", {0: 77}) == [0]
        assert group_requests.commit(wire, "readers", "clients", {1: 78}) == [0]
        answer = wire.request("delete_groups", 2, groups_names=["left"])
        assert answer.results[0].error_code == 0, answer


@dataclass
class Outgoing:
    logs: Path
    told: Answers
    committed: dict[str, Any]


@pytest.fixture(scope="module")
def outgoing(
    kafkas: dict[str, Filled], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outgoing]:
    """Our directory after a clean stop, and after kill -9 in the midst of hot partitions."""
    place = tmp_path_factory.mktemp("out")
    filled = kafkas["stopped"]
    adopt(filled.directory, place / "data", "--config", str(filled.settings))
    broker = OdradekBroker(place, data=place / "data")
    found = {}
    try:
        broker.start()
        with Wire(broker.address) as wire:
            requests.create_topic(wire, "born", partitions=2, configs=adoptable.SEGMENT)
        write_here(broker, 1)
        use_groups_here(broker)
        names = answers.topic_names(broker.address)
        told = answers.observe(broker.address, names)
        committed = adoptable.committed_offsets(broker.address)
        broker.stop()
        found["stopped"] = Outgoing(copy(broker.logs, place / "stopped"), told, committed)
        broker.start()
        write_here(broker, 2)
        told = answers.observe(broker.address, names)
        broker.kill9()
        found["killed"] = Outgoing(copy(broker.logs, place / "killed"), told, committed)
    finally:
        broker.close()
    return found


@pytest.fixture(scope="module")
def fresh_kafka(
    outgoing: dict[str, Outgoing], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafka]:
    """A Kafka that never saw our topics' records, stopped."""
    properties = {"log.index.interval.bytes": adoptable.PROPERTIES["log.index.interval.bytes"]}
    kafka = ApacheKafka(tmp_path_factory.mktemp("fresh") / "kafka", properties)
    try:
        kafka.start()
        with Wire(kafka.address, timeout=60) as wire:
            for name, topic in outgoing["stopped"].told.items():
                requests.create_topic(
                    wire,
                    name,
                    partitions=len(topic.partitions),
                    configs=adoptable.TOPICS.get(name, (0, {}))[1],
                )
        kafka.stop()
        yield kafka
    finally:
        kafka.close()


def put_in_place(
    logs: Path, kafka: ApacheKafka, told: Answers, *, has_mark: bool, has_last_indexes: bool
) -> None:
    """docs/adopt.md, "and going back", word for word."""
    for name, topic in told.items():
        for index in range(len(topic.partitions)):
            directory = kafka.data / f"{name}-{index}"
            for path in directory.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            ours = logs / directory.name
            left_out = {"partition.metadata"}
            if not has_last_indexes:
                left_out.add(max(ours.glob("*.log")).with_suffix(".index").name)
            for path in ours.iterdir():
                if path.name not in left_out:
                    copy(path, directory)
    shutil.copy(logs / "log-start-offset-checkpoint", kafka.data)
    if not has_mark:
        (kafka.data / ".kafka_cleanshutdown").unlink()


@pytest.mark.parametrize(
    ("end", "has_mark", "has_last_indexes"),
    [
        pytest.param("stopped", True, True, id="stopped"),
        pytest.param("killed", False, True, id="killed, the mark removed", marks=pytest.mark.slow),
        pytest.param("killed", True, False, id="killed, the last indexes left out"),
    ],
)
def test_kafka_tells_what_we_told(
    outgoing: dict[str, Outgoing],
    fresh_kafka: ApacheKafka,
    end: str,
    has_mark: bool,
    has_last_indexes: bool,
) -> None:
    logs, told = outgoing[end].logs, outgoing[end].told
    put_in_place(logs, fresh_kafka, told, has_mark=has_mark, has_last_indexes=has_last_indexes)
    with fresh_kafka as kafka:
        with Wire(kafka.address, timeout=60) as wire:
            for name, topic in told.items():
                requests.wait_for_leaders(wire, name, len(topic.partitions))
        found = answers.observe(kafka.address, told)
        check_equal(told, found, "topic_id", "configs", "size")
        assert adoptable.committed_offsets(kafka.address) == outgoing[end].committed
        kafka.stop()
