"""History as JSON, for charts: ``/samples?series=a&series=b&since=3600``.

``limit`` adds a line at that height, in the unit of the first series."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import BadRequest
from django.http import HttpRequest, JsonResponse

from broker.clock import SystemClock
from dashboard.samples import ROUNDS, samples
from dashboard.selectors.charts import labels_of, unit_of

MAX_SERIES = 12
MAX_POINTS = 720
MAX_LIMIT = 2**53
LONGEST_S = ROUNDS[-1].keep_s


def history(request: HttpRequest) -> JsonResponse:
    """``since`` in seconds before now, at most a week; times in seconds, evenly spaced."""
    names = request.GET.getlist("series")
    if not 0 < len(names) <= MAX_SERIES or any(len(name) > 400 for name in names):
        raise BadRequest(f"Between one and {MAX_SERIES} series, please.")
    since_s = _number(request, "since", 3600, LONGEST_S)
    points = _number(request, "points", 360, MAX_POINTS)
    now_ms = SystemClock().wall_ms()
    found = samples().read_many(names, now_ms - since_s * 1000, now_ms, points)
    times = [at_ms // 1000 for at_ms, _ in found[names[0]]]
    lines: list[dict[str, Any]] = [
        {
            "name": name,
            "label": label,
            "unit": unit_of(name),
            "values": [value for _, value in found[name]],
        }
        for name, label in zip(names, labels_of(names), strict=True)
    ]
    if "limit" in request.GET:
        limit = _number(request, "limit", 1, MAX_LIMIT)
        values = [float(limit)] * len(times)
        lines.append(
            {"name": "limit", "label": "limit", "unit": unit_of(names[0]), "values": values}
        )
    return JsonResponse(
        {"times": times, "series": lines},
        headers={"Cache-Control": "no-store"},
    )


def _number(request: HttpRequest, name: str, default: int, most: int) -> int:
    given = request.GET.get(name, str(default))
    if not (given.isascii() and given.isdigit() and len(given) < 17 and 0 < int(given) <= most):
        raise BadRequest(f"{name} must be a number from 1 to {most}.")
    return int(given)
