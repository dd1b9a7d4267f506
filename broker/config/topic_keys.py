"""The table of topic settings of Apache Kafka 4.4, and ours (prefix ``odradek.``).

``TOPIC_KEYS`` holds every name that a topic may override. ``synonyms`` of a row name the broker
settings that give the default, the strongest first, some of them in other units
(``UNITS_MS``).
"""

from __future__ import annotations

from broker.config.definition import (
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    DistinctItems,
    GzipLevel,
    OneOf,
    Range,
    ThrottledReplicas,
)

BOOLEAN = ConfigType.BOOLEAN
DOUBLE = ConfigType.DOUBLE
INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
STRING = ConfigType.STRING

_FOREVER = str(LONG_MAX)
#: The largest array that a Java virtual machine allocates; Kafka's bound for decompressed batches.
_LARGEST_ARRAY = INT_MAX - 8

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
VALIDATION_MODES = ("relaxed", "strict")

_TABLE = (
    ConfigKey(
        "cleanup.policy",
        LIST,
        "delete",
        "What happens to old segments: delete by age or size, compact by key, both, or (empty) neither.",
        DistinctItems(("compact", "delete")),
        synonyms=("log.cleanup.policy",),
        has_effect=True,
        note="Segments are deleted as asked; compaction itself is not there yet, but null keys are refused.",
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        "-1",
        "Level to use when batches are recompressed with gzip.",
        GzipLevel(),
        synonyms=("compression.gzip.level",),
        has_effect=True,
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        "9",
        "Level to use when batches are recompressed with lz4.",
        Range(1, 17),
        synonyms=("compression.lz4.level",),
        has_effect=True,
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        "Codec in which batches are stored; 'producer' keeps them as they were sent.",
        OneOf(COMPRESSION_TYPES),
        synonyms=("compression.type",),
        has_effect=True,
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        "3",
        "Level to use when batches are recompressed with zstd.",
        Range(-131072, 22),
        synonyms=("compression.zstd.level",),
        has_effect=True,
    ),
    ConfigKey(
        "delete.retention.ms",
        LONG,
        "86400000",
        "How long a compacted topic keeps the marks of deleted keys.",
        Range(0),
        synonyms=("log.cleaner.delete.retention.ms",),
    ),
    ConfigKey(
        "errors.deadletterqueue.group.enable",
        BOOLEAN,
        "false",
        "Whether share groups may use this topic for records that they could not process.",
    ),
    ConfigKey(
        "file.delete.delay.ms",
        LONG,
        "60000",
        "How long files of a deleted segment stay on the disk under their new name.",
        Range(0),
        synonyms=("log.segment.delete.delay.ms",),
        has_effect=True,
    ),
    ConfigKey(
        "flush.messages",
        LONG,
        _FOREVER,
        "Force data to the disk after this many records; with 1, before each acknowledgement.",
        Range(1),
        synonyms=("log.flush.interval.messages",),
        has_effect=True,
    ),
    ConfigKey(
        "flush.ms",
        LONG,
        _FOREVER,
        "Force data to the disk when it has waited this long in memory.",
        Range(0),
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        has_effect=True,
    ),
    ConfigKey(
        "follower.replication.throttled.replicas",
        LIST,
        "",
        "Replicas whose fetching from the leader is throttled.",
        ThrottledReplicas(),
    ),
    ConfigKey(
        "index.interval.bytes",
        INT,
        "4096",
        "Bytes of data between two entries of the offset index.",
        Range(0),
        synonyms=("log.index.interval.bytes",),
        has_effect=True,
    ),
    ConfigKey(
        "internal.segment.bytes",
        INT,
        None,
        "Segment size without segment.bytes' lower limit, for tests; the stronger of the two.",
        Range(1),
        has_effect=True,
        is_internal=True,
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        LIST,
        "",
        "Replicas whose serving to followers is throttled.",
        ThrottledReplicas(),
    ),
    ConfigKey(
        "local.retention.bytes",
        LONG,
        "-2",
        "With tiered storage, bytes kept on the local disk; -2 takes retention.bytes.",
        Range(-2),
        synonyms=("log.local.retention.bytes",),
    ),
    ConfigKey(
        "local.retention.ms",
        LONG,
        "-2",
        "With tiered storage, how long data stays on the local disk; -2 takes retention.ms.",
        Range(-2),
        synonyms=("log.local.retention.ms",),
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        LONG,
        _FOREVER,
        "Longest time that a record of a compacted topic may wait for compaction.",
        Range(1),
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    ),
    ConfigKey(
        "max.decompressed.message.bytes",
        INT,
        str(_LARGEST_ARRAY),
        "Largest size that a record of a compressed batch may have once it is decompressed.",
        Range(1, _LARGEST_ARRAY),
        synonyms=("max.decompressed.message.bytes",),
        has_effect=True,
    ),
    ConfigKey(
        "max.message.bytes",
        INT,
        "1048588",
        "Largest batch that is taken, as it is stored (after compression).",
        Range(0),
        synonyms=("message.max.bytes",),
        has_effect=True,
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        LONG,
        "3600000",
        "How far a record's timestamp may lie ahead of the broker's clock.",
        Range(0),
        synonyms=("log.message.timestamp.after.max.ms",),
        has_effect=True,
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        LONG,
        _FOREVER,
        "How far a record's timestamp may lie behind the broker's clock.",
        Range(0),
        synonyms=("log.message.timestamp.before.max.ms",),
        has_effect=True,
    ),
    ConfigKey(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "Whether records keep their producer's timestamp or get the time of the append.",
        OneOf(TIMESTAMP_TYPES),
        synonyms=("log.message.timestamp.type",),
        has_effect=True,
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        "0.5",
        "Share of not yet compacted data from which on a log is worth compacting.",
        Range(0, 1),
        synonyms=("log.cleaner.min.cleanable.ratio",),
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        LONG,
        "0",
        "Shortest time that a record of a compacted topic stays untouched.",
        Range(0),
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    ),
    ConfigKey(
        "min.insync.replicas",
        INT,
        "1",
        "In-sync replicas that must hold a record before acks=all is answered with success.",
        Range(1),
        synonyms=("min.insync.replicas",),
        has_effect=True,
    ),
    ConfigKey(
        "preallocate",
        BOOLEAN,
        "false",
        "Whether a new segment's file gets its full size at once.",
        synonyms=("log.preallocate",),
        note="Never done: unwritten extents stall appends.",
    ),
    ConfigKey(
        "remote.copy.lag.bytes",
        LONG,
        "-1",
        "With tiered storage, bytes that may wait before they are copied to it.",
        Range(-1),
        synonyms=("log.remote.copy.lag.bytes",),
    ),
    ConfigKey(
        "remote.copy.lag.ms",
        LONG,
        "0",
        "With tiered storage, how long a sealed segment may wait before it is copied to it.",
        Range(-1),
        synonyms=("log.remote.copy.lag.ms",),
    ),
    ConfigKey(
        "remote.log.copy.disable",
        BOOLEAN,
        "false",
        "With tiered storage, whether new segments stay local and the tiered data read-only.",
    ),
    ConfigKey(
        "remote.log.delete.on.disable",
        BOOLEAN,
        "false",
        "Whether tiered data of the topic is deleted when its tiered storage is switched off.",
    ),
    ConfigKey(
        "remote.storage.enable",
        BOOLEAN,
        "false",
        "Whether the topic uses tiered storage.",
        note="Only false is accepted: there is no tiered storage.",
    ),
    ConfigKey(
        "retention.bytes",
        LONG,
        "-1",
        "Size of a partition above which old segments are deleted; -1 for no limit.",
        synonyms=("log.retention.bytes",),
        has_effect=True,
    ),
    ConfigKey(
        "retention.ms",
        LONG,
        "604800000",
        "Age above which segments are deleted; -1 for no limit.",
        Range(-1),
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        has_effect=True,
    ),
    ConfigKey(
        "segment.bytes",
        INT,
        "1073741824",
        "Size at which a segment is sealed and a new one begun.",
        Range(1048576),
        synonyms=("log.segment.bytes",),
        has_effect=True,
    ),
    ConfigKey(
        "segment.index.bytes",
        INT,
        "10485760",
        "Size at which a segment's index is full, so that the segment is sealed.",
        Range(4),
        synonyms=("log.index.size.max.bytes",),
        has_effect=True,
    ),
    ConfigKey(
        "segment.jitter.ms",
        LONG,
        "0",
        "Up to this much is taken off segment.ms at random, so that partitions do not roll together.",
        Range(0),
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        has_effect=True,
    ),
    ConfigKey(
        "segment.ms",
        LONG,
        "604800000",
        "Age at which a segment is sealed even if it is not full.",
        Range(1),
        synonyms=("log.roll.ms", "log.roll.hours"),
        has_effect=True,
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Whether a replica that may lack records can become leader when no other is left.",
        synonyms=("unclean.leader.election.enable",),
    ),
    ConfigKey(
        "odradek.produce.validation",
        STRING,
        "relaxed",
        "How closely produced batches are checked: by their header, or (strict) record by record.",
        OneOf(VALIDATION_MODES),
        synonyms=("odradek.produce.validation",),
        has_effect=True,
    ),
)

TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _TABLE}

#: Milliseconds in one unit of the broker settings that are given in hours or minutes.
UNITS_MS = {
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
    "log.roll.hours": 3_600_000,
    "log.roll.jitter.hours": 3_600_000,
}
