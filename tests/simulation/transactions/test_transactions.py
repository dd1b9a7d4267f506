"""Twenty life stories of transactions over three brokers, with nothing wrong in any; more on demand
(``make sim STORY=transactions SEEDS=0-10000``)."""

from __future__ import annotations

import pytest

from tests.simulation.transactions.story import run_transactions

SEEDS = 20
GROUP = 10


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_transactions_are_whole_whatever_happens(first: int) -> None:
    runs = [run_transactions(seed) for seed in range(first, first + GROUP)]
    assert min(run.world.fault_count for run in runs) >= 5
    for run in runs:
        outcomes = [transfer.outcome for transfer in run.checker.transfers.values()]
        assert outcomes.count(True) >= 10
        assert outcomes.count(False) >= 1
        if run.is_copying:
            assert run.checker.copied_count > 0
    assert sum(run.checker.repeated_marker_count for run in runs) > 0
    assert sum(run.checker.coordinator.forgotten_count for run in runs) > 0
    assert sum(run.cleaned_records for run in runs) > 0
    assert min(len(run.checker.coordinator.leader_epochs) for run in runs) >= 2


def test_a_seed_tells_the_same_story_every_time() -> None:
    first, second = run_transactions(7), run_transactions(7)
    assert first.is_copying
    assert list(first.world.story) == list(second.world.story)
    assert first.world.event_count == second.world.event_count
