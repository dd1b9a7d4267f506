"""Writes the rows of a result to a topic: one record a row, in the order of its files.

What the files hold is what is written, each row as a JSON object with every column, null ones included;
times are RFC 3339 in UTC, decimals are JSON numbers with all their digits. The key is the report's kind,
so that the rows of a run stay in order in one partition; the headers ``report`` and ``run`` name the
report and the run. Spark tries a task again that failed on a cluster, so a row may come twice there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from spark_tasks.job import MAX_RESULT_ROWS, Job
from spark_tasks.lazy import functions as F
from spark_tasks.result import PARQUET

ALL_COLUMNS: Final = {"ignoreNullFields": "false"}


def write(session: Any, schema: Any, job: Job) -> None:
    """After ``result.write``, from the Parquet file that it left."""
    rows = session.read.schema(schema).parquet(str(Path(job.directory) / PARQUET))
    header = [
        F.struct(F.lit(name).alias("key"), F.lit(text).cast("binary").alias("value"))
        for name, text in (("report", job.name), ("run", job.run))
    ]
    options = {f"kafka.{name}": value for name, value in job.properties.items()}
    options |= {"kafka.bootstrap.servers": job.bootstrap, "topic": job.result_topic}
    (
        rows.limit(MAX_RESULT_ROWS)
        .coalesce(1)
        .select(
            F.lit(job.report).alias("key"),
            F.to_json(F.struct("*"), ALL_COLUMNS).alias("value"),
            F.array(*header).alias("headers"),
        )
        .write.format("kafka")
        .options(includeHeaders="true", **options)
        .save()
    )
