"""Records: a bounded read of a topic, one record, its raw bytes, and producing.

The right to read is by topic: it is checked here, with the topic's name.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard import cursor as cursors
from dashboard.api.auth import actor_of, may, person
from dashboard.api.errors import Invalid, NotFound
from dashboard.api.shapes import Int64, moment, responses, time_parameter
from dashboard.cluster import KafkaFailure
from dashboard.forms.messages import cluster, is_open
from dashboard.permissions import Permission, check
from dashboard.scan.requests import MAX_ROWS, Bounds, Range, ScanRequest, Start, Wanted
from dashboard.scan_pool import Scan, pool
from dashboard.services import producing, reading
from dashboard.services.producing import COMPRESSIONS, NewRecord

router = Router(tags=["Records"])
MAX_OFFSET = 2**63 - 1
MAX_RAW_BYTES = 4 * 1024 * 1024
MAX_PRODUCED = 1000
View = Literal["auto", "text", "json", "hex"]


class PartOut(Schema):
    """A key or value as text. ``shown_as``: null, text, json or hex; ``is_cut``: there is more."""

    shown_as: str
    text: str
    size: Int64
    is_cut: bool


class HeaderOut(Schema):
    name: str
    value: str | None


class RecordOut(Schema):
    partition: int
    offset: Int64
    timestamp_ms: Int64 | None
    timestamp_time: str | None
    timestamp_type: int
    key: PartOut
    value: PartOut
    headers: list[HeaderOut]
    header_count: int


class RecordsOut(Schema):
    """``next``: the cursor that goes on from here; null at the end of the range. ``reason``: end,
    full (as many as were asked for), or the bound that was reached: records, bytes, seconds."""

    records: list[RecordOut]
    scanned: Int64
    filter_errors: Int64 = Field(description="Records for which the filter could not be evaluated.")
    first_error: str | None
    reason: str
    next: str | None


class RecordIn(Schema):
    """Key and value are text, or bytes in base64; neither is a null."""

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: list[tuple[str, str | None]] = Field([], max_length=100)


class ProduceIn(Schema):
    records: list[RecordIn] = Field(min_length=1, max_length=MAX_PRODUCED)
    partition: int | None = Field(None, ge=0, le=1_000_000)
    compression: Literal[COMPRESSIONS] = "none"  # type: ignore[valid-type]


class PlaceOut(Schema):
    partition: int
    count: int
    first_offset: Int64
    last_offset: Int64


class ProducedOut(Schema):
    """``refused`` and ``unanswered`` records may be sent again; the latter may be there already."""

    count: int
    places: list[PlaceOut]
    refused: int
    unanswered: int
    failures: list[str]


@router.get(
    "/topics/{name}/records", auth=may(Permission.READ_RECORDS), response=responses(RecordsOut)
)
def read_records(  # type: ignore[no-untyped-def]
    request: HttpRequest,
    name: str,
    start: Start = "newest",
    offset: Annotated[int | None, Query(None, ge=0, le=MAX_OFFSET)] = None,
    time: Annotated[str, Query("", max_length=40, description="RFC 3339 or milliseconds.")] = "",
    last: Annotated[int | None, Query(None, ge=1, le=1_000_000)] = None,
    since: Annotated[str, Query("", max_length=40, description="Only stamped from then on.")] = "",
    until: Annotated[str, Query("", max_length=40, description="Only stamped before.")] = "",
    partition: Annotated[list[int], Query([], max_length=1000)] = [],  # noqa: B006 - ninja copies it
    limit: Annotated[int, Query(50, ge=1, le=MAX_ROWS)] = 50,
    filter: Annotated[str, Query("", max_length=2000, description="CEL, as on the page.")] = "",  # noqa: A002 - its name in the address
    in_key: Annotated[str, Query("", max_length=1000)] = "",
    in_value: Annotated[str, Query("", max_length=1000)] = "",
    in_header: Annotated[str, Query("", max_length=1000)] = "",
    view: View = "auto",
    cursor: Annotated[str, Query("", max_length=20_000)] = "",
    max_scanned: Annotated[int, Query(200_000, ge=1, le=5_000_000)] = 200_000,
    max_seconds: Annotated[int, Query(15, ge=1, le=30)] = 15,
):
    """Read committed records, within bounds; ``next`` goes on where it ended."""
    check(request.user, Permission.READ_RECORDS, name)
    way: Literal["backward", "forward"] = "backward" if start == "newest" else "forward"
    since_ms, until_ms = time_parameter("since", since), time_parameter("until", until)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise Invalid("query.until", "The range of times ends before it begins.")
    chosen = Range(
        name,
        tuple(partition),
        start,
        start_value(start, offset, time, last),
        _cursor(cursor),
        way,
        since_ms,
        until_ms,
        is_open(until_ms),
    )
    wanted = Wanted(filter, in_key, in_value, in_header)
    bounds = Bounds(records=max_scanned, seconds=max_seconds)
    scan = pool.ask(ScanRequest(cluster(), chosen, wanted, bounds, limit, view), person(request).pk)
    _refuse(scan)
    reason = str(scan.result.get("reason", scan.state))
    return {
        "records": [_record(row) for row in scan.rows],
        "scanned": int(scan.progress.get("scanned", 0)),
        "filter_errors": int(scan.progress.get("errors", 0)),
        "first_error": scan.progress.get("first_error") or None,
        "reason": reason,
        "next": None if reason == "end" or not scan.positions else cursors.encode(scan.positions),
    }


@router.post(
    "/topics/{name}/records", auth=may(Permission.PRODUCE), response=responses(ProducedOut)
)
def produce_records(request: HttpRequest, name: str, wanted: ProduceIn):  # type: ignore[no-untyped-def]
    """Acknowledged by all replicas in sync. What the records hold is not written down."""
    made = producing.produce(
        actor=actor_of(request),
        topic=name,
        records=[_new(number, record) for number, record in enumerate(wanted.records)],
        partition=wanted.partition,
        compression=wanted.compression,
    )
    if made.count == 0 and made.failures:
        raise made.failures[0][1]
    return {
        "count": made.count,
        "places": [
            {"partition": index, "count": count, "first_offset": first, "last_offset": last}
            for index, (count, first, last) in sorted(made.ranges.items())
        ],
        "refused": made.failure_count,
        "unanswered": made.unanswered,
        "failures": [f"record {number}: {failure}" for number, failure in made.failures],
    }


@router.get(
    "/topics/{name}/records/{int:partition}/{int:offset}",
    auth=may(Permission.READ_RECORDS),
    response=responses(RecordOut),
)
def get_record(  # type: ignore[no-untyped-def]
    request: HttpRequest,
    name: str,
    partition: int,
    offset: int,
    view: View = "auto",
    whole: bool = False,
):
    """``whole``: up to a million characters of key and value; reading a large one is audited."""
    check(request.user, Permission.READ_RECORDS, name)
    scan = reading.read_record(
        actor=actor_of(request),
        topic=name,
        partition=_small(partition),
        offset=_offset(offset),
        view=view,
        is_whole=whole,
    )
    _refuse(scan)
    if not scan.rows:
        raise NotFound(f"There is no record at {name}/{partition}/{offset}.")
    return _record(scan.rows[0])


@router.get(
    "/topics/{name}/records/{int:partition}/{int:offset}/raw",
    auth=may(Permission.READ_RECORDS),
    response=responses(bytes),
    openapi_extra={
        "responses": {200: {"description": "OK", "content": {"application/octet-stream": {}}}}
    },
)
def get_record_raw(  # type: ignore[no-untyped-def]
    request: HttpRequest,
    name: str,
    partition: int,
    offset: int,
    part: Literal["key", "value"] = "value",
):
    """The bytes themselves, up to 4 MiB; larger ones are downloaded in ranges on the record's page."""
    check(request.user, Permission.READ_RECORDS, name)
    found = reading.raw_file(
        actor=actor_of(request),
        topic=name,
        partition=_small(partition),
        offset=_offset(offset),
        part=part,
    )
    if isinstance(found, Scan):
        _refuse(found)
        raise NotFound(f"There is no {part} at {name}/{partition}/{offset}.")
    if found.stat().st_size > MAX_RAW_BYTES:
        raise Invalid("path.offset", "More than 4 MiB: download it on the record's page.")
    return HttpResponse(found.read_bytes(), content_type="application/octet-stream")


def start_value(
    start: Start, offset: int | None, time: str, last: int | None, where: str = "query"
) -> int:
    if start == "time":
        found = time_parameter("time", time, where)
        if found is None:
            raise Invalid(f"{where}.time", "start=time needs a time.")
        return found
    value = {"offset": offset, "last": last}.get(start, 0)
    if value is None:
        raise Invalid(f"{where}.{start}", f"start={start} needs {start}.")
    return value


def _cursor(text: str) -> dict[int, int] | None:
    try:
        return cursors.decode(text) if text else None
    except cursors.CursorError as error:
        raise Invalid("query.cursor", str(error)) from None


def _small(partition: int) -> int:
    if partition >= 2**31:
        raise Invalid("path.partition", "A partition is a number of 31 bits.")
    return partition


def _offset(offset: int) -> int:
    if offset > MAX_OFFSET:
        raise Invalid("path.offset", "An offset is a number of 63 bits.")
    return offset


def _refuse(scan: Scan) -> None:
    if scan.state != "failed" and not scan.failure:
        return
    text = str(scan.failure.get("text", "The search failed."))
    code = str(scan.failure.get("code", ""))
    if code:
        raise KafkaFailure(code, text, is_transport=bool(scan.failure.get("is_transport")))
    raise Invalid("query", text)


def _record(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "key": _part(row["key"]),
        "value": _part(row["value"]),
        "offset": int(row["offset"]),
        **moment("timestamp", row["timestamp_ms"]),
        "headers": [{"name": name, "value": value} for name, value in row["headers"]],
    }


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "shown_as": part["as"]}


def _new(number: int, record: RecordIn) -> NewRecord:
    where = f"body.records.{number}"
    return NewRecord(
        _bytes(f"{where}.key", record.key, record.key_base64),
        _bytes(f"{where}.value", record.value, record.value_base64),
        [(name, None if value is None else value.encode()) for name, value in record.headers],
    )


def _bytes(where: str, text: str | None, encoded: str | None) -> bytes | None:
    if text is not None and encoded is not None:
        raise Invalid(where, "Give text or base64, not both.")
    if encoded is None:
        return None if text is None else text.encode()
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:  # binascii's own are such, too
        raise Invalid(f"{where}_base64", "This is not base64.") from None
