"""What consumer groups look like from outside: plain values that the gateway returns.

States and types are Kafka's own words (``Stable``, ``PreparingRebalance``; ``classic``,
``consumer``). ``None`` stands for what the cluster did not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from broker.model.ids import TopicPartition
from dashboard.cluster import BrokerView

STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Empty",
    "Dead",
    "Assigning",
    "Reconciling",
)
TYPES = ("classic", "consumer")
VACANT_STATES = frozenset({"Empty", "Dead"})
"""Nobody is a member: committed offsets may be changed from outside."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    group: str
    state: str | None
    group_type: str | None
    coordinator: int | None = None


@dataclass(frozen=True, slots=True)
class MemberView:
    """``target`` and ``epoch``: only of groups of the type consumer (KIP-848)."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """``group_epoch`` and ``assignment_epoch``: only of groups of the type consumer."""

    group: str
    state: str
    group_type: str | None
    coordinator: BrokerView | None
    assignor: str | None
    members: tuple[MemberView, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_vacant(self) -> bool:
        return self.state in VACANT_STATES


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int | None = None
    metadata: str | None = None
