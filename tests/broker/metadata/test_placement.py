"""Replicas are distinct, leaders spread evenly, racks differ while there are enough of them."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from broker.metadata.placement import Candidate, place
from broker.model.ids import BrokerId


@st.composite
def clusters(draw: st.DrawFn) -> list[Candidate]:
    ids = draw(st.lists(st.integers(0, 50), min_size=1, max_size=12, unique=True))
    has_racks = draw(st.booleans())
    return [
        Candidate(BrokerId(i), draw(st.sampled_from("xyz")) if has_racks else None) for i in ids
    ]


@given(clusters(), st.integers(1, 40), st.integers(1, 12), st.integers(0, 20), st.integers())
def test_every_placement_is_fair(
    cluster: list[Candidate], partitions: int, factor: int, start: int, seed: int
) -> None:
    factor = min(factor, len(cluster))
    placed = place(cluster, partitions, factor, start, random.Random(seed))
    racks = {candidate.broker_id: candidate.rack for candidate in cluster}
    assert len(placed) == partitions
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        used = {racks[broker_id] for broker_id in replicas}
        assert len(used) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[i] for i in racks) <= 1


def test_the_followers_of_one_leader_differ() -> None:
    cluster = [Candidate(BrokerId(i), None) for i in range(5)]
    placed = place(cluster, 20, 2, 0, random.Random(1))
    followers = {replicas[1] for replicas in placed if replicas[0] == 0}
    assert len(followers) == 4


def test_topics_of_one_partition_do_not_all_have_the_same_leader() -> None:
    cluster = [Candidate(BrokerId(i), None) for i in range(3)]
    dice = random.Random(1)
    leaders = Counter(place(cluster, 1, 1, 0, dice)[0][0] for _ in range(300))
    assert min(leaders[BrokerId(i)] for i in range(3)) > 60
