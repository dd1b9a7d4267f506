"""A leader between its followers, its clients and the controller."""

from __future__ import annotations

import pytest

from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId
from broker.model.leadership import IsrMember, LeaderAndIsr
from broker.replication.acknowledgement import Acknowledgement
from broker.replication.follower_state import FollowerProgress, Pulse
from broker.replication.leader import LeaderMachine, ReplicationRules
from broker.replication.lease import Lease
from broker.replication.replica_fetch import Accepted, Diverged, FetchRefused, ReplicaFetch
from tests.broker.replication.memory_log import MemoryLog

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCHS = {ONE: 101, TWO: 102, THREE: 103}
LEADER_EPOCH = 7


def state(*isr: int, partition_epoch: int = 20) -> LeaderAndIsr:
    members = frozenset(map(BrokerId, isr))
    return LeaderAndIsr(ONE, LEADER_EPOCH, partition_epoch, (ONE, TWO, THREE), members)


def leader(
    log: MemoryLog, *isr: int, rules: ReplicationRules | None = None, now_ms: int = 0
) -> LeaderMachine:
    rules = rules or ReplicationRules(lag_max_ms=1000)
    return LeaderMachine(ONE, state(*isr), log, rules, Lease(rules.lease_ms, 0), now_ms)


def fetch(
    replica: BrokerId, offset: int, last_epoch: int = LEADER_EPOCH, number: int = 0, **changes: int
) -> ReplicaFetch:
    made = ReplicaFetch(replica, EPOCHS[replica], LEADER_EPOCH, offset, last_epoch, number)
    return made._replace(**changes)


def log_of(count: int, high_watermark: int = 0) -> MemoryLog:
    return MemoryLog([3] * count, high_watermark)


# High watermark


def test_a_record_is_committed_when_the_whole_isr_has_it() -> None:
    log = log_of(10)
    machine = leader(log, 1, 2, 3)
    assert machine.acknowledgement(10) is Acknowledgement.WAITING
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 0)
    assert (machine.high_watermark, machine.acknowledgement(1)) == (0, Acknowledgement.WAITING)
    machine.on_fetch(fetch(THREE, 9, 3), EPOCHS, 0)
    assert machine.high_watermark == 9
    assert machine.acknowledgement(9) is Acknowledgement.COMMITTED
    assert machine.acknowledgement(10) is Acknowledgement.WAITING


def test_alone_in_the_isr_what_is_appended_is_committed() -> None:
    log = log_of(10)
    machine = leader(log, 1)
    assert machine.high_watermark == 10
    log.append(LEADER_EPOCH)
    assert machine.advance_high_watermark()
    assert machine.high_watermark == 11
    assert not machine.advance_high_watermark()


def test_with_flush_messages_1_only_what_is_flushed_counts() -> None:
    log = MemoryLog([3] * 10, flushed=6)
    machine = leader(log, 1, rules=ReplicationRules(is_flush_bound=True))
    assert machine.high_watermark == 6
    log.flushed_offset = 10
    assert machine.advance_high_watermark()
    assert machine.high_watermark == 10


def test_one_that_is_proposed_for_the_isr_counts_before_the_controller_has_said_so() -> None:
    log = log_of(10)
    machine = leader(log, 1)
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 0)
    assert machine.propose(EPOCHS, 0) is not None
    log.append(LEADER_EPOCH)
    machine.advance_high_watermark()
    assert machine.high_watermark == 10
    machine.on_fetch(fetch(TWO, 11), EPOCHS, 5)
    assert machine.high_watermark == 11


def test_consumers_are_told_nothing_before_the_start_of_the_leaders_epoch_is_committed() -> None:
    machine = leader(log_of(10, high_watermark=4), 1, 2)
    assert (machine.high_watermark, machine.is_settled) == (4, False)
    machine.on_fetch(fetch(TWO, 9, 3), EPOCHS, 0)
    assert not machine.is_settled
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 0)
    assert machine.is_settled


def test_too_few_in_sync_before_and_after_the_append() -> None:
    rules = ReplicationRules(min_insync_replicas=2, lag_max_ms=1000)
    assert leader(log_of(1), 1, rules=rules).refusal_of_append() is ErrorCode.NOT_ENOUGH_REPLICAS
    log = log_of(1)
    machine = leader(log, 1, 2, rules=rules)
    assert machine.refusal_of_append() is ErrorCode.NONE
    assert machine.acknowledgement(1) is Acknowledgement.WAITING
    machine.on_state(state(1, partition_epoch=21), EPOCHS)
    assert machine.acknowledgement(1) is Acknowledgement.TOO_FEW_REPLICAS


# Fetches


def test_only_a_fetch_of_this_leader_epoch_and_registration_counts() -> None:
    machine = leader(log_of(10), 1, 2)
    for bad, error in (
        (fetch(TWO, 10, 3, leader_epoch=6), ErrorCode.FENCED_LEADER_EPOCH),
        (fetch(TWO, 10, 3, leader_epoch=8), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (fetch(TWO, 10, 3, replica_epoch=99), ErrorCode.STALE_BROKER_EPOCH),
        (fetch(TWO, 10, 3, replica_id=4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch(TWO, 11, -1), ErrorCode.OFFSET_OUT_OF_RANGE),
    ):
        assert machine.on_fetch(bad, EPOCHS, 0) == FetchRefused(error)
    assert machine.high_watermark == 0


def test_a_follower_whose_log_parts_from_ours_is_told_where() -> None:
    log = MemoryLog([1, 1, 3, 3, 3])
    machine = leader(log, 1, 2)
    assert machine.on_fetch(fetch(TWO, 4, last_epoch=2), EPOCHS, 0) == Diverged(1, 2)
    assert machine.on_fetch(fetch(TWO, 3, last_epoch=1), EPOCHS, 0) == Diverged(1, 2)
    assert machine.on_fetch(fetch(TWO, 9, last_epoch=3), EPOCHS, 0) == Diverged(3, 5)
    assert machine.high_watermark == 0
    assert machine.on_fetch(fetch(TWO, 2, last_epoch=1), EPOCHS, 0) == Accepted(2)
    assert machine.on_fetch(fetch(TWO, 0, last_epoch=-1), EPOCHS, 0) == Accepted(0)


def test_what_a_restarted_follower_acknowledged_before_is_forgotten() -> None:
    log = log_of(10)
    machine = leader(log, 1, 2, 3)
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 0)
    restarted = {**EPOCHS, TWO: 202}
    machine.on_state(state(1, 3, partition_epoch=21), restarted)
    machine.on_fetch(fetch(THREE, 10, 3), restarted, 0)
    assert machine.high_watermark == 10
    assert machine.propose(restarted, 10) is None
    machine.on_fetch(fetch(TWO, 10, 3, replica_epoch=202), restarted, 20)
    proposal = machine.propose(restarted, 20)
    assert proposal is not None
    assert IsrMember(TWO, 202) in proposal.members


# ISR


def test_one_that_does_not_catch_up_for_the_lag_time_is_proposed_out() -> None:
    log = log_of(10)
    machine = leader(log, 1, 2, 3)
    for replica in (TWO, THREE):
        machine.on_fetch(fetch(replica, 10, 3), EPOCHS, 0)
    log.append(LEADER_EPOCH)
    machine.on_fetch(fetch(THREE, 11), EPOCHS, 900)
    assert machine.propose(EPOCHS, 1000) is None
    proposal = machine.propose(EPOCHS, 1001)
    assert proposal is not None
    assert (proposal.isr, proposal.partition_epoch) == ({ONE, THREE}, 20)
    assert machine.high_watermark == 10
    machine.on_proposal_accepted(state(1, 3, partition_epoch=21), 1001)
    assert machine.high_watermark == 11


@pytest.mark.parametrize("image_comes_first", [False, True])
def test_the_store_that_took_the_last_follower_out_has_confirmed_who_is_alone(
    image_comes_first: bool,
) -> None:
    log = log_of(10)
    machine = leader(log, 1, 2)
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 0)
    log.append(LEADER_EPOCH)
    proposal = machine.propose(EPOCHS, 1001)
    assert proposal is not None
    assert proposal.isr == {ONE}
    alone = state(1, partition_epoch=21)
    if image_comes_first:
        machine.on_state(alone, EPOCHS)
    assert not machine.holds_lease(1002)
    machine.on_proposal_accepted(alone, 1001)
    assert machine.holds_lease(1002)


def test_one_that_lags_by_more_records_than_it_may_is_proposed_out_until_it_has_caught_up() -> None:
    log = log_of(10)
    machine = leader(log, 1, 2, 3, rules=ReplicationRules(lag_max_ms=1000, lag_max_records=2))
    assert machine.propose(EPOCHS, 0) is None  # nobody has fetched yet
    for replica in (TWO, THREE):
        machine.on_fetch(fetch(replica, 10, 3), EPOCHS, 0)
    for _ in range(2):
        log.append(LEADER_EPOCH)
    assert machine.propose(EPOCHS, 0) is None
    log.append(LEADER_EPOCH)
    machine.on_fetch(fetch(THREE, 13), EPOCHS, 0)
    proposal = machine.propose(EPOCHS, 0)
    assert proposal is not None
    assert proposal.isr == {ONE, THREE}
    machine.on_proposal_accepted(state(1, 3, partition_epoch=21), 0)
    assert machine.high_watermark == 13
    # At the high watermark, but too many records behind what the leader has.
    for _ in range(3):
        log.append(LEADER_EPOCH)
    machine.on_fetch(fetch(THREE, 16), EPOCHS, 0)
    machine.on_fetch(fetch(TWO, 13), EPOCHS, 0)
    assert machine.propose(EPOCHS, 0) is None
    machine.on_fetch(fetch(TWO, 16), EPOCHS, 0)
    proposal = machine.propose(EPOCHS, 0)
    assert proposal is not None
    assert proposal.isr == {ONE, TWO, THREE}


def test_one_that_is_always_a_batch_behind_a_busy_leader_is_in_sync() -> None:
    log = log_of(10)
    machine = leader(log, 1, 2)
    for step in range(50):
        log.append(LEADER_EPOCH)
        machine.on_fetch(
            fetch(TWO, 10 + step, 3 if step == 0 else LEADER_EPOCH), EPOCHS, step * 100
        )
        assert machine.propose(EPOCHS, step * 100) is None


def test_one_that_has_reached_the_high_watermark_and_this_epochs_start_is_proposed_in() -> None:
    log = log_of(10, high_watermark=10)
    machine = leader(log, 1)
    machine.on_fetch(fetch(TWO, 9, 3), EPOCHS, 0)
    assert machine.propose(EPOCHS, 0) is None
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 0)
    proposal = machine.propose(EPOCHS, 0)
    assert proposal is not None
    assert proposal.members == (IsrMember(ONE, 101), IsrMember(TWO, 102))
    assert machine.propose(EPOCHS, 0) is None


def test_only_an_ineligible_replica_takes_a_proposal_back() -> None:
    for error, maximal in (
        (ErrorCode.INELIGIBLE_REPLICA, {ONE}),
        (ErrorCode.NOT_CONTROLLER, {ONE, TWO}),
        (ErrorCode.INVALID_UPDATE_VERSION, {ONE, TWO}),
        (ErrorCode.REQUEST_TIMED_OUT, {ONE, TWO}),
    ):
        machine = leader(log_of(10), 1)
        machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 0)
        machine.propose(EPOCHS, 0)
        machine.on_proposal_refused(error)
        assert machine.isr.maximal == maximal, error


def test_replicas_come_and_go_within_a_leader_epoch() -> None:
    log = log_of(10)
    machine = leader(log, 1, 2)
    four = BrokerId(4)
    epochs = {**EPOCHS, four: 104}
    moving = state(1, 2, partition_epoch=21)._replace(replicas=(four, ONE, TWO))
    machine.on_state(moving, epochs)
    gone = machine.on_fetch(fetch(THREE, 10, 3), epochs, 0)
    assert gone == FetchRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    come = ReplicaFetch(four, 104, LEADER_EPOCH, 10, 3, 0)
    assert machine.on_fetch(come, epochs, 0) == Accepted(10)
    proposal = machine.propose(epochs, 0)
    assert proposal is not None
    assert proposal.isr == {ONE, TWO, four}


# Lease


def test_evidence_is_when_the_answer_was_sent_that_a_fetch_acknowledges() -> None:
    log = log_of(10)
    machine = leader(log, 1, 2)
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 5000)
    assert not machine.holds_lease(5000)
    number = machine.note_answer(TWO, 5000)
    machine.on_fetch(fetch(TWO, 10, 3, number), EPOCHS, 7000)
    assert machine.holds_lease(7999)
    assert not machine.holds_lease(8000)


def test_the_lease_needs_whoever_may_be_in_the_isr_already() -> None:
    log = log_of(10)
    machine = leader(log, 1)
    machine.on_alone_confirmed(20, 100)
    assert machine.holds_lease(100)
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 100)
    machine.propose(EPOCHS, 100)
    assert not machine.holds_lease(100)
    machine.on_fetch(fetch(TWO, 10, 3, machine.note_answer(TWO, 110)), EPOCHS, 120)
    assert machine.holds_lease(120)


# What is told of followers


def test_a_follower_lags_since_it_was_in_sync_last() -> None:
    log = log_of(10)
    machine = leader(log, 1, 2, 3, now_ms=5)
    assert machine.progress() == [
        FollowerProgress(TWO, -1, None, 5, 5),  # the store says that it was in sync then
        FollowerProgress(THREE, -1, None, 5, 5),
    ]
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 20)
    log.append(LEADER_EPOCH)
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 30)
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 40)
    assert machine.progress()[0] == FollowerProgress(TWO, 10, 40, 20, 5)


def test_of_one_that_was_out_of_sync_before_this_leader_only_its_own_time_is_known() -> None:
    machine = leader(log_of(10), 1, 2, now_ms=5)
    assert machine.progress()[1] == FollowerProgress(THREE, -1, None, None, 5)
    machine.on_fetch(fetch(THREE, 4, 3), EPOCHS, 20)
    assert machine.progress()[1] == FollowerProgress(THREE, 4, 20, None, 5)
    machine.on_fetch(fetch(THREE, 10, 3), EPOCHS, 30)
    assert machine.progress()[1] == FollowerProgress(THREE, 10, 30, 30, 5)


def test_one_that_is_gone_keeps_what_it_had_for_those_who_ask_and_for_nobody_else() -> None:
    log = log_of(10)
    machine = leader(log, 1, 2, 3, now_ms=5)
    machine.on_fetch(fetch(TWO, 9, 3), EPOCHS, 20)
    there = {ONE: 101, THREE: 103}
    machine.on_state(state(1, 3, partition_epoch=21), there)
    machine.on_state(state(1, 3, partition_epoch=21), there)
    assert machine.progress()[0] == FollowerProgress(TWO, 9, 20, 5, 5)
    assert machine.followers[TWO].log_end_offset == -1


def test_a_replica_that_is_added_later_was_not_lagging_before() -> None:
    machine = leader(log_of(10), 1, 2, now_ms=5)
    four = BrokerId(4)
    added = LeaderAndIsr(ONE, LEADER_EPOCH, 21, (ONE, TWO, THREE, four), frozenset({ONE, TWO}))
    machine.on_state(added, EPOCHS)
    assert machine.progress()[2] == FollowerProgress(four, -1, None, None, None)


def test_beats_of_one_at_rest_are_told_as_fetches() -> None:
    machine = leader(log_of(10), 1, 2, 3, now_ms=5)
    machine.on_fetch(fetch(TWO, 10, 3), EPOCHS, 20)
    pulse = Pulse()
    assert machine.maybe_rest(TWO, EPOCHS[TWO], pulse)
    pulse.beat(500, None)
    assert machine.progress()[0] == FollowerProgress(TWO, 10, 500, 500, 5)
