"""What an append tells its caller. Plain slots: one is made per batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.storage.flush import FlushNeeded


class AppendInfo:
    """Offsets that the batch got, or had got when it is a duplicate."""

    __slots__ = (
        "base_offset",
        "is_duplicate",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_count",
        "rolled",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        record_count: int,
        rolled: FlushNeeded | None = None,
        is_duplicate: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        #: -1 unless the topic stamps its own time (of a duplicate: the time stored with it).
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_count = record_count
        #: The segment was rolled for this batch: run this in a thread, then ``on_flushed``.
        self.rolled = rolled
        self.is_duplicate = is_duplicate
