"""Retention as its pages show it: policies in words, a rehearsal by the broker, what went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dashboard import broker_api, clusters
from dashboard.answers import answers
from dashboard.cluster import ConfigView, KafkaFailure
from dashboard.jobs import COMPACTED, COMPACTION, RETENTION
from dashboard.models import JobMark, JobRun
from dashboard.selectors import charts
from dashboard.selectors.topics import TopicPage, TopicQuery, board_of
from dashboard.snapshots import ClusterSnapshot, TopicState
from dashboard.templatetags.show import duration, size

KEYS: Final = (
    "cleanup.policy", "retention.ms", "retention.bytes", "segment.ms", "segment.bytes",
    "delete.retention.ms", "min.cleanable.dirty.ratio", "max.compaction.lag.ms",
    "min.compaction.lag.ms",
)  # fmt: skip
WAIT_S: Final = 1.0
KEPT_MS: Final = 5_000
RUNS: Final = 10
LOOKED_AT: Final = 200
"""Rows of runs in which a topic is looked for."""
SILENT_MS: Final = 150_000


class Going(NamedTuple):
    """What would go now."""

    segments: int
    size_bytes: int
    reasons: tuple[str, ...]


class Row(NamedTuple):
    name: str
    policy: str
    """In words."""
    size_bytes: int | None
    going: Going | None
    """None: not told by this cluster."""
    uncleanable: int
    """Its partitions that compaction has given up for now."""


class Page(NamedTuple):
    topics: TopicPage
    rows: list[Row]
    failure: str


class State(NamedTuple):
    """Of retention as a whole; None where this cluster does not tell."""

    told: Mapping[str, Any] | None
    mark: JobMark | None
    """Of the job."""
    is_silent: bool
    """The broker has to see to retention by itself."""


def state(snapshot: ClusterSnapshot | None) -> State:
    told = snapshot.node.retention if snapshot is not None and snapshot.node is not None else None
    mark = JobMark.objects.filter(job=RETENTION, target="").first()
    return State(told, mark, bool(told and told["is_scheduler_silent"]))


def last_runs(topic: str = "") -> list[JobRun]:
    """Runs that did something, of all topics or one, the newest first."""
    runs = JobRun.objects.filter(job__in=[RETENTION, COMPACTION, COMPACTED]).select_related(
        "requested_by"
    )
    if not topic:
        return list(runs[:RUNS])
    found = [run for run in runs[:LOOKED_AT] if topic in (run.result or {}).get("topics", {})]
    return found[:RUNS]


def page_of(snapshot: ClusterSnapshot, query: TopicQuery) -> Page:
    page = board_of(snapshot).page(query)
    names = [row.name for row in page.rows]
    configs, failure = configs_of(names)
    going = rehearsal(names, snapshot)
    given_up = uncleanable(snapshot)
    rows = [
        Row(
            row.name,
            policy_words(configs.get(row.name, {})),
            row.size_bytes,
            None if going is None else _sum(going, row.name),
            sum(each["topic"] == row.name for each in given_up),
        )
        for row in page.rows
    ]
    return Page(page, rows, failure)


def configs_of(names: Sequence[str]) -> tuple[dict[str, dict[str, str]], str]:
    """Settings by topic as far as they are known in time, and why some are not."""

    def ask() -> dict[str, dict[str, str]]:
        found = clusters.gateway().topic_configs(names, KEYS)
        return {name: _values(views) for name, views in found.items()}

    answer = answers.ask(("retention settings", *names), ask, max_age_ms=KEPT_MS, wait_s=WAIT_S)
    failure = "" if answer.failure is None else str(answer.failure)
    if answer.value is None and answer.is_pending:
        failure = "the cluster has not told the topics' settings yet: load this page again"
    return answer.value or {}, failure


def _values(views: Sequence[ConfigView] | KafkaFailure) -> dict[str, str]:
    if isinstance(views, KafkaFailure):
        return {}
    return {view.name: view.value for view in views if view.value is not None}


def rehearsal(names: Sequence[str], snapshot: ClusterSnapshot) -> list[dict[str, Any]] | None:
    """What would go of these topics now; None where nobody tells (in time)."""
    if not _is_ours(snapshot):
        return None

    def ask() -> list[dict[str, Any]] | None:
        found = _tell("retention", dry_run=True, topics=list(names))
        return None if found is None else list(found["results"])

    # What was rehearsed before a run says nothing about what is left after it.
    newest = JobRun.objects.filter(job=RETENTION).order_by("-pk").values_list("pk", "state").first()
    key = ("rehearsal", str(newest), *names)
    return answers.ask(key, ask, max_age_ms=KEPT_MS, wait_s=WAIT_S).value


def _tell(command: str, **arguments: Any) -> dict[str, Any] | None:
    try:
        return broker_api.local().ask(command, **arguments)
    except broker_api.BrokerApiError:
        return None  # a broker of another version, or a topic that is gone since
    except OSError as error:
        raise KafkaFailure("NOT_CONNECTED", str(error), is_transport=True) from None


def _is_ours(snapshot: ClusterSnapshot) -> bool:
    return snapshot.node is not None and snapshot.node.cluster_id == snapshot.cluster_id


def _sum(results: Sequence[Mapping[str, Any]], name: str) -> Going:
    here = [each for each in results if each["topic"] == name]
    return Going(
        sum(each["segments"] for each in here),
        sum(each["bytes"] for each in here),
        tuple(sorted({each["reason"] for each in here})),
    )


def cleaner(snapshot: ClusterSnapshot | None) -> dict[str, Any] | None:
    """What the broker's compaction is at; None where nobody tells."""
    if snapshot is None or not _is_ours(snapshot):
        return None
    return answers.ask(
        ("cleaner",), lambda: _tell("cleaner"), max_age_ms=KEPT_MS, wait_s=WAIT_S
    ).value


def uncleanable(snapshot: ClusterSnapshot | None) -> list[dict[str, Any]]:
    """Partitions that compaction cannot do, with the reason."""
    found = (cleaner(snapshot) or {}).get("uncleanable")
    return found if isinstance(found, list) else []


def _compactions(snapshot: ClusterSnapshot, topic: str) -> list[dict[str, Any]]:
    """The last of each partition."""
    runs = (cleaner(snapshot) or {}).get("last_runs", [])
    return sorted(
        (run for run in runs if run["topic"] == topic), key=lambda run: int(run["partition"])
    )


def topic_context(snapshot: ClusterSnapshot, topic: TopicState, range_name: str) -> dict[str, Any]:
    configs, failure = configs_of([topic.name])
    settings = configs.get(topic.name, {})
    limit = limit_bytes(settings, topic)
    return {
        "snapshot": snapshot,
        "topic": topic,
        "policy": policy_words(settings),
        "settings": settings,
        "failure": failure,
        "going": rehearsal([topic.name], snapshot),
        "is_compacted": "compact" in settings.get("cleanup.policy", ""),
        "cleaner": cleaner(snapshot),
        "compactions": _compactions(snapshot, topic.name),
        "uncleanable": [each for each in uncleanable(snapshot) if each["topic"] == topic.name],
        "limit_bytes": limit,
        "runs": last_runs(topic.name),
        "chart": charts.chart("Size", [f"topic.size:{topic.name}"], range_name, limit=limit),
        "ranges": charts.range_choices(range_name),
    }


def limit_bytes(settings: Mapping[str, str], topic: TopicState) -> int | None:
    """What ``retention.bytes`` lets all partitions and their replicas take together."""
    each = settings.get("retention.bytes", "-1")
    if "delete" not in settings.get("cleanup.policy", "") or not each.isdecimal():
        return None
    return int(each) * sum(len(partition.replicas) for partition in topic.partitions)


def policy_words(settings: Mapping[str, str]) -> str:
    """One or two sentences."""
    if not settings:
        return "not known yet"
    policy = settings.get("cleanup.policy", "")
    said = []
    if "delete" in policy:
        said.append(_deletion_words(settings))
    if "compact" in policy:
        tombstones = _time(settings.get("delete.retention.ms"))
        said.append(f"Of each key the latest record stays; tombstones stay {tombstones}.")
    return " ".join(said) or "Nothing goes, but what lies below the log's start."


def _deletion_words(settings: Mapping[str, str]) -> str:
    age, most = settings.get("retention.ms", "-1"), settings.get("retention.bytes", "-1")
    parts = []
    if age.isdecimal():
        parts.append(f"what is older than {_time(age)}")
    if most.isdecimal():
        parts.append(f"the oldest beyond {size(int(most))} a partition")
    return f"Goes: {', and '.join(parts)}." if parts else "Nothing goes by age or by size."


def _time(milliseconds: str | None) -> str:
    known = milliseconds is not None and milliseconds.isdecimal()
    return duration(int(milliseconds or 0)) if known else "as long as the broker says"
