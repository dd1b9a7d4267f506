"""Record batches (magic 2) made and read by the plainest code, apart from broker/records.

`batch()` makes well-formed ones; its `header` overrides make the malformed ones that tests send.
"""

import gzip
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cramjam
from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@dataclass(frozen=True, slots=True)
class Record:
    key: bytes | None = None
    value: bytes | None = b""
    timestamp: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_records(records: Sequence[Record], base_timestamp: int) -> bytes:
    out = bytearray()
    for index, record in enumerate(records):
        body = b"\0" + varint(record.timestamp - base_timestamp) + varint(index)
        body += _sized(record.key) + _sized(record.value) + varint(len(record.headers))
        for name, value in record.headers:
            body += _sized(name.encode()) + _sized(value)
        out += varint(len(body)) + body
    return bytes(out)


def compress(codec: int, data: bytes, *, xerial: bool = True) -> bytes:
    if codec == GZIP:
        return gzip.compress(data)
    if codec == SNAPPY:
        raw = bytes(cramjam.snappy.compress_raw(data))
        return _XERIAL + struct.pack(">i", len(raw)) + raw if xerial else raw
    if codec == LZ4:
        return _lz4_frame(data)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return data


def _lz4_frame(data: bytes) -> bytes:
    """Independent blocks of 64 KiB: Kafka's reader refuses frames whose blocks are linked."""
    out = bytearray(b"\x04\x22\x4d\x18\x60\x40\x82")
    for start in range(0, len(data), 65536):
        plain = data[start : start + 65536]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += struct.pack("<I", len(block)) + block
        else:
            out += struct.pack("<I", len(plain) | 1 << 31) + plain
    return bytes(out) + b"\0\0\0\0"


def decompress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        if not data.startswith(_XERIAL[:8]):
            return bytes(cramjam.snappy.decompress_raw(data))
        out, position = bytearray(), 16
        while position < len(data):
            (size,) = struct.unpack_from(">i", data, position)
            out += bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + size]))
            position += 4 + size
        return bytes(out)
    if codec == LZ4:
        return bytes(cramjam.lz4.decompress(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.decompress(data))
    return data


def batch(
    records: Iterable[Record | bytes | None],
    *,
    codec: int = NONE,
    timestamp: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    xerial: bool = True,
    **header: Any,
) -> bytes:
    """One batch. Bare bytes are values of records without a key at `timestamp`.

    `header` may override base_offset, batch_length, partition_leader_epoch, magic, crc,
    last_offset_delta, base_timestamp, max_timestamp, record_count, and `payload`.
    """
    made = [
        record if isinstance(record, Record) else Record(value=record, timestamp=timestamp)
        for record in records
    ]
    base_timestamp = header.get("base_timestamp", made[0].timestamp if made else timestamp)
    payload = header.get("payload")
    if payload is None:
        payload = compress(codec, encode_records(made, base_timestamp), xerial=xerial)
    max_timestamp = header.get(
        "max_timestamp", max((record.timestamp for record in made), default=timestamp)
    )
    covered = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        header.get("last_offset_delta", len(made) - 1),
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        header.get("record_count", len(made)),
    )
    covered += payload
    return (
        struct.pack(
            ">qiibI",
            header.get("base_offset", 0),
            header.get("batch_length", len(covered) + 9),
            header.get("partition_leader_epoch", -1),
            header.get("magic", 2),
            header.get("crc", crc32c(covered)),
        )
        + covered
    )


def control_batch(
    *, commit: bool, producer_id: int, producer_epoch: int, timestamp: int = 0
) -> bytes:
    """A transaction marker, as only brokers may write it."""
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, 0)
    return batch(
        [Record(key=key, value=value, timestamp=timestamp)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


# ------------------------------------------------------------------------------------ reading


@dataclass(frozen=True, slots=True)
class Batch:
    base_offset: int
    partition_leader_epoch: int
    magic: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    payload: bytes
    is_crc_right: bool

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    def records(self) -> list[Record]:
        data = decompress(self.codec, self.payload)
        position = 0

        def number() -> int:
            nonlocal position
            shift = value = 0
            while True:
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    return (value >> 1) ^ -(value & 1)
                shift += 7

        def sized() -> bytes | None:
            nonlocal position
            size = number()
            if size < 0:
                return None
            position += size
            return data[position - size : position]

        found = []
        for _ in range(self.record_count):
            size = number()
            end = position + size
            position += 1
            timestamp = self.base_timestamp + number()
            offset = self.base_offset + number()
            key, value = sized(), sized()
            headers = tuple(((sized() or b"").decode(), sized()) for _ in range(number()))
            assert position == end, (position, end)
            if self.attributes & LOG_APPEND_TIME:
                timestamp = self.max_timestamp
            found.append(Record(key, value, timestamp, headers, offset))
        assert position == len(data), (position, len(data))
        return found


def batches(data: bytes) -> Iterator[Batch]:
    """The whole batches of a fetch answer or a segment; a cut last one is left out."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        fields = HEADER.unpack_from(data, position)
        end = position + 12 + fields[1]
        if end > len(data):
            return
        yield Batch(
            base_offset=fields[0],
            partition_leader_epoch=fields[2],
            magic=fields[3],
            attributes=fields[5],
            last_offset_delta=fields[6],
            base_timestamp=fields[7],
            max_timestamp=fields[8],
            producer_id=fields[9],
            producer_epoch=fields[10],
            base_sequence=fields[11],
            record_count=fields[12],
            payload=data[position + HEADER_SIZE : end],
            is_crc_right=crc32c(data[position + 21 : end]) == fields[4],
        )
        position = end


def records(data: bytes) -> list[Record]:
    """All data records of a fetch answer, every CRC checked."""
    found: list[Record] = []
    for one in batches(data):
        assert one.is_crc_right, one
        if not one.is_control:
            found += one.records()
    return found
