"""Targets of a consumer group's members: what they are computed from, and what becomes of them.

Small ones are computed at once. Big ones may take seconds, so they are computed beside the loop, from what the
group was when they were asked for; until they are there the group's members keep the targets that they
have. Whoever left meanwhile gets nothing, whoever came waits for the next ones: the group's epoch is
higher than theirs by then.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.coordinator.group.assignors import Assignor, Candidates, Targets, assign_range
from broker.coordinator.group.consumer import ConsumerGroup
from broker.coordinator.group.consumer_records import (
    TargetEpoch,
    target_epoch_record,
    target_record,
)
from broker.coordinator.result import CoordinatorRecord
from broker.model.ids import TopicId

#: Members and partitions that one turn of the loop shares out: some 5 ms.
MOST_AT_ONCE = 2500
#: Members times partitions where members ask for different topics, and it is more than arithmetic.
MOST_MIXED_AT_ONCE = 20_000


class Question(NamedTuple):
    """Whom to assign what, by the group's epoch ``group_epoch``. Nothing of it changes any more."""

    group_epoch: int
    assign: Assignor
    candidates: Candidates
    counts: dict[TopicId, int]

    @property
    def is_big(self) -> bool:
        members, partitions = len(self.candidates), sum(self.counts.values())
        if members + partitions > MOST_AT_ONCE:
            return True
        if self.assign is assign_range or members * partitions <= MOST_MIXED_AT_ONCE:
            return False
        return len({each.topic_ids for each in self.candidates.values()}) > 1

    def answer(self) -> Targets:
        return self.assign(self.candidates, self.counts)


def records_of(
    group: ConsumerGroup, group_epoch: int, targets: Targets, now_ms: int
) -> list[CoordinatorRecord]:
    """Those that have changed, then their epoch."""
    group_id = group.group_id
    records = [
        target_record(group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]
    records.append(target_epoch_record(group_id, TargetEpoch(group_epoch, now_ms)))
    return records


def late_records(
    group: ConsumerGroup, question: Question, targets: Targets, now_ms: int
) -> list[CoordinatorRecord]:
    """Of targets that come later: the group may be another by now. None where newer ones are there
    already."""
    if not group.assignment_epoch < question.group_epoch <= group.group_epoch:
        return []
    found: Targets = {}
    for member_id, target in targets.items():
        if member_id in group.members:
            found[member_id] = target
            continue
        # A static member that came back under another id goes on in its place.
        successor = group.static_member(question.candidates[member_id].group_instance_id)
        if successor is not None and successor.member_id not in targets:
            found[successor.member_id] = target
    return records_of(group, question.group_epoch, found, now_ms)
