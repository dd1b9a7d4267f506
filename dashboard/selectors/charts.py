"""Names of series, what they are called on a chart, and the ranges that can be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from django.http import HttpRequest
from django.urls import reverse


class Kind(NamedTuple):
    label: str
    unit: str
    """``bytes/s``, ``records/s``, ``bytes``, ``records``, ``ms``, or nothing for a plain count."""


KINDS = {
    "cluster.bytes_in": Kind("in", "bytes/s"),
    "cluster.bytes_out": Kind("out", "bytes/s"),
    "cluster.records_in": Kind("in", "records/s"),
    "cluster.records_out": Kind("out", "records/s"),
    "cluster.size": Kind("stored", "bytes"),
    "topic.bytes_in": Kind("in", "bytes/s"),
    "topic.bytes_out": Kind("out", "bytes/s"),
    "topic.records_in": Kind("in", "records/s"),
    "topic.size": Kind("size", "bytes"),
    "group.lag": Kind("lag", "records"),
    "group.lag_ms": Kind("lag", "ms"),
    "broker.disk_used": Kind("used", "bytes"),
    "broker.size": Kind("logs", "bytes"),
}
RANGES = {"1h": ("1 hour", 3600), "24h": ("24 hours", 86400), "7d": ("7 days", 7 * 86400)}


def labels_of(names: Sequence[str]) -> list[str]:
    """What each series is called on a chart of these; owners only where there are several."""
    parts = [name.partition(":") for name in names]
    is_mixed = len({owner for _, _, owner in parts}) > 1
    labels = []
    for kind, _, owner in parts:
        label = KINDS[kind].label if kind in KINDS else kind
        labels.append(f"{owner}: {label}" if owner and is_mixed else label)
    return labels


def unit_of(name: str) -> str:
    kind = name.partition(":")[0]
    return KINDS[kind].unit if kind in KINDS else ""


def chosen_range(request: HttpRequest) -> str:
    chosen = request.GET.get("range", "1h")
    return chosen if chosen in RANGES else "1h"


def chart(
    title: str, series: list[str], range_name: str, *, limit: int | None = None
) -> dict[str, Any]:
    """What ``parts/chart.html`` needs. ``limit`` is drawn in as a line."""
    since = RANGES[range_name][1]
    query = "&".join([*(f"series={quote(name, safe='')}" for name in series), f"since={since}"])
    if limit is not None:
        query += f"&limit={limit}"
    return {"title": title, "url": f"{reverse('samples')}?{query}"}


def range_choices(range_name: str) -> list[dict[str, Any]]:
    """For ``parts/chart_ranges.html``."""
    return [
        {"name": name, "label": label, "is_chosen": name == range_name}
        for name, (label, _) in RANGES.items()
    ]
