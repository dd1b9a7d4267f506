"""Since when a partition has a problem, in one process and over the next one's start."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.collecting.problems import MAX_GAP_MS, ProblemMemory
from dashboard.snapshots import PartitionProblem, PartitionState, TopicState

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
