"""Producer snapshots: the state of all producers of a partition as of an offset, in one file.

Kafka's ``ProducerSnapshot`` version 1: version int16, CRC-32C uint32 of everything behind it, then
an array of 46-byte entries. Only the last batch of each producer is kept, so a duplicate older
than that is not recognised after a restart (as in Kafka).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error
from typing import Final, NamedTuple

from broker.records.crc import crc32c

_VERSION: Final = 1
_PREFIX: Final = Struct(">hIi")
_CRC_START: Final = 6
_ENTRY: Final = Struct(">qhiqiqiq")


class SnapshotEntry(NamedTuple):
    producer_id: int
    producer_epoch: int
    #: -1, with ``last_offset`` -1, when no batch is remembered.
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    #: -1 without an ongoing transaction.
    transaction_first_offset: int


class CorruptSnapshot(Exception):
    """The file is no snapshot; an older one, or the log itself, has to do."""


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    body = b"".join([_ENTRY.pack(*entry) for entry in entries])
    data = bytearray(_PREFIX.pack(_VERSION, 0, len(body) // _ENTRY.size) + body)
    _PREFIX.pack_into(
        data, 0, _VERSION, crc32c(memoryview(data)[_CRC_START:]), len(body) // _ENTRY.size
    )
    return bytes(data)


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    try:
        version, crc, count = _PREFIX.unpack_from(data)
    except error:
        raise CorruptSnapshot(f"{len(data)} bytes are too few") from None
    if version != _VERSION:
        raise CorruptSnapshot(f"unknown version {version}")
    if len(data) != _PREFIX.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{len(data)} bytes do not hold {count} entries")
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise CorruptSnapshot("its sum is wrong")
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(data[_PREFIX.size :])]
