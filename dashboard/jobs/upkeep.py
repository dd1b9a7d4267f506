"""Jobs that ask the broker beside us: retention, compaction, expiry of committed offsets.

The broker decides and does; it would do so by itself when nobody asked (DESIGN.md). What it did
unasked, while no worker could ask or write, becomes rows here as soon as one can. Where no Odradek
broker is reached (the cluster is another one), there is nothing to do.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable
from typing import Any, Final

from django.conf import settings

from broker.clock import SystemClock
from dashboard import broker_api
from dashboard.jobs import COMPACTED, RETENTION, JobContext
from dashboard.models import JobRun

MAX_TOPICS: Final = 200
"""Told one by one in a row; the sums tell the rest."""
POLL_S: Final = 1.0
_MARK: Final = "broker:"
_FIGURES: Final = ("bytes_before", "bytes_after", "records_before", "records_after")


class BrokerSilent(Exception):
    """Said in the run's row."""


def retention(context: JobContext) -> dict[str, Any] | None:
    """``parameters``: ``topics``, a list of names; all without it."""
    record_unasked()
    answer = _ask(context, "retention")
    if answer is None or not answer["segments"]:
        return None
    result = retention_result(answer)
    for line in _lines(answer["results"]):
        context.log(line)
    return result


def retention_result(answer: dict[str, Any]) -> dict[str, Any]:
    """A row's result: sums, and by topic with the reasons."""
    topics: dict[str, dict[str, Any]] = {}
    for each in answer["results"]:
        topic = topics.setdefault(each["topic"], {"segments": 0, "bytes": 0, "reasons": {}})
        reason = topic["reasons"].setdefault(each["reason"], {"segments": 0, "bytes": 0})
        for of in (topic, reason):
            of["segments"] += each["segments"]
            of["bytes"] += each["bytes"]
    most = sorted(topics.items(), key=lambda item: -item[1]["bytes"])
    return {
        "segments": answer["segments"],
        "bytes": answer["bytes"],
        "topics": dict(most[:MAX_TOPICS]),
        "left_out": max(0, len(most) - MAX_TOPICS) + int(answer.get("left_out", 0)),
    }


def _lines(results: Iterable[dict[str, Any]]) -> Iterable[str]:
    for each in results:
        yield (
            f"{each['topic']}-{each['partition']}: {each['segments']} segments, {each['bytes']} bytes"
            f" by {each['reason']}, log start offset {each['log_start_offset']}"
        )


def record_unasked() -> int:
    """Rows of what the broker did by itself since it started; how many are new."""
    answer = broker_api.local().ask("retention_runs")
    node = broker_api.local().node() if answer and answer["runs"] else None
    if answer is None or node is None:
        return 0
    count = 0
    for run in answer["runs"]:
        who = f"{_MARK}{node.node_id}:{node.started_ms}:{run['number']}"
        if not JobRun.objects.filter(worker=who).exists():
            _record(run, who)
            count += 1
    return count


def _record(run: dict[str, Any], who: str) -> None:
    began = dt.datetime.fromtimestamp(run["started_ms"] / 1000, dt.UTC)
    JobRun.objects.create(
        job=RETENTION,
        trigger=JobRun.Trigger.BROKER,
        state=JobRun.State.OK,
        parameters={"by": run["by"]},
        result=retention_result(run),
        queued_at=began,
        started_at=began,
        finished_at=began + dt.timedelta(milliseconds=run["took_ms"]),
        worker=who,
    )


def compaction(context: JobContext) -> dict[str, Any] | None:
    """``parameters``: ``topics``, a list of names; all compacted ones without it. Over when all is done."""
    clock = SystemClock()
    asked = _ask(context, "compact", roll=True)
    if asked is None or not asked["queued"]:
        return None
    asked_ms = clock.wall_ms()
    wanted = {_key(each) for each in asked["queued"]}
    while True:
        told = _tell_cleaner(context)
        left = wanted & {_key(each) for each in (*told["queued"], *told["running"])}
        context.progress(len(wanted) - len(left), len(wanted), "the broker compacts")
        if not left:
            break
        threading.Event().wait(POLL_S)
    runs = [run for run in told["last_runs"] if _key(run) in wanted and _end(run) >= asked_ms]
    return _compaction_result(context, runs, told["uncleanable"], clock.wall_ms())


def compacted(context: JobContext) -> dict[str, Any] | None:
    """What ended since the last row of this job, and since the broker's start at the earliest."""
    last = JobRun.objects.filter(job=COMPACTED, state=JobRun.State.OK).order_by("-pk").first()
    since_ms = int(last.result["until_ms"]) if last is not None and last.result else 0
    told = _ask(context, "cleaner", takes_topics=False)
    runs = [run for run in told["last_runs"] if _end(run) > since_ms] if told is not None else []
    if told is None or not runs:
        return None
    return _compaction_result(context, runs, told["uncleanable"], max(_end(run) for run in runs))


def _compaction_result(
    context: JobContext,
    runs: list[dict[str, Any]],
    uncleanable: list[dict[str, Any]],
    until_ms: int,
) -> dict[str, Any]:
    topics: dict[str, dict[str, int]] = {}
    for run in runs:
        topic = topics.setdefault(run["topic"], dict.fromkeys(("partitions", *_FIGURES), 0))
        topic["partitions"] += 1
        for name in _FIGURES:
            topic[name] += run[name]
        ended = run["error"] or f"{run['bytes_before']} to {run['bytes_after']} bytes"
        context.log(f"{run['topic']}-{run['partition']}: {ended} in {run['duration_ms']} ms")
    most = sorted(topics.items(), key=lambda item: -item[1]["bytes_before"])
    failed = [each for each in uncleanable if each["topic"] in topics]
    return {
        "topics": dict(most[:MAX_TOPICS]),
        "left_out": max(0, len(most) - MAX_TOPICS),
        "uncleanable": failed[:MAX_TOPICS],
        "until_ms": until_ms,
    }


def _tell_cleaner(context: JobContext) -> dict[str, Any]:
    told = _ask(context, "cleaner", takes_topics=False)
    if told is None:
        raise BrokerSilent("the broker ended meanwhile")
    return told


def _key(each: dict[str, Any]) -> tuple[str, int]:
    return each["topic"], each["partition"]


def _end(run: dict[str, Any]) -> int:
    return int(run["started_ms"] + run["duration_ms"])


def expire_offsets(context: JobContext) -> dict[str, Any] | None:
    answer = _ask(context, "expire_offsets", takes_topics=False)
    if answer is None or not answer["records"]:
        return None
    return {name: answer[name] for name in ("records", "group_count", "groups")}


def _ask(
    context: JobContext, command: str, *, takes_topics: bool = True, **arguments: Any
) -> dict[str, Any] | None:
    """None where no broker of ours is expected. Raises BrokerSilent, OSError."""
    topics = context.parameters.get("topics")
    if topics and takes_topics:
        arguments["topics"] = topics
    answer = broker_api.local().ask_patiently(
        command, lambda: context.progress(0, text="the broker is at it"), **arguments
    )
    if answer is None and not settings.ODRADEK_CLUSTER:
        raise BrokerSilent("the broker does not answer: it is down, or starting")
    return answer
