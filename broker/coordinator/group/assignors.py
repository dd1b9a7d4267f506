"""How partitions are shared out among the members of a consumer group, by the broker.

Pure functions from members and partition counts to a target for each member. Both give every
partition of every subscribed topic to exactly one member that asks for its topic.

``uniform``: counts differ by one at most where all members ask for the same, else as little as their
subscriptions allow; a member keeps what it has as long as that holds. ``range``: of each topic one
contiguous range a member, so that equally partitioned topics are shared out alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.coordinator.group.consumer_member import Assignment
from broker.model.ids import TopicId


class Candidate(NamedTuple):
    """A member to whom partitions may be given."""

    group_instance_id: str | None
    #: Only topics that exist.
    topic_ids: frozenset[TopicId]
    #: Its target until now.
    target: Assignment


#: By member id.
Candidates = Mapping[str, Candidate]
Targets = dict[str, dict[TopicId, frozenset[int]]]
Assignor = Callable[[Candidates, Mapping[TopicId, int]], Targets]
_Slot = tuple[TopicId, int]


def assign_range(candidates: Candidates, partition_counts: Mapping[TopicId, int]) -> Targets:
    targets: Targets = {member_id: {} for member_id in candidates}
    subscribers: dict[TopicId, list[str]] = {}
    for member_id in _in_order(candidates):
        for topic_id in candidates[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, member_ids in subscribers.items():
        least, extra = divmod(partition_counts[topic_id], len(member_ids))
        begin = 0
        for number, member_id in enumerate(member_ids):
            end = begin + least + (number < extra)
            if begin < end:
                targets[member_id][topic_id] = frozenset(range(begin, end))
            begin = end
    return targets


def _in_order(candidates: Candidates) -> list[str]:
    """Static members first: their places stay the same when they come back under another id."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = candidates[member_id].group_instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(candidates, key=place)


def assign_uniform(candidates: Candidates, partition_counts: Mapping[TopicId, int]) -> Targets:
    kept, free = _kept(candidates, partition_counts)
    subscriptions = {each.topic_ids for each in candidates.values()}
    if len(subscriptions) == 1:
        _share_evenly(kept, free)
    elif subscriptions:
        _share_among_subscribers(candidates, kept, free)
    return {member_id: _by_topic(slots) for member_id, slots in kept.items()}


def _kept(
    candidates: Candidates, partition_counts: Mapping[TopicId, int]
) -> tuple[dict[str, list[_Slot]], list[_Slot]]:
    """What members may keep of their targets, and the partitions that nobody has."""
    taken: set[_Slot] = set()
    kept: dict[str, list[_Slot]] = {}
    for member_id, candidate in candidates.items():
        mine = kept[member_id] = []
        for topic_id, partitions in candidate.target.items():
            if topic_id not in candidate.topic_ids:
                continue
            count = partition_counts[topic_id]
            for slot in ((topic_id, partition) for partition in sorted(partitions)):
                if slot[1] < count and slot not in taken:
                    taken.add(slot)
                    mine.append(slot)
    asked = dict.fromkeys(topic_id for each in candidates.values() for topic_id in each.topic_ids)
    free = [
        (topic_id, partition)
        for topic_id in partition_counts
        if topic_id in asked
        for partition in range(partition_counts[topic_id])
        if (topic_id, partition) not in taken
    ]
    return kept, free


def _share_evenly(kept: dict[str, list[_Slot]], free: list[_Slot]) -> None:
    """Everybody may have anything. Those who have most already get the odd ones."""
    total = len(free) + sum(map(len, kept.values()))
    least, extra = divmod(total, len(kept))
    order = sorted(kept, key=lambda member_id: -len(kept[member_id]))
    quotas = {member_id: least + (number < extra) for number, member_id in enumerate(order)}
    for member_id, slots in kept.items():
        free.extend(slots[quotas[member_id] :])
        del slots[quotas[member_id] :]
    left = iter(free)
    for member_id, slots in kept.items():
        for _ in range(quotas[member_id] - len(slots)):
            slots.append(next(left))


def _share_among_subscribers(
    candidates: Candidates, kept: dict[str, list[_Slot]], free: list[_Slot]
) -> None:
    subscribers: dict[TopicId, list[str]] = {}
    for member_id, candidate in candidates.items():
        for topic_id in candidate.topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    # Those that fewest can have go first: there is less choice.
    for slot in sorted(free, key=lambda slot: len(subscribers[slot[0]])):
        kept[_poorest(subscribers[slot[0]], kept)].append(slot)
    _even_out(candidates, subscribers, kept)


def _even_out(
    candidates: Candidates,
    subscribers: Mapping[TopicId, Sequence[str]],
    kept: dict[str, list[_Slot]],
) -> None:
    """Move single partitions from the rich to the poor until nobody gains by it. Each move makes
    the counts more equal, so this ends."""
    has_moved = True
    while has_moved:
        has_moved = False
        for member_id in sorted(candidates, key=lambda each: -len(kept[each])):
            for slot in tuple(kept[member_id]):
                poorest = _poorest(subscribers[slot[0]], kept)
                if len(kept[poorest]) + 1 < len(kept[member_id]):
                    kept[member_id].remove(slot)
                    kept[poorest].append(slot)
                    has_moved = True


def _poorest(member_ids: Sequence[str], kept: Mapping[str, Sequence[_Slot]]) -> str:
    return min(member_ids, key=lambda member_id: len(kept[member_id]))


def _by_topic(slots: Sequence[_Slot]) -> dict[TopicId, frozenset[int]]:
    found: dict[TopicId, set[int]] = {}
    for topic_id, partition in slots:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
