"""Lag of consumer groups over time, from the samples that the dashboard keeps."""

from __future__ import annotations

from typing import Any

from spark_tasks.context import Context
from spark_tasks.lazy import functions as F
from spark_tasks.report import Chart, Parameter, Report

LAG, LAG_MS = "group.lag:", "group.lag_ms:"


def build(context: Context) -> Any:
    pattern = context.parameters["groups"].replace("\\", "\\\\").replace("%", "\\%")
    like = pattern.replace("_", "\\_").replace("*", "%").replace("?", "_")
    group = F.regexp_replace("series", "^[^:]*:", "")
    samples = context.samples.select(
        F.substring_index("series", ":", 1).alias("kind"), group.alias("group"), "at", "worth"
    ).where(F.col("group").like(like))
    is_lag, is_time = F.col("kind") == "group.lag", F.col("kind") == "group.lag_ms"
    return (
        samples.groupBy(
            context.window_start(F.col("at"), context.parameters["window"]).alias("window_start"),
            "group",
        )
        .agg(
            F.max(F.when(is_lag, F.col("worth"))).alias("largest_lag"),
            F.avg(F.when(is_lag, F.col("worth"))).alias("mean_lag"),
            (F.max(F.when(is_time, F.col("worth"))) / 1000).alias("most_seconds_behind"),
            F.count(F.when(is_lag, True)).alias("samples"),
        )
        .orderBy("window_start", "group")
    )


REPORT = Report(
    name="consumer-lag",
    title="Consumer lag over time",
    description="Largest and mean lag of groups in each window, and how many seconds they were behind.",
    build=build,
    parameters=(
        Parameter("groups", "Groups", "text", "*", is_required=True, help_text="A glob: orders-*"),
        Parameter("window", "Window", "window", "10m", is_required=True),
    ),
    chart=Chart("line", "window_start", ("largest_lag",), "group"),
    input="samples",
    needs_fields=False,
    samples=(LAG, LAG_MS),
)
