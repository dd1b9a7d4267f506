"""A partition that this broker leads and others follow: ``Partition`` over ``LeaderMachine``.

What is committed, who may be acknowledged and what may be answered the machine decides; here the
waiting requests are told. Whatever may have moved the high watermark or the ISR ends with
``settle``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.config.topic_config import TopicConfig
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import BrokerId, TopicId, TopicPartition
from broker.model.leadership import IsrProposal, LeaderAndIsr
from broker.records.header import BatchHeader
from broker.records.validation import ProduceRules
from broker.replication.acknowledgement import Acknowledgement
from broker.replication.leader import BrokerEpochs, LeaderMachine
from broker.replication.partition import Partition
from broker.replication.read_replica import Reader, preferred
from broker.replication.replica_fetch import Accepted, FetchVerdict, ReplicaFetch
from broker.replication.traffic import TopicTraffic
from broker.storage.append_info import AppendInfo
from broker.storage.log import Log

if TYPE_CHECKING:
    from broker.replication.replica_session import ReplicaEntry


class ReplicatedPartition(Partition):
    """Of one leader epoch: another one gets another object."""

    __slots__ = (
        "_follower_starts",
        "_has_resting",
        "_now_ms",
        "_on_isr_wanted",
        "_watches",
        "leader",
        "start_waiters",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        leader: LeaderMachine,
        rules: ProduceRules,
        traffic: TopicTraffic,
        now_ms: Callable[[], int],
        on_isr_wanted: Callable[[ReplicatedPartition], None],
    ) -> None:
        self.leader = leader
        self._now_ms = now_ms
        #: Told when another ISR may be worth proposing.
        self._on_isr_wanted = on_isr_wanted
        #: Of the followers' sessions, the entries that hear of changes here; an append wakes whoever waits there.
        self._watches: dict[BrokerId, ReplicaEntry] = {}
        #: Whether some of them are at rest.
        self._has_resting = False
        #: Where the followers' logs begin, as they told in this leader epoch.
        self._follower_starts: dict[BrokerId, int] = {}
        #: Called when that, or who is to be asked, may have changed.
        self.start_waiters: set[Callable[[], None]] = set()
        super().__init__(topic_partition, topic_id, log, leader.leader_epoch, rules, traffic)

    # -- write --------------------------------------------------------------------------------

    def append(self, batch: memoryview | bytearray, header: BatchHeader, now_ms: int) -> AppendInfo:
        info = self.log.append_as_leader(batch, header, self.leader_epoch, now_ms)
        if not info.is_duplicate:
            self.version += 1
            self._wake_followers()
            self.advance_high_watermark()
        return info

    def touch(self) -> None:
        if self._has_resting:
            self.rouse()
        super().touch()

    def append_copies(self, batches: memoryview, now_ms: int) -> AppendInfo:
        try:
            return self.log.append_as_follower(batches, now_ms)
        finally:
            self.version += 1
            self._wake_followers()
            self.advance_high_watermark()

    def check_copies(self) -> None:
        refusal = self.leader.refusal_of_append()
        if refusal is not ErrorCode.NONE:
            raise KafkaError(refusal)

    def restart_at(self, offset: int) -> None:
        """Followers learn of it by their next fetch, which is out of range; the high watermark waits for them."""
        try:
            super().restart_at(offset)
        finally:
            self.version += 1
            self._wake_followers()

    def check_append(self, is_acks_all: bool) -> None:
        self.check_import()
        if is_acks_all:
            self.check_copies()
        else:
            self.check_lease()

    def check_lease(self) -> None:
        if not self.leader.holds_lease(self._now_ms()):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def may_coordinate(self) -> bool:
        leader = self.leader
        return not self.is_closed and leader.is_settled and leader.holds_lease(self._now_ms())

    @property
    def acknowledges_early(self) -> bool:
        return not self.is_flush_bound

    def _note_rules(self) -> None:
        super()._note_rules()
        self.is_guarded = True

    def advance_high_watermark(self) -> None:
        """After an append, a flush or a change of settings."""
        self.leader.advance_high_watermark()
        self.settle()

    def settle(self) -> None:
        """Tell who waits what the machine has come to."""
        leader = self.leader
        reached = leader.high_watermark
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.touch()
        awaiting = self._awaiting
        while awaiting and awaiting[0][0] <= reached:
            offset, operation = awaiting.popleft()
            if leader.acknowledgement(offset) is Acknowledgement.COMMITTED:
                operation.on_acknowledged(self)
            else:
                operation.on_lost(self, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def _wake_followers(self) -> None:
        if self._has_resting:
            self.rouse()
        for entry in self._watches.values():
            entry.wake()

    # -- read ---------------------------------------------------------------------------------

    def readable_end(self, is_read_committed: bool) -> int:
        """Raises ``KafkaError`` until it is sure that consumers were not told more before."""
        if not self.leader.is_settled:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return super().readable_end(is_read_committed)

    def preferred_reader(
        self, rack: str, fetch_offset: int, racks: Mapping[BrokerId, str | None]
    ) -> int:
        leader, starts = self.leader, self._follower_starts
        leader.note_pulses()
        readers = [
            Reader(replica, racks[replica], follower.log_end_offset, follower.last_caught_up_ms)
            for replica, follower in leader.followers.items()
            if replica in racks
            and replica in leader.isr.committed
            and starts.get(replica, fetch_offset + 1) <= fetch_offset <= follower.log_end_offset
        ]
        return preferred(rack, racks.get(leader.broker_id), readers)

    # -- followers ----------------------------------------------------------------------------

    def on_replica_fetch(
        self,
        fetch: ReplicaFetch,
        log_start_offset: int,
        epochs: BrokerEpochs,
        now_ms: int,
        answer_sent_ms: int | None,
    ) -> FetchVerdict:
        leader = self.leader
        verdict = leader.on_fetch(fetch, epochs, now_ms, answer_sent_ms)
        if isinstance(verdict, Accepted):
            self._follower_starts[fetch.replica_id] = log_start_offset
            if self.start_waiters:
                self._tell_start_waiters()
        if leader.high_watermark > self.high_watermark:
            self.settle()
        if isinstance(verdict, Accepted) and fetch.replica_id not in leader.isr.committed:
            self._on_isr_wanted(self)
        return verdict

    def watch(self, follower_id: BrokerId, entry: ReplicaEntry) -> None:
        """A follower has one session; what an older one had here is at rest no more."""
        other = self._watches.get(follower_id)
        if other is not entry:
            if other is not None:
                self.rouse()
            self._watches[follower_id] = entry
            entry.watched = self

    def unwatch(self, follower_id: BrokerId, entry: ReplicaEntry) -> None:
        if self._watches.get(follower_id) is entry:
            del self._watches[follower_id]

    def maybe_rest(self, follower_id: BrokerId, entry: ReplicaEntry) -> None:
        """Its fetch was accepted and there is nothing to tell: that needs no look until something changes."""
        session = entry.session
        if (
            self._watches.get(follower_id) is entry
            and not self.is_closed
            and entry.fetch_offset == self.log.log_end_offset
            and self.leader.maybe_rest(follower_id, session.replica_epoch, session.pulse)
        ):
            entry.rest()
            self._has_resting = True

    def rouse(self) -> None:
        """Before anything changes that a follower's fetch is judged by, or just after, in the same turn."""
        self._has_resting = False
        self.leader.rouse()
        for entry in self._watches.values():
            entry.on_change()

    def on_state(self, state: LeaderAndIsr, epochs: BrokerEpochs) -> None:
        """A newer image, in the same leader epoch."""
        self.rouse()
        self.leader.on_state(state, epochs)
        self.settle()
        self._tell_start_waiters()

    def _tell_start_waiters(self) -> None:
        for waiter in tuple(self.start_waiters):
            waiter()

    def low_watermark(self, epochs: BrokerEpochs) -> int:
        """Where the earliest log begins, of all replicas on brokers that are there; -1 while one of
        them has not told (KIP-107)."""
        starts = [self.log.log_start_offset]
        for follower_id in self.leader.followers:
            if follower_id in epochs:
                starts.append(self._follower_starts.get(follower_id, -1))
        return min(starts)

    def propose(self, epochs: BrokerEpochs) -> IsrProposal | None:
        return self.leader.propose(epochs, self._now_ms())

    def on_proposal_ended(
        self, error: ErrorCode | None, state: LeaderAndIsr | None, asked_ms: int
    ) -> None:
        """``error`` None: no answer, so it may have been written or not."""
        if self.is_closed:
            return
        self.rouse()
        if error is None:
            self.leader.on_proposal_lost()
        elif error is ErrorCode.NONE and state is not None:
            self.leader.on_proposal_accepted(state, asked_ms)
        else:
            self.leader.on_proposal_refused(error)
        self.settle()

    def is_alone(self, broker_id: BrokerId) -> bool:
        return self.leader.isr.maximal == {broker_id}

    # -- change -------------------------------------------------------------------------------

    def set_config(self, config: TopicConfig, rules: ProduceRules) -> None:
        self.leader.rules = replace(
            self.leader.rules,
            min_insync_replicas=config.min_insync_replicas,
            is_flush_bound=config.flush_messages == 1,
        )
        super().set_config(config, rules)

    def delete_records(self, before_offset: int) -> int:
        start_offset = super().delete_records(before_offset)
        self._wake_followers()
        return start_offset

    def close(self, reason: ErrorCode) -> None:
        super().close(reason)
        self.rouse()
        self._wake_followers()
        self._watches.clear()
        self._tell_start_waiters()
