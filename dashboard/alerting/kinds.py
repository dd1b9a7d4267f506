"""What can be watched: the one table that forms, words, defaults and the Prometheus file share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dashboard.models import Severity

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One figure of a rule."""

    name: str
    label: str
    default: int
    minimum: int
    maximum: int
    help_text: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """``words`` continues "fires when": figures and the targets' words in, a phrase out."""

    key: str
    label: str
    about: str
    target_noun: str
    """What the globs of a rule are compared with; empty: there is only one target."""
    words: Callable[[Values, str], str]
    severity: Severity = Severity.WARNING
    for_seconds: int = 60
    clear_seconds: int = 60
    is_on: bool = True
    """Whether the rule that comes with Odradek is on."""
    parameters: tuple[Parameter, ...] = field(default=())

    def values(self, given: Values) -> dict[str, int]:
        """Every parameter: as given, or its default."""
        return {
            parameter.name: int(given.get(parameter.name, parameter.default))
            for parameter in self.parameters
        }


_KINDS = (
    Kind(
        "broker_silent",
        "Broker does not answer",
        "The cluster, or one broker of it, does not answer the dashboard.",
        "broker",
        lambda values, of: f"{of} gives no answer",
        Severity.CRITICAL,
        for_seconds=60,
        clear_seconds=15,
    ),
    Kind(
        "partition_offline",
        "Partition offline",
        "A partition without a leader can be neither written nor read.",
        "topic",
        lambda values, of: f"a partition of {of} is offline",
        Severity.CRITICAL,
        for_seconds=30,
        clear_seconds=30,
    ),
    Kind(
        "under_min_isr",
        "Partition under min ISR",
        "Fewer replicas are in sync than min.insync.replicas asks for: producers that wait for all "
        "of them are refused.",
        "topic",
        lambda values, of: f"a partition of {of} is under its min.insync.replicas",
        Severity.CRITICAL,
        for_seconds=60,
        clear_seconds=60,
    ),
    Kind(
        "under_replicated",
        "Partition under-replicated",
        "A replica is not in sync: another failure may lose availability.",
        "topic",
        lambda values, of: f"a partition of {of} is under-replicated",
        for_seconds=300,
        clear_seconds=60,
        is_on=False,
    ),
    Kind(
        "group_lag",
        "Consumer group lags",
        "Age of the oldest record that the group has not read yet.",
        "group",
        lambda values, of: f"consumer lag of {of} is over {seconds(values['lag_seconds'])}",
        for_seconds=300,
        clear_seconds=60,
        parameters=(
            Parameter(
                "lag_seconds",
                "Lag over (seconds)",
                60,
                1,
                10_000_000,
                "A firing alert is over when the lag is below nine tenths of this.",
            ),
        ),
    ),
    Kind(
        "disk_floor",
        "Disk below its floor",
        "Little room is left. The broker refuses producers below odradek.disk.floor.bytes.",
        "disk",
        lambda values, of: (
            f"less than {values['free_percent']} % or {values['free_mib']} MiB of {of} is free"
        ),
        Severity.CRITICAL,
        for_seconds=60,
        clear_seconds=60,
        parameters=(
            Parameter("free_percent", "Free below (percent)", 5, 0, 99),
            Parameter("free_mib", "Or below (MiB)", 1024, 0, 1_000_000_000),
        ),
    ),
    Kind(
        "disk_trend",
        "Disk full soon",
        "At the pace of the last hour, and of the last six, the disk will be full soon. Told from "
        "half an hour of samples on.",
        "disk",
        lambda values, of: f"{of} will be full within {values['hours']} h at this pace",
        for_seconds=600,
        clear_seconds=600,
        parameters=(Parameter("hours", "Full within (hours)", 24, 1, 8760),),
    ),
    Kind(
        "scheduler_silent",
        "Scheduler silent",
        "Beat asks for retention, clean-up and reports. The broker keeps up retention without it.",
        "",
        lambda values, of: (
            f"the scheduler has given no sign for {seconds(values['silent_seconds'])}"
        ),
        for_seconds=0,
        clear_seconds=0,
        parameters=(Parameter("silent_seconds", "Silent for (seconds)", 120, 10, 10_000_000),),
    ),
    Kind(
        "job_failed",
        "Job failed repeatedly",
        "The newest runs of a job ended badly, one after the other, within the last seven days.",
        "job",
        lambda values, of: f"{of} failed {times(values['count'])} in a row",
        for_seconds=0,
        clear_seconds=0,
        parameters=(Parameter("count", "Failures in a row", 2, 1, 20),),
    ),
    Kind(
        "child_restarts",
        "Process restarted repeatedly",
        "The supervisor had to start a process of Odradek again and again.",
        "process",
        lambda values, of: (
            f"{of} was started again {times(values['count'])} within "
            f"{seconds(values['within_minutes'] * 60)}"
        ),
        for_seconds=0,
        clear_seconds=0,
        parameters=(
            Parameter("count", "Restarts", 3, 1, 100),
            Parameter("within_minutes", "Within (minutes)", 15, 1, 1440),
        ),
    ),
)
KINDS: Mapping[str, Kind] = {kind.key: kind for kind in _KINDS}


def globs(targets: str) -> list[str]:
    return [glob for glob in re.split(r"[,\s]+", targets) if glob]


def targets_in_words(kind: Kind, targets: str) -> str:
    """``any group``, ``topic orders``, ``any topic like a-* or b-*``."""
    found = globs(targets)
    if not found or "*" in found:
        return f"any {kind.target_noun}"
    listed = " or ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)
    is_pattern = any(character in glob for glob in found for character in "*?[")
    return f"any {kind.target_noun} like {listed}" if is_pattern else f"{kind.target_noun} {listed}"


def rule_in_words(kind_key: str, parameters: Values, targets: str, for_seconds: int) -> str:
    """``consumer lag of any group is over 60 s for 5 min``."""
    kind = KINDS[kind_key]
    phrase = kind.words(kind.values(parameters), targets_in_words(kind, targets))
    return f"{phrase} for {seconds(for_seconds)}" if for_seconds else phrase


def seconds(count: int) -> str:
    """The largest unit that is whole: ``5 min``, ``90 s``."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if count > unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} s"


def times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
