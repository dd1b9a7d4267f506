"""Late and out-of-order events: event time against append time, and against what came before."""

from __future__ import annotations

from typing import Any

from spark_tasks.context import Context
from spark_tasks.lazy import functions as F
from spark_tasks.lazy import sql
from spark_tasks.report import Chart, Parameter, Report

BUCKETS = ((1, "under_1s"), (10, "under_10s"), (60, "under_1m"), (600, "under_10m"))


def build(context: Context) -> Any:
    allowed = context.parameters["allowed"]
    events = context.records.select(
        "topic",
        "partition",
        "offset",
        F.unix_micros("timestamp").alias("appended"),
        F.unix_micros(context.event_time(context.parameters["time_field"])).alias("happened"),
    )
    before = (
        sql.Window.partitionBy("topic", "partition")
        .orderBy("offset")
        .rowsBetween(sql.Window.unboundedPreceding, -1)
    )
    seen = events.withColumn("newest", F.max("happened").over(before)).withColumn(
        "late_s", (F.col("appended") - F.col("happened")) / F.lit(1_000_000)
    )
    behind_s = (F.col("newest") - F.col("happened")) / F.lit(1_000_000)
    return (
        seen.groupBy("topic", "partition")
        .agg(
            F.count(F.lit(1)).alias("records"),
            _count(F.col("happened").isNull()).alias("without_time"),
            _count(behind_s > 0).alias("out_of_order"),
            F.try_divide(_count(behind_s > 0), F.count("happened")).alias("out_of_order_share"),
            _count(behind_s > allowed).alias("beyond_allowed"),
            F.max(F.greatest(behind_s, F.lit(0.0))).alias("most_behind_s"),
            *_buckets(),
            F.max("late_s").alias("largest_lateness_s"),
        )
        .withColumn("name", F.concat_ws("-", "topic", "partition"))
        .orderBy("topic", "partition")
    )


def _buckets() -> list[Any]:
    found, floor = [], None
    for limit, name in BUCKETS:
        late = F.col("late_s")
        inside = late < limit if floor is None else (late >= floor) & (late < limit)
        found.append(_count(inside).alias(name))
        floor = limit
    return [*found, _count(F.col("late_s") >= floor).alias("later")]


def _count(condition: Any) -> Any:
    return F.sum(F.when(condition, 1).otherwise(0))


REPORT = Report(
    name="late-events",
    title="Late and out-of-order events",
    description="How long after they happened events were appended, and how many came after newer ones.",
    build=build,
    parameters=(
        Parameter("time_field", "Event time", "field", is_required=True),
        Parameter(
            "allowed", "Allowed lateness (seconds)", "number", "60", is_required=True, minimum=0,
            help_text="As a watermark: what is further behind the newest before it is counted.",
        ),
    ),
    chart=Chart("bar", "name", ("out_of_order", "beyond_allowed")),
)  # fmt: skip
