"""OffsetCommit (key 8), versions 2-10; OffsetFetch (9), 1-10; TxnOffsetCommit (28), 0-6; OffsetDelete
(47), version 0.

Behaviour: partitions that do not exist are refused one by one (UNKNOWN_TOPIC_OR_PARTITION, or
UNKNOWN_TOPIC_ID where topics are named by id); the others share the verdict on the group and the
member, and are written as one batch. A partition without a committed offset is answered with -1 and
no error (G53).

Per version: OffsetCommit 2-4 carry a retention time (negative: the broker's own), 6+ a leader epoch,
7+ static members, 9+ tell GROUP_ID_NOT_FOUND, 10 topics by id. OffsetFetch 1 has its error on each
partition only, 2+ on top, and no topics means all of them; 7+ may insist on stable offsets; 8+ asks for
several groups; 9+ names the member of a consumer group and its epoch; 10 topics by id. TxnOffsetCommit 2+ carries leader epochs, 3+ names the member, 4+ tells
TRANSACTION_ABORTABLE, 6 names topics by id.

TxnOffsetCommit is only accepted for a group that was added to the transaction. From version 5 on it adds
the group itself (``transaction.version`` 2 of KIP-890), even if the member is refused then.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from broker.coordinator.group.requests import (
    AskedTopic,
    CommitRequest,
    CommittedPartition,
    FetchedOffset,
    FetchedTopic,
)
from broker.coordinator.result import Producer
from broker.coordinator.transaction.requests import ProducerOfTransaction
from broker.model.error_code import ErrorCode
from broker.model.ids import ZERO_TOPIC_ID, TopicPartition
from broker.model.internal_topics import CONSUMER_OFFSETS
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.answering import answered
from broker.server.encoding import encoded
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.metadata.image import TopicImage
    from broker.server.app import Broker
    from broker.server.context import RequestContext

TOPIC_ID_FROM: Final = 10
MISSING_GROUPS_FROM: Final = 9
ERROR_ON_TOP_FROM: Final = 2
GROUPS_FROM: Final = 8
#: Of TxnOffsetCommit.
KNOWS_LOADING_FROM: Final = 2
ABORTABLE_FROM: Final = 4
ADDS_GROUP_FROM: Final = 5
TRANSACTION_TOPIC_ID_FROM: Final = 6
MILLISECOND: Final = timedelta(milliseconds=1)


# --- OffsetCommit -----------------------------------------------------------------------------


def handle_commit(
    broker: Broker, context: RequestContext, request: Any
) -> object | Coroutine[Any, Any, object]:
    has_ids = context.api_version >= TOPIC_ID_FROM
    answer = _CommitAnswer(broker, context, request, "OffsetCommit", has_ids)
    if not answer.accepted:
        return answer.build((ErrorCode.NONE, ()))
    asked = CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation_id=request.generation_id_or_member_epoch,
        retention_ms=_retention_ms(request),
        partitions=answer.accepted,
        knows_missing_groups=context.api_version >= MISSING_GROUPS_FROM,
    )
    groups = broker.coordination.groups
    return answered(
        broker.loop,
        lambda done: groups.commit(asked, lambda *told: done(told)),
        answer.build,
    )


def _retention_ms(request: Any) -> int | None:
    retention = getattr(request, "retention_time", None)
    if retention is None:
        return None
    retention_ms: int = retention // MILLISECOND
    return retention_ms if retention_ms >= 0 else None


class _CommitAnswer:
    """Which partitions go to the coordinator, and the answer in Kafka's order: topics with refused
    partitions first, and in each topic those first. ``api`` is OffsetCommit or TxnOffsetCommit."""

    def __init__(
        self, broker: Broker, context: RequestContext, request: Any, api: str, has_ids: bool
    ) -> None:
        self._types = response_types(context.api_key, context.api_version)
        self._api = api
        self._has_ids = has_ids
        self.accepted: list[CommittedPartition] = []
        #: Topic's key in the request to its refused and to its accepted partitions.
        self._refused: dict[object, list[tuple[int, ErrorCode]]] = {}
        self._accepted: dict[object, list[int]] = {}
        for topic in request.topics:
            self._take(broker, topic)

    def _take(self, broker: Broker, topic: Any) -> None:
        image = broker.image
        found: TopicImage | None
        if self._has_ids:
            key: object = topic.topic_id
            found = image.topics_by_id.get(topic.topic_id)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            key = topic.name
            found = image.topics.get(topic.name)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for wanted in topic.partitions:
            index = wanted.partition_index
            if found is None or not 0 <= index < len(found.partitions):
                code = unknown if found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self._refused.setdefault(key, []).append((index, code))
                continue
            self._accepted.setdefault(key, []).append(index)
            self.accepted.append(
                CommittedPartition(
                    found.name,
                    found.topic_id,
                    index,
                    wanted.committed_offset,
                    getattr(wanted, "committed_leader_epoch", -1),
                    wanted.committed_metadata,
                )
            )

    def build(self, told: tuple[ErrorCode, Sequence[ErrorCode]]) -> object:
        error, codes = told
        if error is not ErrorCode.NONE:
            codes = [error] * len(self.accepted)
        left = iter(codes)
        verdicts = {
            key: [(index, next(left)) for index in indexes]
            for key, indexes in self._accepted.items()
        }
        return getattr(self._types, f"{self._api}Response")(
            throttle_time=0,
            topics=[
                self._topic(key, self._refused.get(key, []) + verdicts.get(key, []))
                for key in (*self._refused, *(key for key in verdicts if key not in self._refused))
            ],
        )

    def _topic(self, key: object, partitions: list[tuple[int, ErrorCode]]) -> object:
        new_topic = getattr(self._types, f"{self._api}ResponseTopic")
        new_partition = getattr(self._types, f"{self._api}ResponsePartition")
        return new_topic(
            **{"topic_id" if self._has_ids else "name": key},
            partitions=[
                new_partition(partition_index=index, error_code=code) for index, code in partitions
            ],
        )


# --- TxnOffsetCommit --------------------------------------------------------------------------


def handle_commit_in_transaction(
    broker: Broker, context: RequestContext, request: Any
) -> object | Coroutine[Any, Any, object]:
    version = context.api_version
    has_ids = version >= TRANSACTION_TOPIC_ID_FROM
    answer = _CommitAnswer(broker, context, request, "TxnOffsetCommit", has_ids)
    if not answer.accepted:
        return answer.build((ErrorCode.NONE, ()))

    def build(told: tuple[ErrorCode, Sequence[ErrorCode]]) -> object:
        return answer.build((_understood(told[0], version), told[1]))

    groups = broker.coordination.groups
    group_id = request.group_id
    producer = Producer(request.producer_id, request.producer_epoch)
    named = ProducerOfTransaction(request.transactional_id, *producer)
    home = TopicPartition(CONSUMER_OFFSETS, groups.index_of(group_id))
    asked = CommitRequest(
        group_id=group_id,
        member_id=getattr(request, "member_id", ""),
        group_instance_id=getattr(request, "group_instance_id", None),
        generation_id=getattr(request, "generation_id", -1),
        retention_ms=None,
        partitions=answer.accepted,
        knows_missing_groups=False,
    )

    def commit(done: Callable[[tuple[ErrorCode, Sequence[ErrorCode]]], None]) -> None:
        def held(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                groups.commit_in_transaction(asked, producer, lambda *told: done(told))
            else:
                done((error, ()))

        adds = version >= ADDS_GROUP_FROM
        if not group_id:
            held(ErrorCode.NONE)  # the group's name is refused before the transaction is asked
        elif adds and home.partition < 0:  # there is no topic for groups yet
            held(ErrorCode.NOT_COORDINATOR)
        else:
            broker.transactions.hold(named, home, adds, held)

    return answered(broker.loop, commit, build)


def _understood(code: ErrorCode, version: int) -> ErrorCode:
    """Of TxnOffsetCommit's clients: the oldest stumble over a coordinator that is loading
    (KAFKA-7296), and the word for a group that was not added is new in 4."""
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < KNOWS_LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code


# --- OffsetFetch ------------------------------------------------------------------------------


async def handle_fetch(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    must_be_stable = getattr(request, "require_stable", False)
    if context.api_version >= GROUPS_FROM:
        groups = EncodedItems()
        for group in request.groups:
            asked = _AskedGroup(broker, context, group)
            groups.add(await asked.answer(must_be_stable))
        return types.OffsetFetchResponse(throttle_time=0, groups=groups)
    return await _AskedGroup(broker, context, request).answer_alone(must_be_stable)


class _AskedGroup:
    """One group of a request, by itself in requests of old."""

    def __init__(self, broker: Broker, context: RequestContext, group: Any) -> None:
        self._broker = broker
        self._types = response_types(context.api_key, context.api_version)
        self._version = context.api_version
        self._has_ids = context.api_version >= TOPIC_ID_FROM
        self._group_id: str = group.group_id
        #: From version 9 on a member of a consumer group says who it is.
        self._member_id: str | None = getattr(group, "member_id", None)
        self._member_epoch: int = getattr(group, "member_epoch", -1)
        #: Topics whose id nobody knows.
        self._unknown: list[Any] = []
        self._asked: list[AskedTopic] | None = None
        if group.topics is not None:
            self._asked = []
            for topic in group.topics:
                self._take(topic)

    def _take(self, topic: Any) -> None:
        assert self._asked is not None
        name, topic_id = getattr(topic, "name", ""), ZERO_TOPIC_ID
        if self._has_ids:
            found = self._broker.image.topics_by_id.get(topic.topic_id)
            if found is None:
                self._unknown.append(topic)
                return
            name, topic_id = found.name, found.topic_id
        self._asked.append(AskedTopic(name, topic_id, topic.partition_indexes))

    async def answer(self, must_be_stable: bool) -> object:
        error, topics = await self._fetch(must_be_stable)
        types, turn = self._types, Turn()
        told = EncodedItems()
        for topic in self._told(error, topics):
            partitions = (
                types.OffsetFetchResponsePartitions(**_fields(each)) for each in topic.offsets
            )
            told.add(
                types.OffsetFetchResponseTopics(
                    **self._key(topic), partitions=await encoded(partitions, turn)
                )
            )
        return types.OffsetFetchResponseGroup(
            group_id=self._group_id, topics=told, error_code=error
        )

    async def answer_alone(self, must_be_stable: bool) -> object:
        error, topics = await self._fetch(must_be_stable)
        types, turn = self._types, Turn()
        told = EncodedItems()
        for topic in self._told(error, topics):
            partitions = (
                types.OffsetFetchResponsePartition(**_fields(each)) for each in topic.offsets
            )
            told.add(
                types.OffsetFetchResponseTopic(
                    name=topic.topic, partitions=await encoded(partitions, turn)
                )
            )
        return types.OffsetFetchResponse(throttle_time=0, topics=told, error_code=error)

    async def _fetch(self, must_be_stable: bool) -> tuple[ErrorCode, Sequence[FetchedTopic]]:
        groups = self._broker.coordination.groups
        told: tuple[ErrorCode, Sequence[FetchedTopic]] = await called_back(
            lambda done: groups.fetch(
                self._group_id,
                self._asked,
                must_be_stable,
                lambda *result: done(result),
                self._member_id,
                self._member_epoch,
            )
        )
        return told

    def _told(self, error: ErrorCode, topics: Sequence[FetchedTopic]) -> list[FetchedTopic]:
        if error is not ErrorCode.NONE:
            if self._version >= ERROR_ON_TOP_FROM:
                return []
            return [
                FetchedTopic(topic, [FetchedOffset(index, error) for index in partitions])
                for topic, _, partitions in self._asked or ()
            ]
        found = list(topics)
        if self._has_ids and self._asked is None:
            image = self._broker.image
            found = [
                topic._replace(topic_id=image.topics[topic.topic].topic_id)
                for topic in found
                if topic.topic in image.topics
            ]
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        for topic in self._unknown:
            offsets = [FetchedOffset(index, unknown) for index in topic.partition_indexes]
            found.append(FetchedTopic("", offsets, topic.topic_id or ZERO_TOPIC_ID))
        return found

    def _key(self, topic: FetchedTopic) -> dict[str, object]:
        return {"topic_id": topic.topic_id} if self._has_ids else {"name": topic.topic}


def _fields(fetched: FetchedOffset) -> dict[str, object]:
    return {
        "partition_index": fetched.partition,
        "committed_offset": fetched.offset,
        "committed_leader_epoch": fetched.leader_epoch,
        "metadata": fetched.metadata,
        "error_code": fetched.error,
    }


# --- OffsetDelete -----------------------------------------------------------------------------


def handle_delete(
    broker: Broker, context: RequestContext, request: Any
) -> object | Coroutine[Any, Any, object]:
    types = response_types(context.api_key, context.api_version)
    refused: dict[str, list[int]] = {}
    asked: list[tuple[str, int]] = []
    for topic in request.topics:
        found = broker.image.topics.get(topic.name)
        for wanted in topic.partitions:
            index = wanted.partition_index
            if found is not None and 0 <= index < len(found.partitions):
                asked.append((topic.name, index))
            else:
                refused.setdefault(topic.name, []).append(index)

    def build(told: tuple[ErrorCode, Sequence[ErrorCode]]) -> object:
        error, codes = told
        verdicts: dict[str, list[tuple[int, ErrorCode]]] = {}
        if error is ErrorCode.NONE:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for name, indexes in refused.items():
                verdicts[name] = [(index, unknown) for index in indexes]
            for (name, index), code in zip(asked, codes, strict=True):
                verdicts.setdefault(name, []).append((index, code))
        return types.OffsetDeleteResponse(
            error_code=error,
            throttle_time=0,
            topics=[
                types.OffsetDeleteResponseTopic(
                    name=name,
                    partitions=[
                        types.OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                        for index, code in partitions
                    ],
                )
                for name, partitions in verdicts.items()
            ],
        )

    groups = broker.coordination.groups
    return answered(
        broker.loop,
        lambda done: groups.delete_offsets(request.group_id, asked, lambda *told: done(told)),
        build,
    )
