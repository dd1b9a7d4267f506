"""TxnOffsetCommit version 6 (KIP-848): topics by id. Otherwise as version 5."""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequestPartition
from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponsePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic:
    __version__: ClassVar[int] = 6
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequest:
    __version__: ClassVar[int] = 6
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    transactional_id: str = field(metadata={"kafka_type": "string"})
    group_id: str = field(metadata={"kafka_type": "string"})
    producer_id: int = field(metadata={"kafka_type": "int64"})
    producer_epoch: int = field(metadata={"kafka_type": "int16"})
    generation_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
    member_id: str = field(metadata={"kafka_type": "string"}, default="")
    group_instance_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic:
    __version__: ClassVar[int] = 6
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse:
    __version__: ClassVar[int] = 6
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    topics: tuple[TxnOffsetCommitResponseTopic, ...]
