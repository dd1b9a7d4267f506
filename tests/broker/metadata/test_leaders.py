"""Who leads and who is in the ISR when brokers come and go."""

from __future__ import annotations

import pytest

from broker.metadata.image import PartitionImage
from broker.metadata.leaders import preferred, settled
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import NO_BROKER, BrokerId

REPLICAS = tuple(map(BrokerId, (1, 2, 3)))


def partition(leader: int, *isr: int) -> PartitionImage:
    members = frozenset(map(BrokerId, isr))
    return PartitionImage(0, BrokerId(leader), 5, 9, REPLICAS, members)


@pytest.mark.parametrize(
    ("before", "registered", "fresh", "leader", "leader_epoch", "isr"),
    [
        # A follower went: it leaves the ISR, the leader stays, and so does its epoch.
        (partition(1, 1, 2, 3), {1, 2}, (), 1, 5, {1, 2}),
        # The leader went: the first of the replicas that is in the ISR.
        (partition(1, 1, 2, 3), {2, 3}, (), 2, 6, {2, 3}),
        (partition(1, 1, 3), {2, 3}, (), 3, 6, {3}),
        # The last one stays, whoever it is, and nobody else may lead.
        (partition(1, 1), {2, 3}, (), -1, 6, {1}),
        (partition(1, 1, 2), set(), (), -1, 6, {1, 2}),
        # It comes back.
        (partition(-1, 1), {1, 2}, (), 1, 6, {1}),
        # Registered anew: out of every ISR that has another member, dead or alive.
        (partition(1, 1, 2, 3), {1, 3}, (2,), 1, 5, {1, 3}),
        (partition(-1, 1, 2), {3}, (1,), -1, 5, {2}),
        (partition(-1, 1, 2), {3}, (1, 2), -1, 5, {2}),
    ],
)
def test_isr_and_leader_fit_the_brokers(
    before: PartitionImage,
    registered: set[int],
    fresh: tuple[int, ...],
    leader: int,
    leader_epoch: int,
    isr: set[int],
) -> None:
    after = settled(before, frozenset(map(BrokerId, registered)), frozenset(map(BrokerId, fresh)))
    assert (after.leader_id, after.leader_epoch, after.isr) == (leader, leader_epoch, isr)
    assert after.partition_epoch == 10


def test_what_fits_stays_the_same_object() -> None:
    before = partition(1, 1, 2)
    assert settled(before, frozenset(REPLICAS)) is before
    offline = partition(NO_BROKER, 3)
    assert settled(offline, frozenset({BrokerId(1)})) is offline


def test_the_preferred_leader_leads_again() -> None:
    after = preferred(partition(2, 1, 2), frozenset(REPLICAS))
    assert (after.leader_id, after.leader_epoch, after.isr) == (1, 6, {1, 2})
    assert after.partition_epoch == 10


@pytest.mark.parametrize(
    ("before", "registered", "error"),
    [
        (partition(1, 1, 2), {1, 2}, ErrorCode.ELECTION_NOT_NEEDED),
        (partition(2, 2, 3), {1, 2}, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (partition(2, 1, 2), {2}, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ],
)
def test_the_preferred_leader_must_be_able_to(
    before: PartitionImage, registered: set[int], error: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as raised:
        preferred(before, frozenset(map(BrokerId, registered)))
    assert raised.value.code is error
