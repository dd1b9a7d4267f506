"""A job that copies a topic exactly once: consume, transform, produce, offsets in the transaction.

``python -m tests.support.copy_job BOOTSTRAP GROUP TRANSACTIONAL_ID SOURCE TARGET`` runs until it is
killed, and prints a line for each transaction that it committed.
"""

from __future__ import annotations

import faulthandler
import os
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer

BATCH = 20
#: Longer than the transaction may take: then its end is not worth waiting for. librdkafka (2.16) keeps the group's
#: coordinator in mind when it lets go of that broker, which died and so left Metadata; offsets that it sends there
#: wait for ever, whatever time was given (its issues 5456 and 5511). Whatever goes wrong ends the process, and
#: the next one takes over.
PATIENCE = 15.0
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
        self._producer.init_transactions(60)

    def run(self) -> None:
        while True:
            messages = [
                message for message in self._consumer.consume(BATCH, 0.2) if message.error() is None
            ]
            if messages:
                self._copy(messages)

    def _copy(self, messages: list[Message]) -> None:
        producer, consumer = self._producer, self._consumer
        faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(
                    self._target, b"copy of " + (message.value() or b""),
                    partition=message.partition(),
                )  # fmt: skip
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                PATIENCE,
            )
            producer.commit_transaction(PATIENCE)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise  # fenced, or too long without a broker: the next job takes over
            producer.abort_transaction(PATIENCE)
            self._rewind()
        else:
            print(len(messages), flush=True)
        faulthandler.cancel_dump_traceback_later()

    def _rewind(self) -> None:
        """Read again what the aborted transaction had."""
        for committed in self._consumer.committed(self._consumer.assignment(), 30):
            committed.offset = max(committed.offset, 0)
            self._consumer.seek(committed)


if __name__ == "__main__":
    try:
        CopyJob(*sys.argv[1:]).run()
    except KafkaException as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)  # an ordinary end waits for what librdkafka waits for
