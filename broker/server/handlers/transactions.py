"""AddPartitionsToTxn (key 24), versions 0-5; AddOffsetsToTxn (25), 0-4; EndTxn (26), 0-5;
WriteTxnMarkers (27), 1-2; DescribeTransactions (65), version 0; ListTransactions (66), 0-2.

Behaviour: a partition that does not exist, or belongs to the broker itself, keeps all of its request from
being added (the others are OPERATION_NOT_ATTEMPTED). EndTxn is answered when the outcome is in the log
for good; markers follow. WriteTxnMarkers is for administrators that end hanging transactions (and for
other brokers): each partition refuses a coordinator epoch or a producer epoch that is older than what
it has seen; and, where the marker is of ``transaction.version`` 2 (version 2 of the request says so), the
epoch that an open transaction has.

Per version: AddPartitionsToTxn 0-3 come from producers, 4+ from brokers, for several transactions at
once, which may only ask whether partitions are added. EndTxn 5 raises the producer's epoch and tells it
the next one (``transaction.version`` 2 of KIP-890); it may abort what never began. Before version 2 of it, of AddOffsetsToTxn and of
EndTxn, clients do not know PRODUCER_FENCED and are told INVALID_PRODUCER_EPOCH. ListTransactions 1+
filters by duration; 2 by a regular expression (RE2) that the whole id matches, compiled and matched in a thread.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from broker.coordinator.transaction.requests import (
    DescribedTransaction,
    EndAnswer,
    ProducerOfTransaction,
    TransactionFilter,
)
from broker.coordinator.transaction.states import BY_WIRE_NAME
from broker.coordinator.transaction.transaction import CLASSIC, RAISES_EPOCH
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition
from broker.model.internal_topics import CONSUMER_OFFSETS, is_internal
from broker.model.transaction_marker import TransactionMarker
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.answering import answered
from broker.server.patterns import compiled
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

#: From here on requests come from brokers, and name several transactions.
BATCHED_FROM: Final = 4
#: EndTxn raises the epoch.
RAISES_EPOCH_FROM: Final = 5
PRODUCER_FENCED_FROM: Final = 2


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """What a client of this version understands."""
    if code is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# --- AddPartitionsToTxn -----------------------------------------------------------------------

Codes = list[tuple[TopicPartition, ErrorCode]]


async def handle_add_partitions(broker: Broker, context: RequestContext, request: Any) -> object:
    types, version = response_types(context.api_key, context.api_version), context.api_version
    if version < BATCHED_FROM:
        codes = await _add(broker, _producer_of(request), request.v3_and_below_topics, version)
        return types.AddPartitionsToTxnResponse(
            throttle_time=0, results_by_topic_v3_and_below=_results(types, codes)
        )
    results = []
    for transaction in request.transactions:
        producer, topics = _producer_of(transaction), transaction.topics
        if transaction.verify_only:
            codes = _verify(broker, producer, topics)
        else:
            codes = await _add(broker, producer, topics, version)
        results.append(
            types.AddPartitionsToTxnResult(
                transactional_id=producer.transactional_id, topic_results=_results(types, codes)
            )
        )
    return types.AddPartitionsToTxnResponse(
        throttle_time=0, error_code=ErrorCode.NONE, results_by_transaction=results
    )


def _producer_of(named: Any) -> ProducerOfTransaction:
    """Of any request (or part of one) that names a transaction so; older ones by longer names."""
    if hasattr(named, "v3_and_below_transactional_id"):
        return ProducerOfTransaction(
            named.v3_and_below_transactional_id,
            named.v3_and_below_producer_id,
            named.v3_and_below_producer_epoch,
        )
    return ProducerOfTransaction(named.transactional_id, named.producer_id, named.producer_epoch)


async def _add(
    broker: Broker, producer: ProducerOfTransaction, topics: Iterable[Any], version: int
) -> Codes:
    partitions = _partitions(topics)
    refused = _refused(broker, partitions, may_be_internal=version >= BATCHED_FROM)
    if refused:
        return refused
    coordinator = broker.transactions.coordinator
    # Kafka's brokers ask like this for clients of ``transaction.version`` 2.
    client_version = RAISES_EPOCH if version >= BATCHED_FROM else CLASSIC
    code: ErrorCode = await called_back(
        lambda done: coordinator.add_partitions(producer, partitions, done, client_version)
    )
    return [(each, _told(code, version)) for each in partitions]


def _verify(broker: Broker, producer: ProducerOfTransaction, topics: Iterable[Any]) -> Codes:
    partitions = _partitions(topics)
    refused = _refused(broker, partitions, may_be_internal=True)
    if refused:
        return refused
    try:
        codes: Sequence[ErrorCode] = broker.transactions.coordinator.verify(producer, partitions)
    except KafkaError as error:
        codes = [error.code] * len(partitions)
    return list(zip(partitions, codes, strict=True))


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    """In order, each once."""
    found = (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)
    return list(dict.fromkeys(found))


def _refused(
    broker: Broker, partitions: Sequence[TopicPartition], may_be_internal: bool
) -> Codes | None:
    """One that is refused keeps the others from being looked at. None: all are well."""
    refused = {}
    for each in partitions:
        topic = broker.image.topics.get(each.topic)
        if is_internal(each.topic) and not may_be_internal:
            refused[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= each.partition < len(topic.partitions):
            refused[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not refused:
        return None
    return [(each, refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED)) for each in partitions]


def _results(types: Any, codes: Codes) -> list[object]:
    return [
        types.AddPartitionsToTxnTopicResult(
            name=topic,
            results_by_partition=[
                types.AddPartitionsToTxnPartitionResult(
                    partition_index=each.partition, partition_error_code=code
                )
                for each, code in of_topic
            ],
        )
        for topic, of_topic in groupby(codes, lambda found: found[0].topic)
    ]


# --- AddOffsetsToTxn, EndTxn ------------------------------------------------------------------


async def handle_add_offsets(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if await broker.coordination.ensure_topic():
        index = broker.coordination.groups.index_of(request.group_id)
        code = await called_back(
            broker.transactions.coordinator.add_partitions,
            _producer_of(request),
            [TopicPartition(CONSUMER_OFFSETS, index)],
        )
    return types.AddOffsetsToTxnResponse(
        throttle_time=0, error_code=_told(code, context.api_version)
    )


def handle_end(
    broker: Broker, context: RequestContext, request: Any
) -> object | Coroutine[Any, Any, object]:
    types = response_types(context.api_key, context.api_version)

    def build(code: ErrorCode) -> object:
        return types.EndTxnResponse(throttle_time=0, error_code=_told(code, context.api_version))

    def build_raised(answer: EndAnswer) -> object:
        return types.EndTxnResponse(
            throttle_time=0,
            error_code=answer.error,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
        )

    coordinator, producer = broker.transactions.coordinator, _producer_of(request)
    if context.api_version >= RAISES_EPOCH_FROM:
        end = partial(coordinator.end_and_raise, producer, request.committed)
        return answered(broker.loop, end, build_raised)
    return answered(broker.loop, partial(coordinator.end, producer, request.committed), build)


# --- WriteTxnMarkers --------------------------------------------------------------------------


async def handle_write_markers(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    results = []
    for each in request.markers:
        marker = TransactionMarker(
            each.producer_id,
            each.producer_epoch,
            each.transaction_result,
            each.coordinator_epoch,
            getattr(each, "transaction_version", CLASSIC),
        )
        named = (
            TopicPartition(topic.name, index)
            for topic in each.topics
            for index in topic.partition_indexes
        )
        partitions = list(dict.fromkeys(named))
        told = await called_back(broker.transactions.markers.write_all_here, marker, partitions)
        topics = [
            types.WritableTxnMarkerTopicResult(
                name=topic,
                partitions=[
                    types.WritableTxnMarkerPartitionResult(
                        partition_index=one.partition, error_code=told[one]
                    )
                    for one in of_topic
                ],
            )
            for topic, of_topic in groupby(partitions, itemgetter(0))
        ]
        results.append(types.WritableTxnMarkerResult(producer_id=each.producer_id, topics=topics))
    return types.WriteTxnMarkersResponse(markers=results)


# --- DescribeTransactions, ListTransactions ---------------------------------------------------


async def handle_describe(broker: Broker, context: RequestContext, request: Any) -> object:
    types, turn = response_types(context.api_key, context.api_version), Turn()
    states = EncodedItems()
    for transactional_id in request.transactional_ids:
        found = broker.transactions.coordinator.describe(transactional_id)
        states.add(_described(types, found))
        if turn.is_over:
            await turn.pass_on()
    return types.DescribeTransactionsResponse(throttle_time=0, transaction_states=states)


def _described(types: Any, found: DescribedTransaction) -> object:
    return types.TransactionState(
        error_code=found.error,
        transactional_id=found.transactional_id,
        transaction_state=found.state,
        transaction_timeout=found.timeout_ms,
        transaction_start_time=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            types.TopicData(topic=topic, partitions=[each.partition for each in of_topic])
            for topic, of_topic in groupby(found.partitions, itemgetter(0))
        ],
    )


async def _matched(
    broker: Broker, ids: list[tuple[int, str]], pattern: str | None
) -> list[tuple[int, str]]:
    """Empty is no pattern. Raises ``KafkaError`` where it is none."""
    if not pattern:
        return ids

    def match() -> list[tuple[int, str]]:
        expression = compiled(pattern)
        return [each for each in ids if expression.fullmatch(each[1])]

    try:
        return await broker.threads.computed(match)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


async def handle_list(broker: Broker, context: RequestContext, request: Any) -> object:
    types, turn = response_types(context.api_key, context.api_version), Turn()
    coordinator = broker.transactions.coordinator
    wanted = TransactionFilter(
        frozenset(request.state_filters),
        frozenset(request.producer_id_filters),
        getattr(request, "duration_filter", -1),
    )
    states = EncodedItems()
    code = ErrorCode.NONE
    ids: list[tuple[int, str]] = []
    try:
        ids = await _matched(
            broker,
            coordinator.transactional_ids(),
            getattr(request, "transactional_id_pattern", None),
        )
    except KafkaError as error:
        code = error.code
    for index, transactional_id in ids:
        found = coordinator.listed(index, transactional_id, wanted)
        if found is not None:
            states.add(
                types.TransactionState(
                    transactional_id=found.transactional_id,
                    producer_id=found.producer_id,
                    transaction_state=found.state,
                )
            )
        if turn.is_over:
            await turn.pass_on()
    unknown = [] if code is not ErrorCode.NONE else sorted(wanted.states - BY_WIRE_NAME.keys())
    return types.ListTransactionsResponse(
        throttle_time=0,
        error_code=code,
        unknown_state_filters=unknown,
        transaction_states=states,
    )
