"""A log without bytes for tests of the replication machines: offsets and leader epochs only."""

from __future__ import annotations

from broker.model.errors import CorruptLogError
from broker.storage.append_info import AppendInfo
from broker.storage.leader_epochs import LeaderEpochs


class MemoryLog:
    """``MemoryLog([0, 0, 1])`` holds three records, the last one of leader epoch 1."""

    def __init__(self, epochs: list[int], high_watermark: int = 0, flushed: int = -1) -> None:
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = high_watermark
        self._epochs = LeaderEpochs()
        for epoch in epochs:
            self.append(epoch)
        self.flushed_offset = self.log_end_offset if flushed < 0 else flushed

    def append(self, leader_epoch: int) -> None:
        if leader_epoch > self._epochs.latest:
            self._epochs.assign(leader_epoch, self.log_end_offset)
        self.log_end_offset += 1

    @property
    def latest_leader_epoch(self) -> int:
        return self._epochs.latest

    def set_high_watermark(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        self._epochs.assign(leader_epoch, self.log_end_offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        return self._epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def append_as_follower(self, data: memoryview | bytearray | bytes, now_ms: int) -> AppendInfo:
        """One record a byte, which is its leader epoch; 255 is a damaged one."""
        first_offset = self.log_end_offset
        for epoch in bytes(data):
            if epoch == 255:
                raise CorruptLogError("data", 0, self.log_end_offset, "its sum is wrong")
            self.append(epoch)
        return AppendInfo(first_offset, self.log_end_offset - 1, -1, 0, len(data), None)

    def truncate_to(self, offset: int) -> bool:
        is_cut = offset < self.log_end_offset
        self.log_end_offset = min(self.log_end_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self._epochs.truncate_from_end(self.log_end_offset)
        return is_cut

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._epochs.clear()
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset

    def set_log_start_offset(self, offset: int) -> bool:
        is_changed = offset > self.log_start_offset
        self.log_start_offset = max(offset, self.log_start_offset)
        return is_changed
