"""What a report's ``build`` works with: records or samples, and its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_tasks.job import PartitionRange
from spark_tasks.lazy import functions as F
from spark_tasks.report import ReportError

MILLISECONDS_FROM = 100_000_000_000
"""A number as large as this is milliseconds since 1970 (March 1973), a smaller one seconds."""


@dataclass(frozen=True, slots=True)
class Context:
    """``all_records``: topic, partition, offset, timestamp, key, value, data, is_tombstone,
    is_parsed; ``samples``: series, at (timestamp), worth."""

    spark: Any
    parameters: dict[str, Any]
    all_records: Any = None
    samples: Any = None
    ranges: Sequence[PartitionRange] = ()

    @property
    def records(self) -> Any:
        """Those whose value could be read: what reports about fields count."""
        return self.all_records.where("is_parsed")

    def field(self, name: str) -> Any:
        """The column of a field parameter's value. Raises ReportError that tells the names."""
        special = {
            "@key": F.col("key").cast("string"),
            "@topic": F.col("topic"),
            "@partition": F.col("partition"),
        }
        if name in special:
            return special[name]
        kind = self.all_records.schema["data"].dataType
        column = F.col("data")
        for part in name.split("."):
            names = kind.fieldNames() if hasattr(kind, "fieldNames") else []
            if part not in names:
                known = ", ".join([*names, *special][:50])
                raise ReportError(f"the records have no field {name!r}; they have: {known}")
            column, kind = column[part], kind[part].dataType
        return column

    def number(self, name: str) -> Any:
        """A field as a double; null where it is no number."""
        column = self.field(name)
        return column.try_cast("double")

    def text(self, name: str) -> Any:
        return self.field(name).cast("string")

    def event_time(self, name: str | None) -> Any:
        """A field as a timestamp, null where it is none; without a name the record's own.

        Numbers are seconds since 1970, or milliseconds when they are large enough.
        """
        if not name:
            return F.col("timestamp")
        text = self.field(name).cast("string")
        number = text.try_cast("double")
        seconds = F.when(F.abs(number) >= MILLISECONDS_FROM, number / 1000).otherwise(number)
        return F.coalesce(F.try_to_timestamp(text), F.timestamp_seconds(seconds))

    def window_start(self, time: Any, seconds: int) -> Any:
        """The start of the window that holds ``time``; windows are counted from 1970, UTC."""
        number = F.floor(F.unix_micros(time) / F.lit(seconds * 1_000_000)) * F.lit(seconds)
        return F.timestamp_seconds(number)
