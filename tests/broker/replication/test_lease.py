"""When a leader may answer from its own memory."""

from __future__ import annotations

from broker.model.ids import BrokerId
from broker.replication.lease import Lease, not_before_ms

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def test_every_other_member_must_have_shown_itself_within_the_lease() -> None:
    lease = Lease(3000, 0)
    assert not lease.is_held([TWO, THREE], 100)
    lease.on_evidence(TWO, 100)
    assert not lease.is_held([TWO, THREE], 100)
    lease.on_evidence(THREE, 200)
    assert lease.is_held([TWO, THREE], 3099)
    assert not lease.is_held([TWO, THREE], 3100)
    lease.on_evidence(TWO, 3000)
    assert lease.is_held([TWO, THREE], 3199)
    assert not lease.is_held([TWO, THREE], 3200)


def test_older_evidence_takes_nothing_back() -> None:
    lease = Lease(3000, 0)
    lease.on_evidence(TWO, 5000)
    lease.on_evidence(TWO, 1000)
    assert lease.is_held([TWO], 7999)


def test_alone_the_store_must_have_confirmed_it() -> None:
    lease = Lease(3000, 0)
    assert not lease.is_held([], 100)
    lease.on_confirmed(100)
    assert lease.is_held([], 3099)
    assert not lease.is_held([], 3100)
    assert not lease.is_held([TWO], 200)


def test_a_new_leader_waits_until_every_lease_of_an_old_one_has_ended() -> None:
    lease = Lease(3000, not_before_ms(10_000, 3000))
    lease.on_evidence(TWO, 13_000)
    assert not lease.is_held([TWO], 13_299)
    assert lease.is_held([TWO], 13_300)
