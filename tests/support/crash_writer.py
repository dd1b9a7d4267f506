"""An idempotent producer in a process of its own, which writes until its standard input ends.

Each record's value starts with the producer's name and its number in that partition; each
acknowledgement becomes one line on standard output: `topic partition offset number`. The test may
stop the process with SIGSTOP to have the broker's files to itself.

    python -m tests.support.crash_writer BOOTSTRAP NAME CODEC RATE PARTITIONS TOPIC...
"""

import random
import sys
import threading
import time
from typing import Any

from confluent_kafka import Producer

FILLER = random.Random(7).randbytes(1 << 16)


def value_of(name: str, number: int, rng: random.Random) -> bytes:
    start = rng.randrange(1 << 15)
    return b"%s %d " % (name.encode(), number) + FILLER[start : start + rng.randrange(500, 6000)]


def parse_value(value: bytes) -> tuple[str, int]:
    name, number, _ = value.split(b" ", 2)
    return name.decode(), int(number)


def main() -> None:
    bootstrap, name, codec, rate, partitions, *topics = sys.argv[1:]
    stopped = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.buffer.read()
        stopped.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
            "message.timeout.ms": 600_000,
            "socket.timeout.ms": 10_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.interval.ms": 2000,
            "queue.buffering.max.messages": 2000,
        }
    )
    rng = random.Random(name)
    where = [(topic, partition) for topic in topics for partition in range(int(partitions))]
    next_number = dict.fromkeys(where, 0)
    failures: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)
            return
        _, number = parse_value(message.value())
        print(message.topic(), message.partition(), message.offset(), number)

    pause = 20 / float(rate)
    while not stopped.is_set() and not failures:
        for _ in range(20):
            topic, partition = rng.choice(where)
            number = next_number[topic, partition]
            value = value_of(name, number, rng)
            while not failures:
                try:
                    producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.05)
            next_number[topic, partition] = number + 1
        producer.poll(0)
        sys.stdout.flush()
        time.sleep(pause)
    remaining = producer.flush(120)
    sys.stdout.flush()
    if remaining or failures:
        sys.exit(f"{remaining} records without an answer, failures {failures[:3]}")


if __name__ == "__main__":
    main()
