"""Operational metrics: percentiles of a number over time. Windows without a value are shown."""

from __future__ import annotations

from typing import Any

from spark_tasks.context import Context
from spark_tasks.lazy import functions as F
from spark_tasks.report import Chart, Parameter, Report, ReportError

MAX_WINDOWS = 100_000


def build(context: Context) -> Any:
    parameters = context.parameters
    seconds = parameters["window"]
    group = parameters["group"]
    label = F.coalesce(context.text(group), F.lit("(none)")) if group else F.lit("all")
    values = context.records.select(
        context.event_time(parameters["time_field"]).alias("at"),
        label.alias("group"),
        context.number(parameters["value"]).alias("value"),
    ).where("at IS NOT NULL AND value IS NOT NULL")
    figures = [
        F.count("value").alias("records"),
        F.min("value").alias("smallest"),
        F.avg("value").alias("mean"),
        *(
            F.percentile("value", F.lit(each / 100)).alias(f"p{each:g}".replace(".", "_"))
            for each in parameters["percentiles"]
        ),
        F.max("value").alias("largest"),
    ]
    found = values.groupBy(
        context.window_start(F.col("at"), seconds).alias("window_start"), "group"
    ).agg(*figures)
    return _with_gaps(found, seconds).orderBy("window_start", "group")


def _with_gaps(found: Any, seconds: int) -> Any:
    """A row for every window between the first and the last; a window without values has 0 records."""
    found = found.cache()
    first, last = found.agg(F.min("window_start"), F.max("window_start")).first()
    if first is None:
        return found
    count = int((last - first).total_seconds()) // seconds + 1
    if count > MAX_WINDOWS:
        raise ReportError(f"that makes {count} windows: choose a longer window or a shorter range")
    step = F.expr(f"INTERVAL {seconds} SECONDS")
    windows = found.select(
        F.explode(F.sequence(F.lit(first), F.lit(last), step)).alias("window_start")
    ).distinct()
    every = windows.crossJoin(found.select("group").distinct())
    return every.join(found, ["window_start", "group"], "left").fillna(0, ["records"])


REPORT = Report(
    name="metric-percentiles",
    title="Metrics with percentiles",
    description="Percentiles of a number over time, such as a latency; gaps are shown as gaps.",
    build=build,
    parameters=(
        Parameter("value", "Value", "field", is_required=True),
        Parameter("window", "Window", "window", "1m", is_required=True),
        Parameter("group", "Split by", "field"),
        Parameter(
            "percentiles", "Percentiles", "percentiles", "50, 95, 99",
            is_required=True, minimum=0, maximum=100,
        ),
        Parameter("time_field", "Time", "field", help_text="Empty: the record's own time."),
    ),
    chart=Chart("line", "window_start", ("p*",), "group"),
)  # fmt: skip
