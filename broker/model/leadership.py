"""Who leads a partition and who is in sync: what leader, followers and controller tell each other."""

from __future__ import annotations

from typing import NamedTuple

from broker.model.ids import BrokerId


class LeaderAndIsr(NamedTuple):
    """State of one partition as the controller wrote it.

    ``leader_epoch`` rises with each change of leader, ``partition_epoch`` with each change at all:
    it is the version that a proposal is compared with.
    """

    leader_id: BrokerId
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: frozenset[BrokerId]


class IsrMember(NamedTuple):
    """A member, and the registration (KIP-903) that it acknowledged records in."""

    broker_id: BrokerId
    broker_epoch: int


class IsrProposal(NamedTuple):
    """AlterPartition for one partition: the leader wants this ISR, if nothing changed since."""

    leader_id: BrokerId
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int
    members: tuple[IsrMember, ...]

    @property
    def isr(self) -> frozenset[BrokerId]:
        return frozenset(member.broker_id for member in self.members)

    def __str__(self) -> str:
        return f"ProposeIsr({sorted(self.isr)} at partition epoch {self.partition_epoch})"
