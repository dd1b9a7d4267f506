"""What consumers read of a partition that this broker follows (KIP-392): up to the high watermark, as the
leader told it. Nothing can be written here. It lives as long as the role, and fetches that wait here are
told of its end."""

from __future__ import annotations

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicId, TopicPartition
from broker.records.validation import ProduceRules
from broker.replication.partition import Partition
from broker.replication.traffic import TopicTraffic
from broker.storage.log import Log


class FollowerReader(Partition):
    __slots__ = ("_log_start_offset",)

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        leader_epoch: int,
        rules: ProduceRules,
        traffic: TopicTraffic,
    ) -> None:
        self._log_start_offset = log.log_start_offset
        super().__init__(topic_partition, topic_id, log, leader_epoch, rules, traffic)

    def advance_high_watermark(self) -> None:
        """The log has another high watermark, or begins elsewhere; whoever waits for that is woken."""
        log = self.log
        seen = (self.high_watermark, self._log_start_offset)
        self.high_watermark, self._log_start_offset = log.high_watermark, log.log_start_offset
        if seen != (log.high_watermark, log.log_start_offset):
            self.touch()

    def check_append(self, is_acks_all: bool) -> None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _note_rules(self) -> None:
        super()._note_rules()
        self.is_guarded = True
