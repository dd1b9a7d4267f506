"""Of copy jobs: what they wrote, and the offsets that they committed."""

from __future__ import annotations

from typing import Any

from broker.coordinator.group.records import OFFSET_KEY, read_offset_key, read_offset_value
from broker.coordinator.record_codec import key_type
from broker.model.internal_topics import CONSUMER_OFFSETS
from broker.records.record import Record
from tests.simulation.transactions.copying import SOURCE, TARGET
from tests.simulation.transactions.ledger import Part, read_part
from tests.simulation.transactions.log_checkers import PartitionChecker

__all__ = ["CONSUMER_OFFSETS", "TARGET", "CopiesChecker", "OffsetsChecker"]


class CopiesChecker(PartitionChecker):
    """E1."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: Offsets in the source, of what is committed here.
        self.copied: list[int] = []

    def see_record(self, record: Record) -> None:
        super().see_record(record)
        assert record.value is not None
        offset = int(record.value.rpartition(b".")[2])
        if self.copied and offset <= self.copied[-1]:
            self.fail(f"E1: {offset} of the source is copied after {self.copied[-1]}")
        self.copied.append(offset)

    def _check_records(self, data: bytes) -> None:
        super()._check_records(data)
        expected = self._whole_story.partitions[SOURCE].visible_offsets
        if self.copied != expected:
            missing = sorted(set(expected) - set(self.copied))
            self.fail(
                f"E1: {len(self.copied)} copies of {len(expected)}, missing {missing[:10]}, "
                f"unknown {sorted(set(self.copied) - set(expected))[:10]}"
            )


class OffsetsChecker(PartitionChecker):
    """E2: an offset counts as the one part that its transaction has here."""

    def see_record(self, record: Record) -> None:
        assert record.key is not None
        if key_type(record.key) != OFFSET_KEY or record.value is None:
            return
        assert read_offset_key(record.key).topic == SOURCE
        committed = read_offset_value(record.value, record.offset)
        part = read_part(committed.metadata.encode())
        transfer = self._whole_story.transfers[part.transfer]
        if committed.offset != transfer.end_offset:
            self.fail(f"E2: {transfer} has offset {committed.offset}, not {transfer.end_offset}")
        self.see(part)

    def see(self, part: Part) -> None:
        """A commit that was not answered is repeated."""
        if part.transfer in self.visible:
            self.visible[part.transfer].clear()
        super().see(part)
