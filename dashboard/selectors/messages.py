"""A scan as its page shows it: rows in the page's order, figures, and the addresses around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from dashboard import cursor
from dashboard.scan.requests import Bounds, ScanRequest
from dashboard.scan_pool import Scan

REASONS: Final = {
    "records": "The bound of {records} records was reached.",
    "bytes": "The bound of {mib} MiB was reached.",
    "seconds": "The bound of {seconds} s was reached.",
}


@dataclass(frozen=True, slots=True)
class ScanView:
    """``new_rows``: those that the page has not got yet, in the order of the page."""

    scan: Scan
    is_finished: bool
    """As the rows were taken: a scan that ends while the page is made has more to show, and is asked again."""
    new_rows: list[dict[str, Any]]
    row_count: int
    is_reversed: bool
    """The page shows newest first and the scan went forward, or the other way round."""
    older: str = ""
    newer: str = ""
    go_on: str = ""
    """Queries of the neighbouring pages; empty where there is nothing."""
    summary: str = ""
    per_mille: int = 0


def view_of(
    scan: Scan, parameters: dict[str, str], *, newest_first: bool, have: int = 0
) -> ScanView:
    """``parameters``: of the page's address; ``have``: how many rows it shows already."""
    request = scan.request
    assert isinstance(request, ScanRequest)
    is_finished = scan.is_finished  # before the rows, so that none is missed
    rows = list(scan.rows)
    is_backward = request.range.way == "backward"
    is_reversed = is_backward != newest_first
    new_rows = rows[have:]
    if is_reversed:
        new_rows.reverse()
    links = _links(scan, parameters, is_backward) if is_finished else {}
    return ScanView(
        scan,
        is_finished,
        new_rows,
        len(rows),
        is_reversed,
        summary=_summary(scan, request) if is_finished else "",
        per_mille=_per_mille(scan, request.bounds),
        **links,
    )


def _links(scan: Scan, parameters: dict[str, str], is_backward: bool) -> dict[str, str]:
    def query(positions: dict[int, int], way: str) -> str:
        return urlencode({**parameters, "cursor": cursor.encode(positions), "way": way})

    if not scan.positions:
        return {}
    request = scan.request
    assert isinstance(request, ScanRequest)
    start, after = scan.start, scan.positions
    is_whole = scan.state == "done" and scan.result.get("reason") == "end"
    older, newer = (after, start) if is_backward else (start, after)
    links = {}
    if not (is_backward and is_whole):
        links["older"] = query(older, "backward")
    if not is_backward or request.range.cursor is not None:
        links["newer"] = query(newer, "forward")
    if scan.state == "stopped" or scan.result.get("reason") in REASONS:
        links["go_on"] = query(after, request.range.way)
    return links


def _summary(scan: Scan, request: ScanRequest) -> str:
    if scan.state == "stopped":
        return "Stopped."
    if scan.state == "failed":
        return ""
    reason = str(scan.result.get("reason"))
    if reason in REASONS:
        bounds = request.bounds
        return REASONS[reason].format(
            records=f"{bounds.records:,}".replace(",", "\u202f"),
            mib=bounds.size_bytes // 1024**2,
            seconds=bounds.seconds,
        )
    if reason == "end":
        is_backward = request.range.way == "backward"
        chosen = request.range
        if (chosen.since_ms if is_backward else chosen.until_ms) is not None:
            edge = "the beginning of these times" if is_backward else "the end of these times"
        else:
            edge = "the oldest record" if is_backward else "the newest record"
        return f"That is all, up to {edge}." if scan.progress.get("total") else ""
    return ""


def _per_mille(scan: Scan, bounds: Bounds) -> int:
    """Of what is nearer: the end of the range, or a bound."""
    figures = scan.progress
    total = figures.get("total") or 0
    parts = [
        figures.get("passed", 0) / total if total else 0.0,
        figures.get("scanned", 0) / bounds.records,
        figures.get("read_bytes", 0) / bounds.size_bytes,
    ]
    return min(1000, int(max(parts) * 1000))


def page_parameters(parameters: dict[str, str]) -> dict[str, str]:
    """What every address around a page keeps: all but where in it one is."""
    return {
        name: value
        for name, value in parameters.items()
        if value and name not in ("cursor", "way", "have")
    }
