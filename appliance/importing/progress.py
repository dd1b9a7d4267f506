"""Where each partition's copy goes on, and what an answer of its source means. Decisions only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from appliance.importing.batches import Ready
from broker.model.error_code import ErrorCode
from broker.model.ids import TopicPartition

#: A hole in an empty log that is wider than a segment's relative offsets may be.
WIDE_HOLE: Final = 1 << 30
_LOOK_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class Verdict(Enum):
    GO_ON = "go on"
    LOOK_AGAIN = "look again"
    OUT_OF_RANGE = "out of range"
    FAILED = "failed"


def verdict_of(error: ErrorCode) -> Verdict:
    if error is ErrorCode.NONE:
        return Verdict.GO_ON
    if error is ErrorCode.OFFSET_OUT_OF_RANGE:
        return Verdict.OUT_OF_RANGE
    return Verdict.LOOK_AGAIN if error in _LOOK_AGAIN else Verdict.FAILED


class Refused(Exception):
    """This partition cannot be copied; what it says is for people."""


@dataclass(slots=True)
class PartitionCopy:
    """One partition. ``position`` is the next offset to fetch; what lies below is here or on its way."""

    partition: TopicPartition
    source: str
    """The value of ``odradek.import.from``."""
    position: int
    is_empty: bool
    """Nothing is in the log here."""
    source_start: int = 0
    end_offset: int = 0
    first_offset: int = 0
    """Where this run began."""
    behind_open: int = 0
    """Offsets that lie behind a transaction of the source that has not ended, and so cannot come yet."""
    lost: int = 0
    """Offsets that the source deleted before they were copied."""
    is_done: bool = False
    is_adrift: bool = False
    """Where the copy ends has to be asked before anything more is fetched or appended."""
    failure: str | None = None

    @property
    def is_open(self) -> bool:
        """There is more to fetch, and it may be."""
        return not self.is_done and not self.is_adrift and self.failure is None

    @property
    def is_left(self) -> bool:
        return self.failure is None and (self.is_adrift or not self.is_done)

    def go_on_from(self, start_offset: int, end_offset: int) -> None:
        """The copy's log, as it is: what was fetched beyond it has not come here, or has been lost again."""
        self.is_adrift = False
        self.is_empty = start_offset == end_offset
        self.position = end_offset
        self._pass_over(counts=False)

    def aim(self, source_start: int, end_offset: int) -> None:
        """What the source holds now; the copy ends at ``end_offset`` for this time."""
        self.source_start = source_start
        if end_offset < self.position:
            raise Refused(
                f"the source ends at {end_offset}, and up to {self.position} was copied before:"
                " it has lost records since, or is another one"
            )
        self.end_offset = end_offset
        self._pass_over()

    def _pass_over(self, *, counts: bool = True) -> None:
        if self.source_start > self.position:
            if counts and not self.is_empty:
                self.lost += self.source_start - self.position
            self.position = self.source_start
        self.is_done = self.position >= self.end_offset

    def on_out_of_range(self, source_start: int, last_stable_offset: int) -> None:
        """The source's retention was faster, or its log was cut."""
        if source_start <= self.position or last_stable_offset < self.position:
            raise Refused(f"the source has no offset {self.position} any more")
        self.source_start = source_start
        self._pass_over()

    def start_before(self, ready: Ready, end_here: int) -> int | None:
        """Where the log here must begin anew before ``ready`` is appended; None: it goes on."""
        if self.source_start > end_here:
            return min(self.source_start, ready.base_offset)
        if self.is_empty and ready.base_offset - end_here > WIDE_HOLE:
            return ready.base_offset
        return None

    def on_ready(self, ready: Ready) -> None:
        if ready.data:
            self.position = ready.next_offset
            self.is_done = self.position >= self.end_offset

    def on_nothing(self) -> None:
        """Nothing lies between the position and the end: compaction has made a hole of it."""
        self.is_done = True

    @property
    def left(self) -> int:
        return 0 if self.is_done else self.end_offset - self.position
