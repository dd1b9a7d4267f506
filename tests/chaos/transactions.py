"""Transactional producers that commit, abort and are fenced by a next one of their name, and who reads what is committed.

A record counts as acknowledged when its transaction is; the outcome of each is asked for until it is known.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.chaos.checker import Checker, Place, record_value
from tests.chaos.clients import FATAL, assigned, connecting, ends_of, read
from tests.chaos.load import LEAVE_SECONDS
from tests.chaos.workers import Workers
from tests.support import processes

TRANSACTION_MS: Final = 300_000
#: librdkafka would wait as long as a transaction may last for an answer that a cut of the network has swallowed.
ANSWER_MS: Final = 10_000
#: Until the outcome of a transaction is known: longer than any fault with all that follows it.
OUTCOME_SECONDS: Final = 120
CALL_SECONDS: Final = 10
MOST_RECORDS: Final = 5
FENCED_SHARE, ABORTED_SHARE = 0.03, 0.25


class Transactions:
    """Like `Load`, on a topic of its own, whose readers are all read_committed."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, checker: Checker, seed: int
    ) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self.checker = checker
        self._seed = seed
        self._is_producing = True
        self._is_reading = True
        self._workers = Workers()
        self.failed = self._workers.failed
        self.committed = self.aborted = self.fenced = 0

    def __enter__(self) -> Self:
        self._writers = [self._workers.start(self._write, f"t{number}") for number in range(2)]
        self._reader = self._workers.start(self._read_committed)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_producing = self._is_reading = False
        self._workers.join((*self._writers, self._reader), LEAVE_SECONDS)

    def finish(self) -> list[str]:
        """Failures, when everybody is there again."""
        self._is_producing = False
        self._workers.join(self._writers, OUTCOME_SECONDS + LEAVE_SECONDS)
        with contextlib.suppress(TimeoutError):
            processes.wait_until(
                lambda: bool(self.failed) or not self.checker.missing_of_group(),
                60,
                "all of it read",
                every=0.2,
            )
        self._is_reading = False
        self._workers.join([self._reader], LEAVE_SECONDS)
        logs: dict[int, list[tuple[int, str]]] = {}
        self._workers.bounded(2 * LEAVE_SECONDS, lambda: self._read_everything(logs))
        return self.failed + self.checker.finish(logs, is_all_known=True)

    # Writing -----------------------------------------------------------------------------------

    def _write(self, name: str) -> None:
        dice = random.Random(f"{self._seed} {name}")
        numbers = [0] * self._partitions
        producer = self._producer(name)
        while self._is_producing:
            transaction = Transaction(producer, self._topic)
            for partition in dice.sample(range(self._partitions), dice.randint(1, 2)):
                for _ in range(dice.randint(1, MOST_RECORDS)):
                    transaction.add(
                        partition, record_value(f"{name}/{partition}", numbers[partition])
                    )
                    numbers[partition] += 1
            producer.poll(0.01)
            chance = dice.random()
            if chance < FENCED_SHARE:
                producer = self._fence(name, transaction)
            elif chance < ABORTED_SHARE:
                transaction.deliver()
                transaction.abort()
                self._on_aborted(transaction)
            elif not transaction.commit():
                transaction.abort()
                self._on_aborted(transaction)
            else:
                self.committed += 1
                for place, value in transaction.places():
                    self.checker.on_acknowledged(place, value)

    def _producer(self, name: str) -> Producer:
        settings = {
            "transactional.id": name,
            "transaction.timeout.ms": TRANSACTION_MS,
            "socket.timeout.ms": ANSWER_MS,
            "linger.ms": 2,
        }
        producer = Producer(connecting(self._bootstrap, **settings))
        settled(producer.init_transactions)
        return producer

    def _fence(self, name: str, transaction: Transaction) -> Producer:
        """Somebody else takes the name; what the first had under way is lost to it."""
        newer = self._producer(name)
        self.fenced += 1
        self._on_aborted(transaction)
        try:
            if transaction.commit():
                self.failed.append(f"T3: {name} was fenced, and committed {transaction.values}")
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
        transaction.purge()
        return newer

    def _on_aborted(self, transaction: Transaction) -> None:
        self.aborted += 1
        for value in transaction.values:
            self.checker.on_aborted(value)

    # Reading -----------------------------------------------------------------------------------

    def _read_committed(self) -> None:
        consumer = assigned(self._bootstrap, self._topic, self._partitions, **COMMITTED)
        while self._is_reading:
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    self.checker.on_read(*read(message), by_group=True)
                elif error.code() in FATAL:
                    self.failed.append(f"a reader of {message.partition()} was told {error}")
        consumer.close()

    def _read_everything(self, logs: dict[int, list[tuple[int, str]]]) -> None:
        """What is committed up to the high watermark, which nothing open may keep a reader from."""
        whole = assigned(
            self._bootstrap,
            self._topic,
            self._partitions,
            **{"isolation.level": "read_uncommitted"},
        )
        ends = ends_of(whole, self._topic, self._partitions)
        whole.close()
        logs.update({partition: [] for partition in ends})
        reached = dict.fromkeys(ends, 0)
        consumer = assigned(
            self._bootstrap, self._topic, self._partitions, **COMMITTED,
            **{"enable.partition.eof": True},
        )  # fmt: skip

        def is_whole() -> bool:
            for message in consumer.consume(2000, 0.2):
                error = message.error()
                if error is None:
                    place, value = read(message)
                    logs[place.partition].append((place.offset, value))
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached[message.partition()] = message.offset()
            return all(reached[partition] >= end for partition, end in ends.items())

        try:
            processes.wait_until(is_whole, 60, "everything read")
        except TimeoutError:
            self.failed.append(f"T4: read_committed ends at {reached}, high watermarks are {ends}")
        consumer.close()


COMMITTED: Final = {"isolation.level": "read_committed"}


class Transaction:
    """One, from its begin on."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self.values: list[str] = []
        self._delivered: dict[str, Place] = {}
        producer.begin_transaction()

    def add(self, partition: int, value: str) -> None:
        self.values.append(value)
        with contextlib.suppress(KafkaException):  # it has failed already: commit will tell
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._on_delivery
            )

    def _on_delivery(self, error: object, message: Any) -> None:
        if error is None:
            place, value = read(message)
            self._delivered[value] = place

    def commit(self) -> bool:
        """False: it must be aborted."""
        try:
            settled(self._producer.commit_transaction)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return False
            raise
        return True

    def deliver(self) -> None:
        # librdkafka asks to end what the coordinator may not have heard of yet (it told that the transaction before
        # is still being ended), and takes the answer, INVALID_TXN_STATE by Kafka's rules, for fatal.
        self._producer.flush(OUTCOME_SECONDS)

    def abort(self) -> None:
        settled(self._producer.abort_transaction)

    def places(self) -> list[tuple[Place, str]]:
        return [(self._delivered[value], value) for value in self.values]

    def purge(self) -> None:
        """It is not waited for what a fenced producer still has."""
        with contextlib.suppress(KafkaException):  # which tells once more that it is fenced
            self._producer.purge()
            self._producer.poll(0)


def settled(call: Callable[[float], object]) -> None:
    """Until its outcome is known."""
    end = time.monotonic() + OUTCOME_SECONDS
    while True:
        try:
            call(CALL_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise
        else:
            return
