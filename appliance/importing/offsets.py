"""Groups' committed offsets. Records keep their offsets, so these are kept as well.

One that lies beyond what was copied (a consumer that reads what no transaction has ended yet) is taken back to
the copy's end: a consumer here goes on there, and reads rather twice than never.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.failure import ItemError
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway
from dashboard.groups import CommittedOffset


@dataclass(slots=True)
class Brought:
    groups: int = 0
    offsets: int = 0
    taken_back: int = 0
    errors: list[ItemError] = field(default_factory=list)
    topics_left: set[str] = field(default_factory=set)
    """Topics of which a group's offsets could not be set."""


def translated(
    committed: Mapping[TopicPartition, CommittedOffset], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, CommittedOffset]:
    """For the copies that end at ``ends``. A leader epoch says something in its own cluster only."""
    return {
        key: CommittedOffset(min(at.offset, ends[key]), None, at.metadata)
        for key, at in committed.items()
        if key in ends and at.offset >= 0
    }


def bring(source: Gateway, target: Gateway, ends: Mapping[TopicPartition, int]) -> Brought:
    """Set here what every group has committed there, for these partitions."""
    brought = Brought()
    names = [listing.group for listing in source.groups.listings()]
    for name, committed in source.groups.committed(names).items():
        if isinstance(committed, KafkaFailure):
            brought.errors.append(ItemError.of(committed, group=name))
            brought.topics_left.update(key.topic for key in ends)
            continue
        wanted = translated(committed, ends)
        if not wanted:
            continue
        outcomes = target.groups.bring_offsets(name, wanted)
        failures = {key: failure for key, failure in outcomes.items() if failure is not None}
        if failures:
            failure = next(iter(failures.values()))
            brought.errors.append(ItemError.of(failure, group=name))
            brought.topics_left.update(key.topic for key in failures)
            continue
        brought.groups += 1
        brought.offsets += len(wanted)
        brought.taken_back += sum(committed[key].offset > at.offset for key, at in wanted.items())
    return brought
