"""Writes what matches to a file, in the order of the walk: NDJSON or CSV, as exact as it can be.

A text travels as text, other bytes as base64 with a word beside that says so: reading the file
back gives the same bytes. The file ends at its bound, after a whole record.
"""

from __future__ import annotations

import base64
import csv
import datetime as dt
import io
import json
from typing import Any, Final

from broker.clock import Clock
from dashboard.cluster import Record
from dashboard.gateway import Gateway
from dashboard.scan.answers import Progress, Write
from dashboard.scan.matching import Matcher
from dashboard.scan.requests import ExportRequest
from dashboard.scan.searching import new_walk, open_reader
from dashboard.scan.walk import BoundReached

FIRST_WINDOW_ROWS: Final = 1_000
COLUMNS: Final = (
    "topic", "partition", "offset", "timestamp", "timestamp_ms", "key_encoding", "key",
    "value_encoding", "value", "headers",
)  # fmt: skip


def export(request: ExportRequest, gateway: Gateway, write: Write, clock: Clock) -> dict[str, Any]:
    matcher = Matcher(request.wanted, request.range)
    walk = new_walk(
        gateway, request.range, request.bounds, request.wanted, FIRST_WINDOW_ROWS, clock
    )
    progress = Progress(write, walk, matcher, clock)
    line_of = csv_line if request.format == "csv" else json_line
    reason = "end"
    written = 0
    with open(request.path, "wb") as file:
        if request.format == "csv":
            written += file.write(_csv_text(COLUMNS))
        if walk.total:
            with open_reader(gateway, request.range.topic) as reader:
                try:
                    for record in walk.records(reader):
                        progress.maybe_say()
                        if record is None or not matcher.matches(record):
                            continue
                        line = line_of(record)
                        if written + len(line) > request.max_file_bytes:
                            reason = "file"
                            break
                        written += file.write(line)
                        progress.matched_count += 1
                except BoundReached as bound:
                    reason = str(bound)
    return {"reason": reason, "file_bytes": written, "progress": progress.figures()}


def json_line(record: Record) -> bytes:
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": _moment(record.timestamp_ms),
        "timestamp_ms": record.timestamp_ms,
        "key": _json_value(record.key),
        "value": _json_value(record.value),
        "headers": [{"name": name, "value": _json_value(value)} for name, value in record.headers],
    }
    return json.dumps(found, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"


def csv_line(record: Record) -> bytes:
    headers = [[name, _json_value(value)] for name, value in record.headers]
    key_encoding, key = _csv_value(record.key)
    value_encoding, value = _csv_value(record.value)
    return _csv_text(
        (
            record.topic,
            record.partition,
            record.offset,
            _moment(record.timestamp_ms),
            record.timestamp_ms,
            key_encoding,
            key,
            value_encoding,
            value,
            json.dumps(headers, ensure_ascii=False) if headers else "",
        )
    )


def _csv_text(cells: tuple[Any, ...]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def _json_value(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _csv_value(data: bytes | None) -> tuple[str, str]:
    if data is None:
        return "null", ""
    try:
        return "text", data.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(data).decode()


def _moment(milliseconds: int) -> str:
    try:
        at = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return at.isoformat(timespec="milliseconds")
