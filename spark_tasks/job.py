"""What a report's process is asked: one document, every part of it plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_ROWS: Final = 1_000
"""Of a result, as pages show it."""
MAX_RESULT_ROWS: Final = 1_000_000
"""Of a result, as its files hold it."""


@dataclass(frozen=True, slots=True)
class Format:
    """How values are read. ``kind``: json, csv, regex, avro or none.

    ``schema``: DDL such as ``user string, price double``; for avro the schema's own JSON. Empty for
    json: inferred from a sample. ``expression``: of regex, with named groups. ``skip_bytes``: what
    stands before each avro value (5 with a schema registry). ``separator``: of csv.
    """

    kind: str = "none"
    schema: str = ""
    expression: str = ""
    separator: str = ","
    skip_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets ``[start, end)`` to be read, and where the log started and ended at that time."""

    topic: str
    partition: int
    start: int
    end: int
    log_start: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Job:
    """``properties``: of Java's Kafka client. ``directory``: where results are written, an empty
    directory that exists. ``samples``: a file of JSON lines, for reports on samples. ``result_topic``:
    where rows are written too; ``name`` and ``run`` are told there."""

    report: str
    directory: str
    parameters: dict[str, Any] = field(default_factory=dict)
    bootstrap: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    ranges: tuple[PartitionRange, ...] = ()
    format: Format = field(default_factory=Format)
    samples: str = ""
    user_reports: str = ""
    master: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    max_rows: int = MAX_ROWS
    result_topic: str = ""
    name: str = ""
    run: str = ""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def job_of(document: Mapping[str, Any]) -> Job:
    fields = dict(document)
    fields["ranges"] = tuple(PartitionRange(**each) for each in fields.get("ranges", ()))
    fields["format"] = Format(**fields.get("format", {}))
    fields["jars"] = tuple(fields.get("jars", ()))
    return Job(**fields)
