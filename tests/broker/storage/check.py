"""Checks on a whole log, as Kafka's dump-log tool makes them."""

from __future__ import annotations

from broker.records.header import BatchHeader, walk_headers
from broker.storage.cold import waiting
from broker.storage.log import Log
from broker.storage.producer_state import ProducerState
from broker.storage.segment import Segment


def headers_of(segment: Segment) -> list[tuple[int, BatchHeader]]:
    return list(walk_headers(segment.records.file.pread(segment.size, 0)))


def check_indexes(log: Log) -> None:
    """Each entry names the end of the batch at its position, or a batch with its timestamp."""
    for segment in log.segments:
        by_position = dict(headers_of(segment))
        by_last_offset = {header.last_offset: header for header in by_position.values()}
        entries = segment.offset_index.entries()
        assert entries == sorted(set(entries))
        for relative_offset, position in entries:
            assert by_position[position].last_offset == segment.base_offset + relative_offset
        times = segment.time_index.entries()
        assert times == sorted(set(times))
        for timestamp, relative_offset in times:
            assert (
                by_last_offset[segment.base_offset + relative_offset].newest_timestamp == timestamp
            )
        youngest = max((header.newest_timestamp for header in by_position.values()), default=-1)
        assert max(waiting(segment.load_max_timestamp), -1) == youngest


def check_producers(log: Log) -> None:
    """The last sequence of every producer is that of its last batch in the log, if it has one."""
    expected = ProducerState()
    for segment in log.segments:
        for _, header in headers_of(segment):
            if header.last_offset < log.log_start_offset:
                continue  # deleted, though its bytes may still be there
            if header.producer_id >= 0 and not header.is_control:
                expected.update(header, header.base_offset)
    for producer_id, entry in expected.entries.items():
        known = log.producers.entries[producer_id]
        assert known.last_sequence == entry.last_sequence
        assert known.batches[-1].last_offset == entry.batches[-1].last_offset
