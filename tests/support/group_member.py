"""A member of a group, by librdkafka: prints each value that it read, and commits behind it.

``python -m tests.support.group_member BOOTSTRAP GROUP TOPIC classic|consumer`` runs until it is killed.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException

BATCH = 50


def main(bootstrap: str, group: str, topic: str, protocol: str) -> None:
    classic = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **(classic if protocol == "classic" else {}),
        }
    )
    consumer.subscribe([topic])
    while True:
        found = [each for each in consumer.consume(BATCH, 0.2) if each.error() is None]
        for message in found:
            print((message.value() or b"").decode(), flush=True)
        if found:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:  # somebody else has the partition by now
                print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
