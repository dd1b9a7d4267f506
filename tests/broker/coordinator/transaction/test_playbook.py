"""Conversations with the transaction coordinator: each state times each request, and the races."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.coordinator.transaction.records import read_transaction, transaction_record
from broker.coordinator.transaction.requests import TransactionFilter
from broker.coordinator.transaction.states import TransactionState
from broker.coordinator.transaction.transaction import LAST_EPOCH, Transaction
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition
from broker.model.transaction_marker import TransactionMarker
from tests.broker.coordinator.transaction_build import (
    NONE,
    T0,
    T1,
    TIMEOUT_MS,
    Client,
    Stages,
    TransactionWorld,
)

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
INVALID_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
DAY_MS = 24 * 60 * 60 * 1000


STAGES = Stages(Client.add, Client.end)
empty, ongoing = STAGES.empty, STAGES.ongoing
preparing, complete = STAGES.preparing, STAGES.complete

STATES: dict[str, Callable[[TransactionWorld], Client]] = {
    "Empty": empty,
    "Ongoing": ongoing,
    "PrepareCommit": preparing(True),
    "PrepareAbort": preparing(False),
    "CompleteCommit": complete(True),
    "CompleteAbort": complete(False),
}

#: State: what InitProducerId, AddPartitions, commit and abort are told. Apache Kafka says so, while markers are
#: on their way too: conformance/test_transactions_held.py.
TABLE = [
    ("Empty", NONE, NONE, INVALID_STATE, INVALID_STATE),
    ("Ongoing", CONCURRENT, NONE, NONE, NONE),
    ("PrepareCommit", CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    ("PrepareAbort", CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    ("CompleteCommit", NONE, NONE, NONE, INVALID_STATE),
    ("CompleteAbort", NONE, NONE, INVALID_STATE, NONE),
]


@pytest.mark.parametrize(("state", "init", "add", "commit", "abort"), TABLE)
@pytest.mark.parametrize("request_number", range(4))
def test_each_state_times_each_request(
    state: str,
    init: ErrorCode,
    add: ErrorCode,
    commit: ErrorCode,
    abort: ErrorCode,
    request_number: int,
) -> None:
    world = TransactionWorld()
    client = STATES[state](world)
    assert world.state() == state
    requests: list[tuple[Callable[[], ErrorCode | None], ErrorCode]] = [
        (client.init, init),
        (lambda: client.add(T0), add),
        (client.commit, commit),
        (client.abort, abort),
    ]
    request, expected = requests[request_number]
    assert request() is expected


@pytest.mark.parametrize("state", STATES)
def test_strangers_and_zombies_change_nothing(state: str) -> None:
    world = TransactionWorld()
    client = STATES[state](world)
    before = list(world.log.records)
    for producer_id, epoch, told in [
        (client.producer_id + 7, client.epoch, INVALID_MAPPING),
        (client.producer_id, client.epoch - 1, FENCED),
        (client.producer_id, client.epoch + 1, FENCED),
    ]:
        other = world.producer()
        other.producer_id, other.epoch = producer_id, epoch
        assert other.add(T0) is (CONCURRENT if state.startswith("Prepare") else told)
        assert other.commit() is told
        assert other.abort() is told
        with pytest.raises(KafkaError) as refused:
            world.coordinator.verify(other.name, [T0])
        assert refused.value.code is told
    stranger = world.producer("nobody")
    assert stranger.add(T0) is INVALID_MAPPING
    assert stranger.commit() is INVALID_MAPPING
    assert world.log.records == before
    assert world.state() == state


# --- InitProducerId ---------------------------------------------------------------------------


def test_an_id_keeps_its_producer_and_raises_its_epoch() -> None:
    world = TransactionWorld()
    first, second = empty(world), world.producer()
    assert second.init() is NONE
    assert (second.producer_id, second.epoch) == (first.producer_id, 1)
    assert world.producer("b").init() is NONE
    assert [first.add(T0), second.add(T0)] == [FENCED, NONE]
    assert world.states == ["Empty", "Empty", "Empty", "Ongoing"]


@pytest.mark.parametrize(("timeout_ms", "is_taken"), [(0, False), (-1, False), (1, True),
                                                     (900_000, True), (900_001, False)])  # fmt: skip
def test_the_timeout_has_bounds(timeout_ms: int, is_taken: bool) -> None:
    told = TransactionWorld().producer(timeout_ms=timeout_ms).init()
    assert told is (NONE if is_taken else ErrorCode.INVALID_TRANSACTION_TIMEOUT)


def test_the_empty_id_is_refused() -> None:
    client = TransactionWorld().producer("")
    assert client.init() is ErrorCode.INVALID_REQUEST
    assert client.add(T0) is ErrorCode.INVALID_REQUEST
    assert client.commit() is ErrorCode.INVALID_REQUEST
    assert client.world.describe("").error is ErrorCode.INVALID_REQUEST


def test_a_second_producer_aborts_what_the_first_left_open() -> None:
    world = TransactionWorld()
    zombie, heir = ongoing(world), world.producer()
    assert heir.init() is CONCURRENT
    assert world.states[-2:] == ["PrepareAbort", "CompleteAbort"]
    # The markers shut the zombie out of the partitions, too.
    assert [marker.producer_epoch for marker, _ in world.partitions.written] == [1, 1]
    assert not any(marker.is_commit for marker, _ in world.partitions.written)
    assert heir.init() is NONE
    assert heir.epoch == 2
    assert zombie.commit() is FENCED


def test_a_second_producer_waits_for_the_end_of_a_commit() -> None:
    world = TransactionWorld()
    first = preparing(True)(world)
    heir = world.producer()
    assert heir.init() is CONCURRENT
    world.partitions.release()
    assert world.state() == "CompleteCommit"
    assert heir.init() is NONE
    assert heir.epoch == first.epoch + 1
    assert all(marker.is_commit for marker, _ in world.partitions.written)


def test_two_producers_race_for_a_new_id() -> None:
    world = TransactionWorld()
    world.log.holds = True
    first, second = world.producer(), world.producer()
    assert first.init() is None
    assert second.init() is CONCURRENT
    world.log.release()
    assert first.answers == [NONE]
    world.log.holds = False
    assert second.init() is NONE
    assert second.epoch == 1


def test_a_new_id_that_cannot_be_written_leaves_no_trace() -> None:
    world = TransactionWorld()
    world.log.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    client = world.producer()
    assert client.init() is ErrorCode.NOT_COORDINATOR
    assert world.describe().error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    world.log.refusal = None
    assert client.init() is NONE
    assert client.epoch == 0


def test_without_a_producer_id_there_is_no_new_id() -> None:
    world = TransactionWorld()
    world.id_refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.producer().init() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.log.records == []


def test_a_producer_goes_on_under_its_id() -> None:
    """KIP-360: it names what it has; the same request again gets the same answer."""
    world = TransactionWorld()
    client, again = complete(False)(world), world.producer()
    again.producer_id, again.epoch = client.producer_id, client.epoch
    assert client.init(names_itself=True) is NONE
    assert client.epoch == 1
    assert again.init(names_itself=True) is NONE
    assert again.epoch == 1
    late = world.producer()
    late.producer_id, late.epoch = client.producer_id, 0
    assert world.producer().init() is NONE  # somebody else took over
    assert late.init(names_itself=True) is FENCED
    late.producer_id += 5
    assert late.init(names_itself=True) is FENCED


def test_epochs_run_out() -> None:
    world = TransactionWorld()
    partitions: frozenset[TopicPartition] = frozenset()
    known = Transaction(7, LAST_EPOCH - 1, TIMEOUT_MS, TransactionState.EMPTY, partitions,
                        world.clock.now_ms)  # fmt: skip
    world.log.records.append(transaction_record("a", known))
    world.crash()
    client = world.producer()
    assert client.init() is NONE
    assert (client.producer_id, client.epoch) == (7, LAST_EPOCH)
    # The last epoch is good for a transaction, and there is one more to shut it out.
    assert client.add(T0) is NONE
    heir = world.producer()
    assert heir.init() is CONCURRENT
    assert world.partitions.written == [(TransactionMarker(7, LAST_EPOCH + 1, False, 1), T0)]
    assert heir.init() is NONE
    assert (heir.producer_id, heir.epoch) == (1000, 0)
    # Whoever has not heard of the new id may still ask under the old one, with its last epoch.
    assert client.init(names_itself=True) is FENCED  # but not once others have taken over


def test_a_producer_without_epochs_gets_another_id_and_may_repeat_the_question() -> None:
    world = TransactionWorld()
    partitions: frozenset[TopicPartition] = frozenset()
    known = Transaction(7, LAST_EPOCH, TIMEOUT_MS, TransactionState.EMPTY, partitions,
                        world.clock.now_ms)  # fmt: skip
    world.log.records.append(transaction_record("a", known))
    world.crash()
    client = world.producer()
    client.producer_id, client.epoch = 7, LAST_EPOCH
    again = world.producer()
    again.producer_id, again.epoch = 7, LAST_EPOCH
    for each in (client, again):
        assert each.init(names_itself=True) is NONE
        assert (each.producer_id, each.epoch) == (1000, 0)


# --- Adding, verifying ------------------------------------------------------------------------


def test_partitions_are_added_once() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    count = len(world.log.records)
    assert client.add(T1) is NONE
    assert len(world.log.records) == count
    assert client.add(T1, TopicPartition("u", 3)) is NONE
    assert world.describe().partitions == [T0, T1, ("u", 3)]
    assert world.describe().started_ms == world.clock.now_ms


def test_what_is_verified() -> None:
    world = TransactionWorld()
    client = empty(world)
    verify = world.coordinator.verify
    assert verify(client.name, [T0]) == [ErrorCode.TRANSACTION_ABORTABLE]
    world.log.holds = True
    assert client.add(T0) is None
    # A partition counts once it is in the log for good.
    assert verify(client.name, [T0]) == [ErrorCode.TRANSACTION_ABORTABLE]
    world.log.release()
    world.log.holds = False
    assert verify(client.name, [T0, T1]) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    world.partitions.holds = True
    assert client.commit() is NONE
    with pytest.raises(KafkaError) as refused:
        verify(client.name, [T0])
    assert refused.value.code is CONCURRENT
    world.partitions.release()
    assert verify(client.name, [T0]) == [ErrorCode.TRANSACTION_ABORTABLE]


def test_while_a_change_is_on_its_way_others_wait() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.log.holds = True
    assert client.commit() is None
    for other in (client.name, client.name):
        answers: list[ErrorCode] = []
        world.coordinator.add_partitions(other, [TopicPartition("u", 0)], answers.append)
        world.coordinator.end(other, False, answers.append)
        world.coordinator.end(other, True, answers.append)
        assert answers == [CONCURRENT] * 3
    assert world.producer().init() is CONCURRENT
    world.log.holds = False
    world.log.release()
    assert client.answers == [NONE]
    assert world.state() == "CompleteCommit"


# --- The end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_ends_on_each_of_its_partitions(is_commit: bool) -> None:
    world = TransactionWorld()
    client = complete(is_commit)(world)
    marker = TransactionMarker(client.producer_id, 0, is_commit, 0)
    assert world.partitions.written == [(marker, T0), (marker, T1)]
    outcome = "Commit" if is_commit else "Abort"
    assert world.states == ["Empty", "Ongoing", f"Prepare{outcome}", f"Complete{outcome}"]
    assert world.describe().partitions == []
    assert client.add(T0) is NONE
    assert client.end(not is_commit) is NONE


def test_no_marker_before_the_outcome_is_in_the_log_for_good() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.log.holds = True
    assert client.commit() is None
    assert world.partitions.written == []
    world.log.release()
    assert len(world.partitions.written) == 2


def test_an_outcome_that_was_not_written_can_still_be_another() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.log.holds = True
    assert client.commit() is None
    world.log.holds = False
    world.log.release(ErrorCode.REQUEST_TIMED_OUT)
    assert client.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.state() == "Ongoing"
    assert world.partitions.written == []
    assert client.abort() is NONE
    world.crash()
    assert world.state() == "CompleteAbort"
    assert not any(marker.is_commit for marker, _ in world.partitions.written)


def test_an_offline_partition_holds_up_nobody_else() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.partitions.refusals[T1] = ErrorCode.KAFKA_STORAGE_ERROR
    assert client.commit() is NONE
    assert world.state() == "PrepareCommit"
    assert world.describe().partitions == [T1]
    assert client.commit() is CONCURRENT
    world.advance(60_000)
    assert [each for _, each in world.partitions.written] == [T0]
    del world.partitions.refusals[T1]
    world.advance(5_000)
    assert [each for _, each in world.partitions.written] == [T0, T1]
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize(
    "gone", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_where_nothing_is_left_to_end_the_transaction_goes_on(gone: ErrorCode) -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.partitions.refusals[T1] = gone
    assert client.commit() is NONE
    assert world.state() == "CompleteCommit"


def test_a_completion_that_cannot_be_written_is_tried_again() -> None:
    world = TransactionWorld()
    preparing(True)(world)
    world.log.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    world.partitions.release()
    assert world.state() == "PrepareCommit"
    world.advance(1_000)
    world.log.refusal = None
    world.partitions.holds = False
    world.advance(10_000)
    assert world.state() == "CompleteCommit"
    assert len(world.partitions.written) == 2


# --- Time-outs --------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.advance(TIMEOUT_MS - 1)
    assert world.state() == "Ongoing"
    world.advance(1)
    assert world.state() == "CompleteAbort"
    assert client.commit() is FENCED
    assert client.init() is NONE
    assert client.epoch == 2


def test_the_time_runs_from_the_first_partition() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.advance(TIMEOUT_MS - 1)
    assert client.add(TopicPartition("u", 0)) is NONE
    world.advance(1)
    assert world.state() == "CompleteAbort"


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_is_set_while_it_begins_ends_nothing(step_ms: int) -> None:
    world = TransactionWorld()
    client = world.producer()
    assert client.init() is NONE
    world.clock.wall_ahead_ms = -step_ms
    world.log.holds = True
    assert client.add(T0) is None
    world.clock.wall_ahead_ms = 0
    world.log.holds = False
    world.log.release()
    world.advance(TIMEOUT_MS - 1)
    assert world.state() == "Ongoing"
    world.advance(1)
    assert world.state() == "CompleteAbort"


def test_an_end_in_time_leaves_no_timer() -> None:
    world = TransactionWorld()
    client = complete(True)(world)
    world.advance(TIMEOUT_MS)
    assert client.add(T0) is NONE
    world.advance(TIMEOUT_MS - 1)
    assert client.commit() is NONE
    world.advance(DAY_MS)
    assert all(marker.is_commit for marker, _ in world.partitions.written)
    assert len(world.coordinator.runtime.timers) == 0


def test_a_timeout_beside_an_end_leaves_it_alone() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.log.holds = True
    assert client.commit() is None
    world.advance(TIMEOUT_MS + 1)
    world.log.holds = False
    world.log.release()
    assert client.answers == [NONE]
    assert world.state() == "CompleteCommit"
    world.advance(DAY_MS)
    assert world.states[-1] == "CompleteCommit"


def test_an_abort_that_cannot_be_written_waits_its_turn() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.log.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    world.advance(TIMEOUT_MS + 10_000)
    assert world.state() == "Ongoing"
    world.log.refusal = None
    world.advance(1_000)
    assert world.state() == "CompleteAbort"
    assert client.commit() is FENCED


# --- Starts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_a_crash_in_any_state(state: str) -> None:
    world = TransactionWorld()
    client = STATES[state](world)
    world.crash()
    expected = state.replace("Prepare", "Complete")
    assert world.state() == expected
    if expected != state:
        # Under the new coordinator's epoch; the first markers may have been lost.
        again = world.partitions.written[2:]
        is_commit = state == "PrepareCommit"
        marker = TransactionMarker(client.producer_id, 0, is_commit, 1)
        assert again == [(marker, T0), (marker, T1)]
    if state == "Ongoing":
        assert client.commit() is NONE


def test_a_crash_before_the_outcome_is_written_keeps_the_time_out() -> None:
    world = TransactionWorld()
    ongoing(world)
    world.advance(TIMEOUT_MS // 2)
    world.crash()
    world.advance(TIMEOUT_MS // 2 - 1)
    assert world.state() == "Ongoing"
    world.advance(1)
    assert world.state() == "CompleteAbort"


def test_what_ran_out_while_nobody_was_there_is_aborted_at_the_start() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.clock.now_ms += DAY_MS
    world.crash()
    world.advance(0)
    assert world.state() == "CompleteAbort"
    assert client.commit() is FENCED


def test_markers_of_a_coordinator_that_went_are_not_waited_for() -> None:
    world = TransactionWorld()
    preparing(True)(world)
    old, partitions = world.coordinator, world.partitions
    old.runtime.end(0)
    count = len(world.log.records)
    partitions.release()
    assert len(world.log.records) == count
    assert world.describe().error is ErrorCode.NOT_COORDINATOR


def test_a_log_of_kafka_with_transaction_version_2_is_completed() -> None:
    """Its prepared record has the raised epoch already, and may name the id that comes next."""
    value = bytes.fromhex(
        "0001"  # version 1, flexible
        "0000000000000007"  # producer id
        "7fff"  # the epoch was raised to its end
        "0000ea60"
        "02"  # PrepareCommit
        "02" "0274" "02" "00000000" "00"  # t: partition 0
        "0000018bcfe56800" "0000018bcfe56800"
        "03"  # previous id 7, next id 9, client version 2
        "0008" "0000000000000007" "0108" "0000000000000009" "0202" "0002"
    )  # fmt: skip
    world = TransactionWorld()
    key, _ = transaction_record("a", read_transaction(value))
    world.log.records.append(type(transaction_record("a", read_transaction(value)))(key, value))
    world.crash()
    assert world.partitions.written == [(TransactionMarker(7, 0x7FFF, True, 1), T0)]
    described = world.describe()
    assert (described.state, described.producer_id, described.producer_epoch) == (
        "CompleteCommit", 9, 0,
    )  # fmt: skip


# --- Forgetting, telling ----------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_what_nobody_uses_is_forgotten(state: str) -> None:
    world = TransactionWorld(transactional_id_expiration_ms=str(DAY_MS))
    STATES[state](world)
    world.clock.now_ms += DAY_MS - 1
    world.expire()
    assert world.describe().error is NONE
    world.clock.now_ms += 1
    world.expire()
    is_gone = state not in ("Ongoing", "PrepareCommit", "PrepareAbort")
    assert (world.describe().error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND) is is_gone
    assert (world.states[-1] == "-") is is_gone
    if is_gone:
        world.crash()
        assert world.describe().error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_ids_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.coordinator.transaction.shard.MAX_IDS", 4)
    monkeypatch.setattr("broker.coordinator.transaction.shard.FORGOTTEN_AT_ONCE", 2)
    world = TransactionWorld()
    busy = ongoing(world)
    for number in range(5):
        world.advance(1)
        assert world.producer(f"p{number}").init() is NONE
    left = [name for _, name in world.coordinator.transactional_ids()]
    assert "a" in left
    assert len(left) <= 5
    assert {"p0", "p1"}.isdisjoint(left)
    assert busy.commit() is NONE


def test_lists_are_filtered() -> None:
    world = TransactionWorld()
    ongoing(world)
    world.advance(1_000)
    other = world.producer("b")
    assert other.init() is NONE

    def listed(wanted: TransactionFilter) -> list[str]:
        found = [
            world.coordinator.listed(index, name, wanted)
            for index, name in world.coordinator.transactional_ids()
        ]
        return [each.transactional_id for each in found if each is not None]

    assert listed(TransactionFilter()) == ["a", "b"]
    assert listed(TransactionFilter(states=frozenset({"Ongoing"}))) == ["a"]
    assert listed(TransactionFilter(producer_ids=frozenset({other.producer_id}))) == ["b"]
    assert listed(TransactionFilter(longer_than_ms=999))[0] == "a"
    assert "a" not in listed(TransactionFilter(longer_than_ms=1_000))
    assert listed(TransactionFilter(states=frozenset({"Dead"}))) == []
