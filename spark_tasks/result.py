"""Writes a result: one Parquet file, one CSV file, and its first rows for pages.

Everything goes into the directory of the job, which gets its name only when the run is recorded.
"""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from spark_tasks.job import MAX_RESULT_ROWS

PARQUET: Final = "result.parquet"
CSV: Final = "result.csv"
ROWS: Final = "rows.json"
MAX_CELL_CHARACTERS: Final = 1_000
"""Of a text as pages show it; the files hold all of it."""


def write(found: Any, directory: Path, max_rows: int) -> dict[str, Any]:
    """Returns what is said about it: columns, row_count, is_cut, file sizes.

    The order of the rows is that of ``found``. A result over MAX_RESULT_ROWS is cut there.
    """
    parts = directory / "parquet"
    found.limit(MAX_RESULT_ROWS + 1).coalesce(1).write.parquet(str(parts))
    session = found.sparkSession
    whole = session.read.schema(found.schema).parquet(str(parts))
    count = whole.count()
    _name_part(parts, directory / PARQUET)
    rows: list[list[Any]] = []
    kept = session.read.schema(found.schema).parquet(str(directory / PARQUET))
    with (directory / CSV).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(found.columns)
        for row in _rows(kept):
            writer.writerow(["" if value is None else value for value in row])
            if len(rows) < max_rows:
                rows.append([_cut(value) for value in row])
    columns = [{"name": each.name, "type": each.dataType.simpleString()} for each in found.schema]
    (directory / ROWS).write_text(json.dumps({"columns": columns, "rows": rows}))
    return {
        "columns": columns,
        "row_count": min(count, MAX_RESULT_ROWS),
        "is_cut": count > MAX_RESULT_ROWS,
        "shown_rows": len(rows),
        "csv_bytes": (directory / CSV).stat().st_size,
        "parquet_bytes": (directory / PARQUET).stat().st_size,
    }


def _name_part(parts: Path, target: Path) -> None:
    import shutil

    (part,) = parts.glob("part-*.parquet")
    part.rename(target)
    shutil.rmtree(parts)


def _rows(found: Any) -> Iterator[list[Any]]:
    for number, row in enumerate(found.toLocalIterator()):
        if number == MAX_RESULT_ROWS:
            return
        yield [plain(value) for value in row]


def plain(value: Any) -> Any:
    """As JSON and CSV hold it: times in RFC 3339 (UTC), decimals as text, no NaN."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, decimal.Decimal):
        return format(value.normalize(), "f")
    if isinstance(value, dt.datetime):
        # Spark hands out local times of this process, whose zone is UTC (spark_tasks.run).
        return value.replace(tzinfo=dt.UTC).isoformat(timespec="milliseconds")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if hasattr(value, "asDict"):
        return json.dumps(plain_tree(value.asDict(recursive=True)), ensure_ascii=False)
    return json.dumps(plain_tree(value), ensure_ascii=False)


def plain_tree(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): plain_tree(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_tree(each) for each in value]
    return plain(value)


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_CELL_CHARACTERS:
        return value[:MAX_CELL_CHARACTERS] + "…"
    return value
