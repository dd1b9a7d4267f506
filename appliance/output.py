"""Tables and documents: one report, written as text, wide text, JSON, YAML or TSV.

Text may change from release to release; JSON, YAML and TSV only grow. JSON and YAML are one
document ``{"data": [...], "errors": [...]}``; TSV holds a header line and raw values. A value
that is not known is ``-`` in tables and null in documents. Times are milliseconds and RFC 3339.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.failure import ItemError
from appliance.record_format import rfc3339

FORMATS = ("text", "wide", "json", "yaml", "tsv")
_SIZE_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
_GREEN, _RED, _BOLD, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
_GOOD_WORDS = frozenset({"OK"})
_BAD_WORDS = frozenset({"FAIL"})


@dataclass(frozen=True, slots=True)
class Column:
    """``kind``: text, count, size (bytes), moment (milliseconds) or status."""

    key: str
    kind: str = "text"
    is_wide: bool = False

    @property
    def header(self) -> str:
        return self.key.upper().replace("_", "-")


_PLAIN_COLUMN = Column("")


@dataclass(slots=True)
class Table:
    columns: Sequence[Column]
    rows: list[dict[str, Any]] = field(default_factory=list)
    title: str | None = None

    def objects(self) -> list[dict[str, Any]]:
        return [_object(self.columns, row) for row in self.rows]


@dataclass(slots=True)
class Report:
    """``data`` overrides what the documents hold; ``text`` overrides the whole text form."""

    tables: list[Table] = field(default_factory=list)
    errors: list[ItemError] = field(default_factory=list)
    data: list[dict[str, Any]] | None = None
    text: str | None = None

    def document(self) -> dict[str, Any]:
        data = self.data
        if data is None:
            data = [row for table in self.tables for row in table.objects()]
        return {"data": data, "errors": [error.as_object() for error in self.errors]}

    def render(self, form: str, *, color: bool = False) -> str:
        if form == "json":
            return json.dumps(self.document(), ensure_ascii=False) + "\n"
        if form == "yaml":
            return to_yaml(self.document())
        if form == "tsv":
            return "".join(render_tsv(table) for table in self.tables)
        if self.text is not None:
            return self.text
        return "\n".join(
            render_table(table, wide=form == "wide", color=color) for table in self.tables
        )


def milliseconds(at: dt.datetime | None) -> int | None:
    """What a column of moments takes: since 1970."""
    return None if at is None else int(at.timestamp() * 1000)


def moment_fields(key: str, timestamp_ms: int | None) -> dict[str, Any]:
    """A time in a document: milliseconds and RFC 3339."""
    known = timestamp_ms is not None and timestamp_ms >= 0
    return {
        f"{key}_ms": timestamp_ms if known else None,
        f"{key}_time": rfc3339(timestamp_ms) if known and timestamp_ms is not None else None,
    }


def _object(columns: Iterable[Column], row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column in columns:
        value = row.get(column.key)
        if column.kind == "moment":
            found |= moment_fields(column.key, value)
        else:
            found[column.key] = list(value) if isinstance(value, tuple) else value
    return found


def format_size(count: int) -> str:
    """Bytes for people: three digits are enough."""
    size = float(count)
    for unit in _SIZE_UNITS:
        if size < 1000 or unit == _SIZE_UNITS[-1]:
            break
        size /= 1000
    return (
        f"{count} B"
        if unit == "B"
        else f"{size:.3g} {unit}"
        if size < 100
        else f"{size:.0f} {unit}"
    )


def _cell(column: Column, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if column.kind == "size":
        return format_size(value)
    if column.kind == "moment":
        return rfc3339(value) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _raw_cell(column: Column, value: Any) -> str:
    if column.kind in ("size", "count") and value is not None:
        return str(value)
    text = _cell(column, value)
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def render_table(table: Table, *, wide: bool = False, color: bool = False) -> str:
    """Columns two spaces apart, headers in upper case, numbers to the right."""
    columns = [column for column in table.columns if wide or not column.is_wide]
    cells = [[_cell(column, row.get(column.key)) for column in columns] for row in table.rows]
    widths = [
        max([len(column.header), *(len(line[i]) for line in cells)])
        for i, column in enumerate(columns)
    ]
    lines = (
        [] if table.title is None else [f"{_BOLD}{table.title}{_PLAIN}" if color else table.title]
    )
    header = _line([column.header for column in columns], columns, widths)
    lines.append(f"{_BOLD}{header}{_PLAIN}" if color else header)
    for line in cells:
        text = _line(line, columns, widths)
        verdicts = [c for c, column in zip(line, columns, strict=True) if column.kind == "status"]
        lines.append(_colored(text, verdicts) if color else text)
    return "\n".join(lines) + "\n"


def render_description(
    summary: Sequence[tuple[str, Any]], tables: Iterable[Table], *, wide: bool = False
) -> str:
    """One thing in full: lines of ``LABEL  value``, then those tables that hold anything."""
    width = max((len(label) for label, _ in summary), default=0)
    lines = [f"{label:<{width}}  {_cell(_PLAIN_COLUMN, value)}\n" for label, value in summary]
    parts = ["".join(lines)] if lines else []
    parts += [render_table(table, wide=wide) for table in tables if table.rows]
    return "\n".join(parts)


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column.kind in ("count", "size") else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _colored(text: str, verdicts: Iterable[str]) -> str:
    words = set(verdicts)
    if words & _BAD_WORDS:
        return f"{_RED}{text}{_PLAIN}"
    return f"{_GREEN}{text}{_PLAIN}" if words & _GOOD_WORDS else text


def render_tsv(table: Table) -> str:
    """A header line and raw values; tabs and line ends inside values are escaped."""
    lines = ["\t".join(column.header for column in table.columns)]
    for row in table.rows:
        lines.append("\t".join(_raw_cell(column, row.get(column.key)) for column in table.columns))
    return "\n".join(lines) + "\n"


def to_yaml(value: Any) -> str:
    """Block-style YAML of plain values; strings are quoted as in JSON, which YAML reads."""
    return "\n".join(_yaml_lines(value, "")) + "\n"


def _yaml_lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            name = key if key.replace("_", "").isalnum() else json.dumps(key)
            yield from _yaml_entry(f"{indent}{name}:", item, indent + "  ")
    elif isinstance(value, list) and value:
        for item in value:
            first, *others = _yaml_lines(item, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from others
    else:
        yield indent + json.dumps(value, ensure_ascii=False)


def _yaml_entry(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, (dict, list)) and value:
        yield head
        yield from _yaml_lines(value, indent)
    else:
        yield f"{head} {json.dumps(value, ensure_ascii=False)}"
