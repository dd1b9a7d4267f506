"""What a worker can run, by name. A job is a function of its run's context; it returns the result.

``KINDS`` is the one table: a new kind of job is a line there and a function in a module of its own,
named as ``module:function`` so that the web process need not import what only a worker runs. A job
may be started anew from its parameters at any time: an ordered stop of the worker puts its run back
into the queue. A job that found nothing to do returns None: a run that a schedule asked for leaves
no row then, only a mark that it was done (``JobMark``).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

RETENTION: Final = "retention"
COMPACTION: Final = "compaction"
COMPACTED: Final = "compaction-record"
REPORT: Final = "report"


class JobKind(NamedTuple):
    """``does`` is a sentence for people; ``result_template`` draws a run's result, where the list of
    names and values that every result gets does not do."""

    name: str
    label: str
    does: str
    function: str
    is_quick: bool = False
    """It ends soon, and so does not wait behind the two long ones that a worker runs at a time."""
    has_schedule: bool = True
    """People may make schedules of it."""
    is_alone: bool = False
    """One at a time, in a slot of its own: neither do others wait behind it."""
    needs_target: bool = False
    """Its schedules are made on the page of what it is done to."""
    least_every_s: int = 10
    takes_topics: bool = False
    """Its parameter ``topics`` names topics; without it means all."""
    result_template: str = "dashboard/jobs/result.html"


KINDS: Final[dict[str, JobKind]] = {
    kind.name: kind
    for kind in (
        JobKind(
            RETENTION,
            "Retention",
            "Deletes segments that their topic's policy lets go, by time, by size or below the start.",
            "dashboard.jobs.upkeep:retention",
            is_quick=True,
            takes_topics=True,
            result_template="dashboard/jobs/result_retention.html",
        ),
        JobKind(
            COMPACTION,
            "Compaction",
            "Has compacted topics compacted now, however little of them is dirty.",
            "dashboard.jobs.upkeep:compaction",
            takes_topics=True,
            result_template="dashboard/jobs/result_compaction.html",
        ),
        JobKind(
            COMPACTED,
            "Record of compaction",
            "Writes down what the broker has compacted by itself, and what it could not.",
            "dashboard.jobs.upkeep:compacted",
            is_quick=True,
            result_template="dashboard/jobs/result_compaction.html",
        ),
        JobKind(
            "sampling",
            "Sampling",
            "Samples lag and throughput for charts when the web process does not.",
            "dashboard.jobs.sampling:sample",
            is_quick=True,
        ),
        JobKind(
            "offset-expiry",
            "Expiry of offsets",
            "Deletes committed offsets that offsets.retention.minutes has passed.",
            "dashboard.jobs.upkeep:expire_offsets",
            is_quick=True,
        ),
        JobKind(
            "clean-up",
            "Clean-up",
            "Deletes runs, audit entries, sign-ins, sessions and files that are older than their bounds.",
            "dashboard.jobs.clean_up:clean_up",
            is_quick=True,
        ),
        JobKind(
            "export",
            "Export",
            "Writes records into a file.",
            "dashboard.jobs.export:run",
            has_schedule=False,
        ),
        JobKind(
            REPORT,
            "Report",
            "Computes a report with Spark.",
            "dashboard.jobs.report:run",
            is_alone=True,
            needs_target=True,
            least_every_s=300,
        ),
    )
}


class Schedule(NamedTuple):
    """When a job is asked for at first; what the database says later wins."""

    job: str
    every_s: int


SCHEDULES: Final[dict[str, Schedule]] = {
    "Retention of all topics": Schedule(RETENTION, 60),
    "Record of compaction": Schedule(COMPACTED, 60),
    "Samples for charts": Schedule("sampling", 60),
    "Expiry of committed offsets": Schedule("offset-expiry", 600),
    "Clean-up of old rows and files": Schedule("clean-up", 3600),
}


def quick_jobs() -> set[str]:
    return {name for name, kind in KINDS.items() if kind.is_quick}


def lone_jobs() -> set[str]:
    return {name for name, kind in KINDS.items() if kind.is_alone}


def label_of(job: str) -> str:
    """Also of what an older or newer version knew."""
    kind = KINDS.get(job)
    return kind.label if kind is not None else job


class Cancelled(Exception):
    """Raised by ``JobContext.progress`` once somebody asked for the end."""


class WorkerStopping(Cancelled):
    """The worker stops: the run goes back into the queue."""


class Incomplete(Exception):
    """Raised with a result that is about less than was asked for."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__("incomplete")
        self.result = result


class JobContext(Protocol):
    """What a running job may use."""

    run_id: int
    target: str
    parameters: dict[str, Any]

    def progress(self, done: int, total: int | None = None, text: str = "") -> None:
        """Say how far it is; written at most once a second. Raises Cancelled.

        Call it often, also from loops that wait: it is how a job learns that it must end.
        """

    def remember(self, **parameters: Any) -> None:
        """Add to the run's parameters, in its row: what was decided when it began. Raises Cancelled."""

    def log(self, text: str) -> None:
        """Lines for the run's log (``dashboard.run_logs``); never fails."""
