"""A log as plainly as it can be written: a list of batches. The twin of ``broker.storage.log``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ReferenceBatch:
    base_offset: int
    data: bytes
    timestamps: list[int]

    @property
    def end(self) -> int:
        return self.base_offset + len(self.timestamps)


@dataclass
class ReferenceLog:
    batches: list[ReferenceBatch] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def append(self, data: bytes, timestamps: list[int]) -> None:
        self.batches.append(ReferenceBatch(self.end, data, timestamps))
        self.end += len(timestamps)

    def read(self, start: int, max_bytes: int, end: int, min_one: bool) -> list[ReferenceBatch]:
        """All that may be read, in one go: a real log may stop earlier, at a segment's end."""
        found: list[ReferenceBatch] = []
        size = 0
        for batch in self.batches:
            if batch.end <= start or batch.end > end:
                continue
            size += len(batch.data)
            if size > max_bytes and not (min_one and not found):
                break
            found.append(batch)
        return found

    def offset_for_timestamp(self, timestamp: int, end: int) -> tuple[int, int] | None:
        for batch in self.batches:
            for index, found in enumerate(batch.timestamps):
                offset = batch.base_offset + index
                if offset >= self.start and found >= timestamp:
                    return (found, offset) if offset < end else None
        return None

    def max_timestamp(self) -> tuple[int, int] | None:
        """Over the stored batches, as Kafka has it: also over what lies below the log start."""
        best: tuple[int, int] | None = None
        for batch in self.batches:
            for index, found in enumerate(batch.timestamps):
                if best is None or found > best[0]:
                    best = (found, batch.base_offset + index)
        return best

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end <= offset]
        self.end = offset
        self.start = min(self.start, offset)

    def start_anew(self, offset: int) -> None:
        self.batches = []
        self.start = self.end = offset

    def drop_below(self, offset: int) -> None:
        """Segments below went with retention."""
        self.batches = [batch for batch in self.batches if batch.base_offset >= offset]
        self.start = max(self.start, offset)
