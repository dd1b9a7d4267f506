"""What readers see of retention, through clients that people use: public trouble as cases C032 to C037."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from tests.support import apache, clients, dump_log, processes, requests
from tests.support.clients import ConfluentKafka, KafkaPython, Message
from tests.support.odradek import OdradekBroker
from tests.support.requests import create_topic, now_ms
from tests.support.wire import Wire

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of kafka-python
FAST: Final = {
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
HOUR: Final = 3_600_000
WAIT_S: Final = 60.0
BOTH: Final = (ConfluentKafka(), KafkaPython())


def base_offsets(broker: OdradekBroker, topic: str) -> list[int]:
    return sorted(int(path.stem) for path in (broker.logs / f"{topic}-0").glob("*.log"))


def wait_for_start(broker: OdradekBroker, topic: str, offset: int) -> None:
    """Until what lies before is gone from the disk as well."""
    processes.wait_until(
        lambda: base_offsets(broker, topic)[:1] == [offset], WAIT_S, f"the start at {offset}"
    )


def write(broker: OdradekBroker, topic: str, first: int, count: int, at_ms: int) -> None:
    found = ConfluentKafka().write(
        broker.bootstrap,
        topic,
        [Message(b"%d" % number, timestamp=at_ms) for number in range(first, first + count)],
    )
    assert found == list(range(first, first + count))


def read_by_new_group(bootstrap: str, topic: str, group: str) -> list[tuple[int, bytes]]:
    """From the earliest record to the end, as somebody does who subscribes for the first time."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: list[tuple[int, bytes]] = []
    is_over = False
    try:
        consumer.subscribe([topic])

        def at_end() -> bool:
            nonlocal is_over
            for message in consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    found.append((message.offset(), message.value()))
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                is_over = True
            return is_over

        processes.wait_until(at_end, WAIT_S, "the end of the topic")
    finally:
        consumer.close()
    return found


def java_offsets(broker: OdradekBroker, topic: str) -> tuple[int, int]:
    """Earliest and latest, as Kafka's tool tells them."""
    told = []
    for time in ("earliest", "latest"):
        args = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--time", time]
        (line,) = apache.run_tool("GetOffsetShell", args).ok().lines
        told.append(int(line.rpartition(":")[2]))
    return told[0], told[1]


def java_reads(broker: OdradekBroker, topic: str, count: int) -> list[str]:
    run = apache.run_tool(
        "consumer.ConsoleConsumer",
        ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning",
         "--max-messages", count, "--timeout-ms", "20000"],
    )  # fmt: skip
    return [line for line in run.lines if not line.startswith("Processed a total of")]


class SteadyReader:
    """Reads on in a thread; what it is told between polls is kept, an error among it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.offsets: list[int] = []
        self.values: set[bytes] = set()
        self.errors: list[Any] = []
        self._consumer = ConfluentKafka().consumer(
            bootstrap, **{"auto.offset.reset": "earliest", "group.id": "steady"}
        )
        self._consumer.subscribe([topic])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(message.error())
            else:
                self.offsets.append(message.offset())
                self.values.add(message.value())
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def test_a_second_of_retention_does_not_freeze_a_topic(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    # C032: segments of a second that live for a second, under readers that go on all the time.
    broker = start_odradek(FAST)
    with Wire(broker.address) as wire:
        topic = create_topic(wire, configs={"retention.ms": "1000", "segment.ms": "1000"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})

    def send(count: int, value: bytes) -> None:
        for _ in range(count):
            producer.produce(topic, value)
        assert producer.flush(WAIT_S) == 0

    reader = SteadyReader(broker.bootstrap, topic)
    try:
        for turn in range(2):
            sealed = base_offsets(broker, topic)
            send(10, b"few")

            def has_rolled(sealed: list[int] = sealed) -> bool:
                send(1, b"one more")
                return base_offsets(broker, topic) != sealed

            processes.wait_until(has_rolled, WAIT_S, "another segment", every=0.2)
            send(1500, b"many")
            for client in BOTH:
                start, end = client.watermarks(broker.bootstrap, topic)
                assert 0 <= start <= end
            fresh = read_by_new_group(broker.bootstrap, topic, f"fresh-{turn}")
            offsets = [offset for offset, _ in fresh]
            assert offsets == sorted(set(offsets))
            processes.wait_until(
                lambda: len(set(ConfluentKafka().watermarks(broker.bootstrap, topic))) == 1,
                WAIT_S,
                "the end of everything",
            )
            assert read_by_new_group(broker.bootstrap, topic, f"late-{turn}") == []

        def is_heard() -> bool:
            send(1, b"the last word")
            return b"the last word" in reader.values

        processes.wait_until(is_heard, WAIT_S, "the steady reader", every=0.2)
    finally:
        reader.stop()
    assert not reader.errors
    assert reader.offsets == sorted(set(reader.offsets))
    assert "Traceback" not in broker.output.read_text()


def test_the_earliest_offset_is_that_of_the_first_record_that_can_be_read(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    # C033: the first five expire, the second five stay.
    broker = start_odradek(FAST)
    with Wire(broker.address) as wire:
        topic = create_topic(wire, configs={"retention.ms": str(HOUR), "segment.ms": "1000"})
        write(broker, topic, 0, 5, now_ms() - 2 * HOUR)
        wait_for_start(broker, topic, 5)
        write(broker, topic, 5, 5, now_ms())
        assert requests.fetch(wire, topic, 5).log_start_offset == 5
    left = [(number, b"%d" % number) for number in range(5, 10)]
    for client in BOTH:
        assert client.watermarks(broker.bootstrap, topic) == (5, 10)
        found = client.read(broker.bootstrap, topic, 5, start=5)
        assert [(message.offset, message.value) for message in found] == left
    assert read_by_new_group(broker.bootstrap, topic, "new") == left
    assert java_offsets(broker, topic) == (5, 10)
    assert java_reads(broker, topic, 5) == [value.decode() for _, value in left]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_topic_of_which_everything_expired_goes_on_after_a_restart(
    is_killed: bool, start_odradek: Callable[..., OdradekBroker]
) -> None:
    # C034
    broker = start_odradek(FAST)
    with Wire(broker.address) as wire:
        topic = create_topic(wire, configs={"retention.ms": "10000"})
        write(broker, topic, 0, 10, now_ms() - HOUR)
    wait_for_start(broker, topic, 10)
    for turn in range(2):
        (broker.kill9 if is_killed else broker.stop)()
        broker.start()
        for client in BOTH:
            assert client.watermarks(broker.bootstrap, topic) == (10, 10)
        assert read_by_new_group(broker.bootstrap, topic, f"empty-{turn}") == []
    write(broker, topic, 10, 1, now_ms() + HOUR)  # it shall not expire under the readers
    assert read_by_new_group(broker.bootstrap, topic, "after") == [(10, b"10")]
    for client in BOTH:
        (found,) = client.read(broker.bootstrap, topic, 1, start=10)
        assert found.offset == 10
    assert java_offsets(broker, topic) == (10, 11)
    broker.stop()
    dump_log.check(broker.logs)


def value_of(offset: int) -> bytes:
    return b"%07d" % offset + b"." * 40


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_offsets_stay_when_half_of_a_topic_is_evicted(
    is_killed: bool, start_odradek: Callable[..., OdradekBroker]
) -> None:
    # C037: with samples on both sides of the cut.
    count, samples = 250_000, range(0, 250_000, 2_500)
    broker = start_odradek(FAST)
    with Wire(broker.address) as wire:
        topic = create_topic(wire, configs={"segment.bytes": "1048576"})
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "enable.idempotence": True}
    )
    for offset in range(count):
        while True:
            try:
                producer.produce(topic, value_of(offset))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(WAIT_S) == 0
    size = sum(path.stat().st_size for path in (broker.logs / f"{topic}-0").glob("*.log"))

    def sample(client: clients.Client, offset: int) -> Message:
        (found,) = client.read(broker.bootstrap, topic, 1, start=offset)
        return found

    def check(start: int, chosen: list[int]) -> None:
        for client in BOTH:
            assert client.watermarks(broker.bootstrap, topic) == (start, count)
        for number, offset in enumerate(chosen):
            found = sample(BOTH[number % 8 == 0], offset)
            assert (found.offset, found.value) == (offset, value_of(offset))

    check(0, list(samples[::10]))
    with Wire(broker.address) as wire:
        requests.alter_config(wire, topic, "retention.bytes", str(size // 2))
        processes.wait_until(
            lambda: requests.start_offset(wire, topic) > count // 3, WAIT_S, "retention"
        )
        broker.control("retention", topics=[topic])
        start = requests.start_offset(wire, topic)
    left = [start, *(offset for offset in samples if offset > start), count - 1]
    check(start, left[:20])
    # Files go when the new start is durable: a kill before that brings the old records back.
    files = broker.logs / f"{topic}-0"
    processes.wait_until(
        lambda: min(int(path.stem) for path in files.glob("*.log")) == start,
        WAIT_S,
        "old files gone",
    )
    (broker.kill9 if is_killed else broker.stop)()
    broker.start()
    check(start, left)
    assert java_offsets(broker, topic) == (start, count)
    assert ConfluentKafka().write(broker.bootstrap, topic, [Message(b"next")]) == [count]
    assert sample(KafkaPython(), count).value == b"next"


def test_a_start_that_was_told_is_still_there_after_kill_9(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    """The broker dies the moment a client sees the new start, again and again."""
    broker = start_odradek(FAST)
    with Wire(broker.address) as wire:
        topic = create_topic(wire, configs={"segment.bytes": str(1 << 20), "retention.bytes": "0"})
    told = 0
    for turn in range(3):
        with Wire(broker.address) as wire:
            before = requests.start_offset(wire, topic)
            for _ in range(4):
                requests.produce_values(wire, topic, [os.urandom(600_000)])
            processes.wait_until(
                lambda w=wire, b=before: requests.start_offset(w, topic) > b,  # type: ignore[misc]
                WAIT_S,
                f"retention, turn {turn}",
                every=0.001,
            )
            told = requests.start_offset(wire, topic)
            broker.kill9()
        broker.start()
        with Wire(broker.address) as wire:
            assert requests.start_offset(wire, topic) >= told
