"""Groups' committed offsets. Records keep their offsets, so these are kept as well.

One that lies beyond what was copied (a consumer that reads what no transaction has ended yet) is taken back to
the copy's end: a consumer here goes on there, and reads rather twice than never.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from appliance.failure import ItemError
from appliance.importing.patience import Patience, passes
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


def names(cluster: Gateway, patience: Patience) -> set[str]:
    """Groups that the cluster's coordinators know now."""
    return {listing.group for listing in patience.ask(cluster.groups.listings)}


def bring(
    source: tuple[Gateway, Patience],
    target: tuple[Gateway, Patience],
    known: Collection[str],
    ends: Mapping[TopicPartition, int],
) -> Brought:
    """Set here what every group has committed there, for these partitions.

    ``known``: groups that were listed earlier. A coordinator that moves is listed by nobody for a moment.
    """
    brought = Brought()
    there, patience = source
    groups = sorted(names(there, patience).union(known))
    told = patience.ask(
        lambda: there.groups.committed(groups),
        lambda found: not any(isinstance(e, KafkaFailure) and passes(e) for e in found.values()),
    )
    for name, committed in told.items():
        if isinstance(committed, KafkaFailure):
            brought.errors.append(ItemError.of(committed, group=name))
            brought.topics_left.update(key.topic for key in ends)
            continue
        wanted = translated(committed, ends)
        if wanted:
            _bring_one(target, name, committed, wanted, brought)
    return brought


def _bring_one(
    target: tuple[Gateway, Patience],
    name: str,
    committed: Mapping[TopicPartition, CommittedOffset],
    wanted: dict[TopicPartition, CommittedOffset],
    brought: Brought,
) -> None:
    here, patience = target
    outcomes = patience.ask(
        lambda: here.groups.bring_offsets(name, wanted),
        lambda found: (
            not any(failure is not None and passes(failure) for failure in found.values())
        ),
    )
    failures = {key: failure for key, failure in outcomes.items() if failure is not None}
    if failures:
        failure = next(iter(failures.values()))
        brought.errors.append(ItemError.of(failure, group=name))
        brought.topics_left.update(key.topic for key in failures)
        return
    brought.groups += 1
    brought.offsets += len(wanted)
    brought.taken_back += sum(committed[key].offset > at.offset for key, at in wanted.items())
