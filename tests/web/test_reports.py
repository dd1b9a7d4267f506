"""Reports as people use their pages; Spark is not there, and what it would have computed is put in its place."""

import json
from collections.abc import Callable

from playwright.sync_api import expect

from tests.support.browser import Visitor, screenshot
from tests.support.web import WebProcess

NAME = "shop-by-minute"
COMPUTED = """
import json, sys
from datetime import timedelta
from django.utils import timezone
from dashboard.models import JobRun
from dashboard.spark import results
name, now = sys.argv[1], timezone.now()
common = dict(job="report", target=name, trigger="schedule", queued_at=now, started_at=now)
for number in (1, 2):
    run = JobRun.objects.create(
        state="ok", finished_at=now + timedelta(seconds=9),
        parameters={"ranges": [["shop", 0, 0, 30, 0, 30]]},
        result={"row_count": 4, "csv_bytes": 9, "parquet_bytes": 9, "schema": "", "gaps": [],
                "compacted": ["shop"],
                "read": {"records": 30, "not_parsed": 0, "tombstones": 0, "first_not_parsed": None}},
        **common)
    making = results.begin(name, run.pk)
    results.complete(making)
    (results.directory_of(name, run.pk) / "rows.json").write_text(json.dumps({
        "columns": [{"name": "window_start", "type": "timestamp"}, {"name": "group", "type": "string"},
                    {"name": "events", "type": "bigint"}],
        "rows": [[f"2026-05-01T10:0{minute}:00.000+00:00", group, 10 * number + minute]
                 for minute in (0, 1) for group in ("order", "view")]}))
failed = JobRun.objects.create(state="failed", finished_at=now,
    error="Spark's Java process was killed or ended by itself", **common)
print(json.dumps({"failed": failed.pk, "newest": run.pk}))
"""


def test_a_report_is_set_up_and_its_result_is_seen_with_chart_and_comparison(
    visit: Callable[..., Visitor], web: WebProcess
) -> None:
    page = visit("olga").page
    page.goto("reports/")
    page.get_by_role("link", name="Events over time").click()
    page.get_by_label("Name", exact=True).fill(NAME)
    page.get_by_label("Topics", exact=True).fill("shop")
    page.get_by_label("Schedule", exact=True).select_option(label="Every hour")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text(f"Report {NAME} saved.")).to_be_visible()
    expect(page.get_by_role("heading", name=NAME, exact=True)).to_be_visible()
    expect(page.get_by_text("every hour, next")).to_be_visible()

    ids = json.loads(web.run_python(COMPUTED, NAME))
    page.reload()
    expect(page.get_by_role("heading", name=f"Result of run {ids['newest']}")).to_be_visible()
    expect(page.locator(".chart canvas")).to_have_count(1)
    expect(page.get_by_text("May change when repeated: shop is compacted.")).to_be_visible()
    table = page.locator("table.report-result")
    expect(table).to_contain_text("compared with run")
    # 20 orders where there were 10 before.
    expect(table.get_by_role("row").nth(1)).to_contain_text("20")
    expect(table.get_by_role("row").nth(1)).to_contain_text("10")
    screenshot(page, "report")

    page.get_by_role("link", name=str(ids["failed"]), exact=True).click()
    expect(page.get_by_text("Java process was killed").first).to_be_visible()

    page.goto("reports/")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=NAME, exact=True))
    expect(row).to_contain_text("every hour")
    expect(row.get_by_text(f"Run {ids['failed']}: failed")).to_have_count(1)
    expect(row.get_by_text(f"Run {ids['newest']}: ok")).to_have_count(1)
    screenshot(page, "reports")


def test_a_wrong_field_is_said_beside_it_and_viewers_set_nothing_up(
    visit: Callable[..., Visitor],
) -> None:
    page = visit("olga").page
    page.goto("reports/new/?kind=top-values")
    page.get_by_label("Name", exact=True).fill("no such range")
    page.get_by_label("Topics", exact=True).fill("shop")
    page.get_by_label("Range", exact=True).fill("yesterday-ish")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="New report: Top values")).to_be_visible()
    expect(page.locator("[aria-invalid=true]").first).to_be_visible()

    viewer = visit("vera").page
    viewer.goto("reports/")
    expect(viewer.get_by_role("heading", name="Reports", exact=True)).to_be_visible()
    expect(viewer.get_by_role("heading", name="New report")).to_have_count(0)
