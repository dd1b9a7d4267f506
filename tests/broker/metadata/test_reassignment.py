"""A partition on its way to other brokers."""

from __future__ import annotations

import pytest

from broker.metadata.image import PartitionImage
from broker.metadata.leaders import unclean
from broker.metadata.reassignment import check_factor, completed, reassigned
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import NO_BROKER, BrokerId

ALL = frozenset(map(BrokerId, (1, 2, 3, 4, 5)))


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def partition(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int = 1) -> PartitionImage:
    return PartitionImage(0, BrokerId(leader), 5, 9, ids(*replicas), frozenset(ids(*isr)))


def test_the_target_comes_first_and_who_is_to_go_stays_until_it_is_in_sync() -> None:
    moving = reassigned(partition((1, 2), (1, 2)), ids(3, 2), ALL)
    assert moving == PartitionImage(
        0, BrokerId(1), 5, 10, ids(3, 2, 1), frozenset(ids(1, 2)), ids(3), ids(1)
    )
    assert completed(moving, ALL) == moving
    joined = moving._replace(isr=frozenset(ids(1, 2, 3)))
    assert completed(joined, ALL) == PartitionImage(
        0, BrokerId(3), 6, 10, ids(3, 2), frozenset(ids(2, 3))
    )


def test_a_leader_that_stays_keeps_its_epoch() -> None:
    moving = reassigned(partition((1, 2), (1, 2)), ids(3, 1), ALL)
    after = completed(moving._replace(isr=frozenset(ids(1, 3))), ALL)
    assert (after.leader_id, after.leader_epoch, after.isr) == (1, 5, {1, 3})


def test_where_the_target_is_in_sync_already_it_is_done_at_once() -> None:
    after = reassigned(partition((1, 2, 3), (1, 2, 3)), ids(2, 3), ALL)
    assert after == PartitionImage(0, BrokerId(2), 6, 10, ids(2, 3), frozenset(ids(2, 3)))
    reordered = reassigned(partition((1, 2), (1,)), ids(2, 1), ALL)
    assert reordered == PartitionImage(0, BrokerId(1), 5, 10, ids(2, 1), frozenset(ids(1)))


def test_nothing_to_be_done_is_the_same_object() -> None:
    before = partition((1, 2), (1, 2))
    assert reassigned(before, ids(1, 2), ALL) is before


def test_cancelling_goes_back_and_drops_who_came() -> None:
    moving = reassigned(partition((1, 2), (1, 2)), ids(3, 4), ALL)
    joined = moving._replace(isr=frozenset(ids(1, 2, 3)))
    back = reassigned(joined, None, ALL)
    assert (back.replicas, back.isr, back.adding, back.removing) == (ids(1, 2), {1, 2}, (), ())
    assert back.partition_epoch == joined.partition_epoch + 1


def test_another_target_replaces_the_one_under_way() -> None:
    moving = reassigned(partition((1, 2), (1, 2)), ids(3, 4), ALL)
    other = reassigned(moving, ids(5, 2), ALL)
    assert (other.replicas, other.adding, other.removing) == (ids(5, 2, 1), ids(5), ids(1))


def test_a_leader_that_came_and_must_go_is_replaced() -> None:
    moving = reassigned(partition((1, 2), (1, 2)), ids(3, 4), ALL)
    led = moving._replace(isr=frozenset(ids(2, 3)), leader_id=BrokerId(3))
    back = reassigned(led, None, ALL)
    assert (back.leader_id, back.leader_epoch, back.isr) == (2, 6, {2})


@pytest.mark.parametrize(
    ("before", "target", "error"),
    [
        (partition((1, 2), (1, 2)), (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (partition((1, 2), (1, 2)), (3, 3), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (partition((1, 2), (1, 2)), (9, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (partition((1, 2), (1, 2)), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        # Only who came is in sync: to go back would lose what was committed.
        (
            partition((3, 1, 2), (3,), 3)._replace(adding=ids(3), removing=ids(1)),
            None,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_what_cannot_be_is_refused(
    before: PartitionImage, target: tuple[int, ...] | None, error: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as raised:
        reassigned(before, None if target is None else ids(*target), ALL)
    assert raised.value.code is error


def test_an_old_replica_that_is_not_registered_may_stay_in_the_target() -> None:
    after = reassigned(partition((1, 2), (1,)), ids(2, 1, 3), ALL - {BrokerId(2)})
    assert after.adding == ids(3)


def test_the_replication_factor_that_is_to_stay_is_that_of_where_it_goes() -> None:
    moving = reassigned(partition((1, 2), (1, 2)), ids(3, 4, 5), ALL)
    check_factor(moving, ids(1, 2, 3))
    with pytest.raises(KafkaError, match="changed from 3 to 2") as refused:
        check_factor(moving, ids(1, 2))
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_who_is_only_being_added_is_the_last_to_lead_uncleanly() -> None:
    moving = reassigned(partition((1, 2), (1,)), ids(3, 2), ALL)._replace(leader_id=NO_BROKER)
    elected = unclean(moving, frozenset(ids(2, 3)))
    assert (elected.leader_id, elected.leader_epoch, elected.isr) == (2, 6, {2})
    assert unclean(moving, frozenset(ids(3))).leader_id == 3
    with pytest.raises(KafkaError) as refused:
        unclean(moving, frozenset(ids(4)))
    assert refused.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    with pytest.raises(KafkaError) as refused:
        unclean(elected, ALL)
    assert refused.value.code is ErrorCode.ELECTION_NOT_NEEDED
