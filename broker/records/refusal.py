"""Why a produced batch is refused: the reasons behind ``validation.check_header``, off its hot path.

Codes, and the order in which faults are looked for, are those of Apache Kafka 4.4; where Kafka
stumbles over a batch and answers UNKNOWN_SERVER_ERROR, ours name the fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.records.compression import Codec
from broker.records.crc import crc32c
from broker.records.header import (
    CONTROL_FLAG,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
)
from broker.records.produce_rules import ProduceRules

#: First Produce version whose batches may use zstd (KIP-110).
ZSTD_PRODUCE_VERSION: Final = 7

#: The magic number of an lz4 frame, and the byte of flags behind it.
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_POSITION = HEADER_SIZE + len(_LZ4_MAGIC)
_LZ4_INDEPENDENT_BLOCKS_FLAG = 0x20
_MAGIC_POSITION = 16
_MIN_BATCH_LENGTH = 14


class InvalidBatch(KafkaError):
    """The batch is refused. ``record_errors`` holds (index in the batch, message) pairs."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()
    ) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)


def has_independent_blocks(buf: memoryview) -> bool:
    """Whether the payload begins as an lz4 frame that Java clients can read.

    They cannot read blocks that refer to earlier ones, and would stop at this batch for ever.
    Kafka finds out because it decompresses every batch; one flag in front tells it too.
    """
    return (
        len(buf) > _LZ4_FLAGS_POSITION
        and buf[HEADER_SIZE:_LZ4_FLAGS_POSITION] == _LZ4_MAGIC
        and buf[_LZ4_FLAGS_POSITION] & _LZ4_INDEPENDENT_BLOCKS_FLAG != 0
    )


def refuse_fragment(buf: memoryview, api_version: int) -> NoReturn:
    """For fewer bytes than a header: Kafka sees no batch, unless its length is nonsense already."""
    if len(buf) >= LOG_OVERHEAD:
        _refuse_bad_length(int.from_bytes(buf[8:12], "big", signed=True))
    raise InvalidBatch(
        ErrorCode.INVALID_RECORD,
        f"Produce requests with version {api_version} must have at least one record batch per"
        " partition",
    )


def _refuse_bad_length(batch_length: int) -> None:
    if batch_length < _MIN_BATCH_LENGTH:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {batch_length} is less than the minimum record overhead"
            f" ({_MIN_BATCH_LENGTH})",
        )


def refuse_size(size: int, rules: ProduceRules) -> NoReturn:
    raise InvalidBatch(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size is {size} bytes which exceeds the maximum configured value of"
        f" {rules.max_message_bytes}.",
    )


def refuse_unless_odd(
    buf: memoryview, header: BatchHeader, rules: ProduceRules, api_version: int
) -> None:
    """Raise what Kafka answers, testing in its order; return if the batch is odd but legal."""
    _refuse_bad_frame(buf, header, api_version)
    _refuse_bad_batch(buf, header, rules)
    if header.codec == Codec.LZ4 and not has_independent_blocks(buf):
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, "The records are not an lz4 frame of independent blocks"
        )
    if header.is_log_append_time and (
        rules.log_append_time or header.max_timestamp == NO_TIMESTAMP
    ):
        raise InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP, "Producer should not set timestamp type to LogAppendTime."
        )


def _refuse_bad_frame(buf: memoryview, header: BatchHeader, api_version: int) -> None:
    """Not exactly one batch of magic 2, or one that this version may not carry."""
    _refuse_bad_length(header.batch_length)
    _refuse_bad_magic(header.magic, api_version)
    if header.size_in_bytes > len(buf):
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"The record batch of {header.size_in_bytes} bytes is cut to {len(buf)}",
        )
    if header.codec == Codec.ZSTD and api_version < ZSTD_PRODUCE_VERSION:
        raise InvalidBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {api_version} are not allowed to use ZStandard"
            " compression",
        )
    if header.size_in_bytes < len(buf):
        behind = buf[header.size_in_bytes :]
        if len(behind) >= LOG_OVERHEAD:
            _refuse_bad_length(int.from_bytes(behind[8:12], "big", signed=True))
        if len(behind) > _MAGIC_POSITION:
            _refuse_bad_magic(behind[_MAGIC_POSITION], api_version, also_old=False)
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {api_version} are only allowed to contain exactly one"
            " record batch per partition",
        )


def _refuse_bad_magic(magic: int, api_version: int, *, also_old: bool = True) -> None:
    if not 0 <= magic <= MAGIC:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    if also_old and magic != MAGIC:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {api_version} are only allowed to contain record"
            " batches with magic version 2",
        )


def _refuse_bad_batch(buf: memoryview, header: BatchHeader, rules: ProduceRules) -> None:
    if header.base_offset != 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch should be 0, but it is {header.base_offset}",
        )
    if header.size_in_bytes > rules.max_message_bytes:
        refuse_size(header.size_in_bytes, rules)
    if len(buf) < HEADER_SIZE or crc32c(buf[CRC_START:]) != header.crc:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})"
        )
    if header.codec > Codec.ZSTD:
        raise InvalidBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {header.codec}"
        )
    if not header.last_offset_delta + 1 == header.record_count > 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"Inconsistent last offset delta {header.last_offset_delta} and count of records"
            f" {header.record_count}",
        )
    if header.attributes & CONTROL_FLAG:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records"
        )
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in record batch with producerId"
            f" {header.producer_id}",
        )
