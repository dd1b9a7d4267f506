"""What a leader checks before it appends a client's batch.

``check_header`` answers from the 61 bytes in front and the CRC; that is all for a plain topic.
``needs_walk`` tells when the records themselves must be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.records.compression import Codec
from broker.records.header import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    set_max_timestamp_and_type,
)

#: First Produce version whose batches may use zstd (KIP-110).
ZSTD_PRODUCE_VERSION = 7
NO_LIMIT_MS = (1 << 63) - 1
DEFAULT_MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024


class InvalidBatch(KafkaError):
    """The batch is refused. ``record_errors`` holds (index in the batch, message) pairs."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()
    ) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)


class ProduceRules:
    """What the configuration of one topic asks of its batches; made once per configuration."""

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "codec",
        "codec_level",
        "is_compacted",
        "log_append_time",
        "max_decompressed_bytes",
        "max_message_bytes",
        "strict",
    )

    def __init__(
        self,
        *,
        max_message_bytes: int = 1_048_588,
        is_compacted: bool = False,
        codec: Codec | None = None,
        codec_level: int | None = None,
        log_append_time: bool = False,
        before_max_ms: int = NO_LIMIT_MS,
        after_max_ms: int = 3_600_000,
        strict: bool = False,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self.is_compacted = is_compacted
        #: Codec that batches are stored in; None (``producer``) keeps each as it came.
        self.codec = codec
        self.codec_level = codec_level
        self.log_append_time = log_append_time
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.strict = strict
        self.max_decompressed_bytes = max_decompressed_bytes


#: Attributes that pass without a closer look: a known codec, transactional or not.
_PLAIN_ATTRIBUTES = frozenset(codec | flag for codec in Codec for flag in (0, TRANSACTIONAL_FLAG))

_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__


def check_header(
    buf: memoryview, rules: ProduceRules, now_ms: int, api_version: int
) -> BatchHeader:
    """Header of the one batch that ``buf`` holds, or ``InvalidBatch``.

    On a LogAppendTime topic the batch is stamped with ``now_ms`` in place, and the header returned
    is the stamped one.
    """
    size = len(buf)
    if size < HEADER_SIZE:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {api_version} must have at least one record batch"
            " per partition",
        )
    header: BatchHeader = _new_tuple(BatchHeader, _unpack_header(buf))
    (
        base_offset, batch_length, _, magic, crc, attributes, last_offset_delta, _, _,
        producer_id, _, base_sequence, record_count,
    ) = header  # fmt: skip
    if not (
        magic == MAGIC
        and batch_length + LOG_OVERHEAD == size
        and size <= rules.max_message_bytes
        and base_offset == 0
        and last_offset_delta + 1 == record_count > 0
        and attributes in _PLAIN_ATTRIBUTES
        and (producer_id < 0 or base_sequence >= 0)
        and (attributes & CODEC_MASK != Codec.ZSTD or api_version >= ZSTD_PRODUCE_VERSION)
        and crc32c(buf[CRC_START:]) == crc
    ):
        _refuse(buf, header, rules, api_version)
    if rules.log_append_time:
        set_max_timestamp_and_type(buf, 0, size, now_ms, is_log_append_time=True)
        return _new_tuple(BatchHeader, _unpack_header(buf))
    return header


def _refuse(buf: memoryview, header: BatchHeader, rules: ProduceRules, api_version: int) -> None:
    """Raise what Kafka 4.4 answers, testing in its order."""
    size = header.size_in_bytes
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise InvalidBatch(
                ErrorCode.INVALID_RECORD,
                f"Produce requests with version {api_version} are only allowed to contain record"
                " batches with magic version 2",
            )
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {header.magic}"
        )
    if size < HEADER_SIZE:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"Batch length {header.batch_length}")
    if size > len(buf):
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {api_version} must have at least one record batch"
            " per partition",
        )
    if size < len(buf):
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {api_version} are only allowed to contain exactly one"
            " record batch per partition",
        )
    if header.codec == Codec.ZSTD and api_version < ZSTD_PRODUCE_VERSION:
        raise InvalidBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {api_version} are not allowed to use ZStandard"
            " compression",
        )
    if header.base_offset != 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch should be 0, but it is {header.base_offset}",
        )
    if size > rules.max_message_bytes:
        raise InvalidBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {size} bytes which exceeds the maximum configured value of"
            f" {rules.max_message_bytes}.",
        )
    if crc32c(buf[CRC_START:]) != header.crc:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})"
        )
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
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
    if header.attributes & LOG_APPEND_TIME_FLAG:
        raise InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP, "Producer should not set timestamp type to LogAppendTime."
        )
    raise InvalidBatch(
        ErrorCode.INVALID_RECORD, f"Unknown attributes {header.attributes:#x} in record batch"
    )


def needs_walk(header: BatchHeader, rules: ProduceRules, now_ms: int) -> bool:
    """Whether the records must be looked at (``walk``) before the batch is appended."""
    if rules.strict or rules.is_compacted:
        return True
    if rules.codec is not None and rules.codec != header.attributes & CODEC_MASK:
        return True
    if rules.log_append_time:
        return False
    base_timestamp = header.base_timestamp
    max_timestamp = header.max_timestamp
    return not (
        0 <= base_timestamp <= max_timestamp <= now_ms + rules.after_max_ms
        and now_ms - base_timestamp <= rules.before_max_ms
    )
