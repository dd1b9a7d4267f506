"""What a topic's configuration asks of the batches that are produced to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec

if TYPE_CHECKING:
    from broker.config.topic_config import TopicConfig

#: ``message.timestamp.before.max.ms`` by default: any age.
NO_LIMIT_MS: Final = (1 << 63) - 1
#: A batch may decompress to this many times ``max.message.bytes``, or to 64 MiB if that is more.
MAX_DECOMPRESSION_FACTOR: Final = 8
#: ``max.decompressed.message.bytes`` by default: no limit on a single record.
NO_RECORD_LIMIT: Final = (1 << 31) - 9

_CODEC_BY_TYPE: Final = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


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
        "max_record_bytes",
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
        max_record_bytes: int = NO_RECORD_LIMIT,
        max_decompressed_bytes: int | None = None,
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
        #: Bound of each record of a compressed batch (``max.decompressed.message.bytes``).
        self.max_record_bytes = max_record_bytes
        #: Bound of all records of a batch together: our own, against decompression bombs.
        self.max_decompressed_bytes = (
            max(DEFAULT_MAX_DECOMPRESSED_BYTES, MAX_DECOMPRESSION_FACTOR * max_message_bytes)
            if max_decompressed_bytes is None
            else max_decompressed_bytes
        )

    @classmethod
    def for_topic(cls, config: TopicConfig) -> ProduceRules:
        """The rules that a topic's configuration stands for."""
        codec = _CODEC_BY_TYPE[config.compression_type]
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        return cls(
            max_message_bytes=config.max_message_bytes,
            is_compacted=config.is_compacted,
            codec=codec,
            codec_level=None if codec is None else levels.get(codec),
            log_append_time=config.is_log_append_time,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            strict=config.validation_strict,
            max_record_bytes=config.max_decompressed_message_bytes,
        )
