"""Transactions by raw requests: the same script on Odradek and on Apache Kafka."""

import uuid

import pytest

from tests.support import groups, requests
from tests.support.requests import create_topic
from tests.support.routing import shared_site
from tests.support.transactions import (
    CONCURRENT_TRANSACTIONS,
    TransactionalProducer,
    committed_values,
    describe,
    new_id,
    settled,
    wait_for_coordinator,
    wait_for_state,
)
from tests.support.wire import Wire

UNKNOWN_TOPIC, TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST = 3, 29, 42
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING = 47, 48, 49
INVALID_TRANSACTION_TIMEOUT, OPERATION_NOT_ATTEMPTED = 50, 55
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
TRANSACTION_COORDINATOR_FENCED = 52
UNSTABLE_OFFSET_COMMIT, PRODUCER_FENCED, TRANSACTIONAL_ID_NOT_FOUND = 88, 90, 105
TRANSACTION_ABORTABLE = 120
INVALID_REGULAR_EXPRESSION = 128
ILLEGAL_GENERATION, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID = 22, 24, 25


broker = shared_site()


@pytest.fixture
def producer(wire: Wire) -> TransactionalProducer:
    return TransactionalProducer(wire).init()


@pytest.fixture
def topic(wire: Wire) -> str:
    return create_topic(wire, partitions=2)


# --- The life of a transaction ----------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_seen_whole_or_not_at_all(
    wire: Wire, producer: TransactionalProducer, topic: str, is_commit: bool
) -> None:
    requests.produce_values(wire, topic, [b"plain"])
    producer.add(topic, 0, 1)
    for partition in (0, 1):
        assert producer.produce(topic, [b"a", b"b"], partition=partition) == 0
    # Whatever comes behind it waits for its end.
    requests.produce_values(wire, topic, [b"behind"])
    assert committed_values(wire, topic) == [b"plain"]
    part = requests.fetch(wire, topic, 0, isolation_level=1)
    assert (part.last_stable_offset, part.high_watermark) == (1, 4)
    assert requests.list_offset(wire, topic, -1, isolation_level=1).offset == 1
    assert describe(wire, producer.transactional_id).transaction_state == "Ongoing"
    producer.end(is_commit)
    outcome = "Commit" if is_commit else "Abort"
    wait_for_state(wire, producer.transactional_id, f"Complete{outcome}")
    middle = [b"a", b"b"] if is_commit else []
    assert committed_values(wire, topic) == [b"plain", *middle, b"behind"]
    assert committed_values(wire, topic, partition=1) == middle
    assert [each.value for each in requests.read_all(wire, topic)] == [
        b"plain", b"a", b"b", b"behind",
    ]  # fmt: skip
    # The marker has an offset of its own.
    assert requests.end_offset(wire, topic) == 5
    assert requests.end_offset(wire, topic, partition=1) == 3


def test_transactions_of_two_producers_cross(wire: Wire, topic: str) -> None:
    first, second = (TransactionalProducer(wire).init() for _ in range(2))
    for each in (first, second):
        each.add(topic, 0)
    assert first.produce(topic, [b"a1"]) == 0
    assert second.produce(topic, [b"b1"]) == 0
    assert first.produce(topic, [b"a2"]) == 0
    second.end(True)
    wait_for_state(wire, second.transactional_id, "CompleteCommit")
    assert committed_values(wire, topic) == []
    first.end(False)
    wait_for_state(wire, first.transactional_id, "CompleteAbort")
    assert committed_values(wire, topic) == [b"b1"]


def test_one_after_another(wire: Wire, producer: TransactionalProducer, topic: str) -> None:
    expected = []
    for number in range(6):
        producer.add(topic, 0)
        assert producer.produce(topic, [b"%d" % number] * 2) == 0
        producer.end(number % 2 == 0)
        if number % 2 == 0:
            expected += [b"%d" % number] * 2
    wait_for_state(wire, producer.transactional_id, "CompleteAbort")
    assert committed_values(wire, topic) == expected


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_a_producers_requests(wire: Wire, topic: str, version: int) -> None:
    producer = TransactionalProducer(wire)
    assert settled(lambda: producer.try_init(version=version + 1)) == 0
    group = groups.new_group(wire)
    assert producer.try_add(topic, 0, 1, version=version) == [0, 0]
    assert producer.produce(topic, [b"v"], version=8 + version) == 0
    assert producer.add_offsets(group, version=version) == 0
    assert producer.commit_offset(group, topic, 5, version=version) == 0
    assert producer.try_end(True, version=version) == 0
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    assert committed_values(wire, topic) == [b"v"]
    assert groups.committed_offset(wire, group, topic) == 5


def test_a_repeated_end_is_answered_alike(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    assert producer.try_end(True) == INVALID_TXN_STATE
    producer.add(topic, 0)
    producer.end(True)
    producer.end(True)
    assert settled(lambda: producer.try_end(False)) == INVALID_TXN_STATE


# --- Fencing ----------------------------------------------------------------------------------


def test_a_zombie_is_fenced_everywhere(wire: Wire, topic: str) -> None:
    zombie = TransactionalProducer(wire).init()
    zombie.add(topic, 0)
    assert zombie.produce(topic, [b"lost"]) == 0
    heir = TransactionalProducer(wire, zombie.transactional_id)
    assert heir.try_init() == CONCURRENT_TRANSACTIONS  # while what was left open is aborted
    heir.init()
    assert heir.producer_id == zombie.producer_id
    assert heir.epoch > zombie.epoch + 1
    assert zombie.try_add(topic, 0) == [PRODUCER_FENCED]
    assert zombie.try_add(topic, 0, version=1) == [INVALID_PRODUCER_EPOCH]
    assert zombie.try_end(True) == PRODUCER_FENCED
    assert zombie.try_end(True, version=1) == INVALID_PRODUCER_EPOCH
    assert zombie.produce(topic, [b"late"]) == INVALID_PRODUCER_EPOCH
    group = groups.new_group(wire)
    assert zombie.add_offsets(group) == PRODUCER_FENCED
    assert zombie.add_offsets(group, version=1) == INVALID_PRODUCER_EPOCH
    heir.add(topic, 0)
    assert heir.produce(topic, [b"kept"]) == 0
    heir.end(True)
    wait_for_state(wire, heir.transactional_id, "CompleteCommit")
    assert committed_values(wire, topic) == [b"kept"]


def test_a_producer_raises_its_own_epoch(wire: Wire, producer: TransactionalProducer) -> None:
    mine = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    for _ in range(2):  # the same question has the same answer
        assert settled(lambda: producer.try_init(**mine)) == 0
        assert (producer.producer_id, producer.epoch) == (
            mine["producer_id"], mine["producer_epoch"] + 1,
        )  # fmt: skip
    producer.init()
    other = TransactionalProducer(wire, producer.transactional_id)
    assert other.try_init(**mine) == PRODUCER_FENCED
    assert other.try_init(version=3, **mine) == INVALID_PRODUCER_EPOCH
    assert other.try_init(producer_id=5) == INVALID_REQUEST


def test_time_runs_out(wire: Wire, topic: str) -> None:
    producer = TransactionalProducer(wire).init(timeout_ms=100)
    producer.add(topic, 0)
    code = producer.produce(topic, [b"slow"])
    wait_for_state(wire, producer.transactional_id, "CompleteAbort", 60)
    assert code in (0, INVALID_PRODUCER_EPOCH)
    assert producer.try_end(True) == PRODUCER_FENCED
    assert committed_values(wire, topic) == []
    assert producer.init().epoch > 1


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_the_timeout_has_bounds(wire: Wire, timeout_ms: int) -> None:
    producer = TransactionalProducer(wire)
    assert producer.try_init(timeout_ms=timeout_ms) == INVALID_TRANSACTION_TIMEOUT


# --- Verification -----------------------------------------------------------------------------


def test_a_partition_that_was_not_added_takes_nothing(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    assert producer.produce(topic, [b"v"], version=10) == INVALID_TXN_STATE
    assert producer.produce(topic, [b"v"], version=11) == TRANSACTION_ABORTABLE
    producer.add(topic, 0)
    assert producer.produce(topic, [b"v"], partition=1) == TRANSACTION_ABORTABLE
    assert producer.produce(topic, [b"v"]) == 0
    producer.end(False)
    wait_for_state(wire, producer.transactional_id, "CompleteAbort")
    # And not after the end either.
    assert producer.produce(topic, [b"v"]) == TRANSACTION_ABORTABLE
    assert requests.end_offset(wire, topic) == 2
    assert requests.end_offset(wire, topic, partition=1) == 0


def test_a_stranger_takes_part_in_nothing(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    stranger = TransactionalProducer(wire, producer.transactional_id)
    stranger.producer_id, stranger.epoch = requests.init_producer(wire)
    assert stranger.try_add(topic, 0) == [INVALID_PRODUCER_ID_MAPPING]
    assert stranger.try_end(True) == INVALID_PRODUCER_ID_MAPPING
    assert stranger.produce(topic, [b"v"]) == INVALID_PRODUCER_ID_MAPPING
    nobody = TransactionalProducer(wire)
    nobody.producer_id, nobody.epoch = producer.producer_id, producer.epoch
    assert nobody.try_add(topic, 0) == [INVALID_PRODUCER_ID_MAPPING]


def test_a_batch_names_its_transaction(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    producer.add(topic, 0)
    known, producer.transactional_id = producer.transactional_id, None  # type: ignore[assignment]
    assert producer.produce(topic, [b"v"]) == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producer.transactional_id = known
    assert producer.produce(topic, [b"v"]) == 0


def test_one_bad_partition_keeps_all_out(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    assert producer.try_add(topic, 0, 7) == [OPERATION_NOT_ATTEMPTED, UNKNOWN_TOPIC]
    assert producer.try_add("no-such-topic", 0) == [UNKNOWN_TOPIC]
    assert producer.try_add("__consumer_offsets", 0) == [TOPIC_AUTHORIZATION_FAILED]
    assert describe(wire, producer.transactional_id).transaction_state == "Empty"


def test_brokers_may_ask_whether_a_partition_was_added(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    producer.add(topic, 0)

    def asked(version: int, verify_only: bool, *partitions: int) -> list[int]:
        answer = wire.request(
            "add_partitions_to_txn",
            version,
            transactions=[
                {
                    "transactional_id": producer.transactional_id,
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.epoch,
                    "verify_only": verify_only,
                    "topics": [{"name": topic, "partitions": list(partitions)}],
                }
            ],
        )
        assert answer.error_code == 0
        (result,) = answer.results_by_transaction
        assert result.transactional_id == producer.transactional_id
        found = sorted(
            (each.partition_index, each.partition_error_code)
            for each in result.topic_results[0].results_by_partition
        )
        return [code for _, code in found]

    assert asked(5, True, 0, 1) == [0, TRANSACTION_ABORTABLE]
    assert asked(4, False, 1) == [0]
    assert asked(4, True, 0, 1) == [0, 0]


# --- Offsets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_belong_to_the_transaction(
    wire: Wire, producer: TransactionalProducer, topic: str, is_commit: bool
) -> None:
    group = groups.new_group(wire)
    assert groups.commit(wire, group, topic, 3) == 0
    assert producer.commit_offset(group, topic, 9) in (INVALID_TXN_STATE, TRANSACTION_ABORTABLE)
    assert settled(lambda: producer.add_offsets(group)) == 0
    assert producer.commit_offset(group, topic, 9) == 0
    assert groups.committed_offset(wire, group, topic) == 3
    found = groups.fetch_group(wire, group, {topic: [0]}, version=7, require_stable=True)
    assert found.topics[0].partitions[0].error_code == UNSTABLE_OFFSET_COMMIT
    producer.end(is_commit)
    wait_for_state(wire, producer.transactional_id, f"Complete{'Commit' if is_commit else 'Abort'}")
    assert groups.committed_offset(wire, group, topic) == (9 if is_commit else 3)
    found = groups.fetch_group(wire, group, {topic: [0]}, version=7, require_stable=True)
    assert found.topics[0].partitions[0].error_code == 0


def test_offsets_of_who_is_no_member(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    group = groups.new_group(wire)
    for version in (3, 5):
        assert producer.commit_offset("", topic, 9, version=version) == INVALID_GROUP_ID
    assert settled(lambda: producer.add_offsets(group)) == 0
    assert producer.commit_offset(group, topic, 9, generation_id=1) == ILLEGAL_GENERATION
    assert producer.commit_offset(group, "no-such-topic", 9) == UNKNOWN_TOPIC
    assert producer.commit_offset(group, topic, 9) == 0
    told = producer.commit_offset(group, topic, 9, generation_id=1, member_id="stranger")
    assert told == UNKNOWN_MEMBER_ID


# --- Administration ---------------------------------------------------------------------------


def test_a_transaction_is_described_and_listed(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    found = describe(wire, producer.transactional_id)
    assert (found.error_code, found.transaction_state) == (0, "Empty")
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    producer.add(topic, 0, 1)
    found = describe(wire, producer.transactional_id)
    assert found.transaction_state == "Ongoing"
    assert [(each.topic, sorted(each.partitions)) for each in found.topics] == [(topic, [0, 1])]
    nobody = describe(wire, new_id(wire))
    assert nobody.error_code == TRANSACTIONAL_ID_NOT_FOUND
    assert nobody.transaction_start_time == 0

    def listed(version: int, **filters: object) -> dict[str, str]:
        given = {"state_filters": [], "producer_id_filters": [], **filters}
        answer = wire.request("list_transactions", version, **given)
        assert answer.error_code == 0
        return {each.transactional_id: each.transaction_state for each in answer.transaction_states}

    mine = [producer.producer_id]
    expected = {producer.transactional_id: "Ongoing"}
    assert listed(0, producer_id_filters=mine) == expected
    assert listed(1, producer_id_filters=mine, state_filters=["Ongoing"]) == expected
    assert listed(1, producer_id_filters=mine, state_filters=["Empty"]) == {}
    assert listed(1, producer_id_filters=mine, duration_filter=3_600_000) == {}
    answer = wire.request(
        "list_transactions", 0, state_filters=["Odd", "Empty"], producer_id_filters=mine
    )
    assert list(answer.unknown_state_filters) == ["Odd"]


def test_transactions_are_listed_by_a_pattern(wire: Wire) -> None:
    word = uuid.uuid4().hex[:12]
    ids = [f"{word}-orders", f"{word}-lines", f"{word}.x"]
    for each in ids:
        wait_for_coordinator(wire, each)
        TransactionalProducer(wire, each).init()

    def listed(pattern: str | None) -> tuple[int, set[str]]:
        answer = wire.request(
            "list_transactions", 2, state_filters=[], producer_id_filters=[], duration_filter=-1,
            transactional_id_pattern=pattern,
        )  # fmt: skip
        found = {each.transactional_id for each in answer.transaction_states}
        return answer.error_code, {each for each in found if each.startswith(word)}

    assert listed(f"{word}-.*") == (0, set(ids[:2]))
    assert listed(f"{word}-(orders|x)") == (0, {ids[0]})
    assert listed(word) == (0, set())  # it is the whole id that matches
    for nothing in (None, ""):
        assert listed(nothing) == (0, set(ids))
    for wrong in ("(", "[a", "a(?=b)"):
        assert listed(wrong) == (INVALID_REGULAR_EXPRESSION, set())


def write_marker(
    wire: Wire, producer: TransactionalProducer, topic: str, *partitions: int, **fields: object
) -> list[int]:
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": list(partitions)}],
        "coordinator_epoch": 1000,
        **fields,
    }
    answer = wire.request("write_txn_markers", 1, markers=[marker])
    (found,) = answer.markers
    assert found.producer_id == producer.producer_id
    return [each.error_code for each in found.topics[0].partitions]


def test_an_administrator_ends_a_transaction_by_hand(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    producer.init()
    producer.add(topic, 0)
    assert producer.produce(topic, [b"hangs"]) == 0
    requests.produce_values(wire, topic, [b"behind"])
    assert write_marker(wire, producer, topic, 0) == [0]
    assert committed_values(wire, topic) == [b"behind"]
    # Coordinators and producers of earlier epochs are shut out from now on.
    assert write_marker(wire, producer, topic, 0, coordinator_epoch=999) == [
        TRANSACTION_COORDINATOR_FENCED
    ]
    producer.epoch -= 1
    assert write_marker(wire, producer, topic, 0) == [INVALID_PRODUCER_EPOCH]
    assert write_marker(wire, producer, "no-such-topic", 0) == [UNKNOWN_TOPIC]


def test_a_topic_that_goes_holds_up_no_transaction(
    wire: Wire, producer: TransactionalProducer, topic: str
) -> None:
    other = create_topic(wire)
    producer.add(topic, 0)
    producer.add(other, 0)
    for name in (topic, other):
        assert producer.produce(name, [b"v"]) == 0
    requests.delete_topic(wire, other)
    producer.end(True)
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    assert committed_values(wire, topic) == [b"v"]


def test_the_topic_is_internal(wire: Wire, producer: TransactionalProducer) -> None:
    found = requests.describe_topic(wire, "__transaction_state")
    assert found.is_internal
    for key, value in [
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed"),
        ("segment.bytes", "104857600"),
        ("unclean.leader.election.enable", "false"),
    ]:
        assert requests.topic_config(wire, "__transaction_state", key).value == value
