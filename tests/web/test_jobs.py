"""Jobs as people use them: schedules, runs and retention on pages, done by a real worker and broker."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboard.gateway import Gateway
from tests.support import processes
from tests.support.browser import Visitor, screenshot
from tests.support.odradek import OdradekBroker
from tests.support.web import REPOSITORY, WebProcess

TOPIC = "job-pages"
WAIT_MS = 30_000


@pytest.fixture(scope="module")
def worker(web: WebProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A real worker beside the dashboard; gives what it said."""
    output = tmp_path_factory.mktemp("worker") / "worker.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "appliance.worker"],
            cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            env={**web.environment, "ODRADEK_LOG_LEVEL": "INFO"},
        )  # fmt: skip
    try:
        processes.wait_until(lambda: "ready for jobs" in output.read_text(), 120, "the worker")
        yield output
    finally:
        assert processes.end(process, signal.SIGTERM, 60) == 0, output.read_text()


@pytest.fixture(scope="module")
def topic(web: WebProcess) -> str:
    """Has more segments than its policy lets it keep."""
    gateway = Gateway(web.environment["ODRADEK_CLUSTER"])
    gateway.create_topics(
        [TOPIC], partitions=1, replication_factor=1,
        configs={"segment.bytes": "1048576", "retention.bytes": "1048576"},
    )  # fmt: skip
    fill(gateway)
    return TOPIC


def fill(gateway: Gateway) -> None:
    writer = gateway.writer(TOPIC, **{"compression.type": "none"})
    for number in range(60):
        writer.send(0, os.urandom(100_000), b"%d" % number, [], 0)
        writer.flush(20)


SWITCH = """
import sys, time
from dashboard.models import JobRun
from dashboard.services import schedules
schedules.make_missing()
schedules.ours().filter(name="Retention of all topics").update(enabled=sys.argv[1] == "on")
while JobRun.objects.filter(job="retention", state__in=JobRun.UNFINISHED).exists():
    time.sleep(0.1)
"""


@pytest.fixture
def nobody_else_retains(
    web: WebProcess, worker: Path, shared_odradek: OdradekBroker
) -> Iterator[None]:
    """What a page rehearses is there when it is run: the schedule is off, and the broker's own turn a
    minute away."""
    web.run_python(SWITCH, "off")
    shared_odradek.control("retention")
    yield
    web.run_python(SWITCH, "on")


#: Where in the chart's field, from 0 at its foot to 1 at its top, the second line's colour is.
HEIGHT_OF_LIMIT = """
chart => {
  const canvas = chart.querySelector("canvas"), field = chart.querySelector(".u-over").getBoundingClientRect();
  const whole = canvas.getBoundingClientRect(), scale = canvas.width / whole.width;
  const left = Math.round((field.left - whole.left) * scale), top = Math.round((field.top - whole.top) * scale);
  const width = Math.round(field.width * scale), height = Math.round(field.height * scale);
  const { data } = canvas.getContext("2d").getImageData(left, top, width, height);
  const rows = [];
  for (let y = 0; y < height; y++) {
    let count = 0;
    for (let x = 0; x < width; x++) {
      const at = 4 * (y * width + x);
      if (data[at] === 0xa8 && data[at + 1] === 0x48 && data[at + 2] === 0x0f) count++;
    }
    if (count > width / 3) rows.push(y + 0.5);
  }
  return rows.length ? 1 - rows.reduce((sum, y) => sum + y, 0) / rows.length / height : null;
}
"""


def test_the_chart_of_a_topic_s_size_has_its_limit_drawn_in(
    visit: Callable[..., Visitor], web: WebProcess, shared_odradek: OdradekBroker
) -> None:
    name, kept = "limited", 3_000_000
    gateway = Gateway(web.environment["ODRADEK_CLUSTER"])
    gateway.create_topics(
        [name],
        partitions=2,
        replication_factor=1,
        configs={"retention.bytes": str(kept // 2), "segment.bytes": str(10 * kept)},
    )
    page = visit("vera").page
    page.goto(f"retention/{name}/")
    expect(page.get_by_text("of 2.86 MiB that retention.bytes lets its partitions")).to_be_visible()
    chart = page.locator(".chart")
    # In words, for whom the line is not visible.
    expect(chart.locator(".chart-key", has_text="limit")).to_contain_text("2.86 MiB")
    chart.get_by_text("Figures").click()
    table = chart.get_by_role("table")
    expect(table.get_by_role("columnheader")).to_have_text(["Time", "size", "limit"])
    expect(table.get_by_role("row").nth(1).get_by_role("cell").last).to_have_text("2.86 MiB")
    chart.locator(".chart-canvas").press("ArrowLeft")
    expect(chart.locator(".chart-reading")).to_contain_text("limit 2.86 MiB")
    # And at its height: the field ends 8 % above what is highest, which here it is.
    height = chart.evaluate(HEIGHT_OF_LIMIT)
    assert height is not None
    assert height == pytest.approx(1 / 1.08, abs=0.02)
    screenshot(page, "retention-limit")


@pytest.mark.usefixtures("nobody_else_retains")
def test_retention_is_rehearsed_run_and_told(
    visit: Callable[..., Visitor], topic: str, web: WebProcess
) -> None:
    fill(Gateway(web.environment["ODRADEK_CLUSTER"]))
    page = visit("olga").page
    page.goto(f"retention/{topic}/")
    expect(
        page.get_by_text("Goes: what is older than 7 d, and the oldest beyond 1.00 MiB")
    ).to_be_visible()
    would = page.get_by_role("row", name=re.compile("too much"))
    expect(would).to_be_visible()
    segments = would.get_by_role("cell").nth(1).inner_text()
    page.get_by_role("button", name="Run retention of this topic").click()

    expect(page.get_by_role("heading", name=re.compile(f"Retention {topic}, run"))).to_be_visible()
    expect(page.locator(".badge.good", has_text="Ok")).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_text(re.compile(f"^{segments} segments, .* went"))).to_be_visible()
    row = page.get_by_role("row", name=re.compile(topic))
    expect(row).to_contain_text("too much")
    expect(page.get_by_label("Log")).to_contain_text(f"{topic}-0: {segments} segments")
    run = page.url.rstrip("/").rpartition("/")[2]
    screenshot(page, "job-run")

    row = page.get_by_role("row", name=re.compile(f"^{topic} "))

    def is_listed() -> bool:
        page.goto(f"retention/?q={topic}")
        return row.count() > 0

    processes.wait_until(is_listed, 60, "the topic in the list", every=0.5)
    expect(page.get_by_role("row", name=re.compile(f"^{topic} ")).first).to_contain_text("nothing")
    screenshot(page, "retention")
    page.goto(f"retention/{topic}/")
    expect(page.get_by_text("Nothing.", exact=True)).to_be_visible()
    listed = page.get_by_role("row").filter(has=page.get_by_role("link", name=run, exact=True))
    expect(listed.get_by_role("cell", name="olga")).to_be_visible()
    screenshot(page, "retention-topic")


def test_a_schedule_is_made_previewed_changed_run_and_deleted(
    visit: Callable[..., Visitor], worker: Path
) -> None:
    page = visit("olga").page
    page.goto("jobs/")
    expect(page.get_by_role("link", name="Retention of all topics")).to_be_visible()
    page.get_by_label("New schedule of").select_option(label="Clean-up")
    page.get_by_role("button", name="Add schedule").click()
    page.get_by_label("Name").fill("Nightly tidy")
    page.get_by_label("By a cron expression").check()
    page.get_by_label("Cron expression", exact=True).fill("30 2 * *")
    expect(page.get_by_role("status").get_by_text("Five fields")).to_be_visible()
    page.get_by_label("Cron expression", exact=True).fill("30 2 * * mon-fri")
    page.get_by_label("Time zone of the expression").fill("Europe/Berlin")
    expect(page.locator("#preview li")).to_have_count(5)
    expect(page.locator("#preview")).to_contain_text("At 02:30, Monday through Friday")
    screenshot(page, "schedule-form")
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_text("Schedule Nightly tidy saved.")).to_be_visible()
    expect(page.locator("dl.facts").first).to_contain_text("in Europe/Berlin")
    expect(page.locator("dd").nth(1).locator("time")).to_have_count(5)
    page.get_by_role("button", name="Run now").click()
    expect(page.locator(".badge.good", has_text="Ok")).to_be_visible(timeout=WAIT_MS)

    page.goto("jobs/")
    row = page.get_by_role("row", name=re.compile("Nightly tidy"))
    expect(row.locator(".tick.good")).to_have_count(1)
    screenshot(page, "jobs")
    row.get_by_role("button", name="Switch off").click()
    expect(page.get_by_text("Schedule Nightly tidy is off.")).to_be_visible()
    page.get_by_role("link", name="Nightly tidy").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Schedule Nightly tidy deleted.")).to_be_visible()
    expect(page.get_by_role("link", name="Nightly tidy")).to_have_count(0)

    page.get_by_role("link", name="Retention of all topics").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("comes with Odradek")).to_be_visible()
    screenshot(page, "schedule")


def test_what_is_stored_and_its_bounds(visit: Callable[..., Visitor], worker: Path) -> None:
    page: Page = visit("vera").page
    page.goto("storage/")
    for what, bound in (
        ("Runs of jobs", "90 days"),
        ("Samples for charts", "200 MiB"),
        ("Exports and downloads", "24 hours, 5.00 GiB"),
        ("Audit", "365 days"),
    ):
        expect(page.get_by_role("row", name=re.compile(f"^{what}"))).to_contain_text(bound)
    screenshot(page, "storage")
    page.goto("jobs/runs/?job=retention")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    screenshot(page, "runs")
    page.goto("")
    expect(page.get_by_role("heading", name="Last runs of jobs")).to_be_visible()
    page.goto("jobs/")
    expect(page.get_by_role("button", name=re.compile("Run now"))).to_have_count(0)
