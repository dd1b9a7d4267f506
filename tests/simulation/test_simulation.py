"""Two hundred life stories of a cluster, with nothing wrong in any; thousands more on demand
(``make sim SEEDS=0-10000``)."""

from __future__ import annotations

import pytest

from tests.simulation.cluster import run_seed

SEEDS = 200
GROUP = 20


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_nothing_is_lost_and_everything_comes_together_again(first: int) -> None:
    runs = [run_seed(seed) for seed in range(first, first + GROUP)]
    assert min(run.world.event_count for run in runs) >= 2000
    assert min(run.world.fault_count for run in runs) >= 5
    assert min(run.producer.number for run in runs) > 20


def test_an_acknowledgement_that_an_excused_loss_overtakes_does_not_count() -> None:
    """It was under way when its leader, alone in the ISR, lost power."""
    run_seed(4602)


def test_a_seed_tells_the_same_story_every_time() -> None:
    first, second = run_seed(7), run_seed(7)
    assert list(first.world.story) == list(second.world.story)
    assert first.world.event_count == second.world.event_count
