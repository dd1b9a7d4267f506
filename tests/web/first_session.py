"""A newcomer's first session in a browser: `python -m tests.web.first_session` prints clicks and seconds.

Starts `odradek serve` on an empty directory and does, in a real Chromium with real clients beside it:
sign in with the made password and change it, create a topic, produce from kcat, watch the live tail,
see a consumer's lag fall, reset the group.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from confluent_kafka import Consumer
from playwright.sync_api import Page, expect, sync_playwright

from tests.support import judge, processes
from tests.support.browser import launch, screenshot

REPOSITORY = Path(__file__).resolve().parents[2]
TOPIC, GROUP = "orders", "billing"
PASSWORD = "first-session-7"
COUNT = 500


class Session:
    """Counts what a hand does; each step is printed with its seconds."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0
        self.started = time.monotonic()

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        clicks, started = self.clicks, time.monotonic()
        yield
        seconds = time.monotonic() - started
        print(f"{title:44} {self.clicks - clicks:3} clicks {seconds:6.1f} s", flush=True)
        screenshot(self.page, "first-session-" + re.sub(r"\W+", "-", title.lower()))

    def click(self, role: str, name: str | re.Pattern[str]) -> None:
        self.page.get_by_role(role, name=name).first.click()  # type: ignore[arg-type]
        self.clicks += 1

    def fill(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).first.fill(text)
        self.clicks += 1


@contextlib.contextmanager
def served(directory: Path) -> Iterator[tuple[str, str, str]]:
    """`odradek serve` on a new data directory: Kafka's address, the dashboard's, the admin's password."""
    kafka, web = (f"127.0.0.1:{judge.free_port()}" for _ in range(2))
    data, output = directory / "data", directory / "serve.txt"
    command = [sys.executable, "-m", "appliance", "serve", "--data", str(data)]
    with output.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--listen", kafka, "--web", web],
            cwd=REPOSITORY,
            env={**os.environ, "ODRADEK_BROKER_METRICS": f"127.0.0.1:{judge.free_port()}"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        processes.wait_until(
            lambda: process.poll() is not None or _is_ready(f"http://{web}/readyz"),
            180,
            "the appliance to be ready",
        )
        password = data / "initial-admin-password"
        processes.wait_until(password.exists, 30, "the first admin's password")
        yield kafka, f"http://{web}", password.read_text().strip()
    finally:
        status = processes.end(process, signal.SIGTERM, 60)
        assert status == 0, output.read_text(errors="replace")[-4000:]


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def sign_in(session: Session, password: str) -> None:
    session.fill("Name", "admin")
    session.fill("Password", password)
    session.click("button", "Sign in")
    session.fill("Old password", password)
    session.fill("New password", PASSWORD)
    session.fill("New password confirmation", PASSWORD)
    session.click("button", "Change password")
    expect(session.page.get_by_role("heading", name="Overview")).to_be_visible()


def create_topic(session: Session) -> None:
    session.click("link", "Topics")
    session.click("link", re.compile("Create|New topic"))
    session.fill("Name", TOPIC)
    session.click("button", re.compile("^Create"))
    expect(session.page.get_by_role("heading", name=TOPIC)).to_be_visible()


def produce(kafka: str) -> None:
    kcat = judge.program("kcat", "Debian: kcat")
    lines = "".join(f"customer-{n % 10}:order {n}\n" for n in range(COUNT))
    done = subprocess.run(
        [kcat, "-b", kafka, "-t", TOPIC, "-P", "-K", ":"],
        input=lines.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def watch_tail(session: Session, kafka: str) -> None:
    page = session.page
    page.goto(f"tail/?topic={TOPIC}")
    session.clicks += 1
    expect(page.locator("#tail-status")).to_have_text("Live.")
    produce(kafka)
    expect(page.get_by_text("order 499").first).to_be_visible(timeout=20_000)


def consume(kafka: str, count: int) -> None:
    """Read some records as the group, commit, and leave."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    try:
        seen = 0
        deadline = time.monotonic() + 60
        while seen < count and time.monotonic() < deadline:
            messages = consumer.consume(min(100, count - seen), timeout=1.0)
            seen += len(messages)
        assert seen == count
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def lag_on_page(page: Page) -> int | None:
    """The lag that the group's page tells now; None while it tells none."""
    page.goto(f"groups/detail?id={GROUP}")
    label = page.locator(".tile-label", has_text=re.compile("^Lag$"))
    figure = page.locator(".tile", has=label).locator(".tile-figure")
    if not figure.count():
        return None
    digits = re.sub(r"\D", "", figure.inner_text())
    return int(digits) if digits else None


def see_lag_fall(session: Session, kafka: str) -> None:
    consume(kafka, 200)
    _until(lambda: lag_on_page(session.page) == COUNT - 200, 60, "the lag of the first reading")
    session.clicks += 1
    consume(kafka, COUNT - 200)
    _until(lambda: lag_on_page(session.page) == 0, 60, "the lag to be gone")


def reset(session: Session) -> None:
    page = session.page
    session.click("link", re.compile("Reset"))
    page.get_by_label(re.compile("earliest|beginning", re.I)).first.check()
    session.clicks += 1
    session.click("button", re.compile("Preview"))
    expect(page.get_by_text(re.compile(r"replay", re.I)).first).to_be_visible()
    session.click("button", re.compile("^Move the offsets"))
    _until(lambda: lag_on_page(page) == COUNT, 60, "the lag after the reset")


def _until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """The page is asked again until it tells; the collector's ticks are seconds apart."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.5)


def run(directory: Path) -> float:
    """The whole session; returns its seconds."""
    with served(directory) as (kafka, url, password), sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(base_url=url + "/", viewport={"width": 1440, "height": 900})
        page.goto("")
        session = Session(page)
        with session.step("sign in and change the password"):
            sign_in(session, password)
        with session.step("create a topic"):
            create_topic(session)
        with session.step("produce from kcat and watch the live tail"):
            watch_tail(session, kafka)
        with session.step("see a consumer's lag fall"):
            see_lag_fall(session, kafka)
        with session.step("reset the group"):
            reset(session)
        seconds = time.monotonic() - session.started
        print(f"{'all':44} {session.clicks:3} clicks {seconds:6.1f} s")
        browser.close()
    return seconds


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="odradek-first-session-") as directory:
        seconds = run(Path(directory))
    return 0 if seconds < 120 else 1


if __name__ == "__main__":
    sys.exit(main())
