"""What several parts of the API answer with, and how times are told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from django.db.models import Model, QuerySet
from ninja import Query, Schema
from pydantic import Field

from dashboard import times
from dashboard.api.errors import ERRORS, Error, Invalid, NotFound
from dashboard.cluster import KafkaFailure
from dashboard.snapshots import ClusterSnapshot, TopicState, look_now

M = TypeVar("M", bound=Model)

MAX_LIMIT = 500
PageNumber = Annotated[int, Query(1, ge=1, le=1_000_000, description="From 1.")]
Limit = Annotated[int, Query(50, ge=1, le=MAX_LIMIT, description="Entries of one page.")]
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]
Milliseconds = Annotated[
    int, Field(description="Milliseconds since 1970.", json_schema_extra={"format": "int64"})
]
Rfc3339 = Annotated[
    str, Field(description="The same moment, RFC 3339.", json_schema_extra={"format": "date-time"})
]


class Taken(Schema):
    """Of the snapshot that figures come from. ``stale``: the cluster has not answered since."""

    taken_ms: Milliseconds
    taken_time: Rfc3339
    stale_since_ms: Milliseconds | None
    stale_since_time: Rfc3339 | None
    failure: str | None


class Done(Schema):
    """A change that was made."""

    done: bool = True


def responses(success: Any, status: int = 200) -> dict[Any, Any]:
    """What an operation may answer: its own, or a refusal in the one shape."""
    return {status: success, ERRORS: Error}


def moment(name: str, milliseconds: int | None) -> dict[str, Any]:
    """Both forms of a time."""
    known = milliseconds is not None and milliseconds >= 0
    return {
        f"{name}_ms": milliseconds if known else None,
        f"{name}_time": times.rfc3339(milliseconds) if known else None,
    }


def moment_of(name: str, at: dt.datetime | None) -> dict[str, Any]:
    return moment(name, None if at is None else times.to_ms(at))


def time_parameter(name: str, text: str, where: str = "query") -> int | None:
    """A time in a query, or a body: RFC 3339 or milliseconds."""
    try:
        return times.parse_time(text, dt.UTC)
    except ValueError as error:
        raise Invalid(f"{where}.{name}", str(error)) from None


def one_page(
    found: QuerySet[M], page: int, limit: int, name: str, told: Callable[[M], dict[str, Any]]
) -> dict[str, Any]:
    """Stored rows, newest first as they come; one more is asked for than is told."""
    start = (page - 1) * limit
    rows = list(found[start : start + limit + 1])
    return {
        "page": page,
        "has_next": len(rows) > limit,
        name: [told(row) for row in rows[:limit]],
    }


def snapshot(*, needs_groups: bool = False) -> ClusterSnapshot:
    found = look_now(needs_groups=needs_groups)
    if found is None or (found.failure is not None and not found.brokers and not found.topics):
        why = found.failure if found is not None else None
        raise KafkaFailure(
            "NOT_CONNECTED", why or "the cluster has not been asked yet", is_transport=True
        )
    return found


def taken(of: ClusterSnapshot) -> dict[str, Any]:
    return {
        **moment("taken", of.taken_ms),
        **moment("stale_since", of.stale_since_ms),
        "failure": of.failure,
    }


def topic_state(name: str) -> TopicState:
    """Of the snapshot, or asked now when it is younger. Raises NotFound."""
    from dashboard.selectors.topic_detail import look_up

    found = snapshot().topics.get(name)
    if found is not None:
        return found
    answer = look_up(name)
    if answer.value is None:
        if answer.failure is not None and answer.failure.is_transport:
            raise answer.failure
        raise NotFound(f"There is no topic {name}.")
    return answer.value
