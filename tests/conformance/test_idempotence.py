"""Idempotent producers: sequences, duplicates, epochs, what survives a restart."""

from collections.abc import Callable

import pytest

from tests.support import processes, requests
from tests.support.fixtures import Broker
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import batch
from tests.support.requests import create_topic, now_ms, try_produce
from tests.support.wire import Struct, Wire

OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE = 45, 47, 48
NOT_COORDINATOR, INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 16, 42, 53
LAST_SEQUENCE = (1 << 31) - 1


class Producer:
    """A producer that numbers its batches, or misnumbers them on purpose."""

    def __init__(self, wire: Wire, topic: str, partition: int = 0) -> None:
        self.wire, self.topic, self.partition = wire, topic, partition
        self.producer_id, self.epoch = requests.init_producer(wire)

    def send(self, sequence: int, count: int = 1, *, epoch: int | None = None) -> Struct:
        values = [b"%d" % (sequence + index) for index in range(count)]
        data = batch(
            values,
            timestamp=now_ms(),
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        return try_produce(self.wire, self.topic, data, partition=self.partition)

    def sent(self, sequence: int, count: int = 1, **options: int) -> int:
        answer = self.send(sequence, count, **options)
        assert answer.error_code == 0, answer
        offset: int = answer.base_offset
        return offset


@pytest.fixture
def producer(wire: Wire) -> Producer:
    return Producer(wire, create_topic(wire))


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_a_producer_id(wire: Wire, version: int) -> None:
    requests.init_producer(wire)
    found = set()
    for _ in range(3):
        answer = wire.request(
            "init_producer_id", version, transactional_id=None, transaction_timeout=1000
        )
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        assert answer.producer_id >= 0
        found.add(answer.producer_id)
    assert len(found) == 3


def test_a_producer_id_of_ones_own_needs_a_transactional_id(wire: Wire) -> None:
    known, epoch = requests.init_producer(wire)
    answer = wire.request(
        "init_producer_id",
        4,
        transactional_id=None,
        transaction_timeout=1000,
        producer_id=known,
        producer_epoch=epoch,
    )
    # Apache Kafka gives a new id where there is nothing to look up.
    assert answer.error_code in (0, INVALID_REQUEST)


def test_the_empty_transactional_id_is_refused(wire: Wire) -> None:
    answer = wire.request("init_producer_id", 4, transactional_id="", transaction_timeout=1000)
    assert answer.error_code == INVALID_REQUEST


def test_batches_in_sequence_are_appended(producer: Producer) -> None:
    assert producer.sent(0, 3) == 0
    assert producer.sent(3, 2) == 3
    assert producer.sent(5) == 5
    found = requests.read_all(producer.wire, producer.topic)
    assert [record.value for record in found] == [b"%d" % index for index in range(6)]


def test_a_duplicate_is_answered_with_its_first_offset(producer: Producer) -> None:
    for turn in range(5):
        assert producer.sent(2 * turn, 2) == 2 * turn
    for turn in (0, 1, 2, 3, 4):
        answer = producer.send(2 * turn, 2)
        assert (answer.error_code, answer.base_offset) == (0, 2 * turn)
        assert answer.log_start_offset == 0
    assert requests.end_offset(producer.wire, producer.topic) == 10
    assert producer.sent(10) == 10


def test_a_duplicate_older_than_five_batches_is_out_of_order(producer: Producer) -> None:
    for turn in range(7):
        producer.sent(turn)
    answer = producer.send(0)
    # Apache Kafka's word for it is DUPLICATE_SEQUENCE_NUMBER or OUT_OF_ORDER_SEQUENCE_NUMBER.
    assert answer.error_code in (OUT_OF_ORDER_SEQUENCE, 46)
    assert requests.end_offset(producer.wire, producer.topic) == 7


def test_a_gap_is_refused(producer: Producer) -> None:
    producer.sent(0, 3)
    for sequence in (4, 100, 2, 1):
        answer = producer.send(sequence)
        assert answer.error_code == OUT_OF_ORDER_SEQUENCE, sequence
        assert answer.base_offset == -1
    assert producer.sent(3) == 3


def test_a_part_of_an_old_batch_is_no_duplicate(producer: Producer) -> None:
    producer.sent(0, 4)
    assert producer.send(0, 2).error_code == OUT_OF_ORDER_SEQUENCE
    assert producer.send(2, 2).error_code == OUT_OF_ORDER_SEQUENCE
    assert producer.sent(0, 4) == 0


def test_an_unknown_producer_may_start_anywhere(producer: Producer) -> None:
    assert producer.sent(77) == 0
    assert producer.sent(78) == 1


def test_sequences_wrap_to_zero(producer: Producer) -> None:
    assert producer.sent(LAST_SEQUENCE - 1, 2) == 0
    assert producer.sent(0, 2) == 2
    assert producer.send(0, 2).base_offset == 2


def test_a_batch_may_wrap_in_its_middle(producer: Producer) -> None:
    assert producer.sent(LAST_SEQUENCE - 1, 4) == 0
    assert producer.sent(2) == 4
    assert producer.sent(LAST_SEQUENCE - 1, 4) == 0


def test_a_new_epoch_starts_at_zero_and_fences_the_old(producer: Producer) -> None:
    producer.sent(0, 2)
    assert producer.send(2, epoch=producer.epoch + 1).error_code == OUT_OF_ORDER_SEQUENCE
    assert producer.sent(0, epoch=producer.epoch + 1) == 2
    answer = producer.send(2)
    assert answer.error_code == INVALID_PRODUCER_EPOCH
    assert producer.sent(1, epoch=producer.epoch + 1) == 3


def test_partitions_have_sequences_of_their_own(wire: Wire) -> None:
    name = create_topic(wire, partitions=2)
    first = Producer(wire, name, 0)
    second = Producer(wire, name, 1)
    second.producer_id, second.epoch = first.producer_id, first.epoch
    assert first.sent(0, 3) == 0
    assert second.sent(0, 2) == 0
    assert first.sent(3) == 3
    assert second.sent(2) == 2


def test_pipelined_batches_keep_their_order(producer: Producer) -> None:
    wire = producer.wire
    for sequence in range(50):
        data = batch(
            [b"%d" % sequence],
            timestamp=now_ms(),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
        )
        wire.send("produce", 9, **requests.produce_fields(producer.topic, 0, data))
    offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(50)]
    assert offsets == list(range(50))


@pytest.mark.parametrize("partition_known", [True, False])
def test_describe_producers(producer: Producer, partition_known: bool) -> None:
    wire = producer.wire
    producer.sent(0, 3)
    producer.sent(3, 2)
    answer = wire.request(
        "describe_producers",
        0,
        topics=[
            {"name": producer.topic, "partition_indexes": [0 if partition_known else 5]},
        ],
    )
    (found,) = answer.topics[0].partitions
    if not partition_known:
        assert (found.error_code, found.error_message, found.active_producers) == (3, None, [])
        return
    assert found.error_code == 0
    (active,) = found.active_producers
    assert (active.producer_id, active.producer_epoch) == (producer.producer_id, producer.epoch)
    assert active.last_sequence == 4
    assert abs(active.last_timestamp - now_ms()) < 60_000
    assert active.current_txn_start_offset == -1
    assert active.coordinator_epoch == -1


def test_describe_producers_of_a_quiet_partition(wire: Wire) -> None:
    name = create_topic(wire)
    requests.produce_values(wire, name, [b"v"])
    answer = wire.request(
        "describe_producers", 0, topics=[{"name": name, "partition_indexes": [0]}]
    )
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.active_producers) == (0, [])


@pytest.mark.parametrize("way", ["stop", "kill9"])
def test_sequences_survive_a_restart(own_broker: Broker, way: str) -> None:
    with Wire(own_broker.address) as wire:
        name = create_topic(wire, configs={"segment.bytes": "1048576"})
        producer = Producer(wire, name)
        for turn in range(8):
            producer.sent(turn)
        quiet = Producer(wire, name)
        quiet.sent(0)
        # Rolled segments: their state is in a snapshot.
        requests.produce_values(wire, name, [b"x" * 700_000])
        requests.produce_values(wire, name, [b"x" * 700_000])
        producer.sent(8)
    getattr(own_broker, way)()
    own_broker.start()
    with Wire(own_broker.address) as wire:
        producer.wire = quiet.wire = wire
        requests.wait_for_leaders(wire, name, 1)
        # A snapshot holds each producer's last batch only.
        assert producer.sent(8) == 11
        assert producer.send(10).error_code == OUT_OF_ORDER_SEQUENCE
        assert producer.sent(9) == 12
        assert quiet.sent(1) == 13
        fresh, _ = requests.init_producer(wire)
        assert fresh not in (producer.producer_id, quiet.producer_id)


def test_a_producer_is_forgotten_after_its_expiry(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    broker = start_odradek(
        {
            "producer.id.expiration.ms": "500",
            "producer.id.expiration.check.interval.ms": "100",
        }
    )
    with Wire(broker.address) as wire:
        producer = Producer(wire, create_topic(wire))
        producer.sent(0)

        def active() -> list[Struct]:
            answer = wire.request(
                "describe_producers",
                0,
                topics=[{"name": producer.topic, "partition_indexes": [0]}],
            )
            found: list[Struct] = answer.topics[0].partitions[0].active_producers
            return found

        processes.wait_until(lambda: active() == [], 30, "the expiry")
        assert producer.sent(42) == 1
