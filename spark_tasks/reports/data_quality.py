"""Data quality: what cannot be read, null keys, tombstones, duplicate keys, null fields, sizes."""

from __future__ import annotations

from typing import Any

from spark_tasks.context import Context
from spark_tasks.lazy import functions as F
from spark_tasks.report import Chart, Report

MAX_FIELDS = 100
SIZES = (50, 95, 99)


def build(context: Context) -> Any:
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    names = list(context.all_records.schema["data"].dataType.fieldNames())
    fields = [] if names == ["nothing"] else names[:MAX_FIELDS]
    counts = {
        "records": F.count(F.lit(1)),
        "not parsed": _count(~F.col("is_parsed") & ~F.col("is_tombstone")),
        "tombstones": _count(F.col("is_tombstone")),
        "null keys": _count(F.col("key").isNull()),
        "duplicate keys": F.count("key") - F.countDistinct("key"),
        **{
            f"null in {name}": _count(F.col("is_parsed") & F.col("data")[name].isNull())
            for name in fields
        },
    }
    sizes = {
        **{f"size p{each}": F.percentile(size, F.lit(each / 100)) for each in SIZES},
        "largest size": F.max(size).cast("double"),
    }
    columns = {**counts, **sizes}
    found = context.all_records.groupBy("topic").agg(
        *(column.alias(f"c{number}") for number, column in enumerate(columns.values()))
    )
    lines = [
        F.struct(
            F.lit(number).alias("order"),
            F.lit(name).alias("check"),
            (F.col(f"c{number}") if name in counts else F.lit(None)).cast("long").alias("records"),
            (F.col(f"c{number}") / F.col("c0") if name in counts else F.lit(None))
            .cast("double")
            .alias("share"),
            (F.col(f"c{number}") if name in sizes else F.lit(None)).cast("double").alias("bytes"),
        )
        for number, name in enumerate(columns)
    ]
    return (
        found.select("topic", F.explode(F.array(*lines)).alias("line"))
        .select("topic", "line.*")
        .orderBy("topic", "order")
        .drop("order")
    )


def _count(condition: Any) -> Any:
    return F.sum(F.when(condition, 1).otherwise(0))


REPORT = Report(
    name="data-quality",
    title="Data quality",
    description="Unreadable values, null keys, tombstones, repeated keys, null fields, sizes.",
    build=build,
    chart=Chart("bar", "check", ("records",)),
    needs_fields=False,
)
