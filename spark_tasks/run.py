"""One report, from its job to its result. See ``spark_tasks`` for how it is spoken to.

What is told: ``{"state": "starting" | "reading" | "computing"}``, ``{"progress": {...}}``, and at the
end ``{"result": {...}}`` or ``{"failed": {"kind", "text", "log"}}``.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from pathlib import Path
from typing import Any, Final

from spark_tasks import formats, registry, result, result_topic, source
from spark_tasks.context import Context
from spark_tasks.job import Job
from spark_tasks.lazy import functions as F
from spark_tasks.progress import Teller, Watch
from spark_tasks.report import Report, ReportError

COUNTS_WAIT_S: Final = 10.0
SAMPLES_SCHEMA: Final = "series string, at_ms long, worth double"


def run(job: Job, teller: Teller) -> bool:
    """Whether it came out; both ways were told."""
    try:
        report = _find(job)
        teller.tell(state="starting")
        session = _session(job)
        with Watch(teller, session.sparkContext):
            found = compute(job, report, session, teller)
        teller.tell(result=found)
        return True
    except ReportError as error:
        teller.tell(failed={"kind": "asked", "text": str(error), "log": ""})
    except Exception as error:  # noqa: BLE001 - the edge: everything is told
        teller.tell(failed=told(error))
    return False


def told(error: BaseException) -> dict[str, str]:
    """The line of an error that says something: of Java's, the deepest cause's."""
    log = "".join(traceback.format_exception(error))[-20_000:]
    java = getattr(error, "java_exception", None)
    text = str(error).strip() or type(error).__name__
    kind = type(error).__name__
    if java is not None:
        try:
            while java.getCause() is not None:
                java = java.getCause()
            text, kind = str(java.toString()), str(java.getClass().getSimpleName())
        except Exception:  # noqa: BLE001 - Java may be gone
            text = text.splitlines()[0]
    return {"kind": kind, "text": text.splitlines()[0][:1000], "log": log}


def _find(job: Job) -> Report:
    if not job.report.startswith(registry.USER_PREFIX):
        known = registry.shipped()
    else:
        known, refused = registry.load_user(Path(job.user_reports))
        for each in refused:
            if registry.USER_PREFIX + Path(each.file).stem == job.report:
                raise ReportError(f"{each.file} {each.reason}")
    if job.report not in known:
        raise ReportError(f"there is no report {job.report!r}")
    return known[job.report]


def _session(job: Job) -> Any:
    from spark_tasks.session import open_session

    scratch = Path(job.directory) / "scratch"
    scratch.mkdir(exist_ok=True)
    return open_session(job.master, job.settings, job.jars, str(scratch))


def compute(job: Job, report: Report, session: Any, teller: Teller) -> dict[str, Any]:
    """Write the result into the job's directory; what is said about it."""
    try:
        parameters = report.parse(job.parameters)
    except ValueError as error:
        raise ReportError(str(error)) from None
    teller.tell(state="reading")
    if report.input == "samples":
        samples = session.read.schema(SAMPLES_SCHEMA).json(job.samples)
        at = F.timestamp_millis("at_ms").alias("at")
        context = Context(
            session, parameters, samples=samples.select("series", at, "worth").cache()
        )
        teller.tell(state="computing")
        return _write(report.build(context), job)
    records, schema, counts = _records(job, session)
    teller.tell(state="computing")
    context = Context(session, parameters, all_records=records, ranges=job.ranges)
    found = _write(report.build(context), job)
    return {**found, "schema": schema, "read": _observed(counts) or _counted(records)}


def _write(built: Any, job: Job) -> dict[str, Any]:
    found = result.write(built, Path(job.directory), job.max_rows)
    if job.result_topic:
        result_topic.write(built.sparkSession, built.schema, job)
    return found


def _records(job: Job, session: Any) -> tuple[Any, str, Any]:
    raw = source.read(session, job.bootstrap, job.properties, job.ranges)
    sample = source.read(session, job.bootstrap, job.properties, source.sample_of(job.ranges))
    records, schema = formats.parse(raw, job.format, sample)
    counts = _observation()
    return records.observe(counts, *_counts()), schema, counts


def _counts() -> list[Any]:
    failed = ~F.col("is_parsed") & ~F.col("is_tombstone")
    place = F.when(failed, F.struct("topic", "partition", "offset"))
    return [
        F.count(F.lit(1)).alias("records"),
        F.sum(failed.cast("long")).alias("not_parsed"),
        F.sum(F.col("is_tombstone").cast("long")).alias("tombstones"),
        F.min(place).alias("first_not_parsed"),
    ]


def _observation() -> Any:
    from pyspark.sql import Observation

    return Observation("read")


def _observed(counts: Any) -> dict[str, Any] | None:
    """What was counted while the records passed; None when a report did not look at them all."""
    found: list[dict[str, Any]] = []

    def take() -> None:
        # Of a plan that Spark found to be empty there is nothing to take, which is an error.
        with contextlib.suppress(Exception):
            found.append(dict(counts.get))

    # ``get`` waits for ever when nothing ran over the records.
    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(COUNTS_WAIT_S)
    return _told_counts(found[0]) if found else None


def _counted(records: Any) -> dict[str, Any]:
    return _told_counts(records.agg(*_counts()).first().asDict())


def _told_counts(found: dict[str, Any]) -> dict[str, Any]:
    first = found["first_not_parsed"]
    return {
        "records": found["records"] or 0,
        "not_parsed": found["not_parsed"] or 0,
        "tombstones": found["tombstones"] or 0,
        "first_not_parsed": None if first is None else plain_place(first),
    }


def plain_place(row: Any) -> dict[str, Any]:
    return {"topic": row["topic"], "partition": row["partition"], "offset": row["offset"]}
