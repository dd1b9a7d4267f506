"""Topics: the list, one of them, and every change that its pages can make."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import Field

from dashboard import clusters
from dashboard.api.auth import actor_of, may
from dashboard.api.cluster import SettingOut, setting
from dashboard.api.shapes import (
    Done,
    Int64,
    Limit,
    PageNumber,
    Taken,
    moment,
    responses,
    snapshot,
    taken,
    topic_state,
)
from dashboard.cluster import KafkaFailure
from dashboard.permissions import Permission
from dashboard.selectors.topic_detail import lagging_of
from dashboard.selectors.topics import COLUMNS, LONGEST_SEARCH, TopicQuery, TopicRow, board_of
from dashboard.services import topics as service
from dashboard.snapshots import LaggingReplica, TopicState

router = Router(tags=["Topics"])
_SORTS = "|".join(column.key for column in COLUMNS)
Sort = Annotated[str, Query("name", pattern=f"^-?({_SORTS})$")]
Search = Annotated[str, Query("", max_length=LONGEST_SEARCH, description="Parts of the name.")]
Name = Annotated[str, Field(min_length=1, max_length=249)]


class TopicOut(Schema):
    name: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    out_of_sync: int
    offline: int
    record_count: Int64 | None = Field(
        description="Offsets held: at most so many records, fewer where there are holes."
    )
    size_bytes: Int64 | None
    records_in_rate: float | None
    bytes_in_rate: float | None
    cleanup_policy: str | None
    lag: Int64 | None
    lag_group: str | None
    stale_since_ms: Int64 | None
    stale_since_time: str | None


class TopicsOut(Taken):
    page: int
    pages: int
    total: int
    topics: list[TopicOut]


class LaggingOut(Schema):
    """A replica that is not in sync."""

    broker: int
    lag: Int64 | None = Field(description="Records that it lacks; null: nobody tells.")
    since_ms: Int64 | None
    since_time: str | None
    since_is_exact: bool = Field(description="False: at least so long.")


class PartitionOut(Schema):
    index: int
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    isr: list[int]
    lagging: list[LaggingOut]
    log_start_offset: Int64 | None
    high_watermark: Int64 | None
    size_bytes: Int64 | None
    stale_since_ms: Int64 | None
    stale_since_time: str | None


class TopicDetailOut(Schema):
    name: str
    topic_id: str | None
    is_internal: bool
    replication_factor: int
    min_isr: int
    record_count: Int64 | None = Field(
        description="Offsets held: at most so many records, fewer where there are holes."
    )
    size_bytes: Int64 | None
    records_in_rate: float | None
    bytes_in_rate: float | None
    bytes_out_rate: float | None
    partitions: list[PartitionOut]
    stale_since_ms: Int64 | None
    stale_since_time: str | None


class NewTopic(Schema):
    """-1 leaves a count to the cluster."""

    name: Name
    partitions: int = Field(-1, ge=-1, le=100_000)
    replication_factor: int = Field(-1, ge=-1, le=1000)
    settings: dict[str, str] = Field({}, max_length=200)


class NewValue(Schema):
    value: str = Field(max_length=10_000)


class PartitionTotal(Schema):
    total: int = Field(ge=1, le=100_000, description="How many there are afterwards.")


@router.get("/topics", auth=may(Permission.SEE), response=responses(TopicsOut))
def list_topics(  # type: ignore[no-untyped-def]
    request: HttpRequest,
    search: Search,
    limit: Limit,
    page: PageNumber,
    sort: Sort,
    internal: bool = False,
):
    """``sort`` with a minus is descending; what is not known comes last either way."""
    seen = snapshot()
    wanted = TopicQuery(search.strip(), sort, page, internal)
    rows, _ = board_of(seen).matching(wanted)
    start = (page - 1) * limit
    return {
        **taken(seen),
        "page": page,
        "pages": max(1, -(-len(rows) // limit)),
        "total": len(rows),
        "topics": [_row(row) for row in rows[start : start + limit]],
    }


@router.post("/topics", auth=may(Permission.CHANGE_TOPICS), response=responses(TopicDetailOut, 201))
def create_topic(request: HttpRequest, new: NewTopic):  # type: ignore[no-untyped-def]
    _refuse(
        service.create(
            actor=actor_of(request),
            name=new.name,
            partitions=new.partitions if new.partitions > 0 else -1,
            replication_factor=new.replication_factor if new.replication_factor > 0 else -1,
            configs=new.settings,
        )
    )
    return Status(201, _told(topic_state(new.name)))


@router.get("/topics/{name}", auth=may(Permission.SEE), response=responses(TopicDetailOut))
def get_topic(request: HttpRequest, name: str):  # type: ignore[no-untyped-def]
    return _told(topic_state(name))


@router.delete("/topics/{name}", auth=may(Permission.CHANGE_TOPICS), response=responses(Done))
def delete_topic(request: HttpRequest, name: str):  # type: ignore[no-untyped-def]
    """With all its records. There is no way back."""
    _refuse(service.delete(actor=actor_of(request), names=[name])[name])
    return {}


@router.post("/topics/{name}/empty", auth=may(Permission.CHANGE_TOPICS), response=responses(Done))
def empty_topic(request: HttpRequest, name: str):  # type: ignore[no-untyped-def]
    """Forget the records that are there now; topic, settings and offsets stay."""
    _refuse(service.empty(actor=actor_of(request), names=[name])[name])
    return {}


@router.post(
    "/topics/{name}/partitions",
    auth=may(Permission.CHANGE_TOPICS),
    response=responses(TopicDetailOut),
)
def add_partitions(request: HttpRequest, name: str, wanted: PartitionTotal):  # type: ignore[no-untyped-def]
    """Partitions can be added, never taken away; keys may go to other partitions from then on."""
    _refuse(service.add_partitions(actor=actor_of(request), name=name, total=wanted.total))
    return _told(topic_state(name))


@router.get(
    "/topics/{name}/settings", auth=may(Permission.SEE), response=responses(list[SettingOut])
)
def list_topic_settings(request: HttpRequest, name: str):  # type: ignore[no-untyped-def]
    """As the cluster tells them now."""
    found = clusters.gateway().topic_configs([name])[name]
    if isinstance(found, KafkaFailure):
        raise found
    return [setting(view) for view in found]


@router.put(
    "/topics/{name}/settings/{key}",
    auth=may(Permission.CHANGE_TOPICS),
    response=responses(Done),
)
def set_topic_setting(request: HttpRequest, name: str, key: str, wanted: NewValue):  # type: ignore[no-untyped-def]
    _refuse(service.set_setting(actor=actor_of(request), name=name, key=key, value=wanted.value))
    return {}


@router.delete(
    "/topics/{name}/settings/{key}",
    auth=may(Permission.CHANGE_TOPICS),
    response=responses(Done),
)
def reset_topic_setting(request: HttpRequest, name: str, key: str):  # type: ignore[no-untyped-def]
    """Back to what the brokers give."""
    _refuse(service.reset_setting(actor=actor_of(request), name=name, key=key))
    return {}


def _refuse(outcome: KafkaFailure | None) -> None:
    if outcome is not None:
        raise outcome


def _row(row: TopicRow) -> dict[str, Any]:
    told = {name: value for name, value in row._asdict().items() if name in TopicOut.model_fields}
    return {**told, **moment("stale_since", row.stale_since_ms)}


def _lagging(one: LaggingReplica) -> dict[str, Any]:
    return {
        "broker": one.broker_id,
        "lag": one.lag,
        **moment("since", one.since_ms),
        "since_is_exact": one.is_since_known,
    }


def _told(topic: TopicState) -> dict[str, Any]:
    lagging = lagging_of(snapshot(), topic.name)
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "replication_factor": topic.replication_factor,
        "min_isr": topic.min_isr,
        "record_count": topic.record_count,
        "size_bytes": topic.size_bytes,
        "records_in_rate": topic.records_in_rate,
        "bytes_in_rate": topic.bytes_in_rate,
        "bytes_out_rate": topic.bytes_out_rate,
        **moment("stale_since", topic.stale_since_ms),
        "partitions": [
            {
                "index": one.index,
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "isr": list(one.isr),
                "lagging": [_lagging(each) for each in lagging.get(one.index, ())],
                "log_start_offset": one.log_start_offset,
                "high_watermark": one.high_watermark,
                "size_bytes": one.size_bytes,
                **moment("stale_since", one.stale_since_ms),
            }
            for one in topic.partitions
        ],
    }
