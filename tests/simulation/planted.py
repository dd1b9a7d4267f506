"""Faults planted into the machines, each as a subclass or two: the simulator has to find every one.

The first twelve are the classic ones; the others are such as paper or the simulator itself found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker.metadata import znodes
from broker.metadata.changes import BrokerRegistered, PartitionsChanged
from broker.metadata.cluster_steps import part_with
from broker.metadata.controller import Controller
from broker.metadata.image import BrokerImage
from broker.metadata.leaders import settled
from broker.metadata.pipeline import Step, Steps
from broker.metadata.requests import AlteredIsr, Reassigned, Reassignment, SettledBrokers
from broker.metadata.store import ANY_VERSION, Check, SessionState
from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId
from broker.model.leadership import IsrMember, IsrProposal
from broker.records.header import BatchHeader
from broker.replication.acknowledgement import Acknowledgement
from broker.replication.follower import FollowerMachine
from broker.replication.isr import CommittedIsr, PendingIsr
from broker.replication.leader import LeaderMachine
from broker.replication.replica import Replica
from broker.replication.replica_fetch import Diverged, ReplicaFetch
from broker.replication.replica_log import visible_end
from broker.storage.log import Log
from tests.simulation.broker import Process, Types
from tests.simulation.partition import HostedPartition
from tests.support.simulated_zookeeper import SimulatedStore


def _types(**replaced: Any) -> type[Types]:
    return type("Planted", (Types,), replaced)


def _replica(**replaced: Any) -> type[Types]:
    return _types(replica=type("PlantedReplica", (Replica,), replaced))


class NoTruncationByEpoch(LeaderMachine):
    def _divergence(self, fetch: ReplicaFetch) -> Diverged | None:
        return None


class TruncatesToHighWatermark(FollowerMachine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._log.truncate_to(self._log.high_watermark)


class CommittedIsrCounts(LeaderMachine):
    def committed_bound(self) -> int:
        ends = [
            self.followers[member].log_end_offset
            for member in self.isr.committed
            if member != self.broker_id
        ]
        return min([visible_end(self._log, self.rules.is_flush_bound), *ends])


class IgnoresBrokerEpochs(Controller):
    def alter_isr(
        self, topic: str, index: int, proposal: IsrProposal, done: Callable[[AlteredIsr], None]
    ) -> None:
        brokers = self._pipeline.proposed.brokers
        members = tuple(
            IsrMember(member.broker_id, brokers[member.broker_id].broker_epoch)
            if member.broker_id in brokers
            else member
            for member in proposal.members
        )
        super().alter_isr(topic, index, proposal._replace(members=members), done)


class LeavesRestartedInIsr(Controller):
    def brokers_seen(
        self, brokers: Mapping[BrokerId, BrokerImage], done: Callable[[bool], None]
    ) -> None:
        def steps() -> Steps[SettledBrokers]:
            registered = [BrokerRegistered(broker) for broker in brokers.values()]
            yield Step([*registered], [SettledBrokers()])
            yield from part_with(lambda: self._pipeline.proposed, brokers, lambda topic: False)

        self._pipeline.ask(
            steps(),
            lambda error, message: [SettledBrokers(error=error, message=message)],
            lambda results: done(all(result.is_success for result in results)),
        )


class MovesAtOnce(Controller):
    def reassign(
        self,
        wanted: Sequence[Reassignment],
        done: Callable[[list[Reassigned]], None],
        *,
        may_change_factor: bool = True,
    ) -> None:
        ((topic, index, target),) = wanted

        def steps() -> Steps[Reassigned]:
            image = self._pipeline.proposed
            before = image.partition(topic, index)
            step: Step[Reassigned] = Step([], [Reassigned(topic, index)], is_last=True)
            if before is not None and target is not None and set(target) <= set(image.brokers):
                moved = before._replace(replicas=tuple(target), isr=frozenset(target))
                after = settled(moved, image.brokers)
                after = after._replace(partition_epoch=before.partition_epoch + 1)
                step.changes.append(PartitionsChanged(topic, (after,)))
            yield step

        self._pipeline.ask(
            steps(),
            lambda error, message: [Reassigned(topic, index, error=error, message=message)],
            done,
        )


class AcknowledgesAtOnce(HostedPartition):
    def acknowledgement(self, leader: LeaderMachine, required_offset: int) -> Acknowledgement:
        return Acknowledgement.COMMITTED


class NeedsNoLease(LeaderMachine):
    def holds_lease(self, now_ms: int) -> bool:
        return True


class WritesUnfenced(Controller):
    def _fence(self) -> Check:
        return Check(znodes.CONTROLLER_EPOCH, ANY_VERSION)


class TakesLostForRefused(LeaderMachine):
    def on_proposal_lost(self) -> None:
        self.isr.state = CommittedIsr(self.isr.committed)


class MissesWatches(SimulatedStore):
    """Nobody is told that the connection is back, or what changed meanwhile."""

    def rearm(self) -> None:
        pass

    def _set_state(self, state: SessionState) -> None:
        is_back = state is SessionState.CONNECTED and self._state is SessionState.SUSPENDED
        if is_back:
            self._state = state
        else:
            super()._set_state(state)


class UncheckedLog(Log):
    __slots__ = ()

    def _check_replicated(
        self, batch: memoryview, header: BatchHeader, position: int, is_amid: bool
    ) -> None:
        """No sum is looked at."""


def _uncheck(log: Log) -> None:
    log.__class__ = UncheckedLog


class ShowsUnflushed(Replica):
    def __init__(self, broker_id: BrokerId, log: Log, rules: Any, started_ms: int) -> None:
        from dataclasses import replace

        super().__init__(broker_id, log, replace(rules, is_flush_bound=False), started_ms)


class TakesRoleUnanswered(Process):
    def _start_cluster_membership(self) -> None:
        super()._start_cluster_membership()
        self.registration.was_answered = True


class LeasesAtOnce(Replica):
    def __init__(self, broker_id: BrokerId, log: Log, rules: Any, started_ms: int) -> None:
        super().__init__(broker_id, log, rules, -(1 << 40))

    def next_fetch(self, broker_epoch: int, now_ms: int) -> ReplicaFetch | None:
        return super().next_fetch(broker_epoch, -(1 << 40))


class TellsUnsettled(LeaderMachine):
    @property
    def is_settled(self) -> bool:
        return True


class BelievesRefusalInDoubt(LeaderMachine):
    def on_proposal_refused(self, error: ErrorCode) -> None:
        if isinstance(self.isr.state, PendingIsr):
            self.isr.state = CommittedIsr(self.isr.committed)


PLANTED: dict[str, type[Types]] = {
    "no truncation by epoch": _replica(leader_type=NoTruncationByEpoch),
    "truncation to high watermark": _replica(
        leader_type=NoTruncationByEpoch, follower_type=TruncatesToHighWatermark
    ),
    "high watermark from the committed ISR": _replica(leader_type=CommittedIsrCounts),
    "ISR proposal without broker epochs": _types(controller=IgnoresBrokerEpochs),
    "restarted replica left in ISR": _types(controller=LeavesRestartedInIsr),
    "acknowledgement before ISR": _types(partition=AcknowledgesAtOnce),
    "leader serving without lease": _replica(leader_type=NeedsNoLease),
    "controller write without epoch check": _types(controller=WritesUnfenced),
    "lost answer taken as failure": _replica(leader_type=TakesLostForRefused),
    "missed watch after reconnect": _types(store=MissesWatches),
    "follower appending without CRC check": _types(log_fault=staticmethod(_uncheck)),
    "flush ignored for visibility": _types(replica=ShowsUnflushed),
    "role taken before the registration is answered": _types(process=TakesRoleUnanswered),
    "new leader's lease without waiting": _types(replica=LeasesAtOnce),
    "reassignment ended before its target is in sync": _types(controller=MovesAtOnce),
    "high watermark told before it is settled": _replica(leader_type=TellsUnsettled),
    "refusal believed in doubt": _replica(leader_type=BelievesRefusalInDoubt),
}
