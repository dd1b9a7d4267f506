"""The rules that come with Odradek: one of each kind, made when the tables are brought up to date.

They can be changed and switched off but not deleted, so that each start finds them as they were
left.
"""

from __future__ import annotations

from typing import Any

from dashboard.alerting.kinds import KINDS, Kind
from dashboard.models import AlertRule


def make_default_rules() -> None:
    """Those that are missing. A rule of that name, made by a person, keeps its name."""
    present = set(AlertRule.objects.exclude(default_key=None).values_list("default_key", flat=True))
    for kind in KINDS.values():
        if kind.key in present:
            continue
        name = kind.label
        if AlertRule.objects.filter(name=name).exists():
            name = f"{kind.label} (default)"
        AlertRule.objects.get_or_create(
            default_key=kind.key, defaults={"name": name, **default_values(kind)}
        )


def default_values(kind: Kind) -> dict[str, Any]:
    """What a rule of this kind starts with; also in the form of a new one."""
    return {
        "kind": kind.key,
        "parameters": kind.values({}),
        "targets": "*",
        "severity": kind.severity,
        "is_on": kind.is_on,
        "for_seconds": kind.for_seconds,
        "clear_seconds": kind.clear_seconds,
        "repeat_minutes": 60,
    }
