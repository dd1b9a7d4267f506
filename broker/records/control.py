"""Transaction markers: the control batches that end a transaction on a partition.

A control batch holds one record. Its key is a version and a type, its value a version and the epoch
of the coordinator that decided (``ControlRecordTypeSchema`` and ``EndTxnMarker`` in Kafka). Keys of
later versions only grow, so what lies behind the known fields is ignored. Other control types
(written by Kafka's own metadata quorum) are no markers and are passed over.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.model.transaction_marker import TransactionMarker
from broker.records.batch import iter_records
from broker.records.builder import build_batch
from broker.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from broker.records.header import NO_LEADER_EPOCH, Buffer, MalformedBatch, peek_header
from broker.records.record import Record

ABORT: Final = 0
COMMIT: Final = 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


def build_marker(
    marker: TransactionMarker,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The control batch of a marker."""
    record = Record(
        base_offset,
        timestamp_ms,
        _KEY.pack(_VERSION, COMMIT if marker.is_commit else ABORT),
        _VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return build_batch(
        [record],
        leader_epoch=leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def parse_marker(batch: Buffer) -> TransactionMarker | None:
    """The marker in a control batch; None if it is of another type or was compacted away.

    Raises ``MalformedBatch``.
    """
    header = peek_header(batch)
    if not header.is_control:
        raise MalformedBatch("not a control batch")
    for record in iter_records(batch, DEFAULT_MAX_DECOMPRESSED_BYTES):
        version, control_type = _unpack(_KEY, record.key, "key")
        if version < 0:
            raise MalformedBatch(f"control record key of version {version}")
        if control_type not in (ABORT, COMMIT):
            return None
        version, coordinator_epoch = _unpack(_VALUE, record.value, "value")
        if version < 0:
            raise MalformedBatch(f"control record value of version {version}")
        return TransactionMarker(
            header.producer_id, header.producer_epoch, control_type == COMMIT, coordinator_epoch
        )
    return None


def _unpack(layout: struct.Struct, data: bytes | None, what: str) -> tuple[int, int]:
    if data is None or len(data) < layout.size:
        raise MalformedBatch(f"a control record without a whole {what}")
    first, second = layout.unpack_from(data)
    return first, second
