"""Batches as readers get them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.model.transaction_marker import TransactionMarker
from broker.records.batch import iter_records
from broker.records.control import parse_marker
from broker.records.header import BatchHeader, walk_headers
from broker.records.record import Record


class Batch(NamedTuple):
    header: BatchHeader
    data: bytes

    @property
    def marker(self) -> TransactionMarker:
        found = parse_marker(self.data)
        assert found is not None
        return found

    @property
    def records(self) -> list[Record]:
        return list(iter_records(self.data, 1 << 16))


def batches_in(data: bytes) -> Iterator[Batch]:
    for position, header in walk_headers(memoryview(data)):
        yield Batch(header, data[position : position + header.size_in_bytes])


def committed_batches(data: bytes, aborted: list[tuple[int, int]]) -> Iterator[tuple[Batch, bool]]:
    """Batches of records, each with whether it is visible, as Kafka's clients find it: by the list that came with
    the data (producer id, first offset)."""
    left, skipped = sorted(aborted, key=lambda each: each[1]), set[int]()
    for batch in batches_in(data):
        header = batch.header
        while left and left[0][1] <= header.last_offset:
            skipped.add(left.pop(0)[0])
        if not header.is_control:
            yield batch, not header.is_transactional or header.producer_id not in skipped
        elif not batch.marker.is_commit:
            skipped.discard(header.producer_id)
