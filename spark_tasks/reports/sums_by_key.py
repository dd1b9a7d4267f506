"""Counts and sums by key: orders and turnover by retailer."""

from __future__ import annotations

from typing import Any

from spark_tasks.context import Context
from spark_tasks.lazy import functions as F
from spark_tasks.report import Chart, Parameter, Report


def build(context: Context) -> Any:
    parameters = context.parameters
    key = F.coalesce(context.text(parameters["key"]), F.lit("(none)"))
    # Decimals add up to the same sum in any order, doubles do not.
    amount = context.text(parameters["amount"]).try_cast("decimal(28,6)")
    columns = [key.alias("key"), amount.alias("amount")]
    if parameters["distinct"]:
        columns.append(context.text(parameters["distinct"]).alias("distinct"))
    figures = [
        F.count(F.lit(1)).alias("records"),
        F.sum("amount").alias("sum"),
        F.min("amount").alias("smallest"),
        F.max("amount").alias("largest"),
        F.sum(F.col("amount").isNull().cast("long")).alias("without_amount"),
    ]
    if parameters["distinct"]:
        figures.append(F.countDistinct("distinct").alias("distinct_values"))
    return (
        context.records.select(*columns)
        .groupBy("key")
        .agg(*figures)
        .orderBy(F.desc_nulls_last("sum"), "key")
    )


REPORT = Report(
    name="sums-by-key",
    title="Counts and sums by key",
    description="For each key: records, the sum, smallest and largest of an amount, distinct values.",
    build=build,
    parameters=(
        Parameter("key", "Key", "field", "@key", is_required=True),
        Parameter("amount", "Amount", "field", is_required=True),
        Parameter(
            "distinct", "Count distinct", "field", help_text="Such as the customer; may be empty."
        ),
    ),
    chart=Chart("bar", "key", ("sum",)),
)
