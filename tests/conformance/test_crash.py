"""`kill -9` while everything goes on at once: no acknowledged record is lost, doubled or moved.

Three idempotent producers write to twelve partitions of 1 MiB segments (one topic of three flushes
every batch), topics come and go, records are deleted, and the broker is killed again and again,
every other time right after a segment has rolled. After each start Apache Kafka's dump-log tool
reads every file that changed; at the end each acknowledgement is held against the log.

CRASH_COUNT says how often in the long run of `make conformance`, else 50; CRASH_SEED when.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import apache, dump_log, processes, requests
from tests.support.crash_writer import parse_value
from tests.support.fixtures import Broker
from tests.support.odradek import REPOSITORY
from tests.support.requests import create_topic, list_offset
from tests.support.wire import Wire, WireError

PARTITIONS = 4
CODECS = {"alpha": "none", "beta": "lz4", "gamma": "zstd"}
RATE = 600  # records a second of each producer
ROLL_WINDOW = 0.05


class Writer:
    """One producer process, and the acknowledgements that it has printed."""

    def __init__(self, broker: Broker, name: str, topics: list[str], errors: Path) -> None:
        self.name = name
        self.acknowledged: list[tuple[str, int, int, int]] = []
        arguments = [broker.bootstrap, name, CODECS[name], str(RATE), str(PARTITIONS), *topics]
        self.errors = errors
        with errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.crash_writer", *arguments],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self._reader = threading.Thread(target=self._collect)
        self._reader.start()

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            topic, partition, offset, number = line.decode().split()
            self.acknowledged.append((topic, int(partition), int(offset), int(number)))

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(180)
        self._reader.join(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert status == 0, f"{self.name}: {self.errors.read_text()[-2000:]}"

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            self._reader.join(30)
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.close()
            self.process.stdout.close()


class Churn(threading.Thread):
    """Creates and deletes topics and deletes records, until it is told to stop. Remembers what it
    was answered, and what it asked without an answer."""

    def __init__(self, broker: Broker, topics: list[str], seed: int) -> None:
        super().__init__()
        self.broker, self.topics = broker, topics
        self.rng = random.Random(seed)
        self.made: dict[str, bool] = {}  # name: exists, for those that were answered
        self.unsure: set[str] = set()
        self.low_watermarks: dict[tuple[str, int], int] = {}
        self.turns = 0
        self.failures: list[BaseException] = []
        self.gate = threading.Lock()  # held by whoever wants the files for himself
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with Wire(self.broker.address, timeout=10) as wire:
                    while not self._stopping.wait(0.02):
                        with self.gate:
                            self._turn(wire)
            except (OSError, WireError):
                self._stopping.wait(0.05)
            except BaseException as error:
                self.failures.append(error)
                return

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        assert not self.failures, self.failures

    def _turn(self, wire: Wire) -> None:
        self.turns += 1
        kind = self.turns % 3
        if kind == 0:
            self._create_topic(wire)
        elif kind == 1:
            self._delete_topic(wire)
        else:
            self._delete_records(wire)

    def _create_topic(self, wire: Wire) -> None:
        name = f"churn-{self.turns}"
        self.unsure.add(name)
        answer = wire.request(
            "create_topics",
            7,
            timeout=10000,
            topics=[{"name": name, "num_partitions": 3, "replication_factor": 1}],
        )
        assert answer.topics[0].error_code == 0, answer
        self.unsure.discard(name)
        self.made[name] = True
        data = requests.record_batches.batch([name.encode()], timestamp=requests.now_ms())
        requests.try_produce(wire, name, data)

    def _delete_topic(self, wire: Wire) -> None:
        living = [name for name, exists in self.made.items() if exists]
        if len(living) < 10:
            return
        name = self.rng.choice(living)
        del self.made[name]
        self.unsure.add(name)
        answer = wire.request("delete_topics", 6, timeout=10000, topics=[{"name": name}])
        assert answer.responses[0].error_code == 0, answer
        self.unsure.discard(name)
        self.made[name] = False

    def _delete_records(self, wire: Wire) -> None:
        topic, partition = self.rng.choice(self.topics), self.rng.randrange(PARTITIONS)
        end = requests.end_offset(wire, topic, partition=partition)
        keep = 600  # about two segments
        found = requests.delete_records(wire, topic, max(end - keep, 0), partition=partition)
        if found.error_code == 0:
            self.low_watermarks[topic, partition] = found.low_watermark


def segment_names(data: Path, topics: list[str]) -> set[str]:
    found = set()
    for topic in topics:
        for partition in range(PARTITIONS):
            directory = f"{topic}-{partition}"
            for name in os.listdir(data / directory):
                if name.endswith(".log"):
                    found.add(f"{directory}/{name}")
    return found


def wait_for_roll(data: Path, topics: list[str], seconds: float) -> bool:
    """Whether a new segment file appears within `seconds`."""
    known = segment_names(data, topics)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if segment_names(data, topics) - known:
            return True
        time.sleep(0.001)
    return False


class Files:
    """Lets dump-log read what has changed since the last time."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.seen: dict[Path, tuple[int, int]] = {}

    def check(self) -> int:
        for _ in range(5):
            changed = self._changed()
            self._check_companions()
            try:
                dump_log.check(self.data, files=changed)
            except dump_log.Complaint:
                # A segment below the log's start may be deleted meanwhile; then look again.
                if all(path.exists() for path in changed):
                    raise
            else:
                break
        return len(changed)

    def _check_companions(self) -> None:
        """Kafka does not open a segment whose index files are missing as if nothing had happened."""
        for log in self.data.glob("crash-*/*.log"):
            for suffix in (".index", ".timeindex"):
                assert log.with_suffix(suffix).exists() or not log.exists(), f"{log} lacks {suffix}"

    def _changed(self) -> list[Path]:
        changed = set()
        for path in dump_log.log_files(self.data):
            try:
                state = path.stat()
            except FileNotFoundError:
                continue
            now = (state.st_size, state.st_mtime_ns)
            if self.seen.get(path) != now:
                self.seen[path] = now
                changed.add(path)
        # Indexes are compared with their segments, so these come along.
        logs = {path.with_suffix(".log") for path in changed if path.suffix != ".snapshot"}
        return sorted(path for path in changed | logs if path.exists())


def check_churn(wire: Wire, churn: Churn) -> None:
    listed = {topic.name for topic in wire.request("metadata", 9, topics=None).topics}
    for name, exists in churn.made.items():
        if name not in churn.unsure:
            assert (name in listed) == exists, name
    for (topic, partition), low in churn.low_watermarks.items():
        found = list_offset(wire, topic, requests.EARLIEST, partition=partition)
        assert found.error_code == 0, (topic, partition, found)
        assert found.offset >= low, (topic, partition)


def check_records(wire: Wire, topics: list[str], writers: list[Writer], *, is_end: bool) -> int:
    """Every acknowledged record that was not deleted is where it was acknowledged, once; what each
    producer wrote to a partition lies there in order and without a hole, and at the end there is
    nothing behind what was acknowledged."""
    acknowledged: dict[tuple[str, int], dict[int, tuple[str, int]]] = {}
    highest: dict[tuple[str, int, str], int] = {}
    for writer in writers:
        for topic, partition, offset, number in list(writer.acknowledged):
            by_offset = acknowledged.setdefault((topic, partition), {})
            expected = (writer.name, number)
            if offset >= 0:
                known = by_offset.setdefault(offset, expected)
                assert known == expected, f"both at {topic}-{partition} offset {offset}"
            previous = highest.get((topic, partition, writer.name), -1)
            assert number == previous + 1, "acknowledged out of order"
            highest[topic, partition, writer.name] = number
    count = 0
    for topic in topics:
        for partition in range(PARTITIONS):
            start = requests.start_offset(wire, topic, partition=partition)
            records = requests.read_all(wire, topic, partition=partition, start=start)
            found = {record.offset: parse_value(record.value or b"") for record in records}
            assert len(found) == len(records)
            for offset, expected in acknowledged.get((topic, partition), {}).items():
                if offset >= start:
                    assert found.get(offset) == expected, (topic, partition, offset)
            last: dict[str, int] = {}
            for offset in sorted(found):
                name, number = found[offset]
                assert number == last.get(name, number - 1) + 1, (topic, partition, offset, name)
                last[name] = number
            if is_end:
                for name, number in last.items():
                    assert number == highest[topic, partition, name], (topic, partition, name)
            count += len(records)
    return count


LONG_RUN = int(os.environ.get("CRASH_COUNT", "50"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [4, pytest.param(LONG_RUN, marks=pytest.mark.slow)])
def test_no_acknowledged_record_is_lost_or_doubled_by_kill_9(
    start_odradek: Callable[..., Broker], tmp_path: Path, count: int
) -> None:
    apache.require_jars()
    seed = int(os.environ.get("CRASH_SEED", "1"))
    rng = random.Random(seed)
    broker = start_odradek({"log.segment.delete.delay.ms": "500"})
    topics = ["crash-plain", "crash-flushed", "crash-indexed"]
    with Wire(broker.address) as wire:
        small = {"segment.bytes": "1048576"}
        create_topic(wire, topics[0], partitions=PARTITIONS, configs=small)
        flushed = {**small, "flush.messages": "1"}
        create_topic(wire, topics[1], partitions=PARTITIONS, configs=flushed)
        indexed = {**small, "index.interval.bytes": "1000"}
        create_topic(wire, topics[2], partitions=PARTITIONS, configs=indexed)
    files = Files(broker.logs)
    churn = Churn(broker, topics, seed)
    writers = [Writer(broker, name, topics, tmp_path / f"{name}.err") for name in CODECS]
    churn.start()
    near_a_roll = seen = 0
    try:
        for turn in range(count):
            time.sleep(rng.uniform(0.3, 1.5))
            if turn % 2 == 0 and wait_for_roll(broker.logs, topics, 20):
                time.sleep(rng.choice((0, 0, 0.001, 0.005, 0.02)))
                near_a_roll += 1
            broker.kill9()
            for writer in writers:
                assert writer.process.poll() is None, writer.errors.read_text()
                writer.pause()
            with churn.gate:
                broker.start()
                broker.trim()
                files.check()
                with Wire(broker.address) as wire:
                    check_churn(wire, churn)
                    seen += check_records(wire, topics, writers, is_end=False)
            for writer in writers:
                writer.go_on()
        processes.wait_until(
            lambda: all(len(writer.acknowledged) > 200 for writer in writers), 60, "some records"
        )
        churn.stop()
        for writer in writers:
            writer.finish()
        with Wire(broker.address) as wire:
            check_churn(wire, churn)
            seen += check_records(wire, topics, writers, is_end=True)
        broker.stop()
        files.check()
    finally:
        churn._stopping.set()
        churn.join(60)
        for writer in writers:
            writer.close()
    acknowledged = sum(len(writer.acknowledged) for writer in writers)
    print(
        f"\n{count} kills, {near_a_roll} right after a roll; {acknowledged} records acknowledged, "
        f"{seen} times a record was looked at; {churn.turns} changes of topics and starts; seed {seed}"
    )
    assert near_a_roll >= count // 5
