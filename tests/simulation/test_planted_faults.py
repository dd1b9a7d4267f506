"""The simulator finds every planted fault within 300 seeds.

The seed that found it last is tried first, which spares the time of those before it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import planted
from tests.simulation.cluster import run_seed
from tests.simulation.transactions import planted as planted_in_transactions
from tests.simulation.transactions.story import run_transactions
from tests.simulation.world import Failure

MAX_SEEDS = 300

#: Where each was found, and by which invariant.
FOUND = {
    "no truncation by epoch": 0,  # I7
    "truncation to high watermark": 11,  # I1
    "high watermark from the committed ISR": 16,  # I1
    "ISR proposal without broker epochs": 29,  # I3
    "restarted replica left in ISR": 5,  # I1
    "acknowledgement before ISR": 1,  # I1
    "leader serving without lease": 0,  # I5
    "controller write without epoch check": 4,  # I6
    "lost answer taken as failure": 7,  # I1
    "missed watch after reconnect": 0,  # I8
    "follower appending without CRC check": 2,  # I7
    "flush ignored for visibility": 1,  # I1
    "role taken before the registration is answered": 9,  # I1
    "new leader's lease without waiting": 0,  # I5
    "reassignment ended before its target is in sync": 4,  # I3
    "high watermark told before it is settled": 3,  # I3
    "refusal believed in doubt": 19,  # I1
}
FOUND_IN_TRANSACTIONS = {
    "coordinator acts before its log is committed": 0,  # T5
    "coordinator epoch of markers unchecked": 2,  # T5
    "new coordinator follows up before its log is committed": 4,  # T5
    "verification without its guard": 19,  # T1
    "transactional id forgotten amid its transaction": 0,  # T7
    "offsets of a transaction at once in effect": 1,  # E2
    "unsettled offsets told": 17,  # E1
    "offsets of committed transactions dropped": 1,  # E1
    "offsets of any generation taken": 55,  # E1
    "aborted records kept by compaction": 3,  # C1
}


def test_all_are_listed() -> None:
    assert set(FOUND) == set(planted.PLANTED)
    assert set(FOUND_IN_TRANSACTIONS) == set(planted_in_transactions.PLANTED)


@pytest.mark.parametrize("fault", sorted(planted.PLANTED))
def test_a_planted_fault_is_found(fault: str) -> None:
    types = planted.PLANTED[fault]
    assert is_found(lambda seed: run_seed(seed, types), FOUND[fault])


@pytest.mark.parametrize("fault", sorted(planted_in_transactions.PLANTED))
def test_a_fault_planted_in_transactions_is_found(fault: str) -> None:
    types = planted_in_transactions.PLANTED[fault]
    assert is_found(lambda seed: run_transactions(seed, types), FOUND_IN_TRANSACTIONS[fault])


def is_found(run: Callable[[int], object], first: int) -> bool:
    return any(fails(run, seed) for seed in (first, *range(MAX_SEEDS)))


def fails(run: Callable[[int], object], seed: int) -> bool:
    try:
        run(seed)
    except Failure as failure:
        return str(failure).startswith(f"seed {seed}")
    return False
