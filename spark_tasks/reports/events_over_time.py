"""Page views, searches or any other events over time, split by a field."""

from __future__ import annotations

from typing import Any

from spark_tasks.context import Context
from spark_tasks.lazy import functions as F
from spark_tasks.lazy import sql
from spark_tasks.report import Chart, Parameter, Report

OTHERS = "(others)"


def build(context: Context) -> Any:
    parameters = context.parameters
    group = parameters["group"]
    label = F.coalesce(context.text(group), F.lit("(none)")) if group else F.lit("all")
    events = context.records.select(
        context.event_time(parameters["time_field"]).alias("at"), label.alias("group")
    ).where("at IS NOT NULL")
    counted = events.groupBy(
        context.window_start(F.col("at"), parameters["window"]).alias("window_start"), "group"
    ).agg(F.count(F.lit(1)).alias("events"))
    if not group:
        return counted.select("window_start", "group", "events").orderBy("window_start")
    # The largest groups keep their names; ties go by name, so that a repeated run agrees. By
    # windows rather than by a join, which would read the records twice.
    total = F.sum("events").over(sql.Window.partitionBy("group"))
    rank = F.dense_rank().over(sql.Window.orderBy(F.desc("total"), "group"))
    named = F.when(F.col("rank") <= parameters["groups"], F.col("group")).otherwise(OTHERS)
    return (
        counted.withColumn("total", total)
        .withColumn("rank", rank)
        .groupBy("window_start", named.alias("group"))
        .agg(F.sum("events").alias("events"))
        .select("window_start", "group", "events")
        .orderBy("window_start", "group")
    )


REPORT = Report(
    name="events-over-time",
    title="Events over time",
    description="How many records in each window of time, split by a field: views, searches, orders.",
    build=build,
    parameters=(
        Parameter("window", "Window", "window", "1m", is_required=True),
        Parameter("group", "Split by", "field"),
        Parameter(
            "groups", "Groups with a name", "integer", "10", is_required=True, minimum=1, maximum=50
        ),
        Parameter("time_field", "Time", "field", help_text="Empty: the record's own time."),
    ),
    chart=Chart("line", "window_start", ("events",), "group"),
    needs_fields=False,
)
