"""Committed offsets of one partition of ``__consumer_offsets``.

Changed only by ``replay_*``, in log order, whether the records were just appended or are being
loaded. Offsets that were committed within a transaction are kept apart by producer until its marker
comes: then they take effect, unless a later record for the same partition did already.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern

from broker.coordinator.group.records import CommittedOffset

#: Topic to partition to offset, of one group.
GroupOffsets = dict[str, dict[int, CommittedOffset]]


class OffsetTable:
    """See the module's docstring."""

    __slots__ = ("_by_group", "_open", "_pending", "count")

    def __init__(self) -> None:
        self._by_group: dict[str, GroupOffsets] = {}
        #: Producer id to what it committed in its open transaction.
        self._pending: dict[int, dict[str, GroupOffsets]] = {}
        #: Group to the producers with open transactions on it (few, nearly always none).
        self._open: dict[str, set[int]] = {}
        self.count = 0

    # -- reading ------------------------------------------------------------------------------

    def of_group(self, group_id: str) -> GroupOffsets:
        return self._by_group.get(group_id) or {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        topics = self._by_group.get(group_id)
        partitions = topics.get(topic) if topics is not None else None
        return partitions.get(partition) if partitions is not None else None

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return any(
            partition in self._pending[producer_id][group_id].get(topic, ())
            for producer_id in self._open.get(group_id, ())
        )

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group or group_id in self._open

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open

    def pending(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Topic, partition and offset of what open transactions have."""
        for producer_id in self._open.get(group_id, ()):
            for topic, partitions in self._pending[producer_id][group_id].items():
                for partition, committed in partitions.items():
                    yield topic, partition, committed

    def groups(self) -> Iterator[str]:
        yield from self._by_group

    # -- replaying ----------------------------------------------------------------------------

    def replay_commit(
        self, group_id: str, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        topics = self._by_group.get(group_id)
        if topics is None:
            topics = self._by_group[intern(group_id)] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[intern(topic)] = {}
        if partition not in partitions:
            self.count += 1
        partitions[partition] = committed

    def replay_pending_commit(
        self,
        producer_id: int,
        group_id: str,
        topic: str,
        partition: int,
        committed: CommittedOffset,
    ) -> None:
        groups = self._pending.setdefault(producer_id, {})
        groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed
        self._open.setdefault(group_id, set()).add(producer_id)

    def replay_deletion(self, group_id: str, topic: str, partition: int) -> None:
        self._remove(group_id, topic, partition)
        for producer_id in tuple(self._open.get(group_id, ())):
            groups = self._pending[producer_id]
            partitions = groups[group_id].get(topic)
            if partitions is None or partitions.pop(partition, None) is None:
                continue
            if not partitions:
                del groups[group_id][topic]
            if not groups[group_id]:
                del groups[group_id]
                self._close(group_id, producer_id)
            if not groups:
                del self._pending[producer_id]

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """The producer's transaction has ended."""
        groups = self._pending.pop(producer_id, None)
        if groups is None:
            return
        for group_id, topics in groups.items():
            self._close(group_id, producer_id)
            if not is_commit:
                continue
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    known = self.get(group_id, topic, partition)
                    if known is None or known.record_offset < committed.record_offset:
                        self.replay_commit(group_id, topic, partition, committed)

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id)
        partitions = topics.get(topic) if topics is not None else None
        if topics is None or partitions is None or partitions.pop(partition, None) is None:
            return
        self.count -= 1
        if not partitions:
            del topics[topic]
        if not topics:
            del self._by_group[group_id]

    def _close(self, group_id: str, producer_id: int) -> None:
        producers = self._open[group_id]
        producers.discard(producer_id)
        if not producers:
            del self._open[group_id]
