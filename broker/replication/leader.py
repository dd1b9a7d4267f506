"""A partition's leader: what is committed, who is in sync, what may be answered.

Nothing is acknowledged (acks=all) or shown to consumers that the whole maximal ISR does not have.
A new leader's high watermark is what it knew as a follower, which may be less than consumers have
seen; so nothing is told to them before it has reached the start of this leader epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId
from broker.model.leadership import IsrMember, IsrProposal, LeaderAndIsr
from broker.replication.acknowledgement import Acknowledgement
from broker.replication.follower_state import (
    UNKNOWN_OFFSET,
    FollowerProgress,
    FollowerState,
    Pulse,
)
from broker.replication.isr import Isr
from broker.replication.lease import LEASE_MS, Lease
from broker.replication.replica_fetch import (
    Accepted,
    Diverged,
    FetchRefused,
    FetchVerdict,
    ReplicaFetch,
)
from broker.replication.replica_log import ReplicaLog, visible_end

#: Broker epochs of the registered brokers, as the newest image has them.
BrokerEpochs = Mapping[BrokerId, int]


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """Settings that bind a partition: ``replica.lag.time.max.ms``, ``min.insync.replicas``,
    whether ``flush.messages`` is 1, ``replica.lag.max.messages`` (-1: any number)."""

    lag_max_ms: int = 30_000
    min_insync_replicas: int = 1
    is_flush_bound: bool = False
    lag_max_records: int = -1
    lease_ms: int = LEASE_MS


class LeaderMachine:
    """See the module's docstring. One leader epoch of one partition on this broker."""

    def __init__(
        self,
        broker_id: BrokerId,
        state: LeaderAndIsr,
        log: ReplicaLog,
        rules: ReplicationRules,
        lease: Lease,
        now_ms: int,
    ) -> None:
        assert state.leader_id == broker_id, (state, broker_id)
        self.broker_id = broker_id
        self._log = log
        self.rules = rules
        self.leader_epoch = state.leader_epoch
        self.replicas = state.replicas
        self.isr = Isr(state.isr, state.partition_epoch)
        self.lease = lease
        self._answer_count = 0
        log.assign_leader_epoch(state.leader_epoch)
        self.epoch_start_offset = log.log_end_offset
        self.followers = {
            replica: FollowerState(
                last_caught_up_ms=now_ms, began_ms=now_ms, began_in_sync=replica in state.isr
            )
            for replica in state.replicas
            if replica != broker_id
        }
        self.advance_high_watermark()

    # Committed ---------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def is_settled(self) -> bool:
        """Whether consumers may be told the high watermark: it is not behind what any leader
        before told them. Until then they get OFFSET_NOT_AVAILABLE."""
        return self.high_watermark >= self.epoch_start_offset

    def committed_bound(self) -> int:
        """The end of what every member of the maximal ISR is known to have."""
        bound = visible_end(self._log, self.rules.is_flush_bound)
        for member in self.isr.maximal:
            if member != self.broker_id:
                follower = self.followers.get(member)
                bound = min(bound, UNKNOWN_OFFSET if follower is None else follower.log_end_offset)
        return bound

    def advance_high_watermark(self) -> bool:
        """After an append, a flush, a fetch or a change of the ISR; gives whether it moved."""
        bound = self.committed_bound()
        if bound <= self._log.high_watermark:
            return False
        self._log.set_high_watermark(bound)
        return True

    def refusal_of_append(self) -> ErrorCode:
        """For acks=all, before anything is appended."""
        if len(self.isr.committed) < self.rules.min_insync_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def acknowledgement(self, required_offset: int) -> Acknowledgement:
        """Of a batch that ends at ``required_offset`` (exclusive)."""
        if self._log.high_watermark < required_offset:
            return Acknowledgement.WAITING
        if len(self.isr.committed) < self.rules.min_insync_replicas:
            return Acknowledgement.TOO_FEW_REPLICAS
        return Acknowledgement.COMMITTED

    def holds_lease(self, now_ms: int) -> bool:
        self.note_pulses()
        return self.lease.is_held(self.isr.maximal - {self.broker_id}, now_ms)

    # Followers ---------------------------------------------------------------------------------

    def on_fetch(
        self,
        fetch: ReplicaFetch,
        epochs: BrokerEpochs,
        now_ms: int,
        answer_sent_ms: int | None = None,
    ) -> FetchVerdict:
        """Only an accepted fetch counts: from an assigned replica, in its present registration, at
        this leader epoch, from a log that is a prefix of ours.

        ``answer_sent_ms``: when the answer was sent that the follower had before it sent this; known
        to a session of many partitions, else found by its number (``note_answer``).
        """
        if fetch.leader_epoch != self.leader_epoch:
            is_old = fetch.leader_epoch < self.leader_epoch
            return FetchRefused(
                ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        follower = self.followers.get(fetch.replica_id)
        if follower is None:
            return FetchRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if epochs.get(fetch.replica_id) != fetch.replica_epoch:
            return FetchRefused(ErrorCode.STALE_BROKER_EPOCH)
        sent_ms = answer_sent_ms
        if sent_ms is None:
            sent_ms = follower.answers.get(fetch.answer_number)
        if sent_ms is not None and follower.broker_epoch == fetch.replica_epoch:
            self.lease.on_evidence(fetch.replica_id, sent_ms)
        diverged = self._divergence(fetch)
        if diverged is not None:
            follower.broker_epoch = fetch.replica_epoch
            return diverged
        log = self._log
        if not log.log_start_offset <= fetch.fetch_offset <= log.log_end_offset:
            return FetchRefused(ErrorCode.OFFSET_OUT_OF_RANGE)
        follower.on_fetch(fetch.fetch_offset, fetch.replica_epoch, log.log_end_offset, now_ms)
        self.advance_high_watermark()
        return Accepted(fetch.fetch_offset)

    def _divergence(self, fetch: ReplicaFetch) -> Diverged | None:
        if fetch.last_fetched_epoch < 0:
            return None
        epoch, end_offset = self._log.end_offset_for_epoch(fetch.last_fetched_epoch)
        if epoch < fetch.last_fetched_epoch or end_offset < fetch.fetch_offset:
            return Diverged(epoch, end_offset)
        return None

    def maybe_rest(self, follower_id: BrokerId, broker_epoch: int, pulse: Pulse) -> bool:
        """Until ``rouse`` each beat counts as a fetch like the one that was just accepted. Only for a follower
        that is in the ISR and has everything; whatever changes here has to rouse it first."""
        follower = self.followers.get(follower_id)
        if (
            follower is None
            or follower_id not in self.isr.committed
            or follower.broker_epoch != broker_epoch
            or follower.log_end_offset != self._log.log_end_offset
        ):
            return False
        follower.rest(pulse)
        return True

    def rouse(self) -> None:
        """From now on every follower's fetches are judged one by one."""
        self.note_pulses()
        for follower in self.followers.values():
            follower.pulse = None

    def note_pulses(self) -> None:
        """Take over what the beats have shown so far."""
        for follower_id, follower in self.followers.items():
            answer_sent_ms = follower.note_pulse()
            if answer_sent_ms is not None:
                self.lease.on_evidence(follower_id, answer_sent_ms)

    def progress(self) -> list[FollowerProgress]:
        """Of all followers, in the order of the assignment."""
        self.note_pulses()
        return [
            self.followers[replica].progress(replica)
            for replica in self.replicas
            if replica in self.followers
        ]

    @property
    def is_at_rest(self) -> bool:
        """All of them are, so there is no ISR to propose."""
        return all(follower.pulse is not None for follower in self.followers.values())

    def note_answer(self, follower_id: BrokerId, now_ms: int) -> int:
        """An answer is being sent to this follower; gives its number."""
        self._answer_count += 1
        follower = self.followers.get(follower_id)
        if follower is not None:
            follower.note_answer(self._answer_count, now_ms)
        return self._answer_count

    # ISR ---------------------------------------------------------------------------------------

    def propose(self, epochs: BrokerEpochs, now_ms: int) -> IsrProposal | None:
        """What to propose to the controller now: called after fetches and on a timer."""
        broker_epoch = epochs.get(self.broker_id)
        if broker_epoch is None or self.isr.is_in_flight:
            return None
        wanted = self._wanted_isr(epochs, now_ms)
        if not self.isr.propose(wanted):
            return None
        members = tuple(
            IsrMember(member, self._broker_epoch_of(member, epochs)) for member in sorted(wanted)
        )
        return IsrProposal(
            self.broker_id, broker_epoch, self.leader_epoch, self.isr.partition_epoch, members
        )

    def _broker_epoch_of(self, member: BrokerId, epochs: BrokerEpochs) -> int:
        """Of the registration that acknowledged, where there was one in this leader epoch."""
        follower = self.followers.get(member)
        if follower is not None and follower.log_end_offset >= 0:
            return follower.broker_epoch
        return epochs.get(member, -1)

    def _wanted_isr(self, epochs: BrokerEpochs, now_ms: int) -> frozenset[BrokerId]:
        end = self._log.log_end_offset
        lag_max_ms = self.rules.lag_max_ms
        kept = {self.broker_id}
        for member in self.isr.committed - {self.broker_id}:
            follower = self.followers.get(member)
            if (
                follower is not None
                and follower.is_caught_up(end, lag_max_ms, now_ms)
                and self._is_within_count(follower)
            ):
                kept.add(member)
        for replica, follower in self.followers.items():
            if replica not in self.isr.committed and self._may_join(replica, follower, epochs):
                kept.add(replica)
        return frozenset(kept)

    def _may_join(self, replica: BrokerId, follower: FollowerState, epochs: BrokerEpochs) -> bool:
        return (
            epochs.get(replica) == follower.broker_epoch
            and follower.log_end_offset >= self.high_watermark
            and follower.log_end_offset >= self.epoch_start_offset
            and self._is_within_count(follower)
        )

    def _is_within_count(self, follower: FollowerState) -> bool:
        """One that has not fetched in this leader epoch is judged by the time alone."""
        most = self.rules.lag_max_records
        return (
            most < 0
            or follower.log_end_offset == UNKNOWN_OFFSET
            or self._log.log_end_offset - follower.log_end_offset <= most
        )

    def on_state(self, state: LeaderAndIsr, epochs: BrokerEpochs) -> None:
        """A newer image, in the same leader epoch."""
        for replica, follower in self.followers.items():
            if epochs.get(replica) != follower.broker_epoch:
                follower.forget_registration()
        self._take(state)

    def _take(self, state: LeaderAndIsr) -> bool:
        if not self.isr.on_accepted(state.partition_epoch, state.isr):
            return False
        self.replicas = state.replicas
        self.followers = {
            replica: self.followers.get(replica) or FollowerState()
            for replica in state.replicas
            if replica != self.broker_id
        }
        self.advance_high_watermark()
        return True

    def on_proposal_accepted(self, state: LeaderAndIsr, asked_ms: int) -> None:
        """The controller wrote it, and says what the partition's state is now."""
        if state.leader_epoch != self.leader_epoch:
            self.isr.on_lost()
            return
        self._take(state)  # unless the image came first
        if self.isr.partition_epoch == state.partition_epoch and self.isr.maximal == {
            self.broker_id
        }:
            self.lease.on_confirmed(asked_ms)

    def on_proposal_refused(self, error: ErrorCode) -> None:
        """INELIGIBLE_REPLICA says that nothing was written; anything else leaves it open, or says
        that we are not up to date, and the next image ends it."""
        if error is ErrorCode.INELIGIBLE_REPLICA:
            self.isr.on_refused()
        else:
            self.isr.on_lost()

    def on_proposal_lost(self) -> None:
        self.isr.on_lost()

    def on_alone_confirmed(self, partition_epoch: int, asked_ms: int) -> None:
        """The store's state node was read, and has this version."""
        if partition_epoch == self.isr.partition_epoch and self.isr.maximal == {self.broker_id}:
            self.lease.on_confirmed(asked_ms)
