"""Transactions by Apache Kafka's own tools: a Java producer, ``kafka-transactions``, the console
consumer, the dump-log tool; and by librdkafka."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support import apache, dump_log, foreign, groups, requests
from tests.support.fixtures import SMALL_INTERNAL_TOPICS
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import batches
from tests.support.requests import create_topic
from tests.support.routing import Site, connect, one_or_three
from tests.support.transactions import (
    TransactionalProducer,
    committed_values,
    settled,
    wait_for_coordinator,
    wait_for_state,
)

broker = one_or_three(SMALL_INTERNAL_TOPICS)


def transactions(broker: Site, *arguments: object) -> apache.ToolRun:
    done = apache.run_tool(
        "TransactionsCommand", ["--bootstrap-server", broker.bootstrap, *arguments]
    ).ok()
    assert "Exception" not in done.stdout + done.stderr, done
    return done


def rows(done: apache.ToolRun) -> list[dict[str, str]]:
    heading, *lines = [line.split() for line in done.lines if line.strip()]
    return [dict(zip(heading, line, strict=False)) for line in lines]


def test_a_java_producer_and_a_java_consumer(broker: Site) -> None:
    with connect(broker) as wire:
        topic = create_topic(wire, partitions=2)
        apache.run_tool(
            "ProducerPerformance",
            ["--topic", topic, "--num-records", "2000", "--record-size", "20", "--throughput", "-1",
             "--transactional-id", "java", "--transaction-duration-ms", "20",
             "--command-property", f"bootstrap.servers={broker.bootstrap}"],
        ).ok()  # fmt: skip
        wait_for_state(wire, "java", "CompleteCommit")
        values = [committed_values(wire, topic, partition=each) for each in range(2)]
        assert sum(map(len, values)) == 2000
        # Somebody else's transaction on the same partitions is aborted.
        other = TransactionalProducer(wire).init()
        other.add(topic, 0)
        assert other.produce(topic, [b"aborted"]) == 0
        other.end(False)
        wait_for_state(wire, other.transactional_id, "CompleteAbort")
    read = apache.run_tool(
        "consumer.ConsoleConsumer",
        ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning",
         "--isolation-level", "read_committed", "--max-messages", "2000"],
    ).ok()  # fmt: skip
    assert len(read.lines) == 2000
    assert "aborted" not in read.lines


def test_transactions_are_listed_described_and_ended_by_hand(broker: Site) -> None:
    with connect(broker) as wire:
        topic = create_topic(wire)
        wait_for_coordinator(wire, "mine")
        producer = TransactionalProducer(wire, "mine").init()
        producer.add(topic, 0)
        assert producer.produce(topic, [b"v"]) == 0
        (listed,) = rows(transactions(broker, "list"))
        assert (listed["TransactionalId"], listed["TransactionState"]) == ("mine", "Ongoing")
        assert listed["ProducerId"] == str(producer.producer_id)
        (told,) = rows(transactions(broker, "describe", "--transactional-id", "mine"))
        assert (told["TransactionState"], told["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
        assert told["TransactionTimeoutMs"] == "60000"
        where = ("--topic", topic, "--partition", "0")
        (active,) = rows(transactions(broker, "describe-producers", *where))
        assert active["CurrentTransactionStartOffset"] == "0"
        transactions(broker, "abort", *where, "--start-offset", "0")
        assert committed_values(wire, topic) == []
        assert requests.fetch(wire, topic, 0, isolation_level=1).last_stable_offset == 2
        assert rows(transactions(broker, "find-hanging", "--broker-id", "1")) == []


@pytest.mark.parametrize("broker", [1], indirect=True)
def test_the_dump_log_tool_decodes_every_record(broker: OdradekBroker) -> None:
    with connect(broker) as wire:
        topic = create_topic(wire, partitions=2)
        group = groups.new_group(wire)
        wait_for_coordinator(wire, "mine")
        producer = TransactionalProducer(wire, "mine").init()
        producer.add(topic, 0, 1)
        assert producer.produce(topic, [b"v"]) == 0
        assert producer.add_offsets(group) == 0
        assert producer.commit_offset(group, topic, 5) == 0
        producer.end(True)
        wait_for_state(wire, "mine", "CompleteCommit")
        assert producer.produce(topic, [b"w"], version=12) == 0
        producer.end_and_raise(False)
        wait_for_state(wire, "mine", "CompleteAbort")
    broker.stop()
    (log,) = broker.logs.glob("__transaction_state-*/*.log")
    done = apache.run_tool("DumpLogSegments", ["--transaction-log-decoder", "--files", log]).ok()
    records = []
    for line in done.lines:
        if " payload: " in line:
            key, payload = line.split(" key: ", 1)[1].split(" payload: ")
            records.append((json.loads(key), json.loads(payload)))
    assert {key["data"]["transactionalId"] for key, _ in records} == {"mine"}
    states = [value["data"]["transactionStatus"] for _, value in records]
    assert states == [
        "Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit",
        "Ongoing", "PrepareAbort", "CompleteAbort",
    ]  # fmt: skip
    told = [
        (int(value["version"]), value["data"]["producerEpoch"],
         value["data"].get("clientTransactionVersion", 0))
        for _, value in records
    ]  # fmt: skip
    assert told == [(1, 0, 0)] * 5 + [(1, 0, 2), (1, 1, 2), (1, 1, 2)]
    partitions = records[2][1]["data"]["transactionPartitions"]
    assert {each["topic"] for each in partitions} == {topic, "__consumer_offsets"}
    dump_log.check(broker.logs)


def test_a_java_job_copies_within_transactions(broker: Site) -> None:
    """Kafka's own copy job of its system tests; some of its transactions are aborted on purpose."""
    values = [b"%d" % number for number in range(400)]
    with connect(broker) as wire:
        source, target = create_topic(wire), create_topic(wire)
        requests.produce_values(wire, source, values)
        apache.run_tool(
            "TransactionalMessageCopier",
            ["--broker-list", broker.bootstrap, "--transactional-id", "copy", "--input-topic", source,
             "--input-partition", "0", "--output-topic", target, "--consumer-group", "copier",
             "--max-messages", "400", "--transaction-size", "40", "--use-group-metadata",
             "--enable-random-aborts"],
            timeout=120,
        ).ok()  # fmt: skip
        wait_for_state(wire, "copy", "CompleteCommit")
        assert committed_values(wire, target) == values
        assert groups.committed_offset(wire, "copier", source) == len(values)


def test_librdkafka_copies_within_transactions(broker: Site) -> None:
    with connect(broker) as wire:
        source, target = create_topic(wire), create_topic(wire)
        requests.produce_values(wire, source, [b"%d" % number for number in range(30)])
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "copier",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "copy"})
    producer.init_transactions(30)
    consumer.subscribe([source])
    try:
        for is_commit in (False, True):
            messages = consumer.consume(30, 30)
            assert len(messages) == 30
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
            )
            if is_commit:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
                consumer.seek(TopicPartition(source, 0, 0))
    finally:
        consumer.close()
    with connect(broker) as wire:
        assert committed_values(wire, target) == [b"%d" % number for number in range(30)]
        assert groups.committed_offset(wire, "copier", source) == 30


def test_librdkafka_is_fenced_by_its_successor(broker: Site) -> None:
    with connect(broker) as wire:
        topic = create_topic(wire)
    first, second = (
        Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "mine"})
        for _ in range(2)
    )
    first.init_transactions(30)
    first.begin_transaction()
    first.produce(topic, b"first")
    first.flush(30)
    second.init_transactions(30)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(30)
    assert fenced.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"second")
    second.commit_transaction(30)
    with connect(broker) as wire:
        assert committed_values(wire, topic) == [b"second"]


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_consumers_get_on_where_an_answer_holds_markers_alone(
    broker: Site, isolation_level: str
) -> None:
    """C186: one record a transaction, and fetches so small that every other answer is a marker."""
    values = [b"%d" % number for number in range(12)]
    with connect(broker) as wire:
        topic = create_topic(wire)
        producer = TransactionalProducer(wire).init(version=5)
        for value in values:
            assert settled(partial(producer.produce, topic, [value], version=12)) == 0
            producer.end_and_raise(True)
        wait_for_state(wire, producer.transactional_id, "CompleteCommit")
        marker = next(batches(requests.fetch(wire, topic, 1, partition_max_bytes=1).records))
        assert (marker.is_control, marker.base_offset, marker.last_offset) == (True, 1, 1)

    async def by_aiokafka() -> list[bytes | None]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            isolation_level=isolation_level,
            max_partition_fetch_bytes=1,
        )
        await consumer.start()
        try:
            found = [await asyncio.wait_for(consumer.getone(), 30) for _ in values]
            return [each.value for each in found]
        finally:
            await consumer.stop()

    assert asyncio.run(by_aiokafka()) == values
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "small bites",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation_level,
            "fetch.message.max.bytes": 1,
        }
    )
    consumer.subscribe([topic])
    try:
        assert [each.value() for each in consumer.consume(len(values), 30)] == values
    finally:
        consumer.close()
    kafkajs = foreign.ForeignClient("kafkajs", reads_in_groups=True)
    one = broker.bootstrap.split(",")[0]  # this judge starts from a single address
    read = kafkajs.read(one, topic, len(values))
    assert [each.value for each in read] == values
