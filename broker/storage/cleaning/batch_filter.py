"""One batch of a segment that is being cleaned: what becomes of it.

A batch keeps its base and last offset, its producer, epoch, sequence, codec and leader epoch
(C042). One of which everything stays is copied byte for byte. The rules, those of Kafka's
``Cleaner`` and ``MemoryRecords.filterTo``:

- records stay when they are the latest of their key, tombstones until the batch's delete horizon;
  what has no key goes;
- the horizon (KIP-534, now + ``delete.retention.ms``) is set by the first cleaning that leaves a
  tombstone, or a marker whose transaction is gone; it takes the place of the base timestamp;
- a batch without records goes, unless it is the last one of the round or tells the last sequence
  (or, when there is none, the epoch) of a producer that is still remembered: then its header stays.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from broker.records.builder import assemble
from broker.records.compression import Codec, compress, decompress
from broker.records.header import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    MalformedBatch,
    compute_crc,
)
from broker.records.varint import decode_varint, decode_varlong, encode_varint
from broker.storage.cleaning.record_scan import Kept, Sieve, sift
from broker.storage.cleaning.transactions import CleanedTransactions
from broker.storage.transaction_index import AbortedTransaction

#: Producer id -> last offset of its data (-1: none is remembered), producer epoch.
LastRecords = Mapping[int, tuple[int, int]]


def payload_of(header: BatchHeader, batch: bytes, max_decompressed_bytes: int) -> bytes:
    """The records of a batch whose sum is right, no longer compressed."""
    if compute_crc(batch, 0, len(batch)) & 0xFFFFFFFF != header.crc:
        raise MalformedBatch("a wrong sum")
    if header.codec == Codec.NONE:
        return batch[HEADER_SIZE:]
    payload = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], max_decompressed_bytes)
    return bytes(payload)


class BatchFilter:
    """All batches of one round, in order. ``counts`` are records before and after."""

    def __init__(
        self,
        sieve: Sieve,
        *,
        now_ms: int,
        delete_retention_ms: int,
        round_end: int,
        last_records: LastRecords,
        max_decompressed_bytes: int,
    ) -> None:
        self.transactions = CleanedTransactions()
        self.records_before = 0
        self.records_after = 0
        self._sieve = sieve
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._round_end = round_end
        self._last_records = last_records
        self._max_decompressed_bytes = max_decompressed_bytes

    def filter(
        self, header: BatchHeader, batch: bytes
    ) -> tuple[bytes | bytearray | None, AbortedTransaction | None]:
        """The batch as it stays, None if it goes; and an entry for the transaction index."""
        self.records_before += header.record_count
        aborted = None
        is_over = header.has_delete_horizon and header.base_timestamp <= self._now_ms
        if header.is_control:
            is_needless, aborted = self.transactions.end(header, batch)
            result = self._marker(header, batch, is_needless, is_over)
        elif self.transactions.is_aborted(header) or not header.record_count:
            result = None
        else:
            result = self._data(header, batch, is_over)
        if result is None and self._stays_empty(header):
            result = empty_batch(header)
        return result, aborted

    def _marker(
        self, header: BatchHeader, batch: bytes, is_needless: bool, is_over: bool
    ) -> bytes | bytearray | None:
        if not header.record_count or (is_needless and is_over):
            return None
        self.records_after += header.record_count
        if not is_needless or header.has_delete_horizon:
            return batch
        payload = payload_of(header, batch, self._max_decompressed_bytes)
        everything = Kept()
        everything.pieces += [0, len(payload)]
        everything.count = header.record_count
        return self._rebuilt(header, payload, everything, header.max_timestamp, True)

    def _data(self, header: BatchHeader, batch: bytes, is_over: bool) -> bytes | bytearray | None:
        marks = self._sieve.marks
        base_offset, last_offset = header.base_offset, header.last_offset
        if base_offset >= marks.start and last_offset < self._sieve.end:
            alive = marks.count(base_offset, last_offset)
            if not alive:
                return None
            if alive == header.record_count and not marks.has_tombstone(base_offset, last_offset):
                self.records_after += alive
                return batch
        payload = payload_of(header, batch, self._max_decompressed_bytes)
        kept = sift(payload, header.record_count, base_offset, self._sieve, is_over)
        if not kept.count:
            return None
        self.records_after += kept.count
        sets_horizon = kept.has_tombstone and not header.has_delete_horizon
        if kept.count == header.record_count and not sets_horizon:
            return batch
        max_timestamp = header.max_timestamp
        if not header.is_log_append_time:
            max_timestamp = header.base_timestamp + kept.max_delta
        return self._rebuilt(header, payload, kept, max_timestamp, sets_horizon)

    def _rebuilt(
        self,
        header: BatchHeader,
        payload: bytes,
        kept: Kept,
        max_timestamp: int,
        sets_horizon: bool,
    ) -> bytearray:
        pieces = kept.pieces
        body = b"".join([payload[pieces[at] : pieces[at + 1]] for at in range(0, len(pieces), 2)])
        attributes, base_timestamp = header.attributes, header.base_timestamp
        if sets_horizon:
            body = rebased(body, kept.count, base_timestamp - self._horizon_ms)
            attributes |= DELETE_HORIZON_FLAG
            base_timestamp = self._horizon_ms
        codec = Codec(header.codec)
        return assemble(
            body if codec is Codec.NONE else compress(codec, body),
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
            attributes=attributes,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            record_count=kept.count,
        )

    def _stays_empty(self, header: BatchHeader) -> bool:
        if header.next_offset == self._round_end:
            return True
        if header.producer_id < 0:
            return False
        last_record = self._last_records.get(header.producer_id)
        if last_record is None:
            return False
        last_offset, producer_epoch = last_record
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == producer_epoch


def empty_batch(header: BatchHeader) -> bytearray:
    """The header alone: offsets, producer and sequence stay known (G47)."""
    return assemble(
        b"",
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG),
        last_offset_delta=header.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=0,
    )


def rebased(payload: bytes, count: int, shift_ms: int) -> bytes:
    """The records with ``shift_ms`` added to their timestamp deltas: the base has moved."""
    parts: list[bytes] = []
    position = 0
    try:
        for _ in range(count):
            length, start = decode_varint(payload, position)
            end = start + length
            delta, behind = decode_varlong(payload, start + 1)
            moved = encode_varint(delta + shift_ms)
            parts.append(encode_varint(1 + len(moved) + end - behind))
            parts.append(payload[start : start + 1])
            parts.append(moved)
            parts.append(payload[behind:end])
            position = end
    except (IndexError, struct.error):
        raise MalformedBatch("the records end inside a record") from None
    return b"".join(parts)
