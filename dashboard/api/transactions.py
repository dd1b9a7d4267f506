"""Transactions: what is under way, what hangs, and ending one by hand."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from broker.model.ids import TopicPartition
from dashboard import clusters
from dashboard.api.auth import actor_of, may
from dashboard.api.shapes import Done, Int64, Milliseconds, Rfc3339, moment, responses, snapshot
from dashboard.permissions import Permission
from dashboard.selectors import transactions as selector
from dashboard.services import transactions as service
from dashboard.transactions import OpenTransaction

router = Router(tags=["Transactions"])
Number = Annotated[int, Field(ge=0, le=2**63 - 1, json_schema_extra={"format": "int64"})]


class TransactionPartitionOut(Schema):
    topic: str
    partition: int


class TransactionOut(Schema):
    """``status``: empty, or why it should be over by now."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: int
    state: str
    timeout_ms: Int64
    started_ms: Milliseconds | None
    started_time: Rfc3339 | None
    duration_ms: Int64 | None
    coordinator: int
    status: str
    partitions: list[TransactionPartitionOut]


class HangingOut(TransactionPartitionOut):
    """Open on a partition, though no coordinator knows of it: read_committed consumers wait there."""

    producer_id: Int64
    producer_epoch: int
    start_offset: Int64
    last_ms: Milliseconds | None
    last_time: Rfc3339 | None


class TransactionsOut(Schema):
    """``looked_at`` of ``partition_count`` partitions were asked what they hold open: name a topic
    where that is not all of them."""

    transactions: list[TransactionOut]
    hanging: list[HangingOut]
    looked_at: int
    partition_count: int


class AbortIn(Schema):
    transactional_id: str = Field(min_length=1, max_length=32_767)
    producer_id: Number = Field(description="Of the transaction that is meant.")


class AbortHangingIn(Schema):
    topic: str = Field(min_length=1, max_length=249)
    partition: Annotated[int, Field(ge=0, le=1_000_000)]
    producer_id: Number
    start_offset: Number


@router.get("/transactions", auth=may(Permission.SEE), response=responses(TransactionsOut))
def list_transactions(  # type: ignore[no-untyped-def]
    request: HttpRequest,
    search: str = "",
    topic: Annotated[str, Query("", max_length=249)] = "",
):
    """As coordinators and partitions tell at this moment."""
    leaders = selector.partitions_of(snapshot(), topic)
    looked_at = dict(sorted(leaders.items())[: selector.MAX_PARTITIONS])
    known, hanging = clusters.gateway().transactions.hanging(looked_at)
    return {
        "transactions": [_told(row) for row in selector.rows_of(known, search, topic)],
        "hanging": [_told_open(each) for each in hanging],
        "looked_at": len(looked_at),
        "partition_count": len(leaders),
    }


@router.post(
    "/transactions/abort", auth=may(Permission.ABORT_TRANSACTIONS), response=responses(Done)
)
def abort_transaction(request: HttpRequest, wanted: AbortIn):  # type: ignore[no-untyped-def]
    """Abort a transaction under way; its producer is fenced."""
    service.abort(
        gateway=clusters.gateway(),
        actor=actor_of(request),
        transactional_id=wanted.transactional_id,
        producer_id=wanted.producer_id,
    )
    return {}


@router.post(
    "/transactions/abort-hanging",
    auth=may(Permission.ABORT_TRANSACTIONS),
    response=responses(Done),
)
def abort_hanging(request: HttpRequest, wanted: AbortHangingIn):  # type: ignore[no-untyped-def]
    """Write an abort marker for a transaction that no coordinator knows of."""
    service.abort_hanging(
        gateway=clusters.gateway(),
        actor=actor_of(request),
        partition=TopicPartition(wanted.topic, wanted.partition),
        producer_id=wanted.producer_id,
        start_offset=wanted.start_offset,
    )
    return {}


def _told(row: selector.Row) -> dict[str, Any]:
    view = row.view
    same = ("transactional_id", "producer_id", "producer_epoch", "state", "timeout_ms")
    return {
        **{name: getattr(view, name) for name in (*same, "coordinator")},
        **moment("started", view.started_ms),
        "duration_ms": row.duration_ms,
        "status": row.status,
        "partitions": [
            {"topic": each.topic, "partition": each.partition} for each in view.partitions
        ],
    }


def _told_open(found: OpenTransaction) -> dict[str, Any]:
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "start_offset": found.start_offset,
        **moment("last", found.last_ms),
    }
