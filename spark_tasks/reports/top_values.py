"""The most frequent values of a field."""

from __future__ import annotations

from typing import Any

from spark_tasks.context import Context
from spark_tasks.lazy import functions as F
from spark_tasks.lazy import sql
from spark_tasks.report import Chart, Parameter, Report


def build(context: Context) -> Any:
    value = F.coalesce(context.text(context.parameters["field"]), F.lit("(none)"))
    counted = context.records.groupBy(value.alias("value")).agg(F.count(F.lit(1)).alias("records"))
    total = F.sum("records").over(sql.Window.partitionBy(F.lit(0)))
    order = sql.Window.orderBy(F.desc("records"), "value")
    return (
        counted.withColumn("share", F.col("records") / total)
        .withColumn("rank", F.row_number().over(order))
        .where(F.col("rank") <= context.parameters["n"])
        .select("rank", "value", "records", "share")
        .orderBy("rank")
    )


REPORT = Report(
    name="top-values",
    title="Top values",
    description="The most frequent values of a field, exactly counted, with their share of all.",
    build=build,
    parameters=(
        Parameter("field", "Field", "field", "@key", is_required=True),
        Parameter("n", "How many", "integer", "20", is_required=True, minimum=1, maximum=1000),
    ),
    chart=Chart("bar", "value", ("records",)),
)
