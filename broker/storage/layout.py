"""Names of directories and files in a log directory: Kafka's, character for character.

A partition lives in ``<topic>-<partition>``; a segment's files are named by its base offset in
twenty digits. Directory suffixes mark what is being removed (``-delete``) or what nobody claimed
(``-stray``); ``-future`` is Kafka's name for a copy that is moving between disks.
"""

from __future__ import annotations

import uuid

from broker.model.ids import TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"
#: Ours: a link on its way to its name.
LINK_SUFFIX = ".link.tmp"

INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)

DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
FUTURE_DIRECTORY_SUFFIX = "-future"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
#: Ours: the boot during which this directory was last open. Kafka ignores plain files here.
BOOT_ID_FILE = ".odradek_boot"

#: The longest name that a Linux file system takes for one directory entry.
MAX_NAME_LENGTH = 255


def segment_file_name(base_offset: int, suffix: str) -> str:
    """``00000000000000000042.log`` and its companions."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file_name(name: str) -> tuple[int, str] | None:
    """Base offset and suffix of a segment's file; None for anything else."""
    digits, dot, rest = name.partition(".")
    if len(digits) != 20 or not dot or not digits.isascii() or not digits.isdigit():
        return None
    return int(digits), "." + rest


def partition_directory_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_partition_directory_name(name: str) -> TopicPartition | None:
    """The partition that ``name`` holds; None for marked and foreign directories."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    return TopicPartition(topic, int(partition))


def is_marked_for_deletion(name: str) -> bool:
    return name.endswith(DELETE_DIRECTORY_SUFFIX)


def marked_directory_name(topic_partition: TopicPartition, unique: uuid.UUID, suffix: str) -> str:
    """``topic-0.<32 hex digits>-delete``: a name that a new partition of that topic never takes.

    Long topic names are cut, as in Kafka: the name of a doomed directory says little anyway.
    """
    tail = f"-{topic_partition.partition}.{unique.hex}{suffix}"
    return topic_partition.topic[: MAX_NAME_LENGTH - len(tail)] + tail
