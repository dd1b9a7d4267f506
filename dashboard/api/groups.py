"""Consumer groups: the list, one of them, moving offsets with a preview, deletion.

A group's name can hold anything, slashes too: it travels as the query parameter ``id``.
"""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from broker.clock import SystemClock
from dashboard import clusters
from dashboard.api.auth import actor_of, may
from dashboard.api.errors import Invalid, NotFound
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
)
from dashboard.permissions import Permission
from dashboard.resetting import GRAMMAR, Kind, Target, parse_target
from dashboard.selectors.group_reset import ResetPlan, ResetRequest, plan_reset, planned
from dashboard.selectors.groups import SORTS, GroupQuery, chosen_groups
from dashboard.services import groups as service
from dashboard.snapshots import GroupState

router = Router(tags=["Groups"])
GroupId = Annotated[str, Query(..., alias="id", min_length=1, max_length=32_767)]
Sort = Annotated[str, Query("-lag", pattern=f"^-?({'|'.join(SORTS)})$")]


class GroupOut(Schema):
    """``status``: ok, warn, rewind, stall or stop, by how the lag has moved; null: not known."""

    group: str
    state: str
    group_type: str | None
    coordinator: int | None
    assignor: str | None
    member_count: int
    topics: list[str]
    lag: Int64 | None
    lag_ms: Int64 | None
    lag_per_second: float | None
    status: str | None
    stale_since_ms: Int64 | None
    stale_since_time: str | None


class GroupsOut(Taken):
    page: int
    pages: int
    total: int
    groups: list[GroupOut]


class GroupPartitionOut(Schema):
    topic: str
    partition: int
    committed_offset: Int64 | None
    log_end_offset: Int64 | None
    lag: Int64 | None
    lag_ms: Int64 | None
    status: str | None
    member_id: str | None
    client_id: str | None
    host: str | None


class GroupDetailOut(GroupOut):
    partitions: list[GroupPartitionOut]


class ResetIn(Schema):
    """Where to: `to` in the grammar of the command line, or `shift_by`, or `copy_from` a group."""

    to: str | None = Field(None, max_length=64, description=GRAMMAR)
    shift_by: Int64 | None = None
    copy_from: str | None = Field(None, max_length=32_767)
    topic: str | None = Field(None, max_length=249, description="Null: all that is committed.")
    partitions: list[Annotated[int, Field(ge=0, le=1_000_000)]] | None = Field(
        None, description="Null: all of the topic."
    )


class MoveOut(Schema):
    topic: str
    partition: int
    prior: Int64 | None
    new: Int64
    replayed: Int64
    skipped: Int64


class PlanOut(Schema):
    """Nothing has been done yet: send ``plan`` to carry it out, within 15 minutes."""

    group: str
    is_possible: bool
    replayed: Int64
    skipped: Int64
    moves: list[MoveOut]
    errors: list[str]
    remarks: list[str]
    members: list[str]
    plan: str | None


class PlanIn(Schema):
    plan: str = Field(max_length=4_000_000)


class Moved(Schema):
    moved: int


@router.get("/groups", auth=may(Permission.SEE), response=responses(GroupsOut))
def list_groups(  # type: ignore[no-untyped-def]
    request: HttpRequest,
    limit: Limit,
    page: PageNumber,
    sort: Sort,
    search: str = "",
    topic: str = "",
    state: str = "",
    status: str = "",
):
    seen = snapshot(needs_groups=True)
    wanted = GroupQuery(search, topic, state, status, sort.removeprefix("-"), sort.startswith("-"))
    found = chosen_groups(seen.groups, wanted)
    start = (page - 1) * limit
    return {
        **taken(seen),
        "page": page,
        "pages": max(1, -(-len(found) // limit)),
        "total": len(found),
        "groups": [_told(group) for group in found[start : start + limit]],
    }


@router.get("/groups/detail", auth=may(Permission.SEE), response=responses(GroupDetailOut))
def get_group(request: HttpRequest, group: GroupId):  # type: ignore[no-untyped-def]
    found = snapshot(needs_groups=True).groups.get(group)
    if found is None:
        raise NotFound(f"There is no group {group} in the newest snapshot.")
    partitions = [
        {name: getattr(one, name) for name in GroupPartitionOut.model_fields}
        for one in found.partitions
    ]
    return {**_told(found), "partitions": partitions}


@router.post(
    "/groups/reset/preview", auth=may(Permission.CHANGE_GROUPS), response=responses(PlanOut)
)
def preview_reset(request: HttpRequest, group: GroupId, wanted: ResetIn):  # type: ignore[no-untyped-def]
    """What a reset would do, partition by partition."""
    return _plan(plan_reset(clusters.gateway(), _reset_request(group, wanted)))


@router.post("/groups/reset", auth=may(Permission.CHANGE_GROUPS), response=responses(Moved))
def reset_group(request: HttpRequest, group: GroupId, wanted: PlanIn):  # type: ignore[no-untyped-def]
    """Carry out a preview, unless something has changed since."""
    try:
        planned_group, moves = planned(wanted.plan)
    except ValueError as error:
        raise Invalid("body.plan", str(error)) from None
    if planned_group != group:
        raise Invalid("body.plan", "The preview is of another group.")
    count = service.reset_offsets(
        gateway=clusters.gateway(), actor=actor_of(request), group=group, moves=moves
    )
    return {"moved": count}


@router.delete("/groups/offsets", auth=may(Permission.CHANGE_GROUPS), response=responses(Done))
def delete_group_offsets(  # type: ignore[no-untyped-def]
    request: HttpRequest,
    group: GroupId,
    topic: Annotated[str, Query(..., min_length=1, max_length=249)],
):
    """Forget what the group has committed for a topic."""
    service.delete_offsets(
        gateway=clusters.gateway(), actor=actor_of(request), group=group, topic=topic
    )
    return {}


@router.delete("/groups", auth=may(Permission.CHANGE_GROUPS), response=responses(Done))
def delete_group(request: HttpRequest, group: GroupId):  # type: ignore[no-untyped-def]
    """The group and all that it has committed."""
    service.delete_group(gateway=clusters.gateway(), actor=actor_of(request), group=group)
    return {}


def _reset_request(group: str, wanted: ResetIn) -> ResetRequest:
    given = [name for name in ("to", "shift_by", "copy_from") if getattr(wanted, name) is not None]
    if len(given) != 1:
        raise Invalid("body", "Give one of to, shift_by and copy_from.")
    if wanted.to is not None:
        try:
            target = parse_target(wanted.to, SystemClock().wall_ms())
        except ValueError as error:
            raise Invalid("body.to", str(error)) from None
    elif wanted.shift_by is not None:
        target = Target(Kind.SHIFT, count=wanted.shift_by)
    else:
        target = Target(Kind.GIVEN)
    if wanted.partitions is not None and wanted.topic is None:
        raise Invalid("body.partitions", "Name the topic of these partitions.")
    partitions = None if wanted.partitions is None else frozenset(wanted.partitions)
    return ResetRequest(group, target, wanted.topic, partitions, wanted.copy_from)


def _plan(plan: ResetPlan) -> dict[str, Any]:
    return {
        "group": plan.group,
        "is_possible": plan.is_possible,
        "replayed": plan.replayed,
        "skipped": plan.skipped,
        "moves": [
            {
                "topic": move.key.topic,
                "partition": move.key.partition,
                "prior": move.prior,
                "new": move.new,
                "replayed": move.replayed,
                "skipped": move.skipped,
            }
            for move in plan.moves
        ],
        "errors": plan.errors,
        "remarks": plan.remarks,
        "members": plan.members,
        "plan": plan.signed() if plan.is_possible else None,
    }


def _told(group: GroupState) -> dict[str, Any]:
    same = ("group", "state", "group_type", "coordinator", "assignor", "member_count")
    return {
        **{name: getattr(group, name) for name in same},
        "topics": list(group.topics),
        "lag": group.lag,
        "lag_ms": group.lag_ms,
        "lag_per_second": group.trend,
        "status": group.status,
        **moment("stale_since", group.stale_since_ms),
    }
