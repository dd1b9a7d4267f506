"""How records and bytes fall on topics and partitions."""

from __future__ import annotations

from typing import Any

from spark_tasks.context import Context
from spark_tasks.lazy import functions as F
from spark_tasks.lazy import sql
from spark_tasks.report import Chart, Report


def build(context: Context) -> Any:
    partitions = context.spark.createDataFrame(
        [(each.topic, each.partition) for each in context.ranges], "topic string, partition int"
    )
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    counted = context.all_records.groupBy("topic", "partition").agg(
        F.count(F.lit(1)).alias("records"),
        F.sum(size).alias("bytes"),
        F.min("timestamp").alias("first_at"),
        F.max("timestamp").alias("last_at"),
    )
    whole = sql.Window.partitionBy("topic")
    seconds = (
        F.unix_micros(F.max("last_at").over(whole)) - F.unix_micros(F.min("first_at").over(whole))
    ) / F.lit(1_000_000)
    even = F.sum("records").over(whole) / F.count(F.lit(1)).over(whole)
    return (
        partitions.join(counted, ["topic", "partition"], "left")
        .fillna(0, ["records", "bytes"])
        .select(
            "topic",
            "partition",
            F.concat_ws("-", "topic", "partition").alias("name"),
            "records",
            "bytes",
            F.try_divide("records", seconds).alias("records_per_second"),
            F.try_divide("bytes", seconds).alias("bytes_per_second"),
            F.try_divide("records", even).alias("skew"),
            "first_at",
            "last_at",
        )
        .orderBy("topic", "partition")
    )


REPORT = Report(
    name="throughput",
    title="Throughput and skew",
    description="Records and bytes of each partition and per second; skew 1 is its even share of the topic.",
    build=build,
    chart=Chart("bar", "name", ("records",)),
    needs_fields=False,
)
