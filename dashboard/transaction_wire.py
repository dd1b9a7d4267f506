"""Requests about transactions on plain sockets: the client library has no calls for them.

Each function takes a connection to the right broker: the coordinator, or the partitions' leader.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any

import kio.schema.describe_producers.v0.request as producers_request
import kio.schema.describe_producers.v0.response as producers_response
import kio.schema.describe_transactions.v0.request as describe_request
import kio.schema.describe_transactions.v0.response as describe_response
import kio.schema.init_producer_id.v4.request as init_request
import kio.schema.init_producer_id.v4.response as init_response
import kio.schema.list_transactions.v0.request as list_request
import kio.schema.list_transactions.v0.response as list_response
import kio.schema.write_txn_markers.v1.request as markers_request
import kio.schema.write_txn_markers.v1.response as markers_response
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta

from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure
from dashboard.transactions import OpenTransaction, TransactionView
from dashboard.wire import WireConnection, failure_of

INIT_PRODUCER_ID = (22, 4)
WRITE_TXN_MARKERS = (27, 1)
DESCRIBE_PRODUCERS = (61, 0)
DESCRIBE_TRANSACTIONS = (65, 0)
LIST_TRANSACTIONS = (66, 0)

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


def list_ids(connection: WireConnection, states: Collection[str]) -> list[str]:
    """Transactional ids in one of these states whose coordinator this broker is."""
    answer = connection.ask(
        list_request.ListTransactionsRequest(
            state_filters=tuple(sorted(states)), producer_id_filters=()
        ),
        list_response.ListTransactionsResponse,
    )
    if answer.error_code.value:
        raise failure_of(answer.error_code.value, None)
    return [str(each.transactional_id) for each in answer.transaction_states]


def describe(
    connection: WireConnection, transactional_ids: Iterable[str], coordinator: int
) -> dict[str, TransactionView | KafkaFailure]:
    answer = connection.ask(
        describe_request.DescribeTransactionsRequest(
            transactional_ids=tuple(map(TransactionalId, transactional_ids))
        ),
        describe_response.DescribeTransactionsResponse,
    )
    return {
        str(each.transactional_id): (
            failure_of(each.error_code.value, None)
            if each.error_code.value
            else _view(each, coordinator)
        )
        for each in answer.transaction_states
    }


def _view(told: Any, coordinator: int) -> TransactionView:
    started_ms = (told.transaction_start_time - _EPOCH) // _MILLISECOND
    return TransactionView(
        str(told.transactional_id),
        int(told.producer_id),
        int(told.producer_epoch),
        told.transaction_state,
        told.transaction_timeout // _MILLISECOND,
        started_ms if started_ms >= 0 else None,
        tuple(
            sorted(
                TopicPartition(str(topic.topic), int(index))
                for topic in told.topics
                for index in topic.partitions
            )
        ),
        coordinator,
    )


def open_transactions(
    connection: WireConnection, partitions: Collection[TopicPartition]
) -> tuple[list[OpenTransaction], dict[TopicPartition, KafkaFailure]]:
    """What is open on these partitions, which this broker leads; and who did not tell."""
    answer = connection.ask(
        producers_request.DescribeProducersRequest(
            topics=tuple(
                producers_request.TopicRequest(
                    name=TopicName(topic),
                    partition_indexes=tuple(i32(each.partition) for each in of_topic),
                )
                for topic, of_topic in groupby(sorted(partitions), attrgetter("topic"))
            )
        ),
        producers_response.DescribeProducersResponse,
    )
    found: list[OpenTransaction] = []
    failures: dict[TopicPartition, KafkaFailure] = {}
    for topic in answer.topics:
        for told in topic.partitions:
            key = TopicPartition(str(topic.name), int(told.partition_index))
            if told.error_code.value:
                failures[key] = failure_of(told.error_code.value, told.error_message)
            found += [
                OpenTransaction(
                    key,
                    int(each.producer_id),
                    int(each.producer_epoch),
                    int(each.coordinator_epoch),
                    int(each.current_txn_start_offset),
                    int(each.last_timestamp),
                )
                for each in told.active_producers
                if each.current_txn_start_offset >= 0
            ]
    return found, failures


def fence(
    connection: WireConnection, transactional_id: str, timeout_ms: int
) -> KafkaFailure | None:
    """A new producer for the id: what is open is aborted under a raised epoch. The coordinator says
    CONCURRENT_TRANSACTIONS while it does so."""
    answer = connection.ask(
        init_request.InitProducerIdRequest(
            transactional_id=TransactionalId(transactional_id),
            transaction_timeout=i32Timedelta.parse(dt.timedelta(milliseconds=timeout_ms)),
        ),
        init_response.InitProducerIdResponse,
    )
    code = answer.error_code.value
    return failure_of(code, None) if code else None


def write_abort(connection: WireConnection, found: OpenTransaction) -> KafkaFailure | None:
    """An abort marker from outside of the coordinator, for a transaction that it does not know."""
    answer = connection.ask(
        markers_request.WriteTxnMarkersRequest(
            markers=(
                markers_request.WritableTxnMarker(
                    producer_id=ProducerId(found.producer_id),
                    producer_epoch=i16(found.producer_epoch),
                    transaction_result=False,
                    topics=(
                        markers_request.WritableTxnMarkerTopic(
                            name=TopicName(found.partition.topic),
                            partition_indexes=(i32(found.partition.partition),),
                        ),
                    ),
                    # As Kafka's own tool does where no coordinator has written yet.
                    coordinator_epoch=i32(max(found.coordinator_epoch, 0)),
                ),
            )
        ),
        markers_response.WriteTxnMarkersResponse,
    )
    for marker in answer.markers:
        for topic in marker.topics:
            for told in topic.partitions:
                if told.error_code.value:
                    return failure_of(told.error_code.value, None)
    return None
