"""Port: what replication needs of a partition's log. ``broker.storage.log.Log`` is one."""

from __future__ import annotations

from typing import Protocol

from broker.storage.append_info import AppendInfo


class ReplicaLog(Protocol):
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    high_watermark: int

    @property
    def latest_leader_epoch(self) -> int: ...

    def set_high_watermark(self, high_watermark: int) -> None: ...

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """This replica leads from the log end offset on."""
        ...

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest known epoch up to it, its end offset); (-1, -1) when unknown."""
        ...

    def append_as_follower(self, data: memoryview | bytearray | bytes, now_ms: int) -> AppendInfo:
        """Raises ``CorruptLogError`` at the first batch that is not sound; those before it stay."""
        ...

    def truncate_to(self, offset: int) -> bool: ...

    def truncate_fully_and_start_at(self, offset: int) -> None: ...

    def set_log_start_offset(self, offset: int) -> bool: ...


def visible_end(log: ReplicaLog, is_flush_bound: bool) -> int:
    """What this replica itself adds to the high watermark: with ``flush.messages=1`` only what no
    loss of power can take back."""
    return log.flushed_offset if is_flush_bound else log.log_end_offset
