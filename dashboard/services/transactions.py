"""Ending transactions by hand: those under way by fencing their producer, those that hang by a marker."""

from __future__ import annotations

from typing import Any, Final

from broker.model.ids import TopicPartition
from dashboard.answers import answers
from dashboard.cluster import BrokerView, KafkaFailure, TopicView
from dashboard.gateway import Gateway
from dashboard.selectors import transactions as selector
from dashboard.services import audit
from dashboard.transactions import OpenTransaction, TransactionView

MAX_AUDITED: Final = 100
_WORDS: Final = {
    "INVALID_PRODUCER_EPOCH": "A newer epoch of the producer has ended it meanwhile.",
    "TRANSACTION_COORDINATOR_FENCED": "A newer coordinator has written there meanwhile: look again.",
    "COORDINATOR_NOT_AVAILABLE": "Its coordinator is not available: try again soon.",
    "COORDINATOR_LOAD_IN_PROGRESS": "Its coordinator is still loading: try again soon.",
    "NOT_COORDINATOR": "Its coordinator has moved: try again.",
    "CLUSTER_AUTHORIZATION_FAILED": "The dashboard's own Kafka user may not do this here.",
}


class TransactionRefused(Exception):
    """Why a transaction was not ended, in words for the page."""


def words_of(failure: KafkaFailure) -> str:
    return _WORDS.get(failure.code, f"{failure.message} ({failure.code})")


def abort(*, gateway: Gateway, actor: audit.Actor, transactional_id: str, producer_id: int) -> None:
    """Abort what is under way, unless it is not that any more; its producer is fenced."""
    with audit.change(actor, "transaction.abort", transactional_id) as change:
        try:
            view = _under_way(gateway, transactional_id)
            change.before = _told(view)
            if view.producer_id != producer_id:
                raise TransactionRefused("Another producer has taken the id over: look again.")
            if view.state != "Ongoing":
                raise TransactionRefused(
                    f"Its outcome is decided ({view.state}): only its markers are missing."
                )
            gateway.transactions.abort(view)
        except KafkaFailure as failure:
            raise TransactionRefused(words_of(failure)) from None
        change.after = {"state": "being aborted"}
    answers.forget(selector.key_of(""))


def abort_hanging(
    *,
    gateway: Gateway,
    actor: audit.Actor,
    partition: TopicPartition,
    producer_id: int,
    start_offset: int,
) -> None:
    """Write an abort marker for what no coordinator knows of."""
    with audit.change(actor, "transaction.abort_hanging", str(partition)) as change:
        try:
            leader = _leader(gateway, partition)
            _, hanging = gateway.transactions.hanging({partition: leader})
            found = [
                each
                for each in hanging
                if (each.producer_id, each.start_offset) == (producer_id, start_offset)
            ]
            if not found:
                raise TransactionRefused("No such transaction hangs there (any more).")
            change.before = _told_open(found[0])
            gateway.transactions.abort_on(found[0], leader)
        except KafkaFailure as failure:
            raise TransactionRefused(words_of(failure)) from None
        change.after = {"marker": "abort"}
    answers.forget(selector.key_of(""), selector.key_of(partition.topic))


def _under_way(gateway: Gateway, transactional_id: str) -> TransactionView:
    for view in gateway.transactions.under_way():
        if view.transactional_id == transactional_id:
            return view
    raise TransactionRefused("No such transaction is under way (any more).")


def _leader(gateway: Gateway, partition: TopicPartition) -> BrokerView:
    topic = gateway.topics([partition.topic])[partition.topic]
    if not isinstance(topic, TopicView):
        raise topic
    brokers = {each.broker_id: each for each in gateway.brokers()}
    for each in topic.partitions:
        if each.index == partition.partition and each.leader in brokers:
            return brokers[each.leader]
    raise TransactionRefused(f"{partition} has no leader.")


def _told(view: TransactionView) -> dict[str, Any]:
    """Numbers of 64 bits as text: JavaScript and JSON tools round them."""
    told: dict[str, Any] = {
        "producer id": str(view.producer_id),
        "producer epoch": view.producer_epoch,
        "state": view.state,
        "partitions": [str(each) for each in view.partitions[:MAX_AUDITED]],
    }
    if len(view.partitions) > MAX_AUDITED:
        told["and more partitions"] = len(view.partitions) - MAX_AUDITED
    return told


def _told_open(found: OpenTransaction) -> dict[str, Any]:
    return {
        "producer id": str(found.producer_id),
        "producer epoch": found.producer_epoch,
        "start offset": str(found.start_offset),
    }
