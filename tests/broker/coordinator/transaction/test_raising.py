"""Conversations by ``transaction.version`` 2 (KIP-890): each end raises the producer's epoch."""

from __future__ import annotations

import pytest

from broker.coordinator.transaction.records import read_transaction
from broker.coordinator.transaction.transaction import HIGHEST_EPOCH, LAST_EPOCH
from broker.model.error_code import ErrorCode
from broker.model.transaction_marker import TransactionMarker
from tests.broker.coordinator.transaction_build import (
    NONE,
    T0,
    T1,
    Client,
    Stages,
    TransactionWorld,
)

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
INVALID_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


STAGES = Stages(Client.add_by_batch, Client.end_and_raise)
empty, ongoing = STAGES.empty, STAGES.ongoing
preparing, complete = STAGES.preparing, STAGES.complete

#: State: what a commit and an abort are told under the producer's own epoch, under the one before (which
#: repeats the end), and under the one before that. Apache Kafka says so: conformance/
#: test_transactions_raised.py. While markers are on their way it tells everybody to wait.
STATES = {
    "Empty": (empty, (INVALID_STATE, NONE), (FENCED, FENCED)),
    "Ongoing": (ongoing, (NONE, NONE), (FENCED, FENCED)),
    "PrepareCommit": (preparing(True), (CONCURRENT, CONCURRENT), (CONCURRENT, CONCURRENT)),
    "PrepareAbort": (preparing(False), (CONCURRENT, CONCURRENT), (CONCURRENT, CONCURRENT)),
    "CompleteCommit": (complete(True), (INVALID_STATE, NONE), (NONE, INVALID_STATE)),
    "CompleteAbort": (complete(False), (INVALID_STATE, NONE), (INVALID_STATE, NONE)),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("is_crashed", [True, False])
def test_each_state_times_each_end(state: str, is_commit: bool, is_crashed: bool) -> None:
    make, own, before = STATES[state]
    if is_crashed and state.startswith("Prepare"):
        pytest.skip("a load completes it")
    position = 0 if is_commit else 1
    is_ending = state.startswith("Prepare")
    others = CONCURRENT if is_ending else FENCED
    for offset, told in ((0, own[position]), (-1, before[position]), (-2, others), (1, others)):
        world = TransactionWorld()
        client = make(world)
        if is_crashed:
            world.crash()
        assert world.state() == state
        asked = client.at(client.producer_id, client.epoch + offset)
        assert asked.end_and_raise(is_commit) is told, offset
        stranger = client.at(client.producer_id + 5, client.epoch)
        refusal = CONCURRENT if is_ending else INVALID_MAPPING
        assert stranger.end_and_raise(is_commit) is refusal or told is NONE


def test_markers_carry_the_raised_epoch() -> None:
    world = TransactionWorld()
    client = complete(True)(world)
    assert client.epoch == 1
    marker = TransactionMarker(client.producer_id, 1, True, 0, 2)
    assert world.partitions.written == [(marker, T0), (marker, T1)]
    assert client.at(client.producer_id, 0).add_by_batch(T0) is FENCED
    assert client.add_by_batch(T0) is NONE
    assert client.end_and_raise(False) is NONE
    assert client.epoch == 2
    assert world.states == [
        "Empty", "Ongoing", "PrepareCommit", "CompleteCommit",
        "Ongoing", "PrepareAbort", "CompleteAbort",
    ]  # fmt: skip


def test_a_repeated_end_has_the_same_answer() -> None:
    world = TransactionWorld()
    client = complete(True)(world)
    count = len(world.log.records)
    for _ in range(2):
        again = client.at(client.producer_id, 0)
        assert again.end_and_raise(True) is NONE
        assert again.name == client.name
        world.crash()
    assert len(world.log.records) == count


def test_the_end_of_what_never_began() -> None:
    world = TransactionWorld()
    client = empty(world)
    assert client.end_and_raise(False) is NONE
    assert (client.epoch, world.state()) == (1, "CompleteAbort")
    assert world.partitions.written == []
    assert read_transaction(world.log.records[-1].value or b"").started_ms >= 0


def test_the_next_transaction_waits_for_the_markers() -> None:
    world = TransactionWorld()
    client = preparing(True)(world)
    assert client.add_by_batch(T0) is CONCURRENT
    assert client.init(names_itself=True) is CONCURRENT
    world.partitions.release()
    assert client.add_by_batch(T0) is NONE


def test_while_the_end_is_being_written_everything_is_told_to_wait() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.log.holds = True
    assert client.at(client.producer_id, 0).end_and_raise(True) is None
    for epoch in (0, 1):
        assert client.at(client.producer_id, epoch).end_and_raise(True) is CONCURRENT
    assert world.state() == "Ongoing"


def test_an_end_that_is_not_written_has_changed_nothing() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    world.log.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert client.end_and_raise(True) is not NONE
    assert client.epoch == 0
    world.log.refusal = None
    assert client.end_and_raise(True) is NONE
    assert client.epoch == 1


# --- Fencing ----------------------------------------------------------------------------------


def test_who_was_too_slow_gets_on() -> None:
    for gets_on in ("end", "init"):
        world = TransactionWorld()
        client = ongoing(world)
        world.advance(60_000)
        assert world.state() == "CompleteAbort"
        assert client.add_by_batch(T0) is FENCED
        assert client.end_and_raise(True) is INVALID_STATE
        assert client.commit() is FENCED  # by the classic protocol nobody gets on
        told = client.end_and_raise(False) if gets_on == "end" else client.init(names_itself=True)
        assert told is NONE
        assert client.epoch == 1
        assert client.add_by_batch(T0) is NONE


def test_an_heir_shuts_out_who_was_too_slow() -> None:
    world = TransactionWorld()
    zombie = ongoing(world)
    heir = world.producer()
    assert heir.init() is CONCURRENT
    assert heir.init() is NONE
    assert heir.epoch == 2
    for is_commit in (True, False):
        assert zombie.end_and_raise(is_commit) is FENCED
    assert zombie.init(names_itself=True) is FENCED


# --- Epochs run out ---------------------------------------------------------------------------


def with_last_epoch(world: TransactionWorld) -> Client:
    client = empty(world)
    while client.epoch < LAST_EPOCH:
        assert client.end_and_raise(False) is NONE
    return client


def test_the_end_under_the_last_epoch_changes_the_id() -> None:
    world = TransactionWorld()
    client = with_last_epoch(world)
    old = client.name
    assert client.add_by_batch(T0) is NONE
    world.partitions.holds = True
    assert client.end_and_raise(True) is NONE
    assert client.producer_id != old.producer_id
    assert client.epoch == 0
    ((marker, _),) = world.partitions.written
    assert (marker.producer_id, marker.producer_epoch) == (old.producer_id, HIGHEST_EPOCH)
    # Until the markers are there, the new name has to wait.
    assert client.add_by_batch(T0) is CONCURRENT
    assert client.init(names_itself=True) is CONCURRENT
    assert client.at(*old[1:]).end_and_raise(True) is CONCURRENT
    world.crash()
    for is_commit, told in ((True, NONE), (False, INVALID_STATE)):
        again = client.at(*old[1:])
        assert again.end_and_raise(is_commit) is told
        assert again.name == (client.name if told is NONE else old)
    assert client.add_by_batch(T0) is NONE
    assert client.end_and_raise(True) is NONE
    assert client.epoch == 1


def test_who_asks_for_the_raise_again_by_its_old_name_gets_the_new_one() -> None:
    world = TransactionWorld()
    client = with_last_epoch(world)
    old = client.name
    assert client.end_and_raise(False) is NONE
    again = client.at(*old[1:])
    assert again.init(names_itself=True) is NONE
    assert again.name == client.name


@pytest.mark.parametrize("is_crashed", [True, False])
def test_the_old_name_counts_for_one_change(is_crashed: bool) -> None:
    """So who has lost its id cannot abort what runs under the next one."""
    world = TransactionWorld()
    client = with_last_epoch(world)
    old = client.name
    assert client.init(names_itself=True) is NONE
    assert client.producer_id != old.producer_id
    zombie = client.at(*old[1:])
    assert zombie.end_and_raise(False) is FENCED
    assert client.add_by_batch(T0) is NONE
    if is_crashed:
        world.crash()
    for told in (zombie.end_and_raise(False), zombie.add_by_batch(T0)):
        assert told is INVALID_MAPPING
    assert zombie.init(names_itself=True) is FENCED
    assert world.state() == "Ongoing"


@pytest.mark.parametrize("gets_on", ["end", "init"])
def test_a_transaction_that_is_aborted_under_the_last_epoch(gets_on: str) -> None:
    world = TransactionWorld()
    client = with_last_epoch(world)
    old_id = client.producer_id
    assert client.add_by_batch(T0) is NONE
    world.advance(60_000)
    assert world.describe().producer_epoch == HIGHEST_EPOCH
    if gets_on == "init":
        assert client.init(names_itself=True) is NONE
    else:
        assert client.end_and_raise(False) is NONE
        # Its next transaction is its last one under this id.
        assert client.epoch == HIGHEST_EPOCH
        assert client.add_by_batch(T0) is NONE
        assert client.end_and_raise(True) is NONE
        # A marker cannot be above the highest epoch, and must be taken all the same.
        assert world.partitions.written[-1][0].transaction_version == 0
    assert client.producer_id != old_id
    assert client.epoch == 0


def test_no_new_id_no_end() -> None:
    world = TransactionWorld()
    client = with_last_epoch(world)
    assert client.add_by_batch(T0) is NONE
    world.id_refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert client.end_and_raise(True) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.state() == "Ongoing"
    world.id_refusal = None
    assert client.end_and_raise(True) is NONE


# --- Both protocols ---------------------------------------------------------------------------


def test_a_classic_end_keeps_the_epoch() -> None:
    world = TransactionWorld()
    client = ongoing(world)
    assert client.commit() is NONE
    assert client.add(T0) is NONE
    assert client.end_and_raise(True) is NONE
    assert client.epoch == 1
    classic, raised = (marker for marker, each in world.partitions.written if each == T0)
    assert (classic.producer_epoch, classic.transaction_version) == (0, 0)
    assert (raised.producer_epoch, raised.transaction_version) == (1, 2)
