"""One partition that this broker leads: its log, its high watermark and who waits for it.

Hot path: ``append`` runs once per batch and ``read`` once per fetched partition; both touch a
few attributes around one call into ``storage``.

With one replica the leader is the whole ISR, so the high watermark follows the log end offset,
or the flushed offset when ``flush.messages`` is 1: then nothing becomes visible, and nothing is
acknowledged, that a loss of power could take back. ``replicated_partition.py`` is for several.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.config.topic_config import TopicConfig
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import BrokerId, TopicId, TopicPartition
from broker.model.internal_topics import is_internal
from broker.records.header import BatchHeader
from broker.records.validation import ProduceRules
from broker.replication.traffic import TopicTraffic
from broker.storage.append_info import AppendInfo
from broker.storage.cold import ColdRead
from broker.storage.log import Log
from broker.storage.log_reader import LogRead

if TYPE_CHECKING:
    from broker.replication.delayed import DelayedFetch, DelayedProduce
    from broker.replication.replica_manager import PendingAppend

#: Kafka's default of ``flush.messages`` and ``flush.ms``.
NEVER: Final = (1 << 63) - 1


class Partition:
    """Leader-side state of one partition."""

    __slots__ = (
        "_awaiting",
        "_forgotten_count",
        "close_reason",
        "fetch_waiters",
        "high_watermark",
        "is_flush_bound",
        "is_flushed_by_rule",
        "is_guarded",
        "is_internal",
        "leader_epoch",
        "log",
        "pending_appends",
        "rules",
        "topic_id",
        "topic_partition",
        "traffic",
        "version",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        leader_epoch: int,
        rules: ProduceRules,
        traffic: TopicTraffic,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        #: Only the broker itself writes here.
        self.is_internal = is_internal(topic_partition.topic)
        self.log = log
        self.leader_epoch = leader_epoch
        self.rules = rules
        #: The counters of its topic.
        self.traffic = traffic
        #: Why the partition is gone; NONE while it is here.
        self.close_reason = ErrorCode.NONE
        #: Offsets below it are committed: visible to consumers, never taken back.
        self.high_watermark = 0
        #: Raised by everything that a fetch could notice; lets sessions skip what did not change.
        self.version = 0
        #: Fetches that an append here may complete.
        self.fetch_waiters: set[DelayedFetch] = set()
        #: Appends in arrival order that wait for a record walk in a thread (empty nearly always).
        #: None until the first, as below: an empty queue takes 760 bytes, of each of thousands of partitions.
        self.pending_appends: deque[PendingAppend] | None = None
        #: (required offset, operation) in ascending order: acknowledgements come in log order.
        self._awaiting: deque[tuple[int, DelayedProduce]] | None = None
        #: How many of them have ended otherwise since (timed out, cancelled).
        self._forgotten_count = 0
        self._note_rules()
        self.advance_high_watermark()

    # -- write --------------------------------------------------------------------------------

    def append(self, batch: memoryview | bytearray, header: BatchHeader, now_ms: int) -> AppendInfo:
        """Append one checked batch; the caller performs ``AppendInfo``'s deferred work."""
        info = self.log.append_as_leader(batch, header, self.leader_epoch, now_ms)
        if not info.is_duplicate:
            self.advance_high_watermark()
        return info

    def check_append(self, is_acks_all: bool) -> None:
        """Where ``is_guarded``: raises ``KafkaError`` when no batch may be appended now."""
        self.check_import()
        if is_acks_all and self.log.config.min_insync_replicas > 1:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)  # the leader is all there is

    def check_import(self) -> None:
        """Raises ``KafkaError`` while the topic becomes a copy of another one, offset for offset."""
        if self.log.config.import_from:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "The topic is being imported (odradek.import.from); until that has ended"
                " nobody else may write to it",
            )

    def append_copies(self, batches: memoryview, now_ms: int) -> AppendInfo:
        """Append batches of an imported topic, which keep their offsets; holes may be between them.

        Raises ``CorruptLogError`` as ``Log.append_as_follower`` does; the ones before it are stored then.
        """
        try:
            return self.log.append_as_follower(batches, now_ms)
        finally:
            self.advance_high_watermark()

    def check_copies(self) -> None:
        """Raises ``KafkaError`` when no batch of an imported topic may be appended now."""

    def restart_at(self, offset: int) -> None:
        """The log goes on, empty, at ``offset`` beyond its end: nothing below it is there any more."""
        self.log.truncate_fully_and_start_at(offset)
        self.advance_high_watermark()

    def check_lease(self) -> None:
        """Raises ``KafkaError`` when this broker may not answer from its memory: another may lead."""

    @property
    def may_coordinate(self) -> bool:
        """Whether a coordinator over this partition may answer."""
        return not self.is_closed

    @property
    def acknowledges_early(self) -> bool:
        """Whether acks=1 is answered before the high watermark covers the batch."""
        return False

    def _note_rules(self) -> None:
        config = self.log.config
        #: Whether ``check_append`` has anything to say.
        self.is_guarded = config.min_insync_replicas > 1 or config.import_from != ""
        #: Whether acknowledgements wait for the disk (``flush.messages=1``).
        self.is_flush_bound = config.flush_messages == 1
        #: Whether an append can make a flush due at all.
        self.is_flushed_by_rule = config.flush_messages < NEVER or config.flush_ms < NEVER

    def advance_high_watermark(self) -> None:
        """Follow the log; wakes fetches and acknowledges produces that waited for it."""
        log = self.log
        reached = log.flushed_offset if self.is_flush_bound else log.log_end_offset
        if reached <= self.high_watermark:
            return
        self.high_watermark = reached
        log.set_high_watermark(reached)
        self.touch()
        while self._awaiting and self._awaiting[0][0] <= reached:
            self._awaiting.popleft()[1].on_acknowledged(self)

    def touch(self) -> None:
        """Something that a fetch reports has changed."""
        self.version += 1
        self.traffic.touch()
        if self.fetch_waiters:
            for waiter in tuple(self.fetch_waiters):
                waiter.wake()

    def await_acknowledgement(self, offset: int, operation: DelayedProduce) -> None:
        if self._awaiting is None:
            self._awaiting = deque()
        self._awaiting.append((offset, operation))

    def forget_produce(self) -> None:
        """One that awaits has ended; they are swept out when they are more than those that wait."""
        self._forgotten_count += 1
        if self._awaiting is None:
            return
        if 2 * self._forgotten_count > len(self._awaiting):
            self._awaiting = deque(entry for entry in self._awaiting if not entry[1].is_ended)
            self._forgotten_count = 0

    # -- read ---------------------------------------------------------------------------------

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """KIP-320: refuse a client whose knowledge of the leader is older or newer than ours."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    @property
    def last_stable_offset(self) -> int:
        """End of what read_committed consumers see."""
        return self.log.last_stable_offset(self.high_watermark)

    def readable_end(self, is_read_committed: bool) -> int:
        return self.last_stable_offset if is_read_committed else self.high_watermark

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch that is not above ``leader_epoch``.

        The log learns of an epoch with its first batch; until then the current one begins, and the
        one before it ends, at the log end.
        """
        log = self.log
        latest = log.latest_leader_epoch
        if latest < leader_epoch <= self.leader_epoch:
            is_known = leader_epoch == self.leader_epoch or latest < 0
            return leader_epoch if is_known else latest, log.log_end_offset
        return log.end_offset_for_epoch(leader_epoch)

    def leader_epoch_at(self, offset: int) -> int:
        """Of the batch that holds ``offset``, or is going to."""
        leader_epoch = self.log.epoch_at(offset)
        if leader_epoch < 0 and offset == self.log.log_end_offset:
            return self.leader_epoch
        return leader_epoch

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """(epoch, end offset) when the reader's log is not a prefix of ours (KIP-595), else None."""
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    def preferred_reader(
        self, rack: str, fetch_offset: int, racks: Mapping[BrokerId, str | None]
    ) -> int:
        """The broker that a consumer in this rack had better read from; -1: this one."""
        return -1

    def read(
        self, fetch_offset: int, max_bytes: int, end_offset: int, min_one_batch: bool
    ) -> LogRead | ColdRead:
        """Whole batches from ``fetch_offset`` up to ``end_offset``.

        Raises ``KafkaError(OFFSET_OUT_OF_RANGE)`` outside of log start .. log end.
        """
        return self.log.read(fetch_offset, max_bytes, end_offset, min_one_batch)

    # -- change -------------------------------------------------------------------------------

    def set_config(self, config: TopicConfig, rules: ProduceRules) -> None:
        self.rules = rules
        self.log.set_config(config)
        self._note_rules()
        self.advance_high_watermark()

    def delete_records(self, before_offset: int) -> int:
        """Raise the log start offset; returns it. -1 means the high watermark (KIP-107)."""
        target = self.high_watermark if before_offset == -1 else before_offset
        if target < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self.log.set_log_start_offset(target):
            self.touch()
        return self.log.log_start_offset

    @property
    def is_closed(self) -> bool:
        return self.close_reason is not ErrorCode.NONE

    def close(self, reason: ErrorCode) -> None:
        """The partition is gone: fetches look again and get its error, produces fail with it."""
        self.close_reason = reason
        self.touch()
        if self._awaiting:
            awaiting, self._awaiting = self._awaiting, None
            for _, operation in awaiting:
                operation.on_lost(self, reason)
