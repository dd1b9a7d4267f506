"""What a leader may believe of the ISR, after answers, refusals and silence."""

from __future__ import annotations

from broker.model.ids import BrokerId
from broker.replication.isr import Isr


def ids(*numbers: int) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, numbers))


def test_an_expansion_counts_from_the_moment_it_is_proposed() -> None:
    isr = Isr(ids(1), 4)
    assert isr.propose(ids(1, 2))
    assert (isr.committed, isr.maximal) == (ids(1), ids(1, 2))


def test_a_shrink_does_not_count_before_it_is_accepted() -> None:
    isr = Isr(ids(1, 2), 4)
    assert isr.propose(ids(1))
    assert isr.maximal == ids(1, 2)
    assert isr.on_accepted(5, ids(1))
    assert isr.maximal == ids(1)


def test_one_proposal_at_a_time_and_none_for_what_is_so() -> None:
    isr = Isr(ids(1, 2), 4)
    assert not isr.propose(ids(1, 2))
    assert isr.propose(ids(1))
    assert not isr.propose(ids(1, 2))


def test_a_refusal_of_the_only_attempt_is_final() -> None:
    isr = Isr(ids(1), 4)
    isr.propose(ids(1, 2))
    isr.on_refused()
    assert isr.maximal == ids(1)
    assert not isr.is_in_flight


def test_a_lost_answer_is_no_failure() -> None:
    isr = Isr(ids(1), 4)
    isr.propose(ids(1, 2))
    isr.on_lost()
    assert isr.maximal == ids(1, 2)
    assert isr.propose(ids(1, 2))


def test_a_refusal_after_a_lost_answer_proves_nothing() -> None:
    isr = Isr(ids(1), 4)
    isr.propose(ids(1, 2))
    isr.on_lost()
    isr.propose(ids(1, 3))
    isr.on_refused()
    assert isr.maximal == ids(1, 2, 3)


def test_a_doubt_is_settled_by_a_proposal_of_what_is_committed() -> None:
    isr = Isr(ids(1), 4)
    isr.propose(ids(1, 2))
    isr.on_lost()
    assert isr.propose(ids(1))
    assert isr.maximal == ids(1, 2)
    isr.on_accepted(5, ids(1))
    assert isr.maximal == ids(1)


def test_a_newer_partition_epoch_ends_every_doubt_and_an_older_one_says_nothing() -> None:
    isr = Isr(ids(1), 4)
    isr.propose(ids(1, 2))
    isr.on_lost()
    assert not isr.on_accepted(4, ids(1))
    assert isr.maximal == ids(1, 2)
    assert isr.on_accepted(6, ids(1, 3))
    assert isr.maximal == ids(1, 3)
    isr.on_refused()
    isr.on_lost()
    assert isr.maximal == ids(1, 3)
