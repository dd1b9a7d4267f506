"""What must hold of every target, whoever is a member and whatever there was before."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.group.assignors import ASSIGNORS, Candidate, Targets, assign_uniform
from broker.model.ids import TopicId

TOPICS = [uuid.UUID(int=number + 1) for number in range(4)]


def slots(target: Mapping[TopicId, frozenset[int]]) -> set[tuple[TopicId, int]]:
    return {(topic_id, each) for topic_id, partitions in target.items() for each in partitions}


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Candidate], dict[TopicId, int]]:
    counts = {topic_id: draw(st.integers(0, 7)) for topic_id in TOPICS}
    names = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    before = {name: {topic_id: set() for topic_id in TOPICS} for name in names}
    for topic_id in TOPICS:
        for partition in range(9):  # some are gone since
            owner = draw(st.sampled_from([None, *names]))
            if owner is not None:
                before[owner][topic_id].add(partition)
    return {
        name: Candidate(
            draw(st.sampled_from([None, f"i{name}"])),
            draw(st.frozensets(st.sampled_from(TOPICS))),
            {topic_id: frozenset(found) for topic_id, found in before[name].items() if found},
        )
        for name in names
    }, counts


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_each_partition_has_one_owner_who_asks_for_it(
    name: str, group: tuple[dict[str, Candidate], dict[TopicId, int]]
) -> None:
    candidates, counts = group
    targets = ASSIGNORS[name](candidates, counts)
    assert targets.keys() == candidates.keys()
    given_out = [slot for target in targets.values() for slot in slots(target)]
    asked = {topic_id for each in candidates.values() for topic_id in each.topic_ids}
    wanted = {(topic_id, each) for topic_id in asked for each in range(counts[topic_id])}
    assert sorted(given_out) == sorted(wanted)
    for member_id, target in targets.items():
        assert target.keys() <= candidates[member_id].topic_ids
        assert all(target.values())


@given(group=groups())
def test_uniform_is_balanced_and_stays(
    group: tuple[dict[str, Candidate], dict[TopicId, int]],
) -> None:
    candidates, counts = group
    targets = assign_uniform(candidates, counts)
    if len({each.topic_ids for each in candidates.values()}) == 1:
        sizes = [len(slots(target)) for target in targets.values()]
        assert max(sizes) - min(sizes) <= 1
    assert not any(_could_give(candidates, targets, each) for each in candidates)
    settled = {name: each._replace(target=targets[name]) for name, each in candidates.items()}
    assert assign_uniform(settled, counts) == targets


def _could_give(candidates: Mapping[str, Candidate], targets: Targets, rich: str) -> bool:
    """Whether a partition of its would be better off with somebody else."""
    size = len(slots(targets[rich]))
    return any(
        topic_id in each.topic_ids and len(slots(targets[poor])) + 1 < size
        for topic_id in targets[rich]
        for poor, each in candidates.items()
    )
