"""Transactions by raw requests of ``transaction.version`` 2 (KIP-890): batches add their partitions, and
each end raises the producer's epoch. The same script on Odradek and on Apache Kafka."""

from functools import partial

import pytest

from tests.support import groups, requests
from tests.support.requests import create_topic
from tests.support.routing import shared_site
from tests.support.transactions import (
    CONCURRENT_TRANSACTIONS,
    TransactionalProducer,
    committed_values,
    describe,
    settled,
    wait_for_state,
)
from tests.support.wire import Wire

INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING = 47, 48, 49
UNKNOWN_TOPIC, ILLEGAL_GENERATION, OUT_OF_ORDER_SEQUENCE, PRODUCER_FENCED = 3, 22, 45, 90
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTION_ABORTABLE = 53, 120
ADDING = 12
#: The last epoch that a producer gets.
LAST_EPOCH = 32_766
broker = shared_site()


@pytest.fixture
def producer(wire: Wire) -> TransactionalProducer:
    return TransactionalProducer(wire).init(version=5)


@pytest.fixture
def topic(wire: Wire) -> str:
    return create_topic(wire, partitions=2)


def put(producer: TransactionalProducer, topic: str, *values: bytes, partition: int = 0) -> int:
    return settled(
        lambda: producer.produce(topic, list(values), partition=partition, version=ADDING)
    )


def state_of(producer: TransactionalProducer) -> str:
    found: str = describe(producer.wire, producer.transactional_id).transaction_state
    return found


# --- The life of a transaction ----------------------------------------------------------------


def test_the_feature_is_finalized(wire: Wire) -> None:
    for version in (3, 4):
        answer = wire.request(
            "api_versions", version, client_software_name="j", client_software_version="1"
        )
        levels = {
            each.name: (each.min_version_level, each.max_version_level)
            for each in answer.finalized_features
        }
        assert levels["transaction.version"] == (2, 2)
        assert answer.finalized_features_epoch >= 0
        supported = {each.name: each.max_version for each in answer.supported_features}
        # A range from 0 on is more than the older answer can say.
        assert supported.get("transaction.version") == (None if version == 3 else 2)


@pytest.mark.parametrize("is_commit", [True, False])
def test_batches_add_their_partitions_and_the_end_raises_the_epoch(
    wire: Wire, producer: TransactionalProducer, topic: str, is_commit: bool
) -> None:
    outcome = "Commit" if is_commit else "Abort"
    expected = []
    for number in range(5):
        value = b"%d" % number
        for partition in (0, 1):
            assert put(producer, topic, value, value, partition=partition) == 0
        found = describe(wire, producer.transactional_id)
        assert found.transaction_state == "Ongoing"
        assert [(each.topic, sorted(each.partitions)) for each in found.topics] == [(topic, [0, 1])]
        before = (producer.producer_id, producer.epoch)
        producer.end_and_raise(is_commit)
        assert (producer.producer_id, producer.epoch) == (before[0], before[1] + 1)
        if is_commit:
            expected += [value, value]
    wait_for_state(wire, producer.transactional_id, f"Complete{outcome}")
    for partition in (0, 1):
        assert committed_values(wire, topic, partition=partition) == expected


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_repeated_end_is_told_the_same_name(
    wire: Wire, producer: TransactionalProducer, topic: str, is_commit: bool
) -> None:
    assert put(producer, topic, b"v") == 0
    old = producer.epoch
    producer.end_and_raise(is_commit)
    wait_for_state(wire, producer.transactional_id, f"Complete{'Commit' if is_commit else 'Abort'}")
    mine = (0, producer.producer_id, producer.epoch)
    assert producer.try_end_and_raise(is_commit, producer_epoch=old) == mine
    assert producer.try_end_and_raise(not is_commit, producer_epoch=old)[0] == INVALID_TXN_STATE
    # Under the new epoch it is the end of the next transaction, which has not begun.
    assert producer.try_end_and_raise(True)[0] == INVALID_TXN_STATE


def test_an_abort_amid_the_last_end_has_to_wait(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    """As franz-go sends it when its offsets were told CONCURRENT_TRANSACTIONS: it takes anything else for its end."""
    for _ in range(30):
        for partition in (0, 1):
            assert settled(partial(put, producer, topic, b"v", partition=partition)) == 0
        producer.end_and_raise(True)
        code, *name = producer.try_end_and_raise(False)
        assert code in (0, CONCURRENT_TRANSACTIONS)
        if code == 0:
            producer.producer_id, producer.epoch = name
            producer.sequences.clear()


def test_what_never_began_may_be_aborted(wire: Wire, producer: TransactionalProducer) -> None:
    assert producer.try_end_and_raise(True) == (INVALID_TXN_STATE, -1, -1)
    for epoch in (1, 2, 3):
        producer.end_and_raise(False)
        assert producer.epoch == epoch
    wait_for_state(wire, producer.transactional_id, "CompleteAbort")


def test_what_comes_late_falls_into_no_transaction(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    assert put(producer, topic, b"a") == 0
    late = TransactionalProducer(wire, producer.transactional_id)
    late.producer_id, late.epoch = producer.producer_id, producer.epoch
    late.sequences[topic, 0] = 1
    producer.end_and_raise(True)
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    assert put(late, topic, b"late") == INVALID_PRODUCER_EPOCH
    assert put(producer, topic, b"b") == 0
    assert put(late, topic, b"late") == INVALID_PRODUCER_EPOCH
    assert put(late, topic, b"late", partition=1) == INVALID_PRODUCER_EPOCH
    producer.end_and_raise(True)
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    assert committed_values(wire, topic) == [b"a", b"b"]
    assert requests.end_offset(wire, topic, partition=1) == 0


def test_a_transaction_begins_with_sequence_0(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    producer.sequences[topic, 0] = 5
    assert put(producer, topic, b"v") == OUT_OF_ORDER_SEQUENCE
    assert state_of(producer) == "Ongoing"  # the partition was added all the same


def test_strangers_add_nothing(wire: Wire, producer: TransactionalProducer, topic: str) -> None:
    group = groups.new_group(wire)
    known, producer.transactional_id = producer.transactional_id, None  # type: ignore[assignment]
    assert put(producer, topic, b"v") == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producer.transactional_id = "nobody"
    assert put(producer, topic, b"v") == INVALID_PRODUCER_ID_MAPPING
    producer.transactional_id = known
    producer.producer_id += 1_000_000
    assert put(producer, topic, b"v") == INVALID_PRODUCER_ID_MAPPING
    told = settled(lambda: producer.commit_offset(group, topic, 7, version=5))
    assert told == INVALID_PRODUCER_ID_MAPPING
    assert producer.try_end_and_raise(True)[0] == INVALID_PRODUCER_ID_MAPPING
    producer.producer_id -= 1_000_000
    producer.epoch += 1
    assert put(producer, topic, b"v") == INVALID_PRODUCER_EPOCH
    told = settled(lambda: producer.commit_offset(group, topic, 7, version=5))
    assert told == INVALID_PRODUCER_EPOCH
    assert producer.try_end_and_raise(True)[0] == PRODUCER_FENCED
    assert state_of(producer) == "Empty"
    assert requests.end_offset(wire, topic) == 0


# --- Offsets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_add_their_group(
    wire: Wire, producer: TransactionalProducer, topic: str, is_commit: bool, version: int
) -> None:
    group = groups.new_group(wire)
    topic_id = requests.describe_topic(wire, topic).topic_id if version > 5 else None
    expected = -1
    for offset in (3, 9):
        told = settled(
            lambda offset=offset: producer.commit_offset(
                group, topic, offset, version=version, topic_id=topic_id
            )
        )
        assert told == 0
        assert state_of(producer) == "Ongoing"
        assert groups.committed_offset(wire, group, topic) == expected
        producer.end_and_raise(is_commit)
        if is_commit:
            expected = offset
        outcome = "Commit" if is_commit else "Abort"
        wait_for_state(wire, producer.transactional_id, f"Complete{outcome}")
        assert groups.committed_offset(wire, group, topic) == expected


def test_offsets_of_who_is_no_member(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    group = groups.new_group(wire)
    assert producer.commit_offset(group, "no-such-topic", 9, version=5) == UNKNOWN_TOPIC
    assert state_of(producer) == "Empty"
    told = settled(lambda: producer.commit_offset(group, topic, 9, version=5, generation_id=1))
    assert told == ILLEGAL_GENERATION
    assert state_of(producer) == "Ongoing"  # the group was added all the same


def test_plain_commits_and_those_of_transactions_are_told_alike_after_a_restart(
    own_broker, new_topic_name
) -> None:
    """C061: what was written last wins, whether it counts from its record on or from a marker on."""

    def look() -> int:
        with Wire(own_broker.address) as wire:
            groups.wait_for_coordinator(wire, group)
            return groups.committed_offset(wire, group, topic)

    with Wire(own_broker.address) as wire:
        topic, group = create_topic(wire), groups.new_group(wire)
        producer = TransactionalProducer(wire).init(version=5)
        assert groups.commit(wire, group, topic, 100) == 0
        assert settled(lambda: producer.commit_offset(group, topic, 200, version=5)) == 0
        assert groups.commit(wire, group, topic, 150) == 0
        assert groups.committed_offset(wire, group, topic) == 150
        producer.end_and_raise(True)
        wait_for_state(wire, producer.transactional_id, "CompleteCommit")
        live = groups.committed_offset(wire, group, topic)
        # And one stays open over the restart.
        assert settled(lambda: producer.commit_offset(group, topic, 300, version=5)) == 0
    own_broker.restart()
    assert look() == live


# --- Fencing ----------------------------------------------------------------------------------


def test_a_zombie_is_fenced_everywhere(wire: Wire, topic: str) -> None:
    zombie = TransactionalProducer(wire).init(version=5)
    assert put(zombie, topic, b"lost") == 0
    heir = TransactionalProducer(wire, zombie.transactional_id)
    assert heir.try_init(version=5) == CONCURRENT_TRANSACTIONS
    heir.init(version=5)
    assert (heir.producer_id, heir.epoch) == (zombie.producer_id, zombie.epoch + 2)
    for partition in (0, 1):
        assert put(zombie, topic, b"late", partition=partition) == INVALID_PRODUCER_EPOCH
    assert zombie.try_end_and_raise(True)[0] == PRODUCER_FENCED
    assert zombie.try_end_and_raise(False)[0] == PRODUCER_FENCED
    assert put(heir, topic, b"kept") == 0
    heir.end_and_raise(True)
    wait_for_state(wire, heir.transactional_id, "CompleteCommit")
    assert committed_values(wire, topic) == [b"kept"]


@pytest.mark.parametrize("asks_anew", [True, False])
def test_who_was_too_slow_gets_on(wire: Wire, topic: str, asks_anew: bool) -> None:
    """Its transaction is aborted; it is told so, and goes on under the raised epoch."""
    producer = TransactionalProducer(wire).init(version=5, timeout_ms=100)
    old = producer.epoch
    code = put(producer, topic, b"slow")
    wait_for_state(wire, producer.transactional_id, "CompleteAbort", 60)
    assert code in (0, INVALID_PRODUCER_EPOCH)
    assert put(producer, topic, b"slow") == INVALID_PRODUCER_EPOCH
    assert producer.try_end_and_raise(True)[0] == INVALID_TXN_STATE
    if asks_anew:
        producer.init(version=5, producer_id=producer.producer_id, producer_epoch=old)
    else:
        producer.end_and_raise(False)
    assert producer.epoch == old + 1
    assert put(producer, topic, b"quick") == 0
    producer.end_and_raise(True)
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    assert committed_values(wire, topic) == [b"quick"]


def test_a_producer_starts_anew_from_amid_a_transaction(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    assert put(producer, topic, b"lost") == 0
    old = producer.epoch
    producer.init(version=5, producer_id=producer.producer_id, producer_epoch=old)
    assert producer.epoch == old + 1
    assert put(producer, topic, b"kept") == 0
    producer.end_and_raise(True)
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    assert committed_values(wire, topic) == [b"kept"]


# --- Both protocols ---------------------------------------------------------------------------


def test_a_producer_changes_between_the_protocols(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    """As clients do whose cluster is upgraded, or downgraded, under them."""
    assert put(producer, topic, b"1") == 0
    producer.end(True)  # EndTxn 3
    assert producer.epoch == 0
    producer.add(topic, 0)
    assert producer.produce(topic, [b"2"]) == 0
    producer.end_and_raise(True)
    assert producer.epoch == 1
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    # A batch of old adds nothing.
    assert producer.produce(topic, [b"x"], version=11) == TRANSACTION_ABORTABLE
    producer.add(topic, 0)
    assert producer.produce(topic, [b"3"], version=11) == 0
    producer.end(True)
    producer.end(True)
    assert settled(lambda: producer.try_end(False)) == INVALID_TXN_STATE
    producer.epoch -= 1
    assert producer.try_end(True, version=4) == PRODUCER_FENCED
    assert committed_values(wire, topic) == [b"1", b"2", b"3"]


def test_markers_of_the_version_are_above_the_transaction_that_they_end(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    def write(epoch: int, transaction_version: int) -> int:
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": epoch,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [0]}],
            "coordinator_epoch": 1000,
            "transaction_version": transaction_version,
        }
        answer = wire.request("write_txn_markers", 2, markers=[marker])
        code: int = answer.markers[0].topics[0].partitions[0].error_code
        return code

    assert put(producer, topic, b"v") == 0
    assert write(0, 2) == INVALID_PRODUCER_EPOCH
    assert write(1, 2) == 0
    # It may come twice, before the next transaction has begun.
    assert write(1, 2) == 0
    assert write(1, 0) == 0
    assert write(0, 2) == INVALID_PRODUCER_EPOCH
    assert committed_values(wire, topic) == []


@pytest.mark.slow
def test_epochs_run_out(wire: Wire, producer: TransactionalProducer, topic: str) -> None:
    old_id = producer.producer_id
    while producer.epoch < LAST_EPOCH:
        code, producer_id, epoch = producer.try_end_and_raise(False)
        assert code in (0, CONCURRENT_TRANSACTIONS)
        if code == 0:
            producer.producer_id, producer.epoch = producer_id, epoch
    assert put(producer, topic, b"last") == 0
    producer.end_and_raise(True)
    assert producer.producer_id != old_id
    assert producer.epoch == 0
    mine = (0, producer.producer_id, 0)
    old = {"producer_id": old_id, "producer_epoch": LAST_EPOCH}
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    assert producer.try_end_and_raise(True, **old) == mine
    assert producer.try_end_and_raise(False, **old)[0] == INVALID_TXN_STATE
    again = TransactionalProducer(wire, producer.transactional_id)
    assert settled(lambda: again.try_init(version=5, **old)) == 0
    assert (0, again.producer_id, again.epoch) == mine
    assert put(producer, topic, b"first") == 0
    producer.end_and_raise(True)
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    assert committed_values(wire, topic) == [b"last", b"first"]
