"""What a compacted log comes to: the last value of each key, as far as it has taken effect.

Plain and obvious, beside what coordinators make of their logs and what cleaning leaves of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.transactions.batches import Batch

Value = tuple[int, bytes | None]


class Effective:
    def __init__(self) -> None:
        self._values: dict[bytes, Value] = {}
        #: Of open transactions, by producer id.
        self._open: dict[int, dict[bytes, Value]] = {}

    def follow(self, batch: Batch) -> None:
        header = batch.header
        if header.is_control and not header.record_count:
            return  # a marker that is gone
        if header.is_control:
            ended = self._open.pop(header.producer_id, {})
            for key, value in ended.items() if batch.marker.is_commit else ():
                self._put(key, value)
            return
        for record in batch.records:
            assert record.key is not None
            value = (record.offset, record.value)
            if header.is_transactional:
                self._open.setdefault(header.producer_id, {})[record.key] = value
            else:
                self._put(record.key, value)

    def _put(self, key: bytes, value: Value) -> None:
        """A transaction takes effect with its marker, unless something later has already."""
        if key not in self._values or self._values[key][0] < value[0]:
            self._values[key] = value

    def values(self) -> Mapping[bytes, Value]:
        """Deleted keys are not there, nor is what is open."""
        return {key: value for key, value in self._values.items() if value[1] is not None}
