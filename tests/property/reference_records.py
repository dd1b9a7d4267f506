"""What broker/records does, done slowly and plainly: one record at a time, every rule in words.

The property tests compare the two. Nothing here is shared with the code that it judges but the
error codes and the rules' values.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from crc32c import crc32c

from broker.model.error_code import ErrorCode
from broker.records.validation import ProduceRules
from tests.support import record_batches


class BadRecords(Exception):
    """The payload is not so many records."""


@dataclass
class Refusal:
    code: ErrorCode
    indexes: list[int] = field(default_factory=list)


@dataclass
class PlainRecord:
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]
    size: int


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        if count > len(self.data):
            raise BadRecords("too short")
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def number(self, bits: int = 32) -> int:
        value = 0
        for index in range((bits + 6) // 7):
            (byte,) = self.take(1)
            value += (byte & 127) * 128**index
            if byte < 128:
                if value >= 2**bits:
                    raise BadRecords("too large")
                return -(value + 1) // 2 if value % 2 else value // 2
        raise BadRecords("too long")

    def sized(self) -> bytes | None:
        size = self.number()
        return None if size < 0 else self.take(size)


def read_records(payload: bytes, count: int) -> list[PlainRecord]:
    """Exactly `count` records and nothing else, or BadRecords."""
    reader = Reader(payload)
    records = []
    for _ in range(count):
        size = reader.number()
        if size < 0:
            raise BadRecords("negative size")
        body = Reader(reader.take(size))
        body.take(1)
        timestamp_delta = body.number(64)
        offset_delta = body.number()
        key = body.sized()
        value = body.sized()
        headers = []
        header_count = body.number()
        if header_count < 0:
            raise BadRecords("negative count of headers")
        for _ in range(header_count):
            name = body.sized()
            if name is None:
                raise BadRecords("a header without a name")
            headers.append((name, body.sized()))
        if body.data:
            raise BadRecords("a record is longer than its fields")
        records.append(PlainRecord(timestamp_delta, offset_delta, key, value, headers, size))
    if reader.data:
        raise BadRecords("bytes behind the records")
    return records


def judge(data: bytes, rules: ProduceRules, now: int, version: int) -> Refusal | int:
    """Why a produced batch is refused, or the max timestamp that it is stored with."""
    refusal = judge_frame(data, version) or judge_header(data, rules)
    if refusal is not None:
        return refusal
    attributes, count = header_of(data)[5], header_of(data)[12]
    base_timestamp, max_timestamp = header_of(data)[7], header_of(data)[8]
    is_plausible = (
        base_timestamp >= 0
        and max_timestamp >= base_timestamp
        and max_timestamp <= now + rules.after_max_ms
        and base_timestamp >= now - rules.before_max_ms
    )
    if not (rules.strict or rules.is_compacted or (not is_plausible and not rules.log_append_time)):
        return now if rules.log_append_time else max_timestamp
    try:
        payload = record_batches.decompress(attributes % 8, data[61:])
    except Exception:
        return Refusal(ErrorCode.INVALID_RECORD)
    try:
        records = read_records(payload, count)
    except BadRecords:
        return Refusal(ErrorCode.INVALID_RECORD)
    if [record.offset_delta for record in records] != list(range(count)):
        return Refusal(ErrorCode.INVALID_RECORD)
    return judge_records(records, base_timestamp, rules, now)


def judge_records(
    records: list[PlainRecord], base_timestamp: int, rules: ProduceRules, now: int
) -> Refusal | int:
    timestamps = [base_timestamp + record.timestamp_delta for record in records]
    errors = {}
    for index, (record, timestamp) in enumerate(zip(records, timestamps, strict=True)):
        if rules.is_compacted and record.key is None:
            errors[index] = ErrorCode.INVALID_RECORD
        elif not rules.log_append_time and timestamp != -1:
            too_old = timestamp < now - rules.before_max_ms
            too_new = timestamp > now + rules.after_max_ms
            if timestamp < 0 or too_old or too_new:
                errors[index] = ErrorCode.INVALID_TIMESTAMP
    if errors:
        codes = set(errors.values())
        worst = (
            ErrorCode.INVALID_TIMESTAMP
            if ErrorCode.INVALID_TIMESTAMP in codes
            else ErrorCode.INVALID_RECORD
        )
        return Refusal(worst, sorted(errors))
    return now if rules.log_append_time else max(timestamps)


def header_of(data: bytes) -> tuple[int, ...]:
    return struct.unpack(">qiibIhiqqqhii", data[:61])


def judge_frame(data: bytes, version: int) -> Refusal | None:
    """Exactly one whole batch of magic 2 in an encoding of this version."""
    if len(data) >= 12:
        (length,) = struct.unpack(">i", data[8:12])
        if length < 14:
            return Refusal(ErrorCode.CORRUPT_MESSAGE)
    if len(data) < 61:
        return Refusal(ErrorCode.INVALID_RECORD)
    magic, attributes = header_of(data)[3], header_of(data)[5]
    if magic not in (0, 1, 2):
        return Refusal(ErrorCode.CORRUPT_MESSAGE)
    if magic != 2 or length + 12 > len(data):
        return Refusal(ErrorCode.INVALID_RECORD)
    if attributes % 8 == record_batches.ZSTD and version < 7:
        return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    behind = data[length + 12 :]
    if behind:
        if len(behind) >= 12 and struct.unpack(">i", behind[8:12])[0] < 14:
            return Refusal(ErrorCode.CORRUPT_MESSAGE)
        if len(behind) >= 17 and behind[16] not in (0, 1, 2):
            return Refusal(ErrorCode.CORRUPT_MESSAGE)
        return Refusal(ErrorCode.INVALID_RECORD)
    return None


def judge_header(data: bytes, rules: ProduceRules) -> Refusal | None:
    base_offset, _, _, _, crc, attributes, last_delta, _, max_timestamp = header_of(data)[:9]
    producer_id, _, base_sequence, count = header_of(data)[9:]
    codec = attributes % 8
    if base_offset != 0:
        return Refusal(ErrorCode.INVALID_RECORD)
    if len(data) > rules.max_message_bytes:
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE)
    if crc32c(data[21:]) != crc:
        return Refusal(ErrorCode.CORRUPT_MESSAGE)
    if codec > 4:
        return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    is_control = attributes & record_batches.CONTROL
    if count <= 0 or count != last_delta + 1 or is_control:
        return Refusal(ErrorCode.INVALID_RECORD)
    if producer_id >= 0 and base_sequence < 0:
        return Refusal(ErrorCode.INVALID_RECORD)
    if codec == record_batches.LZ4 and (
        data[61:65] != b"\x04\x22\x4d\x18" or len(data) == 65 or not data[65] & 0x20
    ):
        return Refusal(ErrorCode.INVALID_RECORD)
    if attributes & record_batches.LOG_APPEND_TIME and (
        rules.log_append_time or max_timestamp == -1
    ):
        return Refusal(ErrorCode.INVALID_TIMESTAMP)
    return None
