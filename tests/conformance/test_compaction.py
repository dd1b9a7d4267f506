"""Compaction judged by Apache Kafka: its dump-log tool, its console consumer, its broker."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as OffsetAndPartition

from tests.support import apache, dump_log, processes, requests
from tests.support.apache import ApacheKafka
from tests.support.odradek import OdradekBroker
from tests.support.requests import create_topic
from tests.support.wire import Wire

SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.9",
}
FAST: Final = {
    "log.cleaner.backoff.ms": "200",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}

Latest = dict[str, str | None]


def fill(
    bootstrap: str,
    topic: str,
    latest: Latest,
    rng: random.Random,
    count: int,
    *,
    is_idempotent: bool = True,
) -> None:
    """Records of few keys, tombstones among them; ``latest`` is kept as a reader should see it."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": is_idempotent,
                "linger.ms": 5,
                "batch.num.messages": 200,
            }
        )
        for _ in range(count // 5):
            key = f"key-{rng.randrange(300)}"
            value = None if rng.random() < 0.1 else rng.randbytes(rng.randrange(100, 300)).hex()
            producer.produce(topic, key=key, value=value)
            latest[key] = value
        assert producer.flush(60) == 0


def compact(broker: OdradekBroker, *topics: str) -> None:
    """Until nothing is dirty but active segments."""
    runs = broker.control("cleaner")["runs"]
    broker.control("compact", topics=list(topics), roll=True)

    def is_done() -> bool:
        told = broker.control("cleaner")
        assert not told["uncleanable"], told["uncleanable"]
        return told["runs"] > runs and not told["queued"] and not told["running"]

    processes.wait_until(is_done, 60, "the compaction")


def java_reads(
    bootstrap: str, topic: str, count: int | None = None
) -> list[tuple[str, str | None]]:
    """Keys and values from the beginning on, in order, by Apache's console consumer.

    ``count``: as many as there are known to be; else it ends when none has come for a while.
    """
    run = apache.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        [
            "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning",
            "--formatter-property", "print.key=true", "--formatter-property", "null.literal=NULL",
            "--timeout-ms", "6000", *([] if count is None else ["--max-messages", str(count)]),
        ],
    )  # fmt: skip
    pairs = [line.split("\t", 1) for line in run.stdout.splitlines() if "\t" in line]
    return [(key, None if value == "NULL" else value) for key, value in pairs]


def alive(latest: Latest) -> Latest:
    return {key: value for key, value in latest.items() if value is not None}


@pytest.fixture
def compacting(tmp_path: Path) -> OdradekBroker:
    return OdradekBroker(tmp_path / "ours", properties=FAST)


def test_kafkas_tools_find_a_compacted_log_sound_and_its_consumer_the_latest_of_each_key(
    compacting: OdradekBroker,
) -> None:
    rng, latest = random.Random(1), Latest()
    with compacting as broker, Wire(broker.address) as wire:
        topic = create_topic(wire, configs=SETTINGS)
        fill(broker.bootstrap, topic, latest, rng, 10_000)
        before = java_reads(broker.bootstrap, topic, 10_000)
        assert alive(dict(before)) == alive(latest), "before"
        found: list[tuple[str, str | None]] = []
        reader = threading.Thread(target=lambda: found.extend(java_reads(broker.bootstrap, topic)))
        reader.start()
        compact(broker, topic)
        reader.join()
        assert alive(dict(found)) == alive(latest), "during"
        after = java_reads(broker.bootstrap, topic, len(latest))
        assert dict(after) == latest, "after, tombstones are still there"
        assert len(after) == len(latest), "each key once"
        broker.trim()
        directory = broker.logs / f"{topic}-0"
        dumps = dump_log.check(directory, has_holes=True)
        assert sum(len(one.records) for one in dumps.values()) == len(latest)
        checkpoint = (broker.logs / "cleaner-offset-checkpoint").read_text().splitlines()
        assert f"{topic} 0 10000" in checkpoint[2:]
        broker.kill9()
        broker.start()
        assert java_reads(broker.bootstrap, topic, len(latest)) == after


@pytest.mark.slow
def test_apache_kafka_opens_a_log_that_we_compacted_and_compacts_it_further(
    compacting: OdradekBroker, tmp_path: Path
) -> None:
    rng, latest = random.Random(2), Latest()
    with compacting as broker, Wire(broker.address) as wire:
        topic = create_topic(wire, configs=SETTINGS)
        fill(broker.bootstrap, topic, latest, rng, 10_000)
        compact(broker, topic)
        fill(broker.bootstrap, topic, latest, rng, 5_000)
        broker.stop()
    ours = broker.logs / f"{topic}-0"
    properties = {"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.01"}
    with ApacheKafka(tmp_path / "theirs", properties) as kafka:
        with Wire(kafka.address) as wire:
            create_topic(wire, topic, configs={**SETTINGS, "min.cleanable.dirty.ratio": "0.01"})
        kafka.stop()
        theirs = kafka.logs / f"{topic}-0"
        for path in theirs.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in ours.iterdir():
            if path.name != "partition.metadata" and not path.name.endswith(".deleted"):
                shutil.copy(path, theirs)
        kafka.start()
        assert alive(dict(java_reads(kafka.bootstrap, topic))) == alive(latest)
        before = sum(path.stat().st_size for path in theirs.glob("*.log"))
        # Its producer ids begin at 0 again: one of ours may be remembered under the number.
        fill(kafka.bootstrap, topic, latest, rng, 10_000, is_idempotent=False)
        processes.wait_until(
            lambda: sum(path.stat().st_size for path in theirs.glob("*.log")) < 2 * before,
            60,
            "its own compaction",
        )
        assert alive(dict(java_reads(kafka.bootstrap, topic))) == alive(latest)


def test_committed_offsets_are_compacted_and_stay(compacting: OdradekBroker) -> None:
    with compacting as broker, Wire(broker.address) as wire:
        topic = create_topic(wire)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "committing"})
        for offset in range(1, 2_001):
            consumer.commit(offsets=[OffsetAndPartition(topic, 0, offset)], asynchronous=False)
        compact(broker, "__consumer_offsets")
        (run,) = broker.control("cleaner")["last_runs"]
        assert run["records_before"] >= 2_000
        assert run["records_after"] < 10
        for restart in (broker.stop, broker.kill9):
            restart()
            broker.start()
            (found,) = consumer.committed([OffsetAndPartition(topic, 0)], timeout=60)
            assert found.offset == 2_000
        consumer.close()


@pytest.mark.slow
def test_kill_9_at_any_moment_of_compaction_loses_nothing(compacting: OdradekBroker) -> None:
    rng, latest = random.Random(3), Latest()
    with compacting as broker, Wire(broker.address) as wire:
        topic = create_topic(wire, configs=SETTINGS)
        interrupted = 0
        for number in range(30):
            fill(broker.bootstrap, topic, latest, rng, 4_000)
            before = broker.control("cleaner")["runs"]
            broker.control("compact", topics=[topic], roll=True)
            moment = threading.Event()
            if (
                number % 2
            ):  # at any moment of the work, however fast this machine begins and does it

                def has_begun(before: int = before) -> bool:
                    told = broker.control("cleaner")
                    return bool(told["running"]) or told["runs"] > before

                processes.wait_until(has_begun, 30, "the compaction", every=0.005)
                moment.wait(rng.random() * 0.2)
            else:
                moment.wait(rng.random() * 1.6)
            interrupted += bool(broker.control("cleaner")["running"])
            broker.kill9()
            left = [path.suffix for path in (broker.logs / f"{topic}-0").iterdir()]
            interrupted += ".cleaned" in left or ".swap" in left
            broker.start()
            assert not broker.control("offline")["partitions"]
        assert interrupted > 3
        assert alive(dict(java_reads(broker.bootstrap, topic))) == alive(latest)
        fill(broker.bootstrap, topic, latest, rng, 500)  # whatever the broker did by itself: dirt
        compact(broker, topic)
        after = java_reads(broker.bootstrap, topic)
        assert alive(dict(after)) == alive(latest)
        assert len(after) == len(dict(after))


def test_what_cannot_be_compacted_is_told_and_tried_again(compacting: OdradekBroker) -> None:
    """C047: a partition whose cleaning fails says why, harms no other, and recovers by itself."""
    rng, latest = random.Random(4), Latest()
    with compacting as broker, Wire(broker.address) as wire:
        bad, good = create_topic(wire, configs=SETTINGS), create_topic(wire, configs=SETTINGS)
        fill(broker.bootstrap, bad, {}, rng, 6_000)
        fill(broker.bootstrap, good, latest, rng, 6_000)
        # In the way of the file that is to be written.
        obstacle = broker.logs / f"{bad}-0" / f"{0:020d}.log.cleaned"
        obstacle.mkdir()
        broker.control("compact", topics=[bad, good], roll=True)
        processes.wait_until(
            lambda: bool(broker.control("cleaner")["uncleanable"]), 60, "the failure"
        )
        ((told),) = broker.control("cleaner")["uncleanable"]
        assert (told["topic"], told["partition"]) == (bad, 0)
        assert told["reason"]
        assert told["next_retry_ms"] > told["since_ms"]
        processes.wait_until(
            lambda: any(run["topic"] == good for run in broker.control("cleaner")["last_runs"]),
            60,
            "the other one's compaction",
        )
        obstacle.rmdir()
        processes.wait_until(
            lambda: not broker.control("cleaner")["uncleanable"], 60, "the next attempt"
        )
        runs = {run["topic"]: run for run in broker.control("cleaner")["last_runs"]}
        assert runs[bad]["error"] is None
        assert runs[bad]["bytes_after"] < runs[bad]["bytes_before"]
        assert alive(dict(java_reads(broker.bootstrap, good))) == alive(latest)


def test_every_client_reaches_the_end_when_compaction_took_the_tail(
    compacting: OdradekBroker,
) -> None:
    """C042, C049: the last entry is a marker of a transaction of which nothing is left."""
    with compacting as broker, Wire(broker.address) as wire:
        topic = create_topic(wire, configs={**SETTINGS, "delete.retention.ms": "0"})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
        producer.init_transactions()
        for turn in range(30):
            producer.begin_transaction()
            for key in range(3):
                producer.produce(topic, key=f"key-{key}", value=str(turn))
            assert producer.flush(60) == 0  # else the library does not even send what it aborts
            if turn % 7 == 3 or turn == 29:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            if turn % 10 == 9:
                compact(broker, topic)  # markers go a round after the records that they were for
        end = requests.end_offset(wire, topic)
        assert end == 30 * 4
        latest = {f"key-{key}": "28" for key in range(3)}

        for isolation in ("read_committed", "read_uncommitted"):
            reader = Consumer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "group.id": "to the end",
                    "isolation.level": isolation,
                    "enable.partition.eof": True,
                }
            )
            assert reader.get_watermark_offsets(OffsetAndPartition(topic, 0)) == (0, end)
            reader.assign([OffsetAndPartition(topic, 0, 0)])
            found: Latest = {}
            ends: list[int] = []

            def is_at_end(
                reader: Consumer = reader, found: Latest = found, ends: list[int] = ends
            ) -> bool:
                message = reader.poll(0.2)
                if message is not None and message.error() is not None:
                    ends.append(message.offset())
                elif message is not None:
                    found[message.key().decode()] = message.value().decode()
                return bool(ends)

            processes.wait_until(is_at_end, 60, isolation)
            reader.close()
            assert ends == [end], "the position that it waits at"
            if isolation == "read_committed":
                assert found == latest
        assert dict(java_reads(broker.bootstrap, topic)) == latest
