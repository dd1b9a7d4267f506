"""A job that copies a topic exactly once: consume, transform, produce, offsets in the transaction.

``python -m tests.support.copy_job BOOTSTRAP GROUP TRANSACTIONAL_ID SOURCE TARGET`` runs until it is
killed, and prints a line for each transaction that it committed.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer

BATCH = 20
#: Otherwise librdkafka (2.16) lets go of a cluster's only broker whenever it is away, and its
#: transactions then wait for ever on the handle that it let go of.
KEEPS_BROKERS = {"metadata.recovery.strategy": "none"}


class CopyJob:
    def __init__(
        self, bootstrap: str, group: str, transactional_id: str, source: str, target: str
    ) -> None:
        self._target = target
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                **KEEPS_BROKERS,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
            }
        )
        self._consumer.subscribe([source])
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                **KEEPS_BROKERS,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "transaction.timeout.ms": 10_000,
            }
        )
        self._producer.init_transactions()

    def run(self) -> None:
        while True:
            messages = [
                message for message in self._consumer.consume(BATCH, 0.2) if message.error() is None
            ]
            if messages:
                self._copy(messages)

    def _copy(self, messages: list[Message]) -> None:
        producer, consumer = self._producer, self._consumer
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(
                    self._target, b"copy of " + (message.value() or b""),
                    partition=message.partition(),
                )  # fmt: skip
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
            )
            producer.commit_transaction()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise  # fenced, or too long without a broker: the next job takes over
            producer.abort_transaction()
            self._rewind()
            return
        print(len(messages), flush=True)

    def _rewind(self) -> None:
        """Read again what the aborted transaction had."""
        for committed in self._consumer.committed(self._consumer.assignment(), 30):
            committed.offset = max(committed.offset, 0)
            self._consumer.seek(committed)


if __name__ == "__main__":
    CopyJob(*sys.argv[1:]).run()
