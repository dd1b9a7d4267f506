"""The role of one partition on this broker, image after image."""

from __future__ import annotations

from broker.model.ids import NO_BROKER, BrokerId
from broker.model.leadership import LeaderAndIsr
from broker.replication.follower import FollowerMachine
from broker.replication.leader import LeaderMachine, ReplicationRules
from broker.replication.replica import FetchClock, Replica
from broker.storage.log import Log
from tests.broker.replication.memory_log import MemoryLog

ONE, TWO = BrokerId(1), BrokerId(2)
EPOCHS = {ONE: 101, TWO: 102}


def state(leader: BrokerId, leader_epoch: int, partition_epoch: int = 0) -> LeaderAndIsr:
    return LeaderAndIsr(leader, leader_epoch, partition_epoch, (ONE, TWO), frozenset({ONE, TWO}))


def replica() -> Replica:
    return Replica(TWO, MemoryLog([1, 1]), ReplicationRules(lease_ms=3000), started_ms=1000)


def test_the_role_follows_the_leader_epoch() -> None:
    made = replica()
    assert made.role is None
    assert made.on_state(state(ONE, 3), EPOCHS, 0)
    assert isinstance(made.role, FollowerMachine)
    assert made.on_state(state(TWO, 4), EPOCHS, 0)
    assert isinstance(made.role, LeaderMachine)
    assert made.on_state(state(NO_BROKER, 5), EPOCHS, 0)
    assert made.role is None


def test_an_older_state_changes_nothing_and_the_same_epoch_keeps_the_role() -> None:
    made = replica()
    made.on_state(state(TWO, 4), EPOCHS, 0)
    role = made.role
    assert not made.on_state(state(ONE, 3), EPOCHS, 0)
    assert not made.on_state(state(TWO, 4, partition_epoch=9), EPOCHS, 0)
    assert made.role is role
    assert isinstance(role, LeaderMachine)
    assert role.isr.partition_epoch == 9


def test_a_new_leaders_lease_waits_for_the_last_fetch_that_it_sent_to_anybody() -> None:
    made = replica()
    made.on_state(state(ONE, 3), EPOCHS, 0)
    assert made.next_fetch(102, 5000) is not None
    alone = state(TWO, 4)._replace(isr=frozenset({TWO}))
    made.on_state(alone, EPOCHS, 6000)
    assert isinstance(made.role, LeaderMachine)
    made.role.on_alone_confirmed(0, 8200)
    assert not made.role.holds_lease(8299)
    assert made.role.holds_lease(8300)


def test_each_request_of_a_session_is_a_fetch_while_the_partition_is_followed_in_it() -> None:
    made = replica()
    made.on_state(state(ONE, 3), EPOCHS, 0)
    assert made.next_fetch(102, 5000) is not None
    made.fetch_clock = clock = FetchClock()
    clock.sent_ms = 9000
    made.on_state(state(NO_BROKER, 4), EPOCHS, 9000)
    clock.sent_ms = 20_000  # it was forgotten before
    made.on_state(state(TWO, 5)._replace(isr=frozenset({TWO})), EPOCHS, 20_000)
    assert isinstance(made.role, LeaderMachine)
    made.role.on_alone_confirmed(0, 12_200)
    assert not made.role.holds_lease(12_299)
    assert made.role.holds_lease(12_300)


def test_a_process_does_not_know_what_it_sent_before_it_started() -> None:
    made = replica()
    made.on_state(state(TWO, 4)._replace(isr=frozenset({TWO})), EPOCHS, 1500)
    assert isinstance(made.role, LeaderMachine)
    made.role.on_alone_confirmed(0, 4000)
    assert not made.role.holds_lease(4299)
    assert made.role.holds_lease(4300)


def test_one_that_was_removed_follows_again_in_the_same_leader_epoch() -> None:
    made = replica()
    made.on_state(state(ONE, 3), EPOCHS, 0)
    assert made.on_removed()
    assert not made.on_removed()
    assert made.on_state(state(ONE, 3), EPOCHS, 0)
    assert isinstance(made.role, FollowerMachine)


def test_only_a_follower_fetches() -> None:
    made = replica()
    assert made.next_fetch(102, 0) is None
    made.on_state(state(TWO, 4), EPOCHS, 0)
    assert made.next_fetch(102, 0) is None


def test_the_real_log_is_a_replica_log() -> None:
    needed = {name for name in dir(MemoryLog([])) if not name.startswith("_")} - {"append"}
    assert needed <= set(dir(Log))
