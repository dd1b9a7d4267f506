"""One line a thing that was to be changed, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from appliance.failure import ItemError
from appliance.output import Column, Report, Table
from dashboard.cluster import KafkaFailure


def status_report(
    kind: str,
    outcomes: Mapping[str, KafkaFailure | None],
    *,
    is_dry_run: bool = False,
    accepted: Collection[str] = (),
) -> Report:
    """``kind``: topic or group. Failures with an ``accepted`` code are none."""
    rows, errors = [], []
    for name, failure in outcomes.items():
        if failure is None:
            status = "OK (dry run)" if is_dry_run else "OK"
        elif failure.code in accepted:
            status = f"OK ({failure.code})"
        else:
            status = failure.code
            errors.append(ItemError.of(failure, **{kind: name}))
        rows.append({kind: name, "status": status})
    return Report([Table((Column(kind), Column("status", "status")), rows)], errors)
