"""What retention and compaction have left of a log, partition by partition."""

from __future__ import annotations

from typing import Any

from spark_tasks.context import Context
from spark_tasks.lazy import functions as F
from spark_tasks.report import Chart, Report


def build(context: Context) -> Any:
    logs = context.spark.createDataFrame(
        [(each.topic, each.partition, each.log_start, each.log_end) for each in context.ranges],
        "topic string, partition int, log_start_offset long, log_end_offset long",
    )
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    kept = context.all_records.groupBy("topic", "partition").agg(
        F.count(F.lit(1)).alias("kept"),
        F.countDistinct("key").alias("keys"),
        F.count("key").alias("with_key"),
        F.sum(F.when(F.col("is_tombstone"), 1).otherwise(0)).alias("tombstones"),
        F.sum(size).alias("bytes"),
        F.min("timestamp").alias("oldest_at"),
    )
    return (
        logs.join(kept, ["topic", "partition"], "left")
        .fillna(0, ["kept", "keys", "with_key", "tombstones", "bytes"])
        .select(
            "topic",
            "partition",
            F.concat_ws("-", "topic", "partition").alias("name"),
            F.col("log_end_offset").alias("offsets_ever"),
            F.col("log_start_offset").alias("gone_by_retention"),
            (F.col("log_end_offset") - F.col("log_start_offset") - F.col("kept")).alias(
                "gone_by_compaction"
            ),
            "kept",
            "keys",
            (F.col("with_key") - F.col("keys")).alias("superseded"),
            "tombstones",
            "bytes",
            "oldest_at",
        )
        .orderBy("topic", "partition")
    )


REPORT = Report(
    name="retention-effect",
    title="Effect of retention and compaction",
    description=(
        "Of all offsets ever given: what retention deleted, what compaction removed (with the "
        "transactions' own marks), what is kept, and how much of that is superseded."
    ),
    build=build,
    chart=Chart("bar", "name", ("kept", "gone_by_retention", "gone_by_compaction")),
    needs_fields=False,
    reads_whole_log=True,
)
