"""Since when a partition has a problem, in one process and over the next one's start."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.collecting.facts import BrokerFacts
from dashboard.collecting.problems import MAX_GAP_MS, ProblemMemory
from dashboard.quorum_wire import Behind
from dashboard.snapshots import LaggingReplica, PartitionProblem, PartitionState, TopicState

START_MS = 1_700_000_000_000
TICK_MS = 10_000
SHORT = PartitionState(0, 1, 0, (1, 2), (1,))
WHOLE = replace(SHORT, isr=(1, 2))


def topic(partition: PartitionState) -> TopicState:
    return TopicState("orders", None, False, (partition,))


def look(
    memory: ProblemMemory, partition: PartitionState, now_ms: int, cluster_id: str = "one"
) -> PartitionProblem | None:
    found = memory.look([topic(partition)], {}, now_ms, cluster_id)
    return found[0] if found else None


def since(problem: PartitionProblem | None) -> tuple[int, bool]:
    assert problem is not None
    (lagging,) = problem.lagging
    assert (lagging.since_ms, lagging.is_since_known) == (problem.since_ms, problem.is_since_known)
    return problem.since_ms, problem.is_since_known


def test_what_comes_later_is_known_and_what_was_there_first_is_not() -> None:
    memory = ProblemMemory()
    assert since(look(memory, SHORT, START_MS)) == (START_MS, False)
    assert look(memory, WHOLE, START_MS + TICK_MS) is None
    assert since(look(memory, SHORT, START_MS + 2 * TICK_MS)) == (START_MS + 2 * TICK_MS, True)
    assert since(look(memory, SHORT, START_MS + 3 * TICK_MS)) == (START_MS + 2 * TICK_MS, True)


def test_the_next_process_goes_on_with_it(tmp_path: Path) -> None:
    path = tmp_path / "problems.json"
    first = ProblemMemory(path)
    look(first, WHOLE, START_MS)
    look(first, SHORT, START_MS + TICK_MS)
    # Nothing changes for an hour, but somebody looks: the next process comes soon after that.
    last_ms = START_MS + 3_600_000
    for now_ms in range(START_MS + 2 * TICK_MS, last_ms, TICK_MS):
        look(first, SHORT, now_ms)

    second = ProblemMemory(path)
    assert since(look(second, SHORT, last_ms + TICK_MS)) == (START_MS + TICK_MS, True)
    assert look(second, WHOLE, last_ms + 2 * TICK_MS) is None
    third = ProblemMemory(path)
    at_ms = last_ms + 3 * TICK_MS
    assert since(look(third, SHORT, at_ms)) == (at_ms, True)


@pytest.mark.parametrize("why", ["old", "of another cluster", "damaged", "of another shape"])
def test_a_file_that_cannot_be_believed_is_not(tmp_path: Path, why: str) -> None:
    path = tmp_path / "problems.json"
    memory = ProblemMemory(path)
    look(memory, WHOLE, START_MS)
    look(memory, SHORT, START_MS + TICK_MS)
    assert json.loads(path.read_text())["since"]
    now_ms, cluster_id = START_MS + 2 * TICK_MS, "one"
    if why == "old":
        now_ms += MAX_GAP_MS
    elif why == "of another cluster":
        cluster_id = "two"
    else:
        path.write_text("{" if why == "damaged" else '{"cluster_id": "one", "seen_ms": "x"}')
    assert since(look(ProblemMemory(path), SHORT, now_ms, cluster_id)) == (now_ms, False)


def told_by_leader(**followers: Behind) -> dict[int, BrokerFacts]:
    """Broker 1 leads, and tells of who follows it (``b2``)."""
    found = {int(name[1:]): each for name, each in followers.items()}
    return {1: BrokerFacts(1, followers={("orders", 0): found})}


def test_a_leader_knows_since_when_better_than_who_looks_now_and_then() -> None:
    memory = ProblemMemory()
    facts = told_by_leader(b2=Behind(12, START_MS - 70_000, True))
    (problem,) = memory.look([topic(SHORT)], facts, START_MS, "one")
    assert problem.lagging == (LaggingReplica(2, 12, START_MS - 70_000, True),)
    assert since(problem) == (START_MS - 70_000, True)
    # Another leader, which was never in touch with it: what was known remains.
    facts = told_by_leader(b2=Behind(None, START_MS, False))
    (problem,) = memory.look([topic(SHORT)], facts, START_MS + TICK_MS, "one")
    assert problem.lagging == (LaggingReplica(2, None, START_MS - 70_000, True),)


def test_a_leader_that_has_never_seen_it_in_sync_says_at_least_since_when() -> None:
    facts = told_by_leader(b2=Behind(None, START_MS - 70_000, False))
    (problem,) = ProblemMemory().look([topic(SHORT)], facts, START_MS, "one")
    assert problem.lagging == (LaggingReplica(2, None, START_MS - 70_000, False),)
    assert since(problem) == (START_MS - 70_000, False)


def test_under_its_minimum_since_the_last_that_was_needed_went() -> None:
    short = replace(SHORT, replicas=(1, 2, 3))
    of_two = TopicState("orders", None, False, (short,), 2)
    early, late = START_MS - 70_000, START_MS - 20_000
    facts = told_by_leader(b2=Behind(5, late, True), b3=Behind(9, early, True))
    (problem,) = ProblemMemory().look([of_two], facts, START_MS, "one")
    assert (problem.kind, problem.since_ms) == ("under_min_isr", late)
    (problem,) = ProblemMemory().look([replace(of_two, min_isr=1)], facts, START_MS, "one")
    assert (problem.kind, problem.since_ms) == ("under_replicated", early)
