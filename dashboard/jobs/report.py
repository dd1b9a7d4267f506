"""The job that computes a report: a process of Spark's does, this side decides, follows and ends it.

What it reads is decided when the run begins, and stands in its row before Spark is started: a run
that goes back into the queue, or is asked for again, reads the same offsets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from broker.clock import SystemClock
from dashboard import clusters, leases, room
from dashboard.cluster import KafkaFailure
from dashboard.jobs import REPORT, Incomplete, JobContext
from dashboard.models import JobRun, Report
from dashboard.offset_range import Anchor, Bound, OffsetRange, parse_offset_range
from dashboard.samples import samples
from dashboard.spark import carried, catalog, failures, results
from dashboard.spark.client_properties import java_properties
from dashboard.spark.home import SparkHome
from dashboard.spark.process import ReportProcess
from dashboard.spark.ranges import (
    RangeError,
    as_json,
    compacted_topics,
    find_gaps,
    find_ranges,
    from_json,
    position_after,
)
from spark_tasks.job import Format, Job, PartitionRange
from spark_tasks.report import Report as Kind

LEASE: Final = "report"
LEASE_S: Final = 30.0
RENEW_MS: Final = 10_000
READ_S: Final = 0.5
ASK_S: Final = 30.0
"""How long the cluster may take to answer."""
MAX_SERIES: Final = 1_000
WEEK_MS: Final = 7 * 86_400_000
WHOLE: Final = OffsetRange(Bound(Anchor.START))


class ReportFailed(Exception):
    """Said on the run's page: what went wrong, and what to do where that is known."""


def run(context: JobContext) -> dict[str, Any]:
    report = Report.objects.filter(name=context.target).first()
    if report is None:
        raise ReportFailed(f"there is no report {context.target!r} any more")
    kind = catalog.find(report.kind)
    if kind is None:
        raise ReportFailed(f"the report uses {report.kind!r}, which is not here any more")
    room.check()
    home = results.home()
    if (missing := home.missing()) is not None:
        raise ReportFailed(str(missing))
    with _unpacked(context, home):
        return _run(context, report, kind, home)


@contextmanager
def _unpacked(context: JobContext, home: SparkHome) -> Iterator[None]:
    """What the single executable carries is unpacked at the first report, and stays while one runs."""
    if not home.is_carried:
        yield
        return

    def wait() -> None:
        context.progress(0, None, "Spark is unpacked, once")

    try:
        with carried.held(home.directory, wait):
            yield
    except carried.NotUnpacked as error:
        raise ReportFailed(f"Spark is not there: {error}") from None


def _run(context: JobContext, report: Report, kind: Kind, home: SparkHome) -> dict[str, Any]:
    unfinished = JobRun.objects.filter(job=REPORT, state__in=JobRun.UNFINISHED)
    results.prune(report.name, report.keep_runs, set(unfinished.values_list("pk", flat=True)))
    holder = f"{leases.this_process()}:{context.run_id}"[-128:]
    _wait_for_turn(context, holder)
    try:
        return _compute(context, report, kind, home, holder)
    finally:
        leases.release(LEASE, holder)


def _wait_for_turn(context: JobContext, holder: str) -> None:
    """One report at a time in the whole cluster."""
    while not leases.hold(LEASE, holder, LEASE_S):
        context.progress(0, None, "waits until another node's report is done")
        time.sleep(READ_S)


def _compute(
    context: JobContext, report: Report, kind: Kind, home: SparkHome, holder: str
) -> dict[str, Any]:
    started_ms = SystemClock().monotonic_ms()
    _check_result_topic(report.result_topic)
    ranges, compacted = _decide(context, report, kind)
    making = results.begin(report.name, context.run_id)
    try:
        job = _job(report, kind, ranges, making, home, context.run_id)
        process = ReportProcess(home, job, context.log)
        try:
            said = _follow(context, process, report.timeout_s, holder)
        finally:
            process.end()
        gaps = _gaps(ranges)
        results.complete(making)
    finally:
        results.give_up(making)
    result = {
        **said,
        "took_ms": SystemClock().monotonic_ms() - started_ms,
        "gaps": [list(gap) for gap in gaps],
        "compacted": compacted,
    }
    if report.is_incremental:
        Report.objects.filter(pk=report.pk).update(position=position_after(ranges))
    if gaps:
        raise Incomplete(result)
    return result


def _check_result_topic(name: str) -> None:
    """Spark's producer would look for a topic that is not there for a minute, after all the work."""
    if not name:
        return
    try:
        found = clusters.new_gateway(ASK_S).topics([name])[name]
    except KafkaFailure as error:
        found = error
    if isinstance(found, KafkaFailure):
        raise ReportFailed(f"the rows cannot be written to the topic {name}: {found.message}")


def _decide(
    context: JobContext, report: Report, kind: Kind
) -> tuple[list[PartitionRange], list[str]]:
    """(what is read, which topics may change when it is read again); kept in the run's row."""
    if kind.input == "samples":
        return [], []
    context.progress(0, None, "asks the cluster which offsets to read")
    gateway = clusters.new_gateway(ASK_S)
    given = context.parameters.get("ranges")
    try:
        if given is not None:
            ranges = from_json(given)
        else:
            chosen = parse_offset_range(report.range, SystemClock().wall_ms())
            if kind.reads_whole_log:
                chosen = WHOLE
            position = report.position if report.is_incremental else None
            ranges = find_ranges(gateway, report.topic_names, chosen, position)
        compacted = compacted_topics(gateway, report.topic_names)
    except (RangeError, KafkaFailure, ValueError) as error:
        raise ReportFailed(str(error)) from None
    context.remember(
        ranges=as_json(ranges), kind=report.kind, parameters=report.parameters, format=report.format
    )
    return ranges, compacted


def _job(
    report: Report,
    kind: Kind,
    ranges: list[PartitionRange],
    making: Path,
    home: SparkHome,
    run_id: int,
) -> Job:
    samples_file = ""
    if kind.input == "samples":
        samples_file = str(making / "samples.jsonl")
        _write_samples(kind, report.range, Path(samples_file))
    return Job(
        report=report.kind,
        directory=str(making),
        parameters=report.parameters,
        bootstrap=clusters.bootstrap(),
        properties=java_properties(clusters.properties()),
        ranges=tuple(ranges),
        format=Format(**report.format),
        samples=samples_file,
        user_reports=str(results.user_reports()),
        master=settings.ODRADEK_SPARK_MASTER,
        settings=settings.ODRADEK_SPARK_SETTINGS,
        jars=tuple(home.jar_paths()),
        result_topic=report.result_topic,
        name=report.name,
        run=str(run_id),
    )


def _write_samples(kind: Kind, range_text: str, target: Path) -> None:
    now_ms = SystemClock().wall_ms()
    chosen = parse_offset_range(range_text, now_ms)
    since_ms, until_ms = now_ms - WEEK_MS, now_ms
    if chosen.start.anchor is Anchor.TIME:
        since_ms = chosen.start.number
    if chosen.end is not None and chosen.end.anchor is Anchor.TIME:
        until_ms = chosen.end.number
    names = [name for prefix in kind.samples for name in samples().names(prefix, MAX_SERIES)]
    with target.open("w") as file:
        for name in names:
            for at_ms, worth in samples().read(name, since_ms, until_ms, points=10_000):
                if worth is not None:
                    file.write(json.dumps({"series": name, "at_ms": at_ms, "worth": worth}) + "\n")


def _follow(
    context: JobContext, process: ReportProcess, timeout_s: int, holder: str
) -> dict[str, Any]:
    """Until it tells a result. Ends it when it is cancelled (by raising), or takes too long."""
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + timeout_s * 1000
    renew_ms = clock.monotonic_ms() + RENEW_MS
    done, total, text, had_java = 0, None, "Spark starts", False
    while True:
        try:
            said = process.read(READ_S)
        except EOFError:
            raise ReportFailed(process.why_ended()) from None
        context.progress(done, total, text)
        now_ms = clock.monotonic_ms()
        if now_ms > renew_ms:
            if not leases.hold(LEASE, holder, LEASE_S):
                raise ReportFailed("another node began a report: this one slept too long")
            room.check()
            renew_ms = now_ms + RENEW_MS
        if now_ms > end_ms:
            raise ReportFailed(f"it took longer than its limit of {timeout_s} s")
        if said is None:
            continue
        if "progress" in said:
            figures = said["progress"]
            done, total = figures["tasks_done"], figures["tasks"] or None
            text = f"stage {figures['stages']}: {done} of {figures['tasks']} tasks"
            has_java = process.has_java()
            if had_java and not has_java:
                raise ReportFailed("Spark's Java process was killed or ended by itself")
            had_java = has_java
        elif "state" in said:
            text = {"starting": "Spark starts", "reading": "Spark looks at the records"}.get(
                said["state"], "Spark computes"
            )
        elif "failed" in said:
            _raise(context, process, said["failed"])
        elif "result" in said:
            found: dict[str, Any] = said["result"]
            return found


def _raise(context: JobContext, process: ReportProcess, failed: dict[str, str]) -> None:
    if failed["log"]:
        context.log(failed["log"])
    if not process.has_java() and failures.is_lost_java(failed["text"], failed["kind"]):
        raise ReportFailed("Spark's Java process was killed or ended by itself")
    text = failed["text"] if failed["kind"] == "asked" else f"{failed['kind']}: {failed['text']}"
    raise ReportFailed(failures.with_advice(text))


def _gaps(ranges: list[PartitionRange]) -> list[Any]:
    if not ranges:
        return []
    try:
        return list(find_gaps(clusters.new_gateway(ASK_S), ranges))
    except (RangeError, KafkaFailure) as error:
        raise ReportFailed(f"whether all was still there cannot be told: {error}") from None
