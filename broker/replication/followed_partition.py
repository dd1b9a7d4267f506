"""A partition that another broker leads and this one follows: its log, and what is to be fetched."""

from __future__ import annotations

from collections.abc import Callable

from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId, TopicId, TopicPartition
from broker.replication.follower import FollowerMachine
from broker.replication.follower_reader import FollowerReader
from broker.replication.replica import FetchClock, Replica
from broker.replication.replica_fetch import ReplicaFetch
from broker.storage.log import Log


class FollowedPartition:
    """Of one leader epoch: another one gets another object."""

    __slots__ = (
        "close_reason",
        "log",
        "machine",
        "on_changed",
        "on_disk_caught_up",
        "reader",
        "replica",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        replica: Replica,
        machine: FollowerMachine,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.replica = replica
        self.machine = machine
        self.close_reason = ErrorCode.NONE
        #: The fetcher, which waits for the disk where ``flush.messages`` is 1.
        self.on_disk_caught_up: Callable[[], None] | None = None
        #: The fetcher, too: it is closed, or its log begins elsewhere, and the leader is to be told.
        self.on_changed: Callable[[], None] | None = None
        #: Made for the first consumer that reads here.
        self.reader: FollowerReader | None = None

    @property
    def leader_id(self) -> BrokerId:
        return self.machine.leader_id

    @property
    def is_closed(self) -> bool:
        """Whether it is followed no more, or from another leader epoch on."""
        return self.close_reason is not ErrorCode.NONE

    def close(self, reason: ErrorCode) -> None:
        self.close_reason = reason
        if self.reader is not None:
            self.reader.close(reason)
        self.tell_changed()

    def tell_changed(self) -> None:
        if self.on_changed is not None:
            self.on_changed()

    def next_fetch(
        self, broker_epoch: int, now_ms: int, clock: FetchClock | None = None
    ) -> ReplicaFetch | None:
        """``clock``: of the session that it is going to be in."""
        if self.is_closed:
            return None
        fetch = self.replica.next_fetch(broker_epoch, now_ms)
        if fetch is not None:
            self.replica.fetch_clock = clock
        return fetch

    def advance_high_watermark(self) -> None:
        """A sync has come back. The high watermark is the leader's to say, but it may be fetched on."""
        if self.on_disk_caught_up is not None and self.machine.is_flush_bound:
            self.on_disk_caught_up()
