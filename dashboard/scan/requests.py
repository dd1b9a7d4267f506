"""What a child is asked, as JSON: checked here, by parent and child alike."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Start = Literal["newest", "oldest", "offset", "time", "last"]
Way = Literal["backward", "forward"]
View = Literal["auto", "text", "json", "hex"]

MAX_RECORDS: Final = 50_000_000
MAX_BYTES: Final = 50 * 1024**3
MAX_SECONDS: Final = 300
MAX_ROWS: Final = 200
LIST_CUT: Final = 2_000
FULL_CUT: Final = 1_000_000
"""Characters of a value shown in a list, and on a record's own page when asked for all of it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records: all conditions together. Empty texts are no conditions."""

    expression: str = ""
    in_key: str = ""
    in_value: str = ""
    in_header: str = ""

    @property
    def is_everything(self) -> bool:
        return not (self.expression or self.in_key or self.in_value or self.in_header)


@dataclass(frozen=True, slots=True)
class Range:
    """Where to read: a start, or a cursor (from partition to offset) and the way from there.

    A cursor's offset is the next to be read forward; backward, the one after the next.
    """

    topic: str
    partitions: tuple[int, ...] = ()
    """Empty: all."""
    start: Start = "newest"
    start_value: int = 0
    """An offset, milliseconds since 1970, or a count; by ``start``."""
    cursor: dict[int, int] | None = None
    way: Way = "backward"
    since_ms: int | None = None
    until_ms: int | None = None
    """Only records stamped from then on, and before then: milliseconds since 1970. Each partition is
    read from its first record stamped since then to its first one stamped at or after the end."""
    reads_to_end: bool = False
    """The end of the times is not over yet: a record that is stamped later, by a clock that is ahead,
    does not end it."""

    def has_time(self, timestamp_ms: int) -> bool:
        """Whether a record with this timestamp is inside."""
        is_late_enough = self.since_ms is None or timestamp_ms >= self.since_ms
        return is_late_enough and (self.until_ms is None or timestamp_ms < self.until_ms)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a scan ends though there is more: after so many records or bytes read, or seconds."""

    records: int = 200_000
    size_bytes: int = 256 * 1024 * 1024
    seconds: int = 15


@dataclass(frozen=True, slots=True)
class Cluster:
    bootstrap: str
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScanRequest:
    cluster: Cluster
    range: Range
    wanted: Wanted
    bounds: Bounds
    rows: int = 50
    view: View = "auto"
    kind: Literal["scan"] = "scan"


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """One record, with the offsets of its neighbours. ``save_*``: its raw bytes go to files."""

    cluster: Cluster
    topic: str
    partition: int
    offset: int
    view: View = "auto"
    cut: int = LIST_CUT
    save_part: Literal["", "key", "value"] = ""
    save_path: str = ""
    kind: Literal["record"] = "record"


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Whether an expression makes sense, and which of some sample records it matches."""

    expression: str
    samples: tuple[dict[str, Any], ...] = ()
    kind: Literal["check"] = "check"


@dataclass(frozen=True, slots=True)
class ExportRequest:
    cluster: Cluster
    range: Range
    wanted: Wanted
    bounds: Bounds
    path: str
    format: Literal["ndjson", "csv"]
    max_file_bytes: int
    kind: Literal["export"] = "export"


Request = ScanRequest | RecordRequest | CheckRequest | ExportRequest
_KINDS: Final[dict[str, type[Request]]] = {
    "scan": ScanRequest,
    "record": RecordRequest,
    "check": CheckRequest,
    "export": ExportRequest,
}


def to_line(request: Request) -> bytes:
    return json.dumps(asdict(request), separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes) -> Request:
    found = json.loads(line)
    return from_dict(found)


def from_dict(found: dict[str, Any]) -> Request:
    values = dict(found)
    if "cluster" in values:
        values["cluster"] = Cluster(**values["cluster"])
    if "range" in values:
        values["range"] = range_from_dict(values["range"])
    if "wanted" in values:
        values["wanted"] = Wanted(**values["wanted"])
    if "bounds" in values:
        values["bounds"] = Bounds(**values["bounds"])
    if "samples" in values:
        values["samples"] = tuple(values["samples"])
    return _KINDS[values["kind"]](**values)


def range_from_dict(found: dict[str, Any]) -> Range:
    values = dict(found)
    values["partitions"] = tuple(values["partitions"])
    if values["cursor"] is not None:
        # JSON's keys are texts.
        values["cursor"] = {int(key): int(at) for key, at in values["cursor"].items()}
    return Range(**values)
